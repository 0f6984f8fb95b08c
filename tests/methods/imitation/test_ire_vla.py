"""iRe-VLA: the trunk rests while the head learns, all learn in the rehearsal, and half of that is the expert's."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.build import shorten_corpus

from quintain.data.pack import pack
from quintain.data.pipeline import as_example, example_samples
from quintain.errors import ConfigError, DataError
from quintain.learning.learner import Learner, Optimization
from quintain.learning.update import resting
from quintain.losses.imitation import imitation
from quintain.methods.imitation import ire_vla
from quintain.methods.imitation.forgetting import Retention, world_of
from quintain.methods.imitation.imitation_phase import ImitationPhase, Rehearsed, rehearsal_batch
from quintain.methods.loops import on_policy
from quintain.models.families import trunk
from quintain.store.run import Run
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import Group, Task, Trajectory
from quintain.warm_start.start import expert_action

WORLD = "guess?high=4&max_turns=3"
Make = Callable[..., Trajectory]


def told(parameters: Any) -> str:
    """Return what the weights are, in a word."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parameters)).hexdigest()


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch) -> Any:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    return new_pupil([WORLD], seed=0, model="micro?tokens=words")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "adafactor"])
def test_what_rests_does_not_move_nor_what_the_optimizer_keeps_of_it(pupil: Any, optimizer: Any) -> None:
    shown = pupil.show(WORLD, tasks_from(WORLD, 4), expert_action, seed=0)
    batch = pack(example_samples([as_example(t) for t in shown]))
    learner = Learner(pupil.model, Optimization(weight_decay=0.1, optimizer=optimizer))
    learner.step([batch], imitation())  # moments of all weights, which would go on moving them
    still = trunk(pupil.model, 1)
    others = [p for p in pupil.model.parameters() if all(p is not q for q in still)]
    assert still and others

    def kept() -> str:
        state = learner.optimizer.state
        return told(v.float() for p in still for v in state[p].values() if isinstance(v, torch.Tensor))

    before, moments, head = told(still), kept(), told(others)
    with resting(still):
        learner.step([batch], imitation())
    assert (told(still), kept()) == (before, moments) and told(others) != head
    learner.step([batch], imitation())
    assert told(still) != before and kept() != moments


def test_an_embedding_that_is_also_the_output_rests(pupil: Any) -> None:
    model = pupil.model
    assert model.config.tie_word_embeddings
    names = {id(p): name for name, p in model.named_parameters()}
    still = {names[id(p)] for p in trunk(model, 1)}
    assert "model.embed_tokens.weight" in still and "model.norm.weight" not in still
    last = len(model.model.layers) - 1
    assert not any(f"layers.{last}." in name for name in still)
    assert any("layers.0." in name for name in still)
    with pytest.raises(ConfigError, match="head_layers: got 9"):
        trunk(model, 9)


@pytest.mark.slow
def test_stages_move_what_they_should(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool, bool]] = []
    learn_all, rehearse = on_policy.learn_all, Rehearsed.learn

    def watched(name: str, model: Any, act: Callable[[], Any]) -> Any:
        still = trunk(model, 1)
        above = [p for p in model.parameters() if all(p is not q for q in still)]
        before = told(still), told(above)
        found = act()
        seen.append((name, told(still) != before[0], told(above) != before[1]))
        return found

    monkeypatch.setattr(
        on_policy,
        "learn_all",
        lambda policies, *rest, **named: watched(
            "rl", policies.main.model, lambda: learn_all(policies, *rest, **named)
        ),
    )
    monkeypatch.setattr(
        Rehearsed,
        "learn",
        lambda self, step, credit: watched(
            "sft", self.context.policies.main.model, lambda: rehearse(self, step, credit)
        ),
    )
    rows = train(
        "ire_vla",
        environment=WORLD,
        steps=3,
        every=2,
        updates=2,
        episodes=4,
        weight_decay=0.1,
        demonstrations=6,
    )
    assert seen == [
        ("rl", False, True), ("sft", False, False),
        ("rl", False, True), ("sft", True, True),
        ("rl", False, True), ("sft", False, False),
    ]  # fmt: skip
    assert "rehearsal/loss" in rows[2] and "rehearsal/loss" not in rows[1]


def test_at_least_half_of_every_batch_is_of_the_expert(trajectory: Make) -> None:
    rng = np.random.default_rng(0)
    expert = [as_example(trajectory([((1,), (2,))], task="expert")) for _ in range(9)]
    own = [as_example(trajectory([((1,), (2,))], task="own")) for _ in range(40)]
    for _ in range(1000):
        base, found = expert[: rng.integers(1, 10)], own[: rng.integers(0, 41)]
        size = int(rng.integers(2, 20))
        batch = rehearsal_batch(base, found, size, int(rng.integers(0, 50)), int(rng.integers(0, 99)))
        share = sum(e.trajectory.task.id == "expert" for e in batch) / len(batch)
        assert share >= 0.5 and (share == 1) == (not found)


def test_with_nothing_found_it_is_plain_imitation_of_the_expert(trajectory: Make) -> None:
    base = [as_example(trajectory([((1,), (2,))])) for _ in range(6)]
    batches = [rehearsal_batch(base, [], 3, number, 5) for number in (0, 1)]
    assert [len(batch) for batch in batches] == [3, 3]
    assert {id(e) for batch in batches for e in batch} == {id(e) for e in base}


def test_there_must_be_an_expert(shows: Any, trajectory: Make) -> None:
    with pytest.raises(ConfigError, match="the second stage imitates them"):
        ire_vla.Config(environment=WORLD, demonstrations=0).check()
    with pytest.raises(ConfigError, match="batch_size: got 1"):
        ire_vla.Config(environment=WORLD, batch_size=1).check()
    plan = ire_vla.method(ire_vla.Config(environment=WORLD)).companion
    assert isinstance(plan, ImitationPhase)
    context: Any = type("Context", (), {"collector": shows([trajectory([((1,), (2,))], value=0.0)])})
    with pytest.raises(DataError, match="got no episode as its base"):
        Rehearsed(plan, context)


class Lived:
    """A run of which only the events, the seeds and what the policy solves are there."""

    def __init__(self, make: Make, solved: Sequence[set[str]]) -> None:
        self.make, self.solved, self.played, self.told = make, list(solved), list[list[str]](), list[Any]()
        self.worlds: list[str] = []
        self.served = 0
        self.config = ire_vla.Config(environment=WORLD, demonstrations=3)
        self.display = SimpleNamespace(phase=lambda *_: None, advance=lambda: None)
        self.run = SimpleNamespace(events=lambda: self.told, event=self.event)

    def event(self, kind: str, message: str, **data: Any) -> None:
        self.told.append({"kind": kind, "message": message, "data": data})

    def seed(self, *parts: int | str) -> int:
        return len(str(parts))

    def serve_weights(self) -> dict[str, float]:
        self.served += 1
        return {}

    def elsewhere(self, environment: str) -> Any:
        self.worlds.append(environment)
        return self

    def groups(self, tasks: Sequence[Task], *, size: int, seed: int, on_episode: Any) -> list[Group]:
        assert size == 1 and seed == self.seed("known")
        self.played.append([task.id for task in tasks])
        solved = self.solved.pop(0)
        return [
            Group(
                task=task,
                trajectories=(self.make([((1,), (2,))], value=float(task.id in solved), task=task.id),),
            )
            for task in tasks
        ]


def test_what_was_forgotten_is_the_fall_since_the_start_on_the_same_tasks(trajectory: Make) -> None:
    tasks = [Task(id=name, environment="e", seed=0) for name in "abacde"]
    lived = Lived(trajectory, [{"a", "b", "c"}, {"a"}, {"a", "b", "d", "c"}])
    retention = Retention(tasks, 4, lived)  # type: ignore[arg-type] # pyright: ignore
    assert retention.start == 0.75 and lived.worlds == [WORLD]
    assert retention.lost("rl") == {"forgetting/rl": 0.5, "forgetting/start": 0.75}
    assert retention.lost("known") == {"forgetting/known": -0.25, "forgetting/start": 0.75}
    assert lived.played == [list("abcd")] * 3 and lived.served == 3
    (told,) = lived.told
    assert told["message"] == "75.0% of 4 demonstrated tasks at the start"


def test_a_resumed_run_knows_what_it_began_with(trajectory: Make) -> None:
    lived = Lived(trajectory, [{"a"}])
    lived.event("data", "m", role="demonstrations")
    lived.event("known", "m", success=0.5)
    retention = Retention([Task(id="a", environment="e", seed=0)], 4, lived)  # type: ignore[arg-type] # pyright: ignore
    assert lived.played == [] and retention.lost("rl") == {"forgetting/rl": -0.5, "forgetting/start": 0.5}


def test_what_is_known_is_played_where_it_was_shown(tmp_path: Path) -> None:
    assert world_of(ire_vla.Config(environment=WORLD)) == WORLD
    with Run.create(tmp_path / "old", recipe="collect", config={"environment": "craft"}) as run:
        run.finish()
    assert world_of(ire_vla.Config(environment=WORLD, demonstrations=str(tmp_path / "old"))) == "craft"
    (tmp_path / "chats.jsonl").write_text("{}\n")
    config = ire_vla.Config(environment=WORLD, demonstrations=str(tmp_path / "chats.jsonl"), known=4)
    with pytest.raises(ConfigError, match="known: got 4 with the conversations"):
        config.check()
    with pytest.raises(ConfigError, match=r"known: got demonstrations chats.jsonl, conversations"):
        world_of(config)


@pytest.mark.slow
def test_a_run_says_what_each_stage_forgot_and_plays_nothing_where_it_is_off(train: Any) -> None:
    rows = train(
        "ire_vla", environment=WORLD, steps=3, every=2, updates=2, episodes=4, demonstrations=6, known=4
    )
    told = [{key for key in row if key.startswith("forgetting/")} for row in rows]
    assert told == [set(), set(), {"forgetting/start", "forgetting/rl", "forgetting/known"}, set()]
    assert 0 <= rows[2]["forgetting/start"] <= 1
    assert ire_vla.method(ire_vla.Config(environment=WORLD)).companion.known == 0  # type: ignore[union-attr] # pyright: ignore

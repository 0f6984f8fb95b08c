"""DigiRL and WebRL: what is kept, what is learned of it, and what becomes of episodes that teach nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.build import make_episode, make_turn
from tests.methods.test_training import interrupting, resume, rows, train, weights

from quintain.errors import ConfigError
from quintain.methods.critic import digi_rl, web_rl
from quintain.methods.critic.success_critics import classifier
from quintain.store.run import Run
from quintain.types import Group, Score, Stop, Text, Trajectory

SMALL: dict[str, dict[str, Any]] = {
    "digi_rl": {
        "tasks": 4, "offline_tasks": 6, "offline_steps": 1, "capacity": 16, "keep_fraction": 0.5, "critic_updates": 1,
        "critic_batch": 4, "critic_size": "micro", "num_epochs": 1,
    },
    "web_rl": {
        "tasks": 4, "oversample_factor": 2, "critic_updates": 1, "critic_batch": 4, "num_minibatches": 2,
        "phase": 2,
    },
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


def episode(
    name: str, tokens: Sequence[int], *, is_success: bool, stop: Stop = Stop.TERMINATED
) -> Trajectory:
    turns = tuple(
        make_turn(
            (7,) * num,
            shows=(Text(text=f"{name} begins" if k == 0 else "on"),),
            prompt=(1, 2),
            starts_segment=k == 0,
        )
        for k, num in enumerate(tokens)
    )
    return make_episode(
        *turns,
        task=name,
        outcome=Score(value=float(is_success), is_success=is_success),
        stop=stop,
        group=name,
        id=name,
    )


WON, LOST = episode("won", (1, 2, 1), is_success=True), episode("lost", (2, 1), is_success=False)
VALUES = [[0.2, 0.1, 0.9], [0.5, 0.9]]


def kept(config: digi_rl.Config, promised: Sequence[float] = (0.3, 0.3)) -> list[list[float]]:
    credit = digi_rl.hard_filter([WON, LOST], promised, VALUES, config)
    return [[float(turn.mean()) for turn in own] for own in credit.advantages]


def test_turns_that_lost_chances_are_left_out_of_a_success() -> None:
    # λ .5, H 3: .25 - .75 · .1 = .175 < 1/3; .5 + .5 · .8 = .9; 1.
    assert kept(digi_rl.Config(keep_fraction=0.5)) == [[0.0, 1.0, 1.0], [0.0, 0.0]]
    assert kept(digi_rl.Config(keep_fraction=0.5, by_step=False)) == [[1.0] * 3, [0.0] * 2]
    # Its code: -.1 - .05 + .25 > 0 keeps the first as well.
    assert kept(digi_rl.Config(keep_fraction=0.5, variant="code")) == [[1.0] * 3, [0.0] * 2]


def test_a_success_that_was_promised_is_not_kept_before_a_failure_that_was_not() -> None:
    # With share 1 both are kept, and of a failure the turn that gained: .75 · .4 = .3 < 1/3 of H 3, but > 0.
    assert kept(digi_rl.Config(keep_fraction=1.0))[1] == [0.0, 0.0]
    assert kept(digi_rl.Config(keep_fraction=1.0, variant="code"))[1] == [1.0, 0.0]
    credit = digi_rl.hard_filter(
        [WON, WON, LOST], [0.9, 0.2, 0.1], [VALUES[0]] * 2 + [VALUES[1]], digi_rl.Config()
    )
    assert [bool(sum(turn.sum() for turn in own)) for own in credit.advantages] == [False, True, False]


@pytest.mark.parametrize("one", [WON, LOST])
def test_where_nothing_is_above_anything_nothing_is_imitated(one: Trajectory) -> None:
    credit = digi_rl.hard_filter(
        [one] * 3, [0.5] * 3, [[0.5] * len(one.turns)] * 3, digi_rl.Config(keep_fraction=0.5)
    )
    assert not any(turn.any() for own in credit.advantages for turn in own)
    assert credit.metrics["digi_rl/kept_episodes"] == credit.metrics["digi_rl/kept_turns"] == 0.0
    empty = digi_rl.hard_filter([], [], [], digi_rl.Config())
    assert empty.metrics["digi_rl/kept_episodes"] == 0.0


def test_critics_learn_before_turns_and_of_tasks_before_the_first_alone() -> None:
    groups = [Group(task=t.task, trajectories=(t,)) for t in (WON, LOST)]
    nothing: Any = None
    lesson: Any = classifier("c", num_updates=1).target(groups, nothing)
    targets = [s.returns[s.loss_weight > 0].tolist() for s in lesson.samples]
    assert targets == [[1.0] * 3, [0.0] * 2] and lesson.metrics["one_outcome"] == 0.0
    first: Any = classifier("c", num_updates=1, places="first").target(groups[:1], nothing)
    assert [s.returns[s.loss_weight > 0].tolist() for s in first.samples] == [[1.0]]
    assert first.metrics["one_outcome"] == 1.0
    cut = episode("cut", (1,), is_success=False, stop=Stop.CUT)
    alone: Any = classifier("c", num_updates=1).target([Group(task=cut.task, trajectories=(cut,))], nothing)
    assert alone.samples == [] and alone.metrics["one_outcome"] == 1.0


def test_a_phase_knows_its_episodes_and_the_failures_of_the_one_before() -> None:
    phases = web_rl.Phases(2)
    assert phases.failed(1) == [] and not phases.is_of(LOST, 1)
    group = Group(task=LOST.task, trajectories=(LOST, LOST))
    phases.update([group])
    assert phases.failed(2) == [] and phases.is_of(LOST, 1) and phases.is_of(LOST, 2)
    phases.update([Group(task=WON.task, trajectories=(WON,))])
    assert phases.failed(3) == phases.failed(4) == ["lost begins"]
    assert not phases.is_of(LOST, 3) and phases.failed(5) == []


def test_open_tasks_that_begin_like_a_failure_are_played_first() -> None:
    begins = [episode(name, (1,), is_success=False) for name in ("red lamp", "blue lamp", "old cup", "tea")]
    promised = [0.9, 0.4, 0.3, 0.5]
    assert web_rl.evolve_tasks(begins, promised, ["a cup begins"], (0.05, 0.75)) == [2, 3, 1, 0]
    assert web_rl.evolve_tasks(begins, [1.0] * 4, [], (0.05, 0.75)) == [0, 1, 2, 3], "none is open"


def test_of_earlier_turns_at_most_so_many_are_replayed() -> None:
    likely = [[True, False], [True] * 4, [False, True]]
    found = web_rl.limit_replayed(likely, [True, False, False], most=2, seed=0)
    assert found[0] == [True, False] and sum(map(sum, found[1:])) == 2
    assert all(a <= b for own, old in zip(found, likely, strict=True) for a, b in zip(own, old, strict=True))
    assert web_rl.limit_replayed(likely, [True, False, False], most=9, seed=0) == likely
    assert sum(map(sum, web_rl.limit_replayed(likely, [False] * 3, most=0, seed=0))) == 0


def test_turns_that_are_not_learned_are_context() -> None:
    lesson = web_rl.regress_streams(
        [WON, LOST],
        [[0.4, 0.6, 0.6], [0.5, 0.5]],
        [[False, True, True], [False, False]],
        [True, False],
        web_rl.Config(),
    )
    (sample,) = lesson.samples
    assert sample.loss_weight.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 1]
    # λ .5: .5 · 0 + .5 · .4 = .2, and 1 - .6 = .4 at the end; prompts have none.
    assert np.unique(sample.advantages[sample.loss_weight > 0].round(6)).tolist() == pytest.approx([0.2, 0.4])
    assert lesson.metrics["web_rl/of_phase"] == 2.0 and lesson.metrics["web_rl/replayed"] == 0.0
    nothing = web_rl.regress_streams([LOST], [[0.5, 0.5]], [[False, False]], [False], web_rl.Config())
    assert nothing.samples == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: digi_rl.Config(keep_fraction=0.0).check(), "keep_fraction: got 0"),
        (lambda: digi_rl.Config(outcome_decay=0.0).check(), "outcome_decay: got 0"),
        (lambda: web_rl.Config(low=0.8).check(), "low, high: got 0.8 and 0.75"),
        (lambda: web_rl.Config(min_probability=0.95).check(), "min_probability, max_probability"),
    ],
)
def test_what_no_run_can_have(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize("recipe", ["digi_rl", pytest.param("web_rl", marks=pytest.mark.slow)])
def test_it_trains(recipe: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / recipe, max_turn_tokens=6, steps=3, **SMALL[recipe])
    found = rows(folder)
    assert len(found) == 4
    assert weights(folder / "start") != weights(folder / "model")
    with Run.open(folder, writable=False) as run:
        counts = [len(list(run.trajectories(step=step, phase="train"))) for step in (1, 2, 3)]
    if recipe == "digi_rl":
        assert counts == [6, 4, 4]
        assert all(0 <= row["digi_rl/kept_episodes"] <= 1 for row in found[1:])
        assert "step_critic/value/brier" in found[1] and "task_critic/value/brier" in found[1]
    else:
        assert counts == [4, 4, 4]
        assert all(0 <= row["web_rl/open"] <= 1 and row["web_rl/of_phase"] >= 4 for row in found[1:])
        assert "regression/log_ratio" in found[1]
    assert "critic/explained_variance" in found[1] and "buffer/age" in found[1]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["digi_rl", "web_rl"])
def test_it_goes_on_bit_for_bit(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # WebRL is stopped within its first phase: reference, failures and critic must be those of the run.
    fields = {"max_turn_tokens": 6, "steps": 4, **SMALL[recipe]}
    whole = train(recipe, tmp_path / "whole", **fields)
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "stopped", **fields)
    resume(tmp_path / "stopped")
    assert rows(tmp_path / "stopped") == rows(whole)
    assert weights(tmp_path / "stopped" / "model") == weights(whole / "model")


def test_the_reference_is_the_policy_as_the_phase_began(tmp_path: Path) -> None:
    fields = {**SMALL["web_rl"], "num_minibatches": 1, "learning_rate": 1e-2}
    folder = train("web_rl", tmp_path / "run", max_turn_tokens=6, steps=4, **fields)
    moved = [abs(row["regression/log_ratio"]) > 1e-4 for row in rows(folder)[1:]]
    assert moved == [False, True, False, True], (
        "phases of two steps, whose first update begins at the reference"
    )


def test_failures_push_away() -> None:
    lesson = web_rl.regress_streams(
        [LOST], [[0.5, 0.9]], [[True, True]], [True], web_rl.Config(value_mix=0.5)
    )
    (sample,) = lesson.samples
    assert sample.advantages[sample.loss_weight > 0].tolist() == pytest.approx([-0.05, -0.05, -0.9])

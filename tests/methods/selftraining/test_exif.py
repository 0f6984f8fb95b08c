"""EXIF: what was reached becomes the task, Bob's failures become Alice's errands."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.agents.hints import Hints
from quintain.errors import ConfigError
from quintain.methods.find import find_method
from quintain.methods.loops.recall import remember
from quintain.methods.method import CombinedState
from quintain.methods.selftraining import exif
from quintain.methods.selftraining.exif import Explorer, draw_skills, failures_of, is_try, skill_of
from quintain.store.run import Run
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn, as_text


def tried(skill: str, *, solved: bool, group: str = "0:t+1") -> Group:
    task = Task(id=f"craft/train/4?goal={skill}", environment="craft", seed=0)
    outcome = Score(value=float(solved), is_success=solved)
    said = Completion(token_ids=(2,), logprobs=(-1.0,), stop="stop")
    turn = Turn(observation=(), prompt_ids=(1,), completion=said, action=Action())
    episode = Trajectory(
        task=task, turns=(turn,), outcome=outcome, stop=Stop.TERMINATED, seed=0, group=group, index=0
    )
    return Group(task=task, trajectories=(episode,))


def test_a_task_made_in_hindsight_names_its_skill() -> None:
    told = [
        Task(id=f"craft/train/4{end}", environment="craft", seed=0)
        for end in ("", "?goal=stone axe", "?a=1,b=2", "?goal=table?goal=stone")
    ]
    assert [skill_of(task) for task in told] == ["", "stone axe", "a=1,b=2", "stone"]


def test_feedback_is_the_share_of_bobs_tries_that_failed() -> None:
    tries = [tried("stone", solved=False), tried("stone", solved=True), tried("table", solved=True)]
    explored = tried("iron", solved=False, group="0:t")
    assert failures_of([*tries, explored]) == {"stone": 0.5, "table": 0.0}
    explorer = Explorer(4, has_feedback=True)
    explorer.update(tries)
    explorer.update([tried("stone", solved=False)])
    assert explorer.failures == {"stone": 1.0, "table": 0.0}, "what was not tried again is still known"


def test_errands_are_drawn_in_proportion_to_failures() -> None:
    found = draw_skills({"stone": 0.75, "iron": 0.25, "table": 0.0}, 4000, random.Random(0))
    assert found.count("stone") / 4000 == pytest.approx(0.75, abs=0.03) and "table" not in found
    assert draw_skills({}, 3, random.Random(0)) == draw_skills({"table": 0.0}, 3, random.Random(0)) == []


def test_feedback_asks_for_what_bob_failed_in_a_share_of_the_episodes() -> None:
    tasks = [Task(id=f"craft/train/{n}", environment="craft", seed=0) for n in range(10, 20)]
    explorer, rng = Explorer(10, has_feedback=True, asks=0.6), random.Random(0)
    assert explorer.replace_tasks(tasks, rng) == tasks, "nothing was failed yet"
    explorer.update([tried("stone", solved=False), tried("iron", solved=True)])
    sent = explorer.replace_tasks(tasks, rng)
    assert [t.id for t in sent] == ["craft/train/4?goal=stone"] * exif.RETRIES + [t.id for t in tasks[4:]]
    explorer.update([tried("stone", solved=False), tried("coal", solved=False), tried("coal", solved=True)])
    asked = [skill_of(t) for t in explorer.replace_tasks(tasks, random.Random(1))]
    assert asked[6:] == [""] * 4 and set(asked[:6]) == {"stone", "coal"}, "six of ten, in any proportion"
    explorer.update([tried("stone", solved=True)])
    assert explorer.replace_tasks(tasks, rng) == tasks, "what was failed in an earlier round is no errand"
    silent = Explorer(10, has_feedback=False, asks=0.6)
    silent.update([tried("stone", solved=False)])
    assert silent.replace_tasks(tasks, rng) == tasks


def test_proposal_first_imitates_what_solved_the_task_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    found = find_method("exif")
    config: Any = found.config_class(
        environment="craft?depth=1&places=2", model="micro", agent="scored", demonstrations=0, steps=1,
        eval_every=5, eval_episodes=2, tasks=16, has_feedback=False, max_hindsight_tasks=0, keeps="solved", longest=9,
    )  # fmt: skip
    config.check()
    with Run.create(tmp_path / "run", recipe="exif", config=asdict(config)) as run:
        exif.method(config).train(run, config)
        row = list(run.metrics())[-1]
        played = list(run.trajectories(step=1, phase="train"))
    kept = [t for t in played if t.is_success and len(t.turns) <= 9]
    assert len(played) == 16 and row["exif/tries"] == 0, "nobody tries anything"
    assert row["data/explored"] == 16 and row["data/hindsight"] == len(kept) > 0


def test_feedback_without_tries_is_refused() -> None:
    with pytest.raises(ConfigError, match="give has_feedback=false"):
        exif.Config(max_hindsight_tasks=0).check()


def test_an_agent_outside_is_refused() -> None:
    with pytest.raises(ConfigError, match="use rollout=lockstep"):
        exif.Config(rollout="async").check()


@pytest.mark.parametrize("has_feedback", [True, False])
def test_rounds_learn_what_was_reached_and_send_alice_to_what_was_not(
    has_feedback: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    seen: list[Sequence[Trajectory]] = []
    hinted: list[bool] = []
    made = exif.pipeline

    def watched(relabelled: Mapping[str, Trajectory | None], hints: Hints) -> Any:
        seen.append([each for each in relabelled.values() if each])
        hinted.append(bool(hints.plain))
        return made(relabelled, hints)

    monkeypatch.setattr(exif, "pipeline", watched)
    found = find_method("exif")
    config: Any = found.config_class(
        environment="craft?depth=2&places=2", model="micro", agent="scored", demonstrations=0, steps=2,
        eval_every=5, eval_episodes=2, tasks=10, has_feedback=has_feedback,
    )  # fmt: skip
    config.check()
    method, again = exif.method(config), exif.method(config)
    with Run.create(tmp_path / "run", recipe="exif", config=asdict(config)) as run:
        method.train(run, config)
        rows = list(run.metrics())[1:]
        second = list(run.trajectories(step=2, phase="train"))
        remember(run, again.state)
    assert [row["data/explored"] for row in rows] == [10, 10]
    assert all(row["data/hindsight"] == row["data/stripped"] > 0 for row in rows)
    assert all(row["exif/tries"] <= row["data/hindsight"] for row in rows)
    for told in (t for part in seen for t in part):
        assert told.is_success and told.turns[-1].reward > 0
        goal = skill_of(told.task)
        assert not goal or f"Goal: {goal}." in as_text(told.turns[0].observation)
    explored = [t for t in second if not is_try(t)]
    assert len(explored) == 10
    assert isinstance(method.state, CombinedState) and isinstance(again.state, CombinedState)
    (told,), (known,) = method.state.parts, again.state.parts
    assert told.failures == known.failures != {}, "the journal holds what Alice is told"
    assert hinted == [False, has_feedback], "her prompts name a skill from the second round on"

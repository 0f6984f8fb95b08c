"""ASearcher: decoupled equals PPO where nothing moved, bounds hold, and what the cards' traps would do."""

import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.environments.protocol import Environment, tool_action
from quintain.methods.toolrl import asearcher
from quintain.rollout.staleness import judge_age
from quintain.store.run import Run
from quintain.types import Action, Score, StepResult, Stop, Task, Trajectory
from quintain.worlds.hopqa.game import HopQA


class Slow(Environment):
    """Say a. You are asked up to 128 times."""

    max_turns = 128

    def reset(self, task: Task) -> str:
        self.left, self.rng = 1 + task.rng.randrange(3), random.Random(task.seed)
        return "go"

    def step(self, action: Action) -> StepResult:
        time.sleep(self.rng.random() * 0.004)
        self.left -= 1
        is_right = action.text.strip().startswith("a")
        return StepResult(
            observation="on", reward=float(is_right), is_terminated=self.left == 0, is_success=is_right
        )

    def expert_action(self) -> Action:
        return Action(text="a")


SMALL: dict[str, Any] = {
    "environment": f"{__file__}:Slow", "model": "micro", "demonstrations": 8, "steps": 5, "eval_every": 5,
    "eval_episodes": 2, "tasks": 2, "group_size": 4, "max_turn_tokens": 4, "num_minibatches": 2,
}  # fmt: skip


def trained(
    tmp_path: Path, name: str, **fields: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, Trajectory]], dict[int, str]]:
    settings: dict[str, Any] = {**SMALL, **fields}
    config = asearcher.Config(**settings)
    with Run.create(tmp_path / name, recipe="asearcher", config=asdict(config)) as run:
        asearcher.method(config).train(run, config)
        played = [(r.step, r.trajectory) for r in run.read_rows(phase="train")]
        return run.metrics(), played, run.weights()


@pytest.mark.slow
def test_workers_delayed_at_random_never_break_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    ages: list[int] = []

    def watched(trajectory: Trajectory, age: int, most: int) -> Trajectory:
        found = judge_age(trajectory, age, most)
        if isinstance(found.outcome, Score):
            ages.append(age)
        return found

    monkeypatch.setattr("quintain.runs.prefetch.judge_age", watched)
    rows, played, _ = trained(tmp_path, "async", max_staleness=4, steps=8, monitors="stop_failures=1")
    assert len(rows) == 9 and {"asearcher/differing", "asearcher/versions"} <= rows[-1].keys()
    assert len(ages) >= 40 and 0 < max(ages) <= 4
    assert len({t.group for _, t in played}) == 16 and all(t.task.id for _, t in played)


class Searching(HopQA):
    """You are asked. Whatever you say is searched for, so that nobody answers before the turns are over."""

    def step(self, action: Action) -> StepResult:
        return super().step(tool_action("search", query=action.text))


@pytest.mark.slow
def test_an_episode_searches_for_more_than_a_hundred_turns_in_training_and_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    torch.set_num_threads(1)
    rows, played, _ = trained(
        tmp_path, "long", environment=f"{__file__}:Searching?hops=1&closed=0&max_turns=128",
        agent="window?turns=0+text", demonstrations=0, steps=1, tasks=1, group_size=2, eval_episodes=1,
        eval_every=1,
    )  # fmt: skip
    assert asearcher.Config().max_turns == 128 == rows[-1]["asearcher/most_turns"]
    assert [(len(t.turns), t.stop) for _, t in played] == [(128, Stop.MAX_TURNS)] * 2
    assert all(turn.action.error is None for _, t in played for turn in t.turns)
    with Run.open(tmp_path / "long", writable=False) as run:
        held_out = [len(t.turns) for t in run.trajectories() if t.task.split == "eval"]
    assert held_out and set(held_out) == {128}, "evaluations keep to what the environment allows"


@pytest.mark.slow
def test_with_no_staleness_it_learns_what_lockstep_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    found = [
        trained(tmp_path, kind, rollout=kind, max_staleness=0, steps=2)[2] for kind in ("lockstep", "async")
    ]
    assert found[0] == found[1] and len(found[0]) > 1

"""The trained planner: what a plan is paid, what it costs, and that workers learn nothing."""

from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from quintain.config import build
from quintain.errors import ConfigError
from quintain.methods.horizon.router import Config, count_steps, measure_steps, method, pay
from quintain.methods.loops.on_policy import Estimates
from quintain.store.run import Run
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Action, Group, Score, Trajectory

WHOLE = "1. anna: fridge until done\n2. bert: egg (after 1) until done"


def plan(*texts: str, won: bool, index: int = 0) -> Trajectory:
    turns = [turn_of((2, 3), Action(text=text), is_valid=text != "?") for text in texts]
    return episode_of(turns, float(won), is_success=won, index=index, seed=index)


def values(episodes: list[Trajectory], **settings: Any) -> list[float]:
    (paid,) = pay([Group(task=TASK, trajectories=tuple(episodes))], Config(**settings))
    return [t.outcome.value for t in paid.trajectories if isinstance(t.outcome, Score)]


def test_a_plan_is_paid_for_success_less_its_steps() -> None:
    found = values([plan(WHOLE, won=True), plan(WHOLE, won=False), plan("?", WHOLE, won=True)])
    assert found == pytest.approx([0.96, -0.04, 0.94])


def test_what_steps_cost_has_a_limit() -> None:
    assert values([plan(*[WHOLE] * 9, won=True)], step_cost=0.1) == pytest.approx([0.5])


@pytest.mark.parametrize("cost", [0.0, 0.02, 0.3, 5.0])
def test_no_failure_is_above_a_success(cost: float) -> None:
    cases = [plan(*[WHOLE] * num, won=won) for num, won in product(range(1, 20), (True, False))]
    paid = values(cases, step_cost=cost, max_cost=0.999)
    won, lost = ([v for v, t in zip(paid, cases, strict=True) if t.is_success is w] for w in (True, False))
    assert min(won) > max(lost)


def test_of_two_plans_that_work_the_shorter_is_better_and_its_tokens_are_raised() -> None:
    short, long = plan(WHOLE, won=True), plan(WHOLE, WHOLE, won=True, index=1)
    loop = method(Config())
    credit = loop.credit(loop.reward([Group(task=TASK, trajectories=(short, long))]), Estimates())
    assert all(a > 0 for turn in credit.advantages[0] for a in turn)
    assert all(a < 0 for turn in credit.advantages[1] for a in turn)


def test_a_limit_that_would_lift_failures_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_cost: got 1, so that failures may be above successes"):
        Config(max_cost=1.0).check()


def test_steps_are_lines_and_an_empty_plan_is_one() -> None:
    assert count_steps(plan(WHOLE, "", "?", won=False)) == [2, 1, 1]
    groups = [Group(task=TASK, trajectories=(plan(WHOLE, "?", won=True), plan(WHOLE, won=False, index=1)))]
    assert measure_steps(groups, lambda _: "") == {
        "plan/plans": 1.5, "plan/steps": 2.5, "plan/invalid": pytest.approx(1 / 3)
    }  # fmt: skip
    assert measure_steps([], lambda _: "") == {}


@pytest.mark.slow
def test_a_run_samples_plans_alone_and_learns(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "environment": "house?rooms=1", "model": "micro", "demonstrations": 8, "imitation_epochs": 1, "steps": 1,
        "eval_every": 5, "eval_episodes": 1, "tasks": 2, "group_size": 2, "max_turn_tokens": 96,
    }  # fmt: skip
    config = build(Config, told, "test")
    with Run.create(tmp_path / "run", recipe="router", config=asdict(config)) as run:
        method(config).train(run, config)
        (row,) = [row for row in run.metrics() if row["step"] == 1]
        texts = [turn.action.text for t in run.trajectories(step=1, phase="train") for turn in t.turns]
    assert row["plan/steps"] >= 1 and texts and all(text.startswith("1. ") for text in texts)

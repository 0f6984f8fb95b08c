"""MARTI: what answers are paid, which groups are left out, and a run with its implicit reward model."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quintain.config import build
from quintain.data.seats import split_seats
from quintain.methods.multiagent.marti import Config, drop_agreed, method, pay_answers
from quintain.store.run import Run
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import ANSWER, Group


def talk(right: dict[str, tuple[float, ...]], index: int = 0) -> Group:
    """Return the whole of a talk in which seats answer in turn; `right` has R of each."""
    rounds = len(next(iter(right.values())))
    turns = [turn_of(seat=s, reward_terms={ANSWER: right[s][k]}) for k in range(rounds) for s in right]
    made = episode_of([*turns, turn_of(seat="judge")], 1.0, is_success=True, index=index, seed=index)
    return Group(task=TASK, trajectories=(made,))


def test_answers_are_paid_by_what_came_before_in_the_whole_talk() -> None:
    parts = split_seats([talk({"A": (0, 1), "B": (1, 1)})])
    for config, expected in (
        (Config(), [[0, 1.5], [1, 1], [0]]),
        (Config(history="all"), [[0, 1.25], [1, 1.25], [0]]),
    ):
        paid = pay_answers(parts, config)
        assert [[turn.reward for turn in g.trajectories[0].turns] for g in paid] == expected


def test_groups_agree_by_what_answers_were_and_not_by_what_they_are_paid() -> None:
    talks = [talk({"A": (1, 1), "B": (0, 1)}, index) for index in range(2)]
    whole = Group(task=TASK, trajectories=tuple(t for group in talks for t in group.trajectories))
    paid = pay_answers(split_seats([whole]), Config(shape="quality"))
    assert {turn.reward for turn in paid[0].trajectories[0].turns} == {1.0, 1.5}
    assert [g.trajectories[0].turns[0].seat for g in drop_agreed(paid, ANSWER)] == ["B"]


def test_an_agents_answers_are_compared_with_each_other() -> None:
    loop = method(Config(alpha=0.0, kl_coef=0.0))
    kept = loop.keep(loop.reward(split_seats([talk({"A": (0, 1)}), replace(talk({"A": (1, 1)}, 1))])))
    assert [len(g.trajectories) for g in kept] == [1], (
        "a talk that was right from the start has nothing to tell"
    )


@pytest.mark.slow
@pytest.mark.parametrize("process", ["answers", "implicit"])
def test_a_run_learns_and_fits(tmp_path: Path, process: str) -> None:
    told: dict[str, Any] = {
        "process": process, "environment": "sums?revisions=0&digits=1", "model": "micro", "demonstrations": 40,
        "imitation_epochs": 2, "steps": 2, "eval_every": 5, "eval_episodes": 1, "tasks": 4, "group_size": 4,
        "max_turn_tokens": 4,
    }  # fmt: skip
    config = build(Config, told, "test")
    with Run.create(tmp_path / "run", recipe="marti", config=asdict(config)) as run:
        method(config).train(run, config)
        rows = run.metrics()
        terms = {
            name for t in run.trajectories(step=1, phase="train") for u in t.turns for name in u.reward_terms
        }
    assert ANSWER in terms and rows[-1]["step"] == 2
    if process == "implicit":
        assert all(np.isfinite(row["implicit/cross_entropy"]) for row in rows if row["step"])
        assert any(row.get("implicit/grad_norm") for row in rows)

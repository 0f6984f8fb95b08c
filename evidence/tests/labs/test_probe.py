"""Probes: both arms see the same tasks and the same chance, and only what was changed makes a difference."""

from pathlib import Path

import numpy as np
import pytest

from quintain.agents.protocol import Agent
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.learning.saved import START
from quintain.types import Group, Trajectory, flatten_scored
from quintain_evidence.labs.probe import Paired, Probe, opened, pair

WORLD = "sokoban?size=3&walls=0&scramble=10"


def played(probe: Probe) -> list[Group]:
    return probe.play(probe.tasks(6), size=2)


def actions(groups: list[Group]) -> list[tuple[str, ...]]:
    return [tuple(turn.action.text for turn in t.turns) for t in flatten_scored(groups)]


def shortened(environment: Environment) -> Environment:
    environment.max_turns = 2
    return environment


def test_arms_share_tasks_and_chance(lab_run: Path) -> None:
    with opened(lab_run / START, WORLD, seed=3) as probe:
        first, again = played(probe), played(probe)
        assert actions(first) == actions(again) and {g.task.split for g in first} == {"eval"}
        found = pair(first, again)
        assert found.difference == 0 and found.discordant == (0, 0) and len(found.rows()) == 6
        seen: list[Agent] = []
        same = probe.play(probe.tasks(6), size=2, change=lambda agent: seen.append(agent) or agent)
        assert seen and actions(same) == actions(first)
    with opened(lab_run / START, WORLD, seed=3, wrap=shortened) as probe:
        short = actions(played(probe))
    assert short == [own[:2] for own in actions(first)], "the turns before the change are the same"
    with opened(lab_run / START, WORLD, seed=4) as probe:
        assert actions(played(probe)) != actions(first)


def test_episodes_go_on_from_a_moment(lab_run: Path) -> None:
    def second(trajectory: Trajectory) -> int | None:
        return 2 if len(trajectory.turns) > 2 else None

    with opened(lab_run / START, WORLD, seed=0) as probe:
        groups = played(probe)
        moments = probe.moments(flatten_scored(groups), second)
        assert len(moments) == sum(len(t.turns) > 2 for t in flatten_scored(groups)) > 1
        plain = probe.continue_from(moments)
        assert actions(plain) == actions(probe.continue_from(moments))
        for moment, group in zip(moments, plain, strict=True):
            assert group.trajectories[0].turns[:2] == moment.turns


def test_arms_of_other_tasks_are_not_paired(lab_run: Path) -> None:
    with opened(lab_run / START, WORLD, seed=0) as probe:
        one, other = probe.play(probe.tasks(2)), probe.play(probe.tasks(2, first=2))
    with pytest.raises(UsageError, match="other tasks in one than in the other"):
        pair(one, other)
    assert pair(one, one, measure=lambda t: float(len(t.turns))).method.min() >= 1


def test_discordant_tasks_are_counted() -> None:
    found = Paired(method=np.array([1.0, 1.0, 0.0]), control=np.array([0.0, 1.0, 1.0]), tasks=("a", "b", "c"))
    assert found.discordant == (1, 1) and found.difference == 0.0
    assert found.rows()[0] == {"method": 1.0, "control": 0.0}

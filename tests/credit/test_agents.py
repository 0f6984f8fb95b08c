"""Whose calls set the baseline: the identity, fixtures by hand, and groups of one."""

from collections.abc import Sequence
from statistics import fmean, pvariance

import numpy as np
import pytest

from quintain.credit.agents import over_agents, whole_group
from quintain.credit.group import group_relative
from quintain.errors import UsageError
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Credit, Group, Trajectory


def part(
    seat: str, index: int, value: float, valid: Sequence[bool] = (True,), group: str = "g"
) -> Trajectory:
    turns = [turn_of(seat=seat, is_valid=is_valid) for is_valid in valid]
    numbers = tuple(range(len(turns)))
    return episode_of(turns, value, group=f"{group}/{seat}", index=index, seed=index, turn_numbers=numbers)


def team(*parts: Trajectory) -> list[Group]:
    names = dict.fromkeys(each.group for each in parts)
    return [Group(task=TASK, trajectories=tuple(p for p in parts if p.group == name)) for name in names]


def numbers(credit: Credit) -> list[list[float]]:
    return [[float(turn[0]) for turn in turns] for turns in credit.advantages]


A = tuple(part("A", index, value) for index, value in enumerate((1, 0, 0, 1)))
B = tuple(part("B", index, value) for index, value in enumerate((3, 3, 2, 2, 3, 3)))


def test_the_fixture_of_the_paper() -> None:
    found = over_agents(team(*A, *B), by="all", std="biased").metrics
    assert found["credit/moment/A"] == pytest.approx(1.4265, abs=1e-4)
    assert found["credit/moment/B"] == pytest.approx(0.7157, abs=1e-4)
    found = over_agents(team(*A, *B), std="biased").metrics
    assert found["credit/moment/A"] == pytest.approx(1, abs=1e-5) == found["credit/moment/B"]


def test_one_baseline_has_the_moments_of_the_identity() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        paid = {
            seat: rng.normal(rng.normal(), 1 + rng.random(), size=int(rng.integers(2, 9)))
            for seat in ("A", "B", "C")
        }
        parts = [part(seat, i, float(value)) for seat, own in paid.items() for i, value in enumerate(own)]
        found = over_agents(team(*parts), by="all", std="biased", epsilon=0.0).metrics
        everybody = np.concatenate(list(paid.values()))
        for seat, own in paid.items():
            says = (pvariance(own) + (fmean(own) - fmean(everybody)) ** 2) / pvariance(everybody)
            assert found[f"credit/moment/{seat}"] == pytest.approx(says, abs=1e-9)


def test_one_agent_is_grpo_and_equal_agents_agree() -> None:
    alone = team(*A)
    assert (
        numbers(over_agents(alone)) == numbers(group_relative(alone)) == numbers(over_agents(alone, by="all"))
    )
    twin = team(*A, *(part("B", index, value) for index, value in enumerate((0, 1, 1, 0))))
    own, one = (numbers(over_agents(twin, by=by, std="biased")) for by in ("agent", "all"))
    assert own == [[pytest.approx(x[0], abs=1e-5)] for x in one]


def test_calls_count_once_each_or_once_an_episode() -> None:
    often = team(part("A", 0, 1.0, (True,) * 3), part("A", 1, 0.0))
    assert numbers(over_agents(often, std="none")) == [[0.25] * 3, [-0.75]]
    assert numbers(over_agents(often, std="none", unit="episode")) == [[0.5] * 3, [-0.5]]


def test_a_penalty_stays_with_its_call_or_is_shared() -> None:
    wrong = team(part("A", 0, 1.0, (True, False)), part("A", 1, 0.0, (True, True)))
    by_call = numbers(over_agents(wrong, std="none", penalty=0.1))
    assert by_call == [[pytest.approx(0.525), pytest.approx(0.425)], [pytest.approx(-0.475)] * 2]
    by_episode = numbers(over_agents(wrong, std="none", penalty=0.1, unit="episode"))
    assert by_episode == [[pytest.approx(0.475)] * 2, [pytest.approx(-0.475)] * 2]


def test_an_agent_called_in_one_episode_learns_nothing() -> None:
    rare = team(*A, part("C", 2, 1.0, (True, False)))
    assert numbers(over_agents(rare, penalty=0.1))[-1] == [0.0, 0.0]
    assert numbers(over_agents(rare, by="all", penalty=0.1))[-1] != [0.0, 0.0]
    assert numbers(over_agents(team(A[0], A[3]))) == [[0.0], [0.0]], "and one that always earns the same"


def test_tasks_and_groups_of_a_task_stay_apart() -> None:
    other = [part("A", index, 5.0 + value, group="h") for index, value in enumerate((1, 0))]
    found = numbers(over_agents(team(*A, *other), by="all"))
    assert found[:4] == numbers(over_agents(team(*A)))
    assert whole_group(A[0]) == "g" and whole_group(part("A/plan", 0, 0.0, group="g/x")) == "g/x"
    assert whole_group(episode_of([turn_of()], group="g/A")) == "g/A", "what was not taken apart is whole"


def test_other_words_are_refused() -> None:
    with pytest.raises(UsageError, match="statistics over agents: got 'each'; "):
        over_agents([], by="each")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="unit of the statistics over agents: got 'turn'; "):
        over_agents([], unit="turn")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

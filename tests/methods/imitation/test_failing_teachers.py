"""A teacher that never succeeds is refused before anything is trained, with the stage at which its episodes ended."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from quintain.errors import DataError
from quintain.methods.find import find_method
from quintain.methods.imitation import afm, agent_bank, goat
from quintain.types import Task, Trajectory
from quintain.worlds.api.game import Api

SOLVED = "got 3 episodes into solved and none out of it, because each did not solve its task"
SAYS = {
    "sft": f"imitating 3 demonstrations: {SOLVED}; raise demonstrations, or give the environment an expert_action",
    "atlas": f"imitating critical turns: {SOLVED}; loosen solved, or collect more",
    "xlam": f"imitating 3 demonstrations: {SOLVED}; raise demonstrations, or give the environment an expert_action",
    "agent_tuning": "got 3 episodes into enough and none out of it, because each did not solve its task, or earns less",
    "agent_flan": SOLVED,
    "fireact": "did not solve its task",
    "agent_gen": f"imitating plans in made domains: {SOLVED}; loosen solved, or collect more",
    "agent_bank": f"imitating a teacher, and what it failed: {SOLVED}; loosen solved, or collect more",
}


@pytest.mark.parametrize("name", SAYS)
def test_a_teacher_that_never_succeeds(name: str, trajectory: Callable[..., Trajectory], shows: Any) -> None:
    failed = [trajectory([((1,), (10, 2))], value=0.0, task=f"t{n}", environment="guess") for n in range(3)]
    found = find_method(name)
    made: Any = found.make(found.config_class())
    with pytest.raises(DataError, match=re.escape(SAYS[name])):
        made.data(shows(failed))


@pytest.mark.parametrize("is_forced", [True, False])
def test_forced_actions_that_fail_as_well_leave_nothing(
    is_forced: bool, trajectory: Callable[..., Trajectory], shows: Any
) -> None:
    tried = trajectory([((1,), (10, 2))], value=0.0)
    shown = replace(tried, index=2)
    made = agent_bank.method(agent_bank.Config(group_size=2, forced=is_forced))
    num = 2 + is_forced
    with pytest.raises(DataError, match=f"what it failed: got {num} episodes into solved and none out of it"):
        made.data(shows([tried, replace(tried, index=1), *[shown] * is_forced]))


@pytest.mark.parametrize("team", [True, False])
def test_a_team_that_never_succeeds(team: bool, trajectory: Callable[..., Trajectory], shows: Any) -> None:
    failed = [trajectory([((1,), (10, 2))], value=0.0, task=f"t{n}") for n in range(3)]
    start = afm.method(afm.Config(team=team)).cold_start
    assert start is not None
    told = (
        f"imitating a team: {SOLVED.replace('into solved', 'into correct')}; loosen correct, or collect more"
    )
    with pytest.raises(DataError, match=re.escape(told)):
        start.choose(failed, shows(failed).decode)


class Unanswered:
    """A collector of chains of calls that never come to their answers again."""

    environment = "api"

    def __init__(self, failed: Trajectory) -> None:
        self.failed = failed

    def tasks(self, step: int, count: int) -> list[Task]:
        return [Api().task("train", number) for number in range(count)]

    def seed(self, *names: object) -> int:
        return 0

    def expert_episodes(self, tasks: Sequence[Task], *, by: object) -> list[Trajectory]:
        return [replace(self.failed, task=task) for task in tasks]


def test_chains_of_calls_that_never_come_to_their_answers(trajectory: Callable[..., Trajectory]) -> None:
    made: Any = goat.method(goat.Config(demonstrations=3))
    told = f"imitating chains of calls: {SOLVED.replace('into solved', 'into replayed')}; let reset() take Task.data"
    with pytest.raises(DataError, match=re.escape(told)):
        made.data(Unanswered(trajectory([((1,), (10, 2))], value=0.0)))

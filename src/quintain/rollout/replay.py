"""Taking up a recorded episode at one of its turns: the environment's state, and the conversation so far.

The recorded actions are carried out once in an environment (`walk`), and what it answers must be what was
recorded. An environment with `Snapshot` is saved before every turn, so that each continuation costs one restore;
another one replays the actions. The one rule: an episode that does not repeat exactly is a fault of its
environment, never a continuation from some other state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quintain.environments.protocol import Environment, Snapshot, advance
from quintain.errors import EnvironmentFault
from quintain.rollout.episode import Looks, Prefix, View
from quintain.types import Trajectory, Turn, as_content


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A recorded episode with what was shown before each of its turns, and the saved states."""

    trajectory: Trajectory
    views: tuple[View, ...]
    """[turn]"""
    states: tuple[Any, ...] | None
    """[turn], what `Snapshot.snapshot` returned before it; None without `Snapshot`"""

    def prefix(self, num_turns: int) -> Prefix:
        """Return the first `num_turns` turns, to continue with the turn of that number (from 0)."""
        return Prefix(
            task=self.trajectory.task,
            turns=self.trajectory.turns[:num_turns],
            views=self.views[: num_turns + 1],
            state=None if self.states is None else (self.states[num_turns],),
        )


def walk(looks: Looks, environment: Environment, trajectory: Trajectory) -> Walk:
    """Carry out the actions of `trajectory` in `environment`, up to the last turn, and return what was seen.

    Raises:
        EnvironmentFault: an observation or a reward is not the recorded one.
    """
    view = looks.start(environment, trajectory.task).view
    views: list[View] = []
    states: list[Any] = []
    for number, turn in enumerate(trajectory.turns):
        if not turn.is_internal:
            check_same(trajectory, number, view, turn)
        views.append(view)
        if isinstance(environment, Snapshot):
            states.append(environment.snapshot())
        if number + 1 < len(trajectory.turns) and not turn.is_internal:
            answer = looks.act(environment, turn.action)
            if answer.result.reward != turn.reward:
                raise diverged(trajectory, number, f"reward {answer.result.reward}", f"{turn.reward}")
            view = answer.view
    return Walk(
        trajectory=trajectory,
        views=tuple(views),
        states=tuple(states) if isinstance(environment, Snapshot) else None,
    )


def check_same(trajectory: Trajectory, number: int, view: View, turn: Turn) -> None:
    """Raise an `EnvironmentFault` unless `view` shows what was observed before `turn`."""
    if as_content(view.observation) != turn.observation:
        raise diverged(trajectory, number, "another observation", "the recorded one")


def diverged(trajectory: Trajectory, number: int, got: str, wanted: str) -> EnvironmentFault:
    """Return the error of an episode that does not repeat."""
    return EnvironmentFault(
        f"repeating {trajectory.task.id}, turn {number}: got {got} instead of {wanted}; draw all chance of the "
        "environment from task.rng"
    )


def bring_back(environment: Environment, prefix: Prefix) -> None:
    """Bring `environment`, just reset to the task, to the state after the turns of `prefix`."""
    if prefix.state is not None:
        assert isinstance(environment, Snapshot), "a state was saved by an environment of this kind"
        environment.restore(prefix.state[0])
        return
    for turn in prefix.turns:
        if not turn.is_internal:
            advance(environment, turn.action)


def every_turn(walks: Sequence[Walk], *, first: int = 0) -> list[Prefix]:
    """Return a prefix for each turn of each of `walks`, from turn number `first` on, in order."""
    return [w.prefix(number) for w in walks for number in range(first, len(w.trajectory.turns))]

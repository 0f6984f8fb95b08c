"""Taking up a recorded episode at one of its turns: the environment's state, and the conversation so far.

The recorded actions are carried out once in an environment (`replay_actions`), and it must come to the recorded states:
by their keys, where these were recorded and the environment has them (`StateKey`), else by what it shows. What is shown
then is what was recorded, though it be the time of another day. An episode that does not repeat is a fault of its
environment. One with `Snapshot` is saved before every turn, so that each continuation costs one restore; another one
replays the actions.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quintain.environments.protocol import Environment, Snapshot, StateKey, sum_parts
from quintain.errors import EnvironmentFault, UsageError
from quintain.rollout.views import EnvironmentReader, Prefix, Start, View
from quintain.types import Action, StepResult, Stop, Trajectory, Turn, as_content


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEpisode:
    """A recorded episode with what was shown before each of its turns, and the saved states."""

    trajectory: Trajectory
    views: tuple[View, ...]
    """[turn], and after the last one where fewer turns were asked for than the task allows"""
    states: tuple[Any, ...] | None
    """as `views`, what `Snapshot.snapshot` returned there; None without `Snapshot`"""
    steps: tuple[int, ...] | None = None
    """[turn], steps of the environment before it, where several seats act in one; None: every turn is its own"""
    is_repeated: bool = True
    """whether the environment came to the same states; else nothing goes on from it"""

    def prefix(self, num_turns: int) -> Prefix:
        """Return the first `num_turns` turns, to continue with the turn of that number (from 0).

        Raises:
            UsageError: that turn was taken at the same time as the one before it, or nothing was seen before it.
        """
        if not self.is_repeated:
            turns = self.trajectory.turns[:num_turns]
            return Prefix(task=self.trajectory.task, turns=turns, views=(), is_repeated=False)
        steps = self.steps
        if num_turns >= len(self.views):
            raise UsageError(
                f"continuing {self.trajectory.task.id}: got turn {num_turns} of {len(self.views)}; continue where the "
                "task goes on, with one seat that acts at a time"
            )
        if steps is not None and num_turns and steps[num_turns] == steps[num_turns - 1]:
            raise UsageError(
                f"continuing {self.trajectory.task.id}: got turn {num_turns}, which was taken at the same time as the "
                f"one before it; continue at turn {steps.index(steps[num_turns])}"
            )
        return Prefix(
            task=self.trajectory.task,
            turns=self.trajectory.turns[:num_turns],
            views=self.views[: num_turns + 1],
            state=None if self.states is None else (self.states[num_turns],),
            num_steps=None if steps is None else steps[num_turns],
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment before a recorded turn, which the environment is in: ``Moment(3, view, 3, False)``."""

    number: int
    """of the turn, from 0"""
    view: View
    num_steps: int
    """steps of the environment so far"""
    is_shared: bool
    """whether several seats act at once"""


def replay_actions(
    looks: EnvironmentReader, environment: Environment, trajectory: Trajectory, *, checks_rewards: bool = True
) -> Generator[Moment]:
    """Carry out the actions of `trajectory` in `environment`; yield before each turn, the last one included.

    Without `checks_rewards` rewards may differ, as where a method has replaced them.

    Raises:
        EnvironmentFault: a state, a reward or the seat that acts is not the recorded one.
    """
    turns, views = trajectory.turns, looks.start(environment, trajectory.task).views
    keyed = environment if isinstance(environment, StateKey) else None
    number = num_steps = 0
    while number < len(turns):
        if not views:
            raise divergence_error(trajectory, number, "the end of the episode", "another turn")
        moves: dict[str, Action] = {}
        begun = number
        for view in views:
            acting = next_act(turns, number, view.seat)
            if acting is not None and as_content(view.observation) != turns[acting].observation:
                if keyed is None or turns[acting].state_key is None:
                    raise divergence_error(trajectory, acting, "another observation", "the recorded one")
                view = replace(view, observation=turns[acting].observation)
            if acting is not None and keyed is not None and turns[acting].state_key is not None:
                key = keyed.state_key() if view.state_key is None else view.state_key
                if key != turns[acting].state_key:
                    raise divergence_error(trajectory, acting, "another state", "the recorded one")
            while number < len(turns) and turns[number].speaker == view.seat and view.seat not in moves:
                turn = turns[number]
                if not turn.is_internal:
                    moves[view.seat] = turn.action
                yield Moment(number, view, num_steps, len(views) > 1)
                number += 1
        if number == len(turns):
            return
        if len(moves) < len(views):
            acting = ", ".join(view.seat for view in views)
            raise divergence_error(trajectory, number, f"the seats {acting}", turns[number].speaker)
        answer = looks.act(environment, moves)
        if checks_rewards:
            check_paid(trajectory, number - 1, answer.result, turns[begun:number])
        views, num_steps = answer.views, num_steps + 1


def check_paid(trajectory: Trajectory, number: int, result: StepResult, turns: Sequence[Turn]) -> None:
    """Accept the rewards of `result` if they are those recorded in `turns`, of which `number` is the last.

    Raises:
        EnvironmentFault: they are others.
    """
    recorded = sum(turn.reward for turn in turns)
    if result.reward != recorded and not result.rewards:
        raise divergence_error(trajectory, number, f"reward {result.reward}", f"{recorded}")
    paid = sum_parts(turn.rewards for turn in turns)
    if result.rewards and dict(result.rewards) != paid:
        raise divergence_error(trajectory, number, f"rewards {dict(result.rewards)}", f"{paid}")


def next_act(turns: Sequence[Turn], number: int, seat: str) -> int | None:
    """Return the number of the turn from `number` on in which `seat`, who speaks next, acts; None where it does not."""
    while number < len(turns) and turns[number].speaker == seat:
        if not turns[number].is_internal:
            return number
        number += 1
    return None


def lose_episode(trajectory: Trajectory) -> ReplayedEpisode:
    """Return what is left of an episode that does not repeat: nothing goes on from any of its turns."""
    return ReplayedEpisode(trajectory=trajectory, views=(), states=None, is_repeated=False)


def replay_to_end(looks: EnvironmentReader, environment: Environment, trajectory: Trajectory) -> StepResult:
    """Carry out all actions of `trajectory` in `environment`, the last one too, and return what it led to.

    Raises:
        EnvironmentFault: there is no action, or it does not repeat; rewards may differ.
    """
    moments = [
        moment
        for moment in replay_actions(looks, environment, trajectory, checks_rewards=False)
        if not trajectory.turns[moment.number].is_internal
    ]
    if not moments:
        raise divergence_error(trajectory, 0, "no action", "an episode")
    last = moments[-1].num_steps
    moves = {m.view.seat: trajectory.turns[m.number].action for m in moments if m.num_steps == last}
    return looks.act(environment, moves).result


def walk(
    looks: EnvironmentReader, environment: Environment, trajectory: Trajectory, *, checks_rewards: bool = True
) -> ReplayedEpisode:
    """Carry out the actions of `trajectory` in `environment`, up to the last turn, and return what was seen.

    The last turn is carried out, too, where the task would go on after it and one seat acts at a time.

    Raises:
        EnvironmentFault: it does not repeat; see `replay_actions`.
    """
    moments: list[Moment] = []
    views: list[View] = []
    states: list[Any] = []

    def see(view: View) -> None:
        views.append(view)
        if isinstance(environment, Snapshot):
            states.append(environment.snapshot())

    for moment in replay_actions(looks, environment, trajectory, checks_rewards=checks_rewards):
        moments.append(moment)
        see(moment.view)
    is_shared = any(moment.is_shared for moment in moments)
    if trajectory.stop is Stop.CUT and not is_shared and not trajectory.turns[-1].is_internal:
        after = looks.act(environment, {views[-1].seat: trajectory.turns[-1].action}).views
        if not after:
            raise divergence_error(trajectory, len(moments) - 1, "the end of the episode", "another turn")
        see(after[0])
    return ReplayedEpisode(
        trajectory=trajectory,
        views=tuple(views),
        states=tuple(states) if isinstance(environment, Snapshot) else None,
        steps=tuple(moment.num_steps for moment in moments) if is_shared else None,
    )


def divergence_error(trajectory: Trajectory, number: int, got: str, wanted: str) -> EnvironmentFault:
    """Return the error of an episode that does not repeat."""
    return EnvironmentFault(
        f"repeating {trajectory.task.id}, turn {number}: got {got} instead of {wanted}; draw all chance of the "
        "environment from task.rng"
    )


def bring_back(looks: EnvironmentReader, environment: Environment, prefix: Prefix, start: Start) -> None:
    """Bring `environment`, just reset to the task with `start`, to the state after the turns of `prefix`."""
    if prefix.state is not None:
        assert isinstance(environment, Snapshot), "a state was saved by an environment of this kind"
        environment.restore(prefix.state[0])
        return
    views, moves = start.views, dict[str, Action]()
    for turn in prefix.turns:
        if turn.is_internal:
            continue
        moves[turn.seat] = turn.action
        if len(moves) == len(views):
            views, moves = looks.act(environment, moves).views, {}


def prefixes_of(walks: Sequence[ReplayedEpisode], *, first: int = 0) -> list[Prefix]:
    """Return a prefix for each turn of each of `walks`, from turn number `first` on, in order."""
    return [w.prefix(number) for w in walks for number in range(first, len(w.trajectory.turns))]

"""Episodes put together of parts of others, carried out before anybody learns from them.

A splice is a beginning of one episode and the rest of another: an agent's mistake and the expert's way out of it
(STeCa, arXiv 2502.14276; Agent-R, 2501.11425). What was seen after the joint is only right if the environment shows the
same there, so every splice is carried out from its first turn on, and one that does not repeat is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from quintain.agents.deliberation import describe_action
from quintain.agents.protocol import Agent
from quintain.data.pipeline import Stage, name_of
from quintain.data.stages import keep_verified
from quintain.environments.noisy import noisy
from quintain.environments.protocol import (
    Environment,
    Expert,
    Legal,
    Progressing,
    Snapshot,
    StateKey,
    advance,
    environment_name,
)
from quintain.errors import DataError, EnvironmentFault, InvariantError, UsageError
from quintain.rollout.collect import Rollout
from quintain.rollout.replay import replay_actions, replay_to_end
from quintain.rollout.request import Limits
from quintain.rollout.views import EnvironmentReader
from quintain.types import Action, Branch, Example, StepResult, Stop, Trajectory

UNREPEATABLE = "cannot be carried out again"
JudgeOfTurns = Literal["expert", "progress"]
"""By what a turn is found to be bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedEpisode:
    """Turns of one episode, then of another: ``CorrectedEpisode(head=failed, until=3, tail=shown, begin=2)``."""

    head: Trajectory
    until: int
    """turns of `head` that are kept"""
    tail: Trajectory
    begin: int
    """first turn of `tail` that follows, from 0"""
    weight: float = 0.0
    """what the turns of `head` weigh: 0 leaves them as context"""


def join_splice(splice: CorrectedEpisode) -> Trajectory:
    """Return the episode of `splice`, with the task of its head and the outcome of its tail.

    Raises:
        UsageError: a part has no such turns.
    """
    head, tail = splice.head, splice.tail
    if not 0 < splice.until <= len(head.turns) or not 0 <= splice.begin < len(tail.turns):
        raise UsageError(
            f"splice of {name_of(head)} and {name_of(tail)}: got turns up to {splice.until} of {len(head.turns)} and "
            f"from {splice.begin} of {len(tail.turns)}; name turns that there are"
        )
    return replace(
        head,
        turns=(*head.turns[: splice.until], *tail.turns[splice.begin :]),
        outcome=tail.outcome,
        stop=tail.stop,
        final_observation=tail.final_observation,
        parent=Branch(episode=name_of(head), turn=splice.until),
        id="",
    )


def imitate_splice(splice: CorrectedEpisode) -> Example:
    """Return what is imitated of `splice`: its tail, behind a head of the weight that it has."""
    whole = join_splice(splice)
    weights = tuple(
        np.full(len(turn.completion.token_ids), splice.weight if number < splice.until else 1.0, np.float32)
        for number, turn in enumerate(whole.turns)
    )
    return Example(trajectory=whole, weights=weights, sources=(name_of(splice.head),))


def can_be_carried_out(make: Callable[[], Environment]) -> Callable[[Trajectory], bool]:
    """Return whether an episode repeats turn by turn in a new environment of `make`: seats and what each was shown.

    Rewards may differ, since a method may have replaced them.
    """
    looks = EnvironmentReader(has_state_keys=False)

    def repeats(trajectory: Trajectory) -> bool:
        with closing(make()) as environment:
            try:
                for _ in replay_actions(looks, environment, trajectory, checks_rewards=False):
                    pass
            except EnvironmentFault:
                return False
        return True

    return repeats


def is_solved_again(make: Callable[[], Environment]) -> Callable[[Trajectory], bool]:
    """Return whether an episode repeats in a new environment of `make`, which says at its end that it is solved."""
    looks = EnvironmentReader(has_state_keys=False)

    def solves(trajectory: Trajectory) -> bool:
        with closing(make()) as environment:
            try:
                result = replay_to_end(looks, environment, trajectory)
            except EnvironmentFault:
                return False
        return result.reward > 0 if result.is_success is None else result.is_success

    return solves


def states_in(make: Callable[[], Environment]) -> Callable[[Trajectory], tuple[str, ...]]:
    """Return the states before the turns of an episode: those that were recorded, or those of a new environment.

    Raises:
        DataError: the environment has no `StateKey`, or the episode does not repeat, when it is asked.
    """
    looks = EnvironmentReader(has_state_keys=True)

    def find(trajectory: Trajectory) -> tuple[str, ...]:
        recorded = [turn.state_key for turn in trajectory.turns if turn.state_key is not None]
        if len(recorded) == len(trajectory.turns):
            return tuple(recorded)
        with closing(make()) as environment:
            if not isinstance(environment, StateKey):
                raise DataError(
                    f"states of {name_of(trajectory)}: got {environment_name(environment)}, which has no state_key; "
                    "use distinct"
                )
            try:
                moments = replay_actions(looks, environment, trajectory, checks_rewards=False)
                return tuple(str(moment.view.state_key) for moment in moments)
            except EnvironmentFault as fault:
                raise DataError(f"states of {name_of(trajectory)}: {fault}") from fault

    return find


def way_back(
    make: Callable[[], Environment], trajectory: Trajectory, until: int, wanted: str, *, most: int = 1
) -> tuple[Action, ...] | None:
    """Return the fewest legal actions that lead from before turn `until` of an episode to the state `wanted`.

    Of equally few the first, in the environment's order; None where `most` actions do not do.

    Raises:
        UsageError: the environment has no snapshots, state keys or legal actions.
        EnvironmentFault: the episode does not repeat.
    """
    with closing(make()) as environment:
        if not (
            isinstance(environment, Snapshot)
            and isinstance(environment, StateKey)
            and isinstance(environment, Legal)
        ):
            raise UsageError(
                f"a way back in {environment_name(environment)}: got an environment without snapshots, state keys or "
                "legal actions; define them, or splice without a way back"
            )
        moments = replay_actions(
            EnvironmentReader(has_state_keys=False), environment, trajectory, checks_rewards=False
        )
        if all(moment.number != until for moment in moments):
            return None
        if environment.state_key() == wanted:
            return ()
        known = {environment.state_key()}
        level: list[tuple[tuple[Action, ...], object]] = [((), environment.snapshot())]
        for _ in range(most):
            further: list[tuple[tuple[Action, ...], object]] = []
            for said, saved in level:
                environment.restore(saved)
                for words in environment.legal_actions():
                    environment.restore(saved)
                    way = (*said, Action(text=words))
                    if advance(environment, way[-1]).is_terminated:
                        continue
                    if environment.state_key() == wanted:
                        return way
                    if environment.state_key() not in known:
                        known.add(environment.state_key())
                        further.append((way, environment.snapshot()))
            level = further
    return None


@dataclass(frozen=True, slots=True)
class TriedProposal:
    """What an action would have led to: ``TriedProposal(result, Action(text="open"))``."""

    result: StepResult
    right: Action | None
    """what the expert does there; None where it gives up, or where that is not carried out"""


def try_proposals(
    make: Callable[[], Environment], trajectory: Trajectory, proposals: Mapping[int, Action]
) -> dict[int, TriedProposal]:
    """Return what each of `proposals`, by the turn of an episode that it would stand for, would have led to.

    Raises:
        UsageError: the environment has no snapshots or no expert.
        EnvironmentFault: the episode does not repeat.
    """
    found: dict[int, TriedProposal] = {}
    with closing(make()) as environment:
        if not (isinstance(environment, Snapshot) and isinstance(environment, Expert)):
            raise UsageError(
                f"actions to try in {environment_name(environment)}: got an environment without snapshots or an "
                "expert; define them"
            )
        for moment in replay_actions(
            EnvironmentReader(has_state_keys=False), environment, trajectory, checks_rewards=False
        ):
            if moment.number in proposals:
                saved = environment.snapshot()
                right = _sound(environment)
                environment.restore(saved)
                found[moment.number] = TriedProposal(advance(environment, proposals[moment.number]), right)
                environment.restore(saved)
    return found


def lead_on(
    make: Callable[[], Environment], trajectory: Trajectory, turn: int, first: Action | None = None
) -> tuple[Action, ...] | None:
    """Return what is done from before `turn` of an episode on: `first`, where it is given, then what the expert does.

    None where the expert gives up, or does not solve the task in as many turns as a task has, or where the episode does
    not repeat.

    Raises:
        UsageError: the environment has no expert.
    """
    with closing(make()) as environment:
        if not isinstance(environment, Expert):
            raise UsageError(
                f"a way on in {environment_name(environment)}: got an environment without an expert; define one"
            )
        try:
            for moment in replay_actions(
                EnvironmentReader(has_state_keys=False), environment, trajectory, checks_rewards=False
            ):
                if moment.number == turn:
                    break
        except EnvironmentFault:
            return None
        done: list[Action] = []
        for _ in range(environment.max_turns):
            try:
                action = first if first is not None and not done else environment.expert_action()
                result = advance(environment, action)
            except EnvironmentFault:
                return None
            done.append(action)
            if result.is_terminated:
                return tuple(done) if result.is_success else None
    return None


def first_bad_turn(make: Callable[[], Environment], by: JudgeOfTurns) -> Callable[[Trajectory], int | None]:
    """Return which turn of an episode, from 0, is its first bad one; None where none is.

    By ``expert`` a turn is bad that does something else than the expert there, which may be another way that is as
    good; by ``progress`` one that could not be carried out, or after which the task has come less far. STeCa asks what
    a step is worth, and Agent-R what came of it on the whole: neither is recorded.

    Raises:
        UsageError: the environment has no expert, or does not say how far a task has come, when an episode is given.
        EnvironmentFault: the episode does not repeat.
    """
    looks = EnvironmentReader(has_state_keys=False)

    def find(trajectory: Trajectory) -> int | None:
        with closing(make()) as environment:
            lacks = (by == "expert" and not isinstance(environment, Expert)) or (
                by == "progress" and not isinstance(environment, Progressing)
            )
            if lacks:
                raise UsageError(
                    f"bad turns by {by} in {environment_name(environment)}: got an environment that cannot tell; "
                    "define expert_action or progress"
                )
            before, last = 0.0, None
            for moment in replay_actions(looks, environment, trajectory, checks_rewards=False):
                turn = trajectory.turns[moment.number]
                if turn.is_internal:
                    continue
                if isinstance(environment, Expert) and by == "expert":
                    try:
                        right = environment.expert_action()
                    except EnvironmentFault:
                        return None
                    if describe_action(right) != describe_action(turn.action):
                        return moment.number
                elif isinstance(environment, Progressing):
                    far = environment.progress()
                    if last is not None and far < before:
                        return last
                    if not turn.is_valid or turn.action.error is not None:
                        return moment.number
                    before, last = far, moment.number
        return None

    return find


def expert_recovery(
    make: Callable[[], Environment], agent: Agent
) -> Callable[[Trajectory, int], Trajectory | str]:
    """Return what goes on as the expert from behind the first turns of an episode, in the tokens of `agent`.

    It returns the episode with these turns in front, which was carried out from its first turn on; or in words what
    becomes of an episode that has no way out: ``cannot be carried out again``.

    Raises:
        UsageError: the environment has no expert, when an episode is asked for.
    """

    def find(trajectory: Trajectory, until: int) -> Trajectory | str:
        if until >= len(trajectory.turns) and trajectory.stop is not Stop.CUT:
            return "end with their bad turn"
        limits = Limits(max_failure_share=1.0, attempts=1)
        with closing(Rollout(agent, make, None, limits=limits)) as rollout:
            try:
                (walk,) = rollout.replay_episodes([trajectory], checks_rewards=False)
            except EnvironmentFault:
                return UNREPEATABLE
            try:
                (group,) = rollout.continuations(
                    [walk.prefix(until)], size=1, seed=trajectory.seed, demonstrator=noisy(0.0)
                )
            except InvariantError:  # the prompts that were recorded are not those of `agent`
                return "were prompted in other words than those of the harness"
        return next((t for t in group.scored if t.is_success), "have no way out that succeeds")

    return find


def _sound(environment: Environment) -> Action | None:
    """Return the expert's action, which is carried out; None where there is none, or where it has no effect."""
    assert isinstance(environment, Expert), "asked before"
    try:
        right = environment.expert_action()
    except EnvironmentFault:
        return None
    return right if advance(environment, right).is_valid else None


def executable(make: Callable[[], Environment], *, name: str = "executable") -> Stage:
    """Keep the episodes that can be carried out again, turn by turn, as they were recorded."""
    return keep_verified(can_be_carried_out(make), says=UNREPEATABLE, name=name)

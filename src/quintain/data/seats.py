"""An episode of several seats as one episode for each: its own turns, and what they brought it.

A turn pays each seat what its `rewards` say; one without them pays everybody its `reward`. What comes between two turns
of a seat belongs to the first of them, what comes before its first turn to that. An episode of an agent without seats
stays as it is, unless different policies play its roles (a planner and who acts on the plan): then each of these has an
episode of its own. Older journals have rewards by seat as `reward_terms` with the names of seats; these are read, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from quintain.types import ALONE, NOTHING, Group, Score, Trajectory, Turn


def speakers(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the seats that spoke, in order of their first turns."""
    return tuple(dict.fromkeys(turn.speaker for turn in trajectory.turns))


def by_seat(trajectory: Trajectory) -> tuple[Trajectory, ...]:
    """Return the episode of each seat, its group named ``GROUP/SEAT``; `trajectory` itself where there are no seats.

    Example: B wins 1 from A in the last of the turns A, B, A, so A's rewards are (0, -1) and B's is (1).
    """
    parts = _parts(trajectory)
    if set(parts.values()) <= {ALONE}:
        return (trajectory,)
    seats = speakers(trajectory)
    has_terms = any(seat in turn.reward_terms for turn in trajectory.turns for seat in seats)
    return tuple(
        _alone(trajectory, parts, part, has_terms=has_terms) for part in dict.fromkeys(parts.values())
    )


def seat_returns(trajectory: Trajectory) -> dict[str, float]:
    """Return what the episode brought each seat, in order of their first turns; {} where seats are not paid apart.

    Example: B wins 1 from A: ``{"A": -1.0, "B": 1.0}``.
    """
    if not any(turn.rewards for turn in trajectory.turns):
        return {}
    found = dict.fromkeys(speakers(trajectory), 0.0)
    for turn in trajectory.turns:
        paid = turn.rewards or dict.fromkeys(found, turn.reward)
        for seat, value in paid.items():
            found[seat] = found.get(seat, 0.0) + value
    return found


def mean_seat_returns(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Return what each seat got on average in the scored of `trajectories` that pay seats apart, by name."""
    drawn: dict[str, list[float]] = {}
    for trajectory in trajectories:
        if isinstance(trajectory.outcome, Score):
            for seat, value in seat_returns(trajectory).items():
                drawn.setdefault(seat, []).append(value)
    return {seat: fmean(values) for seat, values in drawn.items()}


def comparable_groups(groups: Sequence[Group]) -> list[Group]:
    """Return the groups whose episodes are compared: `groups`, one for each seat where seats are paid apart."""
    return [part for group in groups for part in (split_seats([group]) if _is_paid_apart(group) else [group])]


def order_turns(trajectories: Sequence[Trajectory]) -> list[list[tuple[int, int]]]:
    """Return for each episode that `by_seat` took apart (trajectory, turn) of `trajectories` in the order of speaking.

    Parts of one episode share its seed, which no other episode of a step has; what was not taken apart is an episode by
    itself. Example: A, B, A spoke, so the parts A and B → ``[[(0, 0), (1, 0), (0, 1)]]``.
    """
    found: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}
    for place, trajectory in enumerate(trajectories):
        numbers = trajectory.turn_numbers
        key = (trajectory.task.id, trajectory.seed, -1 if numbers else place)
        turns = found.setdefault(key, [])
        turns += [
            (number, place, turn) for turn, number in enumerate(numbers or range(len(trajectory.turns)))
        ]
    return [[(place, turn) for _, place, turn in sorted(turns)] for turns in found.values()]


def _is_paid_apart(group: Group) -> bool:
    return any(turn.rewards for trajectory in group.trajectories for turn in trajectory.turns)


def _parts(trajectory: Trajectory) -> dict[str, str]:
    """Return for each seat, its roles told apart, in whose episode its turns are: its speaker's.

    Where different policies play the roles of a speaker, the roles of one policy are together in the first of them.
    """
    players: dict[str, set[str]] = {}
    for turn in trajectory.turns:
        players.setdefault(turn.seat, set()).add(turn.completion.policy)
    first: dict[tuple[str, str], str] = {}
    found: dict[str, str] = {}
    for seat in players:
        speaker = seat.partition("/")[0]
        own = [names for role, names in players.items() if role.partition("/")[0] == speaker]
        if len(set[str]().union(*own)) > 1 and all(len(names) == 1 for names in own):
            (policy,) = players[seat]
            found[seat] = first.setdefault((speaker, policy), seat)
        else:
            found[seat] = speaker
    return found


def split_seats(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` with a group for each seat of those whose episodes have several."""
    found: list[Group] = []
    for group in groups:
        members: dict[str, list[Trajectory]] = {}
        for trajectory in group.trajectories:
            for part in by_seat(trajectory):
                members.setdefault(part.group, []).append(part)
        found += [replace(group, trajectories=tuple(parts)) for parts in members.values()] or [group]
    return found


def _alone(trajectory: Trajectory, parts: Mapping[str, str], part: str, *, has_terms: bool) -> Trajectory:
    """Return the episode of `part`; with `has_terms`, turns without rewards by seat have them as terms of its name."""
    seat = part.partition("/")[0]
    turns: list[Turn] = []
    numbers: list[int] = []
    rewards: list[float] = []
    early = 0.0
    for number, turn in enumerate(trajectory.turns):
        if turn.rewards:
            reward = turn.rewards.get(seat, 0.0)
        else:
            reward = turn.reward_terms.get(seat, 0.0) if has_terms else turn.reward
        if parts[turn.seat] == part:
            turns.append(turn)
            numbers.append(number)
            rewards.append(reward + early)
            early = 0.0
        elif turns:
            rewards[-1] += reward
        else:
            early += reward
    outcome = trajectory.outcome
    has_own = has_terms or any(turn.rewards for turn in trajectory.turns)
    if has_own and isinstance(outcome, Score):
        outcome = Score(value=sum(rewards), is_success=sum(rewards) > 0)
    own = (replace(turn, reward=reward, rewards=NOTHING) for turn, reward in zip(turns, rewards, strict=True))
    return replace(
        trajectory,
        turns=tuple(own),
        outcome=outcome,
        group=f"{trajectory.group}/{part}",
        turn_numbers=tuple(numbers),
        turn_rewards=tuple(trajectory.turns[number].reward for number in numbers),
    )

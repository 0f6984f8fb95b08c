"""Matched controls: what carries the information goes to another place of its set, and everything else stays.

A permutation within sets keeps counts, lengths and magnitudes and takes away which number belongs to what, so a gain
that survives it came from somewhere else. A control that changed nothing is refused, not reported. A set of one cannot
be permuted and is refused unless the caller lets it stay; what stayed in place, and what is of the same value as before
although it moved, is counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from quintain.credit.layout import outcome_of
from quintain.errors import UsageError
from quintain.types import Credit, Group, Score, Trajectory, derive_seed, flatten_scored

Value = TypeVar("Value")
Alone = Literal["refuse", "keep"]
Place = tuple[Trajectory, int]
"""(trajectory, number of its turn)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuted(Generic[Value]):
    """Values after a permutation: ``Permuted(values=[3, 1], num_alone=0, num_stayed=0, num_unchanged=0)``."""

    values: list[Value]
    """as many as before, in the order of their places"""
    num_alone: int
    """places in a set of one, whose value stayed because the caller let it"""
    num_stayed: int
    """places, those of `num_alone` included, that kept their own value"""
    num_unchanged: int
    """places whose value equals the one before, whether it is their own or another's"""

    @property
    def share_unchanged(self) -> float:
        """Share of the places whose value is the same as before, 0 to 1."""
        return self.num_unchanged / max(len(self.values), 1)


def derange(size: int, seed: int) -> list[int]:
    """Return a permutation of 0 … `size` - 1 that leaves nothing in place, each such one with the same probability.

    Raises:
        UsageError: `size` is below 2, where there is none.
    """
    if size < 2:
        raise UsageError(f"a derangement: got a set of {size}; give sets of 2 or more")
    rng = random.Random(seed)
    while True:
        order = rng.sample(range(size), size)
        if all(place != number for place, number in enumerate(order)):
            return order


def permute(
    values: Sequence[Value],
    within: Sequence[Hashable] | None = None,
    *,
    seed: int,
    moves_all: bool = True,
    alone: Alone = "refuse",
    most_unchanged: float = 1.0,
) -> Permuted[Value]:
    """Return `values` permuted among the places that have the same key in `within`; None: among all.

    Args:
        values: one for each place.
        within: key of the set that each place belongs to.
        seed: names the permutation; each set has one of its own.
        moves_all: derange, so that no place keeps its own value; else any permutation, by chance also that of a place.
        alone: what is done with a set of one place: refuse it, or keep its value and count it.
        most_unchanged: share of the places whose value may be the same as before.

    Example: ``permute([1, 2, 9, 8], "aabb", seed=0).values`` is ``[2, 1, 8, 9]``.

    Raises:
        UsageError: a set has one place and `alone` is "refuse", or more stays as it was than is allowed.
    """
    keys: Sequence[Hashable] = [None] * len(values) if within is None else within
    if len(keys) != len(values):
        raise UsageError(f"sets of {len(values)} values: got {len(keys)} keys; give one for each value")
    sets: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        sets.setdefault(key, []).append(place)
    singles = [key for key, places in sets.items() if len(places) == 1]
    if singles and alone == "refuse":
        raise UsageError(
            f"values to permute: got {len(singles)} sets of one, first {singles[0]!r}; give sets of 2 or more, or "
            'keep them as they are with alone="keep"'
        )
    source = list(range(len(values)))
    for number, places in enumerate(sets.values()):
        if len(places) == 1:
            continue
        own = derive_seed(seed, number)
        order = (
            derange(len(places), own)
            if moves_all
            else random.Random(own).sample(range(len(places)), len(places))
        )
        for place, drawn in zip(places, order, strict=True):
            source[place] = places[drawn]
    found = [values[place] for place in source]
    result = Permuted(
        values=found,
        num_alone=len(singles),
        num_stayed=sum(place == drawn for place, drawn in enumerate(source)),
        num_unchanged=sum(_is_same(old, new) for old, new in zip(values, found, strict=True)),
    )
    if result.share_unchanged > most_unchanged:
        raise UsageError(
            f"a permutation of {len(values)} values: got {result.share_unchanged:.0%} as they were; at most "
            f"{most_unchanged:.0%} may be, so give sets whose values differ"
        )
    return result


def _is_same(old: object, new: object) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return np.array_equal(cast("NDArray[Any]", old), cast("NDArray[Any]", new))
    return bool(old == new)


def permute_outcomes(
    groups: Sequence[Group], *, seed: int, across: bool = False, moves_all: bool = True
) -> tuple[list[Group], Permuted[Score]]:
    """Return `groups` whose scored episodes have each other's outcomes, and what became of them.

    An outcome goes to another episode of its group; with `across` to any other of the batch. Rewards of turns go, too:
    the last turn of an episode gets what its new outcome is worth and the other turns 0, so that both agree.
    """
    trajectories = flatten_scored(groups)
    names = [_group_of(groups)[id(t)] for t in trajectories]
    moved = permute(
        [cast(Score, t.outcome) for t in trajectories],
        None if across else names,
        seed=seed,
        moves_all=moves_all,
    )
    new = {id(t): score for t, score in zip(trajectories, moved.values, strict=True)}
    return _change_groups(groups, lambda t: _with_outcome(t, new[id(t)])), moved


def permute_turn_rewards(
    groups: Sequence[Group], *, seed: int, within: Literal["episode", "group"] = "episode"
) -> tuple[list[Group], Permuted[float]]:
    """Return `groups` whose turns have each other's rewards, of their episode or of their group; sums are adjusted.

    Episodes of one turn are left as they are where turns of an episode are exchanged.
    """
    return move_term(groups, None, seed=seed, within=within)


def move_term(
    groups: Sequence[Group],
    term: str | None,
    *,
    seed: int,
    within: Literal["episode", "group"] = "group",
    alone: Alone = "keep",
) -> tuple[list[Group], Permuted[float]]:
    """Return `groups` in which what the reward `term` paid a turn is paid to another turn, the sum kept.

    It goes to another turn of the episode's group, or of the episode (`within`). Rewards of turns, the term in
    `reward_terms` and the outcome of each episode change together; their sum over the set stays. `term` None moves
    whole turn rewards.

    Raises:
        UsageError: no turn has the term, or all of them were paid the same.
    """
    places = list(_places(groups))
    paid = [t.turns[k].reward if term is None else t.turns[k].reward_terms.get(term, 0.0) for t, k in places]
    if term is not None and not any(term in t.turns[k].reward_terms for t, k in places):
        known = sorted({name for t, k in places for name in t.turns[k].reward_terms})
        raise UsageError(
            f"reward term to move: got {term!r}, which no turn has; they have {', '.join(known) or 'none'}"
        )
    names = _group_of(groups)
    keys = [id(t) if within == "episode" else names[id(t)] for t, _ in places]
    moved = permute(paid, keys, seed=seed, alone=alone)
    if paid and moved.num_unchanged == len(paid):
        what = "turn rewards" if term is None else f"the term {term}"
        raise UsageError(
            f"{what} to move: got the same at every turn, so nothing would change; take other episodes"
        )
    gain = {(id(t), k): new - old for (t, k), old, new in zip(places, paid, moved.values, strict=True)}

    def change(trajectory: Trajectory) -> Trajectory:
        turns = tuple(
            replace(
                turn,
                reward=turn.reward + gain[id(trajectory), k],
                reward_terms=turn.reward_terms
                if term is None
                else {**turn.reward_terms, term: turn.reward_terms.get(term, 0.0) + gain[id(trajectory), k]},
            )
            for k, turn in enumerate(trajectory.turns)
        )
        more = sum(gain[id(trajectory), k] for k in range(len(trajectory.turns)))
        score = replace(cast(Score, trajectory.outcome), value=outcome_of(trajectory) + more)
        return replace(trajectory, turns=turns, outcome=score)

    return _change_groups(groups, change), moved


def permute_state_keys(groups: Sequence[Group], *, seed: int) -> tuple[list[Group], Permuted[str | None]]:
    """Return `groups` whose turns have the state keys of other turns of their group; how often each occurs stays."""
    places = list(_places(groups))
    names = _group_of(groups)
    moved = permute(
        [t.turns[k].state_key for t, k in places], [names[id(t)] for t, _ in places], seed=seed, alone="keep"
    )
    new = {(id(t), k): key for (t, k), key in zip(places, moved.values, strict=True)}

    def change(trajectory: Trajectory) -> Trajectory:
        turns = tuple(
            replace(turn, state_key=new[id(trajectory), k]) for k, turn in enumerate(trajectory.turns)
        )
        return replace(trajectory, turns=turns)

    return _change_groups(groups, change), moved


def permute_credit(
    credit: Credit,
    *,
    seed: int,
    within: Literal["turn_number", "episode", "group", "batch"]
    | Callable[[Trajectory, int], Hashable] = "group",
    unit: Literal["turn", "episode"] = "turn",
    alone: Alone = "keep",
) -> tuple[Credit, Permuted[float]]:
    """Return `credit` whose turns, or episodes, have each other's advantages; what a turn is given, all its tokens get.

    Args:
        credit: what is permuted; its returns stay.
        seed: names the permutation.
        within: the set: turns of the same number in a group, of an episode, of a group, of the batch, or what a
            function of the trajectory and the number of a turn returns.
        unit: what moves: the mean advantage of a turn, or of an episode, which all its turns then get.
        alone: what is done with a set of one.
    """
    trajectories = credit.trajectories

    def key(trajectory: Trajectory, turn: int) -> Hashable:
        if callable(within):
            return within(trajectory, turn)
        sets: dict[str, Hashable] = {
            "turn_number": (trajectory.group, turn),
            "episode": (trajectory.group, trajectory.index),
            "group": trajectory.group,
            "batch": None,
        }
        return sets[within]

    turns = [
        (i, k)
        for i, t in enumerate(trajectories)
        for k in range(len(t.turns))
        if len(credit.advantages[i][k])
    ]
    if unit == "episode":
        places = [(i, 0) for i in range(len(trajectories))]
        worth = [float(np.concatenate(arrays).mean()) for arrays in credit.advantages]
    else:
        places, worth = turns, [float(credit.advantages[i][k].mean()) for i, k in turns]
    moved = permute(worth, [key(trajectories[i], k) for i, k in places], seed=seed, alone=alone)
    new = dict(zip(places, moved.values, strict=True))
    advantages = tuple(
        tuple(
            np.full(len(array), new.get((i, 0 if unit == "episode" else k), 0.0), np.float32)
            for k, array in enumerate(arrays)
        )
        for i, arrays in enumerate(credit.advantages)
    )
    return replace(credit, advantages=advantages), moved


def _group_of(groups: Sequence[Group]) -> dict[int, int]:
    """Return the number of the group that each trajectory, by its identity, is in."""
    return {id(t): number for number, group in enumerate(groups) for t in group.trajectories}


def _places(groups: Sequence[Group]) -> list[Place]:
    return [(t, k) for t in flatten_scored(groups) for k in range(len(t.turns))]


def _change_groups(groups: Sequence[Group], change: Callable[[Trajectory], Trajectory]) -> list[Group]:
    """Return `groups` with their scored trajectories changed."""
    return [
        replace(
            group,
            trajectories=tuple(
                change(t) if isinstance(t.outcome, Score) and t.num_sampled else t for t in group.trajectories
            ),
        )
        for group in groups
    ]


def _with_outcome(trajectory: Trajectory, score: Score) -> Trajectory:
    last = len(trajectory.turns) - 1
    turns = tuple(
        replace(turn, reward=score.value if k == last else 0.0) for k, turn in enumerate(trajectory.turns)
    )
    return replace(trajectory, turns=turns, outcome=score)

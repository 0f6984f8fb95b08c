"""How credit is laid out: scored trajectories in order, one float32 array per turn, groups by explicit id.

Every method of this room computes in float64 over plain lists and hands its result to `credit_of`, which casts once
and measures what is logged for every method alike. Order of arrival means nothing; who is compared with whom is
decided by ids alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError, InvariantError
from quintain.types import Credit, Score, Trajectory, is_constant

TokenArrays = Sequence[Sequence[NDArray[np.floating]]]
"""``[trajectory][turn]`` → [tokens sampled in the turn]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Critic:
    """The values that a critic gives the scored trajectories, in order.

    Example: ``Critic(values=[[array([.2, .4]), array([.5])]], final=[0.0])`` for two turns of 2 and 1 tokens.
    """

    values: TokenArrays
    """``[trajectory][turn]`` → [tokens]: the value before each sampled token."""
    final: Sequence[float] | None = None
    """Value of each final state, read only where a limit cut the episode; None: such an end is worth 0."""
    token_rewards: TokenArrays | None = None
    """Rewards of their own for single tokens, such as -β·KL; same layout as `values`."""


def outcome_of(trajectory: Trajectory) -> float:
    """Return the undiscounted return of a scored trajectory.

    Raises `InvariantError` for a failure or a value that is not finite: neither may become a number.
    """
    outcome = trajectory.outcome
    if not isinstance(outcome, Score) or not np.isfinite(outcome.value):
        raise InvariantError(
            f"the outcome of {trajectory.task.id}: got {outcome}; only a finite Score has credit"
        )
    return outcome.value


def turn_rewards(trajectory: Trajectory) -> list[float]:
    """Return the reward of each turn; raises `InvariantError` when one is not finite."""
    rewards = [turn.reward for turn in trajectory.turns]
    if not np.isfinite(rewards).all():
        raise InvariantError(f"turn rewards of {trajectory.task.id}: got {rewards}; record a Failure instead")
    return rewards


def by_group(trajectories: Sequence[Trajectory]) -> list[list[int]]:
    """Return the indices of `trajectories` that share a group id, in order of first appearance.

    Raises `InvariantError` when one group id holds two tasks: their outcomes cannot be compared.
    """
    members: dict[str, list[int]] = {}
    for index, trajectory in enumerate(trajectories):
        members.setdefault(trajectory.group, []).append(index)
    for name, indices in members.items():
        tasks = {trajectories[index].task.id for index in indices}
        if len(tasks) > 1:
            raise InvariantError(
                f"group {name!r}: got tasks {sorted(tasks)}; give each task its own group id"
            )
    return list(members.values())


def repeat_over_tokens(
    trajectories: Sequence[Trajectory], per_turn: Iterable[Sequence[float]]
) -> list[list[NDArray[np.float64]]]:
    """Return one array per turn that repeats the turn's number over the tokens sampled in it."""
    return [
        [
            np.full(len(t.completion.token_ids), x, np.float64)
            for t, x in zip(trajectory.turns, numbers, strict=True)
        ]
        for trajectory, numbers in zip(trajectories, per_turn, strict=True)
    ]


def check_arrays(trajectories: Sequence[Trajectory], arrays: TokenArrays, name: str) -> TokenArrays:
    """Return `arrays` if they fit the sampled tokens of `trajectories`, else raise `DataError`."""
    want = [[len(turn.completion.token_ids) for turn in trajectory.turns] for trajectory in trajectories]
    got = [[len(array) for array in turns] for turns in arrays]
    if want != got:
        at = next(
            (i for i, (a, b) in enumerate(zip(want, got, strict=False)) if a != b), min(len(want), len(got))
        )
        raise DataError(
            f"{name} per sampled token: got lengths {got[at : at + 1]} at trajectory {at} of {len(got)}; "
            f"expected {want[at : at + 1]} of {len(want)}"
        )
    return arrays


def group_metrics(
    trajectories: Sequence[Trajectory], number: Callable[[Trajectory], float]
) -> dict[str, float]:
    """Return the number of groups, and the shares of those with one member and of those without variance."""
    groups = [[number(trajectories[i]) for i in indices] for indices in by_group(trajectories)]
    num = max(len(groups), 1)
    return {
        "credit/groups": float(len(groups)),
        "credit/singleton_groups": sum(len(group) == 1 for group in groups) / num,
        "credit/zero_variance_groups": sum(is_constant(group) for group in groups) / num,
    }


def credit_of(
    trajectories: Sequence[Trajectory],
    advantages: TokenArrays,
    *,
    returns: TokenArrays | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Credit:
    """Return the `Credit`, cast to float32, with mean and deviation of its advantages (unit: token)."""
    arrays = [array for turns in advantages for array in turns]
    flat = np.concatenate(arrays) if arrays else np.zeros(0)
    measured = {
        "credit/trajectories": float(len(trajectories)),
        "credit/advantage_mean": float(flat.mean()) if flat.size else 0.0,
        "credit/advantage_std": float(flat.std()) if flat.size else 0.0,
    }
    return Credit(
        trajectories=tuple(trajectories),
        advantages=_as_float32(advantages),
        returns=None if returns is None else _as_float32(returns),
        metrics={**measured, **(metrics or {})},
    )


def _as_float32(arrays: TokenArrays) -> tuple[tuple[NDArray[np.float32], ...], ...]:
    return tuple(tuple(array.astype(np.float32) for array in turns) for turns in arrays)

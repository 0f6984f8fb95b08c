"""A ← (A - mean) / (std + ε) over the whole batch: normalisation that knows no groups, after any other credit.

REINFORCE++ whitens returns-to-go; its "-baseline" form first subtracts the group mean (arXiv 2501.03262). Unit: named
by the caller. "token" counts every sampled token, so long episodes weigh more; "turn" and "trajectory" count each of
theirs once, by its mean. Singleton rule: one unit → 0. No variance → exactly 0. Only sampled tokens enter the
statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quintain.credit.discounted import discounted_return
from quintain.credit.group import group_relative
from quintain.credit.layout import TokenArrays, credit_of
from quintain.errors import UsageError, suggestion
from quintain.types import Credit, Group, Trajectory, Turn, is_constant

Unit = Literal["token", "turn", "trajectory"]
Key = Callable[[Trajectory, Turn], str]
NormaliseBy = Literal["none", "environment", "seat"]


def by_environment(trajectory: Trajectory, _: Turn) -> str:
    """Return the environment of a trajectory's task: the kind of task in a mixed run."""
    return trajectory.task.environment


def by_seat(_: Trajectory, turn: Turn) -> str:
    """Return who acted in a turn."""
    return turn.seat


KEYS: Mapping[NormaliseBy, Key] = {"environment": by_environment, "seat": by_seat}
"""name → what has statistics of its own"""


def whiten(credit: Credit, *, unit: Unit = "token", epsilon: float = 1e-8, by: Key | None = None) -> Credit:
    """Return `credit` with its advantages whitened (biased standard deviation) over the units of the batch.

    `by` names a role, task or agent: each has statistics of its own, ``by=lambda trajectory, turn:
    turn.seat``.
    """
    if unit not in get_args(Unit):
        raise UsageError(f"unit of the statistics: got {unit!r}; {suggestion(unit, get_args(Unit))}")
    keys = [
        ["" if by is None else by(trajectory, turn) for turn in trajectory.turns]
        for trajectory in credit.trajectories
    ]
    scales = {
        key: _statistics(_units(credit, keys, key, unit)) for key in {key for turns in keys for key in turns}
    }
    advantages = [
        [_scale(array, scales[key], epsilon) for array, key in zip(arrays, turns, strict=True)]
        for arrays, turns in zip(credit.advantages, keys, strict=True)
    ]
    fresh = credit_of(credit.trajectories, advantages)
    return replace(credit, advantages=fresh.advantages, metrics={**credit.metrics, **fresh.metrics})


def reinforce_plus_plus(
    groups: Sequence[Group],
    *,
    discount: float = 1.0,
    token_rewards: TokenArrays | None = None,
    unit: Unit = "token",
) -> Credit:
    """Return whitened returns-to-go (arXiv 2501.03262); `token_rewards` are where its KL penalty goes."""
    return whiten(discounted_return(groups, discount=discount, token_rewards=token_rewards), unit=unit)


def reinforce_plus_plus_baseline(groups: Sequence[Group], *, unit: Unit = "token") -> Credit:
    """Return outcomes less their group mean, whitened over the batch (arXiv 2501.03262).

    A group of one, or one that agrees, has advantage 0 before whitening and minus the batch mean after it. With `unit`
    token that is near 0 only where episodes of a group are equally long: outcomes 1 over seven tokens and 0 over one
    give a group of four tokens that agrees -.775 (as in verl).
    """
    return whiten(group_relative(groups, std="none"), unit=unit)


def _units(credit: Credit, keys: Sequence[Sequence[str]], key: str, unit: Unit) -> list[float]:
    """Return the numbers that enter the statistics of `key`."""
    units: list[float] = []
    for arrays, turns in zip(credit.advantages, keys, strict=True):
        own = [array for array, name in zip(arrays, turns, strict=True) if name == key and len(array)]
        tokens = np.concatenate(own).astype(np.float64) if own else np.zeros(0)
        if unit == "token":
            units += tokens.tolist()
        elif unit == "turn":
            units += [float(array.mean()) for array in own]
        elif own:
            units.append(float(tokens.mean()))
    return units


def _statistics(units: Sequence[float]) -> tuple[float, float] | None:
    if is_constant(units):
        return None
    return float(np.mean(units)), float(np.std(units))


def _scale(
    array: NDArray[np.float32], statistics: tuple[float, float] | None, epsilon: float
) -> NDArray[np.float64]:
    if statistics is None:
        return np.zeros(len(array))
    return (array.astype(np.float64) - statistics[0]) / (statistics[1] + epsilon)

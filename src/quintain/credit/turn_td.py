"""y_Q(s_t, a_t) = r_t + γ·V̄(s_{t+1}): targets of critics of whole turns, and how good such critics are.

Utterance-level temporal differences (ArCHer, arXiv 2402.19446, section 3.2), and y_V(s_t) = Σ_i w_i·Q̄(s_t, a_i) over
ways a_i to act. V̄ and Q̄ are what target networks say; nothing here has a gradient. γ is per turn. Unit: none,
nothing is normalised. Truncation: an end
of the task's own (`Stop`) is worth nothing beyond it, so that its target is r alone; after a cut by whoever trains the
next state was never seen, and its turn has no target (NaN). Singleton rule: none needed, nothing is compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quintain.credit.discounted import returns_to_go
from quintain.credit.layout import turn_rewards
from quintain.errors import DataError
from quintain.types import Trajectory

Numbers = Sequence[Sequence[float]]
"""``[trajectory][turn]``"""
OfWays = Sequence[Sequence[Sequence[float]]]
"""``[trajectory][turn][way]``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnValues:
    """What a critic says of turns: ``TurnValues(before=[[.4, .8]], after=[[.7, 1.0]])`` of one episode of two turns."""

    before: Numbers
    """V(s_t), of the state in which the turn is taken"""
    after: Numbers
    """Q(s_t, a_t), of that state and what was said in it"""


def least(critics: Sequence[TurnValues]) -> TurnValues:
    """Return the smallest value of several critics at each place: clipped double Q (arXiv 1802.09477)."""
    return combine_critics(critics, min)


def combine_critics(critics: Sequence[TurnValues], choose: Callable[[Sequence[float]], float]) -> TurnValues:
    """Return what `choose` makes of the values of `critics` at each place, one number each."""

    def over(numbers: Sequence[Numbers]) -> list[list[float]]:
        return [
            [choose(values) for values in zip(*turns, strict=True)] for turns in zip(*numbers, strict=True)
        ]

    return TurnValues(before=over([c.before for c in critics]), after=over([c.after for c in critics]))


def q_targets(trajectories: Sequence[Trajectory], before: Numbers, discount: float) -> list[list[float]]:
    """Return y_Q of every turn, of V̄ `before` each of them.

    Raises:
        DataError: `before` is not of these turns.
    """
    check(trajectories, before)
    found: list[list[float]] = []
    for trajectory, values in zip(trajectories, before, strict=True):
        beyond = [*values[1:], float("nan") if trajectory.stop.is_cut else 0.0]
        found.append(
            [r + discount * v for r, v in zip(turn_rewards(trajectory), beyond[: len(values)], strict=True)]
        )
    return found


def state_targets(weights: OfWays, after: OfWays) -> list[list[float]]:
    """Return y_V of every turn: Q̄ `after` each of its ways, by their `weights`."""
    return [
        [sum(w * q for w, q in zip(ws, qs, strict=True)) for ws, qs in zip(own, said, strict=True)]
        for own, said in zip(weights, after, strict=True)
    ]


def way_advantages(weights: OfWays, after: OfWays, before: Numbers) -> list[float]:
    """Return w_i·(Q(s, a_i) - V(s)) of every way in order, so scaled that their mean is that over states.

    With as many ways in each state, all of one weight, that is Q - V (ArCHer, eq. 3); with every action by its
    probability the gradient that it weighs is exact where Q is.
    """
    scale = _num_ways(weights) / max(sum(len(turns) for turns in weights), 1)
    return [
        w * scale * (q - v)
        for own, said, values in zip(weights, after, before, strict=True)
        for ws, qs, v in zip(own, said, values, strict=True)
        for w, q in zip(ws, qs, strict=True)
    ]


def best_ways(after: OfWays, before: Numbers, threshold: float) -> list[tuple[int, float]]:
    """Return of every turn in order the number of its way with the largest Q, and its weight: 1 or 0.

    It is 0 unless Q - V is above `threshold`: of a set of bad ways the best is none to learn (Digi-Q, arXiv 2502.15760,
    eq. 4). The first of equal ones is taken.
    """
    found: list[tuple[int, float]] = []
    for own, values in zip(after, before, strict=True):
        for qs, v in zip(own, values, strict=True):
            place = max(range(len(qs)), key=lambda number: qs[number])
            found.append((place, float(qs[place] - v > threshold)))
    return found


def by_way(weights: OfWays, numbers: Sequence[float]) -> list[list[list[float]]]:
    """Return `numbers`, one for each way in order, in the layout of `weights`.

    Raises:
        DataError: there are more or fewer.
    """
    if len(numbers) != (num := _num_ways(weights)):
        raise DataError(f"numbers of {num} ways to act: got {len(numbers)}; give one for each")
    left = iter(numbers)
    return [[[next(left) for _ in ways] for ways in turns] for turns in weights]


def _num_ways(weights: OfWays) -> int:
    return sum(len(ways) for turns in weights for ways in turns)


def monte_carlo(trajectories: Sequence[Trajectory], discount: float) -> list[list[float]]:
    """Return Σ_k γ^k r_{t+k} of every turn; NaN throughout where the trainer cut the episode."""
    return [
        [float("nan")] * len(t.turns) if t.stop.is_cut else returns_to_go(turn_rewards(t), discount)
        for t in trajectories
    ]


def critic_metrics(
    trajectories: Sequence[Trajectory],
    values: TurnValues,
    discount: float,
    *,
    target: TurnValues | None = None,
    has_q: bool = True,
) -> dict[str, float]:
    """Return how good `values` are over the turns of `trajectories`, which they were not trained on.

    ``critic/explained_variance`` is 1 - Var(G - V)/Var(G) of returns G that were lived to their end, 0 where G does
    not vary; ``critic/td_error`` is the root of the mean of (Q - y_Q)²; ``critic/overestimation`` the mean of Q - G,
    above 0 where the critic promises more than comes. Of a critic without Q, V stands for it. {} without any turn.
    """
    said = values.after if has_q else values.before
    targets = _flat(q_targets(trajectories, (target or values).before, discount))
    returns, v, q = _flat(monte_carlo(trajectories, discount)), _flat(values.before), _flat(said)
    found: dict[str, float] = {}
    has_end, has_target = np.isfinite(returns), np.isfinite(targets)
    if has_end.any():
        spread = float(returns[has_end].var())
        left = float((returns - v)[has_end].var())
        found["critic/explained_variance"] = 1 - left / spread if spread > 1e-12 else 0.0
        found["critic/overestimation"] = float((q - returns)[has_end].mean())
    if has_target.any():
        found["critic/td_error"] = float(np.sqrt(((q - targets)[has_target] ** 2).mean()))
    return found


def _flat(numbers: Numbers) -> np.ndarray:
    """Return `numbers` end to end in float64."""
    return np.array([number for turns in numbers for number in turns], np.float64)


def check(trajectories: Sequence[Trajectory], numbers: Numbers) -> None:
    """Raise a `DataError` unless there is one of `numbers` for each turn of `trajectories`."""
    want, got = [len(t.turns) for t in trajectories], [len(turns) for turns in numbers]
    if want != got:
        raise DataError(
            f"values of the turns of {len(want)} episodes: got {got}; expected one a turn, {want}"
        )

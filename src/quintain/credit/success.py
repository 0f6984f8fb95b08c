"""A_t of a turn by a classifier V of success: λ^{H-t}·R + (1 - λ^{H-t})·(r_t + V(s_{t+1}) - V(s_t)), and two relatives.

V(s) is the probability that an episode from s on solves its task, a logit fitted by cross entropy on outcomes. DigiRL
(arXiv 2406.11896, eq. 4) trusts the outcome R near the end of an episode of H turns, and the values far from it: one
part is unbiased where the other is not. WebRL (2411.02337, eq. 6) mixes the same two with one λ everywhere, less V. The
code that came with DigiRL adds both without a weight, less a twentieth. Behind an end of the task's own V is 0. Of an
episode that whoever trains cut the outcome is not known: the value before its last turn stands for it and for what
comes after. Unit: none, nothing is normalised. Singleton rule: none needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quintain.credit.discounted import returns_to_go
from quintain.errors import DataError
from quintain.types import Trajectory

Numbers = Sequence[Sequence[float]]
"""``[trajectory][turn]``"""
BIAS = 0.05
"""What the code of DigiRL takes off every advantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedEpisode:
    """An episode as the classifier sees it: ``ValuedEpisode(outcome=1.0, values=(.4, .8))`` of two turns."""

    outcome: float
    """R: 1 for a success, 0 for a failure; of an episode that was cut the value before its last turn"""
    values: tuple[float, ...]
    """V before each turn"""

    @property
    def gains(self) -> list[float]:
        """r_t + V(s_{t+1}) - V(s_t) of each turn; the last is paid R, and V is 0 behind it."""
        return [new - old for old, new in zip(self.values, [*self.values[1:], self.outcome], strict=True)]


def chances(logits: Numbers) -> list[list[float]]:
    """Return σ of every number: what a classifier that says `logits` holds for the chance of success."""
    return [(1 / (1 + np.exp(-np.clip(np.array(own, np.float64), -60, 60)))).tolist() for own in logits]


def labels(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Return what every turn of each episode is a case of: 1 of success, 0 of failure, NaN where it was cut."""
    return [
        [float("nan") if t.stop.is_cut else float(bool(t.is_success))] * len(t.turns) for t in trajectories
    ]


def attach_values(trajectories: Sequence[Trajectory], values: Numbers) -> list[ValuedEpisode]:
    """Return each of `trajectories` with its `values`, chances of success before each turn.

    Raises:
        DataError: there is not one of `values` for each turn, or an episode without turns.
    """
    want, got = [len(t.turns) for t in trajectories], [len(own) for own in values]
    if want != got or 0 in want:
        raise DataError(f"chances of success of the turns: got {got} by episode; give one a turn, {want}")
    return [
        ValuedEpisode(
            outcome=own[-1] if t.stop.is_cut else float(bool(t.is_success)),
            values=tuple(own),
        )
        for t, own in zip(trajectories, values, strict=True)
    ]


def doubly_robust(episode: ValuedEpisode, *, mixing: float) -> list[float]:
    """Return DigiRL's advantages, λ = `mixing`. Example: λ .5, V .4, .8, .9, success → .55, .55, 1."""
    num = len(episode.values)
    return [
        (share := mixing ** (num - place)) * episode.outcome + (1 - share) * gain
        for place, gain in enumerate(episode.gains, 1)
    ]


def digirl_advantages(episode: ValuedEpisode, *, discount: float) -> list[float]:
    """Return the advantages of DigiRL's code: gain + discounted outcome - .05; γ = `discount`.

    Example: γ .5, values .4, .8, .9, success → .6, .55, 1.05. A success keeps all turns that lose little.
    """
    later = returns_to_go([*[0.0] * (len(episode.values) - 1), episode.outcome], discount)
    return [gain + rest - BIAS for gain, rest in zip(episode.gains, later, strict=True)]


def webrl_advantages(episode: ValuedEpisode, *, mixing: float) -> list[float]:
    """Return WebRL's advantages: λ·gain + (1 - λ)·(R - V), λ = `mixing`. Example: λ .5, V .4, then .6, R 1 → .4."""
    return [
        mixing * gain + (1 - mixing) * (episode.outcome - value)
        for gain, value in zip(episode.gains, episode.values, strict=True)
    ]

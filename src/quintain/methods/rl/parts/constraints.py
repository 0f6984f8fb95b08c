"""What episodes may cost on average: max E[R] subject to E[C_i] ≤ d_i, with a Lagrange multiplier for each cost.

λ_i ← max(0, λ_i + η·(mean of C_i over the episodes of the step - d_i)), and an episode is paid R - Σ_i λ_i·C_i (reward
constrained policy optimization, arXiv 1805.11074). All multipliers begin at 0, so that what costs nothing too much
changes nothing. They are a fold over the recorded episodes: a resumed run has the ones that it had.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from quintain.errors import ConfigError, suggestion
from quintain.rewards.conduct import (
    format_penalty,
    illegal_act_penalty,
    invalid_action_penalty,
    refused_call_penalty,
)
from quintain.rewards.terms import Term
from quintain.types import Group, Trajectory, flatten_scored

COSTS: Mapping[str, Callable[[float], Term]] = {
    "format": format_penalty,
    "illegal": illegal_act_penalty,
    "invalid": invalid_action_penalty,
    "refused": refused_call_penalty,
}
"""name → penalty by weight; a cost is what it takes at weight 1"""
CONSTRAINT = re.compile(r"(\w+)<=(\d+\.?\d*)")
USUAL_RATE = 0.1


class Multipliers:
    """A `State` with λ of every cost that is bounded: ``Multipliers({"refused": 0.05}, rate=0.1)``."""

    def __init__(self, bounds: Mapping[str, float], rate: float = USUAL_RATE) -> None:
        """Begin at 0.

        Args:
            bounds: cost → its greatest mean over episodes.
            rate: what a multiplier moves by in a step, for each unit that the mean is above its bound.
        """
        self._bounds, self._rate = dict(bounds), rate
        self._costs = dict.fromkeys(bounds, 0.0)
        self.values = dict.fromkeys(bounds, 0.0)

    def update(self, groups: Sequence[Group]) -> None:
        """Move each multiplier by what the episodes of a step cost; without a scored one none moves."""
        scored = flatten_scored(groups)
        if not scored:
            return
        for name, bound in self._bounds.items():
            self._costs[name] = fmean(measure_cost(name, trajectory) for trajectory in scored)
            self.values[name] = ascend(self.values[name], self._costs[name], bound, rate=self._rate)

    def terms(self) -> tuple[Term, ...]:
        """Return what episodes pay for their costs now, as terms of the reward."""
        return tuple(COSTS[name](weight) for name, weight in self.values.items())

    def measure(self, groups: Sequence[Group], _: object) -> Mapping[str, float]:
        """Return the mean cost of the step's episodes and the multiplier, of each; see `OnPolicy.measure`."""
        found: dict[str, float] = {}
        for name, value in self.values.items():
            found |= {f"constraint/{name}/cost": self._costs[name], f"constraint/{name}/multiplier": value}
        return found


def ascend(multiplier: float, cost: float, bound: float, *, rate: float) -> float:
    """Return the multiplier after a step of a mean `cost`: ``ascend(0.1, 0.5, 0.3, rate=0.5)`` is .2."""
    return max(0.0, multiplier + rate * (cost - bound))


def measure_cost(name: str, trajectory: Trajectory) -> float:
    """Return what the episode `trajectory` costs: a count of calls, acts or turns."""
    taken = COSTS[name](1.0).measure(trajectory)
    assert isinstance(taken, list)
    return -sum(taken)


def read_constraints(text: str, rewards: str) -> dict[str, float]:
    """Return cost → bound as `text` lists them: ``read_constraints("refused<=0.05, format<=0", "success")``.

    Raises:
        ConfigError: a cost is unknown, bounded twice, not written as above, or has a weight in `rewards` as well.
    """
    found: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = CONSTRAINT.fullmatch(part)
        if match is None:
            raise ConfigError(f"constraints: got {part!r}; write cost<=bound, such as refused<=0.05")
        name, bound = match.groups()
        if name not in COSTS:
            raise ConfigError(f"constraints: got {name!r}; {suggestion(name, COSTS)}")
        if name in found:
            raise ConfigError(f"constraints: got {name!r} twice; give it one bound")
        if re.search(rf"\b{name}\b", rewards):
            raise ConfigError(
                f"constraints: got {name!r}, which has a weight of its own in rewards {rewards!r}; leave it out of one"
            )
        found[name] = float(bound)
    return found

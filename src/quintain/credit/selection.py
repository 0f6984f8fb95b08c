"""A = min(exp((R - b) / β), cap): hard selection, as weights for `quintain.losses.imitation.weighted_imitation`.

Advantage-weighted regression (arXiv 1910.00177) with the group mean as the baseline b: what did better than its group
is imitated more, and nothing is pushed away. Best-of-N is the limit β → 0, up to the cap. Unit: trajectory. Singleton
rule: alone in its group → weight exp(0) = 1, which imitates it as it is. Weights are positive; for credit with a sign
use `group`.
"""

from collections.abc import Sequence

import numpy as np

from quintain.credit.group import group_relative
from quintain.credit.layout import credit_of
from quintain.errors import UsageError
from quintain.types import Credit, Group


def exponential_weights(groups: Sequence[Group], *, temperature: float = 1.0, cap: float = 20.0) -> Credit:
    """Give every token min(exp((R - group mean) / `temperature`), `cap`); β is the temperature, in reward
    units.
    """
    if temperature <= 0:
        raise UsageError(f"temperature of the weights: got {temperature}; give a number above 0")
    base = group_relative(groups, std="none")
    limit = np.log(cap)
    weights = [
        [np.exp(np.minimum(array.astype(np.float64) / temperature, limit)) for array in turns]
        for turns in base.advantages
    ]
    kept = {name: value for name, value in base.metrics.items() if "advantage" not in name}
    return credit_of(base.trajectories, weights, metrics=kept)

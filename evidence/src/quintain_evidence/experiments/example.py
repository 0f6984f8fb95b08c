"""The smallest experiment, to copy: does a mean of several draws lie nearer to the truth than one draw does?

The method averages `draws` numbers, the control takes the mean's place with one of them: same numbers, same scale. In
the null world all numbers of a replication are equal, and the mean of them is each of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of distances from the truth, 0; both arms of a pair see the same numbers."""
    rng = np.random.default_rng(seed)
    found: list[Mapping[str, float]] = []
    for _ in range(int(options["seeds"])):
        draws = rng.normal(size=int(options["draws"]))
        alike = np.full_like(draws, draws[0])
        found.append(
            {
                "method": abs(float(draws.mean())),
                "control": abs(float(draws[0])),
                "null_method": abs(float(alike.mean())),
                "null_control": abs(float(alike[0])),
                "extra.spread": float(draws.std()),
            }
        )
    return found

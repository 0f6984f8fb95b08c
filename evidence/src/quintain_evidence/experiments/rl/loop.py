"""LOOP: its clip lets a batch be learned from four times, where the same steps without it go astray.

See `clipping`. The null world compares LOOP with RLOO, which is what it is when every batch is learned from once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.methods.rl import loop, rloo
from quintain_evidence.experiments.rl.clipping import compare


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of J after training on A16, with the clip and without it at equal step length."""
    return compare(loop.method(loop.Config()), rloo.method(rloo.Config(kl_coef=0.0)), options, seed, "loop")

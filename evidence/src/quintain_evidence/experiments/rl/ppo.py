"""PPO: its clip lets a batch be learned from four times, where the same steps without it go astray.

See `clipping`; the critic is a table, too, and learns alike in all arms. The null world has one epoch, in which the
surrogate and the plain policy gradient are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.losses.compose import combine
from quintain.losses.policy import reinforce
from quintain.losses.value import value
from quintain.methods.rl import ppo
from quintain_evidence.experiments.rl.clipping import compare


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of J after training on A16, with the clip and without it at equal step length."""
    config = ppo.Config()
    method = ppo.method(config)
    plain = combine((reinforce(), 1.0), (value(), config.vf_coef))
    single = replace(method, update=replace(method.update, loss=plain))
    return compare(method, single, options, seed, "ppo")

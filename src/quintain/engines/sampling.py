"""One uniform number per token from a counter-based seed, and inverse-CDF sampling with it.

The number depends only on (seed of the completion, index of the token in it): not on the batch, the number of
workers or what was sampled before. The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.models.native import call, fits

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1) for pairs of seed and counter, elementwise."""
    with np.errstate(over="ignore"):
        mixed = seeds + (counters + np.uint64(1)) * GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(logits: Tensor, temperatures: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one token per row.

    Args:
        logits: float [R, V].
        temperatures: float [R]; 0 takes the most likely token.
        numbers: float64 [R] in [0, 1).

    Returns:
        Token ids int64 [R], and their log-probs float [R] under the tempered distribution (under temperature 1
        where greedy). A row whose logits are not finite gives a log-prob that is not finite.
    """
    if fits(logits):
        return _sampled(logits.contiguous(), temperatures, numbers)
    greedy = temperatures == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    target = (numbers * cumulative[:, -1])[:, None]
    chosen = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logits.shape[-1] - 1)
    chosen = torch.where(greedy, scaled.argmax(dim=-1), chosen)
    return chosen, logprobs.gather(1, chosen[:, None]).squeeze(1)


def _sampled(logits: Tensor, temperatures: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Do as `sample` does, by a kernel."""
    chosen, logprobs = torch.empty(len(logits), dtype=torch.int64), logits.new_empty(len(logits))
    call("qt_sample", logits, temperatures.float(), numbers.double(), chosen, logprobs, *logits.shape)
    return chosen, logprobs

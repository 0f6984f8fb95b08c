"""One uniform number per token from a counter-based seed, and inverse-CDF sampling with it.

The number depends only on (seed of the completion, index of the token in it): not on the batch, the number of
workers or what was sampled before. The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.errors import QuintainError
from quintain.models.cpu.native import call, fits

if TYPE_CHECKING:
    from quintain.engines.grammar import Guide

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
        return _sample_by_kernel(logits.contiguous(), temperatures, numbers)
    greedy = temperatures == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    target = (numbers * cumulative[:, -1])[:, None]
    chosen = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logits.shape[-1] - 1)
    chosen = torch.where(greedy, scaled.argmax(dim=-1), chosen)
    return chosen, logprobs.gather(1, chosen[:, None]).squeeze(1)


def sample_guided(
    guides: Sequence[Guide | None],
    logits: Tensor,
    temperatures: Tensor,
    numbers: Tensor,
    free: tuple[Tensor, Tensor],
    top_ps: Sequence[float] = (),
    are_masked: Sequence[bool] = (),
) -> tuple[Tensor, Tensor, dict[int, str]]:
    """Return what `sample` gave (`free`), with the rows [R] that have a guide sampled from its allowed tokens, and of
    those the likeliest that have a share `top_ps` [R] of the odds together (none: of every row all); and the rows whose
    guide failed, with its reason: what was sampled in these is not to be used.

    A token is drawn by its odds among the allowed ones, from the same uniform number, but its log-prob is the
    one under the whole vocabulary: that is what a learner computes for it, which knows no constraint. In rows that
    `are_masked` [R] (none: in no row) it is the one among what the guide allows.
    """
    chosen, logprobs = free[0].clone(), free[1].clone()
    failed: dict[int, str] = {}
    for row, guide in enumerate(guides):
        top_p = top_ps[row] if top_ps else 1.0
        if (guide is None and top_p >= 1) or not torch.isfinite(logprobs[row]):
            continue
        allowed = torch.full((logits.shape[-1],), guide is None)
        if guide is not None:
            try:
                mask = torch.from_numpy(guide.allow_tokens())[: len(allowed)]
            except QuintainError as error:
                failed[row] = str(error)
                continue
            allowed[: len(mask)] = mask
        guided = allowed.clone()
        heat = temperatures[row]
        scaled = logits[row].float() / (heat if heat > 0 else 1.0)
        if top_p < 1:
            allowed &= likeliest(scaled.masked_fill(~allowed.to(scaled.device), float("-inf")), top_p)
        masked = scaled.masked_fill(~allowed.to(scaled.device), float("-inf"))
        cumulative = masked.softmax(dim=-1).double().cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, numbers[row : row + 1] * cumulative[-1], right=True)
        token = int(drawn) if heat > 0 else -1
        if not (0 <= token < len(allowed) and allowed[token]):
            token = int(masked.argmax())
        chosen[row] = token
        if are_masked and are_masked[row]:
            scaled = scaled.masked_fill(~guided.to(scaled.device), float("-inf"))
        logprobs[row] = torch.log_softmax(scaled, dim=-1)[token]
        if guide is not None:
            try:
                guide.take(token)
            except QuintainError as error:
                failed[row] = str(error)
    return chosen, logprobs, failed


def likeliest(logits: Tensor, top_p: float) -> Tensor:
    """Return which of the tokens of `logits` [V] are the fewest that have `top_p` of the odds together, as booleans.

    Example: odds .5, .3, .2 and `top_p` .6 → the first two.
    """
    odds, order = logits.double().softmax(dim=-1).sort(descending=True)
    before = odds.cumsum(dim=-1) - odds
    kept = torch.zeros(len(logits), dtype=torch.bool)
    kept[order[before < top_p].cpu()] = True
    return kept


def _sample_by_kernel(logits: Tensor, temperatures: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Do as `sample` does, by a kernel."""
    chosen, logprobs = torch.empty(len(logits), dtype=torch.int64), logits.new_empty(len(logits))
    call("qt_sample", logits, temperatures.float(), numbers.double(), chosen, logprobs, *logits.shape)
    return chosen, logprobs

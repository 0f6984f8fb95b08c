"""How many tokens a pass in training takes: as given, or on a GPU as many as one measured pass shows to fit.

A pass over few tokens and one over twice as many say what a token takes and what is there without any; what is left of
the card is then dealt out. The cut does not change what is learned: micro-batches add up to the same gradient.
"""

from __future__ import annotations

import logging
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from quintain.data.pack import pack
from quintain.learning.learner import Learner
from quintain.learning.sections import MICRO_TOKENS
from quintain.models.device import free_memory
from quintain.models.memory import OPTIMIZER, amount
from quintain.types import Sample

LOG = logging.getLogger(__name__)
STREAM, PROBED = 512, 2048
"""Tokens of a stream of the measured passes, and of the longer one of them."""
SPARE = 0.9
"""Share of what is free that is dealt out: kernels have workspaces, and pieces lie between tensors."""
LEAST, MOST = 1024, 65_536
"""Tokens of a pass, however little or much memory there is."""


class Meter(Protocol):
    """What is known of a device's memory."""

    def reset(self) -> None:
        """Forget the peak."""
        ...

    def peak(self) -> int:
        """Return the most bytes that were taken since `reset`."""
        ...

    def limit(self) -> int:
        """Return the bytes that we may take in all."""
        ...


class CudaMeter:
    """The memory of a card, by torch's own counts."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def reset(self) -> None:
        """See `Meter.reset`."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """See `Meter.peak`."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def limit(self) -> int:
        """See `Meter.limit`."""
        return free_memory(self._device)[0] + int(torch.cuda.memory_allocated(self._device))


def fit_pass(learner: Learner, given: int | None, meter: Meter | None = None) -> str:
    """Set how many tokens `learner` takes at once, and return why in a line; empty where nothing was measured.

    `meter` is that of its device; none: of a GPU its own, and nothing is measured elsewhere, or in ranks.
    """
    device = learner.model.device
    if given is None and meter is None and device.type == "cuda" and learner.num_parts == 1:
        meter = CudaMeter(device)
    if given is not None or meter is None:
        learner.max_tokens = given or MICRO_TOKENS
        return ""
    learner.max_tokens, by_token = measure_pass(learner, meter)
    return (
        f"a pass in training takes {learner.max_tokens:,} tokens: one of {PROBED:,} was measured, and a token takes "
        f"{by_token / 1024:.0f} KiB of the {amount(meter.limit())} of {device}"
    )


def measure_pass(learner: Learner, meter: Meter) -> tuple[int, float]:
    """Return how many tokens of a pass fit, and the bytes that each of them takes.

    Weights and gradients are in the measured peaks; what the optimizer will keep is reckoned.
    """
    _pass(learner, STREAM)  # kernels are chosen, and workspaces made
    peaks: list[int] = []
    for tokens in (PROBED // 2, PROBED):
        meter.reset()
        _pass(learner, tokens)
        peaks.append(meter.peak())
    by_token = max((peaks[1] - peaks[0]) / (PROBED // 2), 1.0)
    empty = peaks[1] - by_token * PROBED
    count = sum(parameter.numel() for parameter in learner.parameters)
    state = 0 if learner.optimizer.state else OPTIMIZER[learner.optimization.optimizer] * count
    found = int((meter.limit() * SPARE - empty - state) / by_token)
    return min(max(found // 256 * 256, LEAST), MOST), by_token


def _pass(learner: Learner, tokens: int) -> None:
    """Compute a gradient over streams of so many tokens in all, and forget it."""
    outputs = learner.forward(pack([_stream(learner, number) for number in range(tokens // STREAM)]))
    total = outputs.logprobs.sum() + (0 if outputs.values is None else outputs.values.sum())
    total.backward()
    learner.optimizer.zero_grad(set_to_none=True)


def _stream(learner: Learner, number: int) -> Sample:
    """Return a stream of which three quarters are trained."""
    size = int(cast(Tensor, learner.model.get_input_embeddings().weight).shape[0])
    ids = (np.arange(STREAM) * 7919 + number) % size
    is_trained = np.arange(STREAM) >= STREAM // 4
    zeros = np.zeros(STREAM, np.float32)
    return Sample(
        token_ids=ids,
        loss_weight=is_trained.astype(np.float32),
        logprobs=zeros,
        advantages=zeros,
        returns=zeros,
        turn_id=np.where(is_trained, 0, -1),
        turn_end=np.arange(STREAM) == STREAM - 1,
        trajectory=number,
    )

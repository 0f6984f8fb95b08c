"""Steps of one token a stream as CUDA graphs: recorded once, then replayed by one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
SHORTEST = 256
"""Keys that a recorded step looks at, at least; beyond them twice as many, and so on."""

Step = Callable[[Tensor, Tensor, int], Tensor]
"""(tokens [S], their positions [S], keys that are looked at) → logits [S, V]"""


def bucket(length: int, capacity: int) -> int:
    """Return the keys that a step looks at whose longest stream has `length` tokens."""
    size = SHORTEST
    while size < length:
        size *= 2
    return min(size, capacity)


class DecodeGraphs:
    """Replays a `step` over all slots of a cache; whoever changes the cache or the weights makes a new one.

    A step of a few streams is some thousand kernels of microseconds each, which a processor cannot start as fast as
    they run. What is recorded reads its tokens and positions from the same two places each time.
    """

    def __init__(self, step: Step, num_slots: int, device: torch.device) -> None:
        self.step = step
        self.tokens = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.positions = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self._recorded: dict[int, tuple[Any, Tensor]] = {}
        self._pool: Any = None
        self._fails = device.type != "cuda"

    def __call__(self, tokens: Sequence[int], positions: Sequence[int], length: int) -> Tensor:
        """Return the logits [S, V] after one token of each slot; the next call overwrites them."""
        both = torch.tensor([tokens, positions])
        if not self._fails:
            both = both.pin_memory()
        self.tokens.copy_(both[0], non_blocking=True)
        self.positions.copy_(both[1], non_blocking=True)
        if not self._fails and length not in self._recorded:
            try:
                self._recorded[length] = self._record(length)
            except RuntimeError as error:  # of torch or CUDA: a kernel that cannot be recorded
                LOG.warning(
                    "steps of the engine are not recorded as a CUDA graph, which is slower: %s", error
                )
                self._fails = True
        if self._fails:
            return self.step(self.tokens, self.positions, length)
        graph, logits = self._recorded[length]
        graph.replay()
        return logits

    def _record(self, length: int) -> tuple[Any, Tensor]:
        """Return a graph of a step, and where it leaves its logits; a step writes the same as often as it is made."""
        cuda: Any = torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(2):
                self.step(self.tokens, self.positions, length)
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, pool=self._pool):
            logits = self.step(self.tokens, self.positions, length)
        self._pool = graph.pool()
        return graph, logits

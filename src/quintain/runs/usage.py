"""How well a step uses its machine: memory, arithmetic, and who waited for whom, as metrics ``machine/…``."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from quintain.models.memory import GIB

CARDS = {
    "B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "H20": 148e12, "A100": 312e12, "A10G": 70e12,
    "L40S": 362e12, "L40": 181e12, "L4": 121e12, "RTX 4090": 165e12, "RTX 3090": 71e12, "MI300X": 1307e12,
}  # fmt: skip
"""Name of a card, of which the first that fits counts → multiplications and additions a second in bf16, as sold."""
FORWARD, BACKWARD, BY_INPUTS = 2, 4, 2
"""Multiplications and additions of a parameter and token: of a forward pass, a backward pass, and of one in which the
weights rest, for layers of LoRA beside them."""


def card_speed(name: str) -> float | None:
    """Return the multiplications and additions that a card of this name makes in a second in bf16; None: not known."""
    return next((speed for card, speed in CARDS.items() if card in name), None)


def peak_memory(device: torch.device) -> float:
    """Return the most GiB that torch has had of a card since it was last asked, or this process of main memory."""
    if device.type == "cuda":
        found = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return found / GIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


@dataclass(slots=True)
class Usage:
    """What was done until some moment: seconds of work and tokens; ``Usage(engine=1.5, learner=2.0, tokens=4096)``."""

    engine: float = 0.0
    environments: float = 0.0
    """in lockstep; those that are played asynchronously run beside the others"""
    learner: float = 0.0
    tokens: int = 0

    def since(
        self, before: Usage, seconds: float, device: torch.device, *, parameters: int, rests: bool
    ) -> Iterator[tuple[str, float]]:
        """Yield the metrics of the `seconds` since `before`, of a model of so many `parameters`, which may rest."""
        span = max(seconds, 1e-9)
        yield "machine/memory_gib", peak_memory(device)
        yield "machine/engine_idle", min(max(1 - (self.engine - before.engine) / span, 0.0), 1.0)
        acted = self.environments - before.environments
        if acted > 0:
            yield "machine/environments_idle", min(max(1 - acted / span, 0.0), 1.0)
        learned = self.learner - before.learner
        if learned <= 0:
            return
        yield "machine/learner_idle", min(max(1 - learned / span, 0.0), 1.0)
        speed = card_speed(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
        if speed is not None:
            work = (FORWARD + (BY_INPUTS if rests else BACKWARD)) * parameters * (self.tokens - before.tokens)
            yield "machine/mfu", work / learned / speed

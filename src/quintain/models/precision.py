"""What a forward pass computes in: fp32, or bf16 for the products of linear layers.

Weights and optimizer stay in fp32 either way. On the processor linear layers round their factors and nothing else, and
so does attention where the kernels in C compute it (`models.cpu.half`); elsewhere it is torch's autocast.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import torch

from quintain.models.cpu.half import HalfProducts, warn_if_slow

Precision = Literal["fp32", "bf16"]


@contextmanager
def computing(precision: Precision, device: torch.device) -> Generator[None]:
    """Let what is computed on `device` meanwhile be of `precision`."""
    if precision == "fp32":
        yield
    elif device.type == "cpu":
        warn_if_slow()
        with HalfProducts():
            yield
    else:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            yield

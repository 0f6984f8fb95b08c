"""What a forward pass computes in: fp32, or bf16 for the products of linear layers; and what weights are kept in.

What is trained, and the optimizer, stay in fp32 either way. On the processor linear layers round their factors and
nothing else, and so does attention where the kernels in C compute it (`models.cpu.half`); elsewhere it is torch's
autocast, and weights that are not trained are kept in 16 bits (`storage_dtype`).
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import torch

from quintain.models.cpu.half import HalfProducts, warn_if_slow

Precision = Literal["fp32", "bf16"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""What weights can be kept in, by name."""


def storage_dtype(precision: Precision, device: torch.device, *, is_frozen: bool) -> str:
    """Return the precision that weights are loaded in which compute in `precision` on `device`.

    Those that nobody trains are rounded once, where the device computes with them as they are: half the memory. The
    kernels of the processor read 32 bits.
    """
    return "bfloat16" if precision == "bf16" and is_frozen and device.type != "cpu" else "float32"


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

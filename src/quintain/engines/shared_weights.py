"""One buffer of weights that the learner and a server of its machine both see, so that neither reads the other's files.

Where the learner has a GPU, the buffer lies on it, and the server's workers open it by CUDA IPC; else it is a file in
memory. What the workers do is in `inside_vllm/quintain_vllm.py`.
"""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from quintain.engines.weight_group import open_tensors, tensors_of

Row = dict[str, Any]
ALIGNED = 256
"""Bytes at multiples of which tensors begin."""
IN_MEMORY = Path("/dev/shm")  # where this system has such a folder


@contextmanager
def share_weights(folder: Path) -> Generator[Row]:
    """Put the tensors in `folder` into a buffer, which is there until the end of the block; yield where they are.

    The keys: ``tensors`` with name, shape, dtype and first byte of each, ``size`` in bytes, and either ``path`` of a
    file or ``cuda``, the handles of memory on the GPU ``uuid``.

    Raises:
        SafetensorError, OSError: a file cannot be read, or the buffer has no room.
    """
    told: list[tuple[str, list[int], str, int]] = []
    size = 0
    for name, shape, dtype in tensors_of(folder):
        told.append((name, shape, dtype, size))
        num_bytes = prod(shape) * cast(torch.dtype, getattr(torch, dtype)).itemsize
        size += -(-num_bytes // ALIGNED) * ALIGNED
    with _buffer(size) as (buffer, where):
        for (_, tensor), (*_, first) in zip(open_tensors(folder), told, strict=True):
            flat = tensor.contiguous().view(-1).view(torch.uint8)
            buffer[first : first + len(flat)].copy_(flat)
        if buffer.is_cuda:
            torch.cuda.synchronize()
        yield {"tensors": told, "size": size, **where}


@contextmanager
def _buffer(size: int) -> Generator[tuple[Tensor, Mapping[str, Any]]]:
    """Yield so many bytes, and how another process finds them."""
    if torch.cuda.is_available():
        buffer = torch.empty(size, dtype=torch.uint8, device="cuda")
        handles = cast(Any, buffer.untyped_storage())._share_cuda_()
        packed = [
            {"bytes": b64encode(part).decode()} if isinstance(part, bytes) else part for part in handles
        ]
        yield buffer, {"cuda": packed, "uuid": str(torch.cuda.get_device_properties(buffer.device).uuid)}
        return
    number, path = tempfile.mkstemp(prefix="quintain-weights-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
    try:
        os.posix_fallocate(
            number, 0, max(size, 1)
        )  # no room is an error here, and not a signal when it is written
        yield torch.from_file(path, shared=True, size=size, dtype=torch.uint8), {"path": path}
    finally:
        os.close(number)
        Path(path).unlink()

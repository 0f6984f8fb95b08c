"""A learner and the workers of one server, which take weights from it tensor by tensor, over NCCL or gloo.

Weights then need no folder that both see. Each server has a group of its own, in which the learner is rank 0; what the
workers do is in `inside_vllm/quintain_vllm.py`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import torch
import torch.distributed
from safetensors import safe_open
from torch import Tensor

from quintain.errors import UsageError

Backend = Literal["gloo", "nccl"]
distributed = cast(Any, torch.distributed)


class WeightGroup:
    """Where `num_workers` of the server at `url` meet the learner: ``WeightGroup("gloo", url, 2, 60.0)``."""

    def __init__(self, backend: Backend, url: str, num_workers: int, seconds: float) -> None:
        """Open a port of this machine where they meet; nobody may wait for the others longer than so many `seconds`."""
        self.backend, self.num_workers = backend, num_workers
        self._patience = timedelta(seconds=seconds)
        host = _own_address(url)
        listening = socket.create_server((host, 0))
        port = int(listening.getsockname()[1])
        self._store = distributed.TCPStore(
            host,
            port,
            None,
            True,
            self._patience,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
        self.address: tuple[str, int] = host, port
        """for the workers"""
        self._group: Any = None

    def join(self) -> None:
        """Wait until all workers are there.

        Raises:
            RuntimeError: they do not come.
        """
        if self.backend == "nccl":
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = self._patience
            self._group = distributed.ProcessGroupNCCL(self._store, 0, self.num_workers + 1, options)
        else:
            self._group = distributed.ProcessGroupGloo(self._store, 0, self.num_workers + 1, self._patience)

    def send(self, folder: Path) -> None:
        """Send the tensors in `folder`, in the order of `tensors_of`.

        Raises:
            RuntimeError: a worker is gone. OSError: a file is.
        """
        device = "cuda" if self.backend == "nccl" else "cpu"
        for _, tensor in open_tensors(folder, device):
            flat = tensor.contiguous().view(-1).view(torch.uint8)
            self._group.broadcast([flat], distributed.BroadcastOptions()).wait(self._patience)
        if device == "cuda":
            torch.cuda.synchronize()


def check_nccl() -> None:
    """Refuse NCCL on a machine that has it not.

    Raises:
        UsageError: so it is.
    """
    if not (torch.cuda.is_available() and distributed.is_nccl_available()):
        raise UsageError(
            "weights of an engine: got nccl where the learner has no GPU; give gloo, shared or files"
        )


def tensors_of(folder: Path) -> list[tuple[str, list[int], str]]:
    """Return name, shape and dtype of the tensors in `folder`, in the order in which they are sent.

    Raises:
        SafetensorError, OSError: a file cannot be read.
    """
    return [
        (name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in open_tensors(folder)
    ]


def in_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Return what waits for `work`, done in a thread that is left alone when nobody waits any more.

    What waits for a worker that is gone cannot be called back, and ends by its own patience.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except (RuntimeError, OSError) as trouble:
            error = trouble
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name="weights", daemon=True).start()
    return done


def open_tensors(folder: Path, device: str = "cpu") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in the files of `folder` one at a time, with their names."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt", device=device) as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                yield name, opened.get_tensor(name)


def _own_address(url: str) -> str:
    """Return the address by which the server at `url` reaches this machine."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    with suppress(OSError):  # then the name of this machine must do
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # of datagrams: nothing is sent
            return str(probe.getsockname()[0])
    return socket.gethostname()

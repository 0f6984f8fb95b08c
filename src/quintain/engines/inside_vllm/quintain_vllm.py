"""What vLLM's workers need to take a learner's weights: ``--worker-extension-cls quintain_vllm.Weights``.

vLLM imports this module by its bare name, in an environment where quintain is not installed, so it imports nothing of
quintain. vLLM's own ``reload_weights`` is not used: on CPUs it leaves the packed copies of linear layers as they were
(0.32), and after files that cannot be read the model is neither the old nor the new one.
"""

from __future__ import annotations

import importlib
import math
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from safetensors import SafetensorError, safe_open

Shapes = dict[str, tuple[int, ...]]


def _keep_weights_plain() -> None:
    """Let linear layers on CPUs compute with the weights that the model holds, and not with packed copies of them."""
    operations: Any = importlib.import_module("vllm._custom_ops")
    layers: Any = importlib.import_module("vllm.model_executor.layers.utils")
    operations._supports_onednn = False
    layers.check_cpu_sgl_kernel = lambda *_: False


_keep_weights_plain()


class Weights:
    """Mixed into vLLM's worker; each method can be called by ``/collective_rpc``."""

    model_runner: Any
    rank: int
    device: torch.device
    _shapes: Shapes | None = None
    _group: Any = None
    _patience: timedelta
    _receives_on: torch.device
    _expected: tuple[tuple[str, list[int], str], ...] = ()

    def load_quintain_weights(self, folder: str) -> dict[str, Any]:
        """Put the weights in `folder` into the model that is served; return how many tensors, or what is ``wrong``.

        Nothing is changed unless names and shapes are those of the files that the model was loaded from.
        """
        try:
            if wrong := _difference(_shapes(Path(folder)), self._own_shapes()):
                return {"wrong": wrong}
            new = [
                (name, opened.get_tensor(name))
                for file in _files(Path(folder))
                for opened in [safe_open(file, framework="pt")]
                for name in opened.keys()  # noqa: SIM118 (it is no mapping)
            ]
        except (OSError, ValueError, SafetensorError) as error:
            return {"wrong": f"a file that cannot be read ({error})"}
        with torch.no_grad():
            self.model_runner.get_model().load_weights(iter(new))
        return {"tensors": len(new)}

    def expect_quintain_weights(self, tensors: list[tuple[str, list[int], str]]) -> dict[str, Any]:
        """Hear names, shapes and dtypes of what will be sent; return what is ``wrong`` with them, if anything."""
        if wrong := _difference({name: tuple(shape) for name, shape, _ in tensors}, self._own_shapes()):
            return {"wrong": wrong}
        self._expected = tuple(tensors)
        return {}

    def join_quintain(
        self, host: str, port: int, count: int, backend: str, patience: float
    ) -> dict[str, Any]:
        """Meet the learner, which is rank 0 of `count`, where it listens."""
        distributed: Any = torch.distributed
        self._patience = within = timedelta(seconds=patience)
        store = distributed.TCPStore(host, port, None, False, within, wait_for_workers=False)
        if backend == "nccl":
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = within
            self._group = distributed.ProcessGroupNCCL(store, self.rank + 1, count, options)
        else:
            self._group = distributed.ProcessGroupGloo(store, self.rank + 1, count, within)
        self._receives_on = self.device if backend == "nccl" else torch.device("cpu")
        return {}

    def take_quintain_weights(self) -> dict[str, Any]:
        """Put what the learner sends into the model, one tensor after the other; return how many they were."""
        with torch.no_grad():
            self.model_runner.get_model().load_weights(self._receive_tensors())
        return {"tensors": len(self._expected)}

    def map_quintain_weights(
        self,
        tensors: list[tuple[str, list[int], str, int]],
        size: int,
        path: str = "",
        cuda: list[Any] | None = None,
        uuid: str = "",
    ) -> dict[str, Any]:
        """Take weights from a buffer that the learner has on this machine; return how many, or what is ``wrong``."""
        if wrong := _difference({name: tuple(shape) for name, shape, *_ in tensors}, self._own_shapes()):
            return {"wrong": wrong}
        if cuda is not None:
            seen = [str(torch.cuda.get_device_properties(n).uuid) for n in range(torch.cuda.device_count())]
            if uuid not in seen:
                return {
                    "wrong": f"memory of the GPU {uuid}, where this server sees {', '.join(seen) or 'none'}"
                }
            buffer = _open_shared(cuda, seen.index(uuid))
        elif Path(path).is_file():
            buffer = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        else:
            return {"wrong": f"{path}, which is not on this server's machine"}
        with torch.no_grad():
            self.model_runner.get_model().load_weights(_parts(buffer, tensors))
        if cuda is not None:
            torch.cuda.synchronize()
        return {"tensors": len(tensors)}

    def _receive_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        distributed: Any = torch.distributed
        for name, shape, dtype in self._expected:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=self._receives_on)
            self._group.broadcast([tensor.view(-1).view(torch.uint8)], distributed.BroadcastOptions()).wait(
                self._patience
            )
            yield name, tensor

    def _own_shapes(self) -> Shapes:
        if self._shapes is None:
            self._shapes = _shapes(Path(self.model_runner.model_config.model))
        return self._shapes


def _open_shared(cuda: list[Any], device: int) -> torch.Tensor:
    """Return the bytes that another process shares by CUDA IPC, on our `device`."""
    handles = [b64decode(part["bytes"]) if isinstance(part, dict) else part for part in cuda]
    storage: Any = torch.UntypedStorage
    found = storage._new_shared_cuda(device, *handles[1:])
    return torch.empty(0, dtype=torch.uint8, device=found.device).set_(found)


def _parts(
    buffer: torch.Tensor, tensors: list[tuple[str, list[int], str, int]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that lie in `buffer`."""
    for name, shape, dtype, first in tensors:
        kind: torch.dtype = getattr(torch, dtype)
        part = buffer[first : first + math.prod(shape) * kind.itemsize]
        yield name, part.view(kind).view(shape)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _shapes(folder: Path) -> Shapes:
    """Return the shape of every tensor in the files of `folder`."""
    found: Shapes = {}
    for file in _files(folder):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                found[name] = tuple(opened.get_slice(name).get_shape())
    return found


def _difference(found: Shapes, expected: Shapes) -> str:
    """Say how the tensors `found` differ from the `expected` ones; an empty text where they do not."""
    if not found:
        return "no safetensors file"
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} of shape {found.get(name)} for {expected.get(name)}"
    return ""

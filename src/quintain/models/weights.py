"""The weights of a model as safetensors files in a folder, and back into a model that is in use.

The names are those of the model's own tensors, as `save_pretrained` writes them; tied tensors stand once. Reading
changes nothing unless every tensor fits, so that a model is of one version or the other and never of both. The state
of any module is read by `read_state`, which has numbers checked, too: it may come from a folder of others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from quintain.errors import ModelError, StoreError
from quintain.models.adapters import plain

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILE = "model.safetensors"


def write_weights(model: PreTrainedModel, folder: Path) -> Path:
    """Write the weights of `model` to `folder`, which is made, and return it; LoRA layers are merged into a copy.

    The file is there as a whole or not at all. It is not flushed to the disk: it is for another process to read
    soon, `models.save` is for keeping.

    Raises:
        StoreError: the disk is full or cannot be written.
    """
    whole = plain(model)
    temporary = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".weights-", dir=folder)
        os.close(handle)
        save_file(_once(whole), temporary, metadata={"format": "pt"})
        os.replace(temporary, folder / FILE)
    except (OSError, SafetensorError) as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StoreError(
            f"write weights to {str(folder)!r}: got {error}; free space or name a folder that can be written"
        ) from error
    return folder


def _once(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the tensors of `model` by name; one that has several stands under the first, which loaders ask for."""
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, tensor in cast("dict[str, Tensor]", model.state_dict()).items():
        if not tensor.numel() or tensor.data_ptr() not in known:
            known.add(tensor.data_ptr())
            found[name] = tensor.contiguous()
    return found


@torch.no_grad()
def read_weights(model: PreTrainedModel, folder: Path) -> None:
    """Put the weights in `folder` into `model`, in place, on its device and in its precision.

    Raises:
        ModelError: a file is missing or broken, or tensors are missing, unknown or of another shape.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise _refusal(
            folder, "no safetensors file", "give a folder that write_weights or save_pretrained wrote"
        )
    targets = cast("dict[str, Tensor]", model.state_dict())
    try:
        if came := _find_misfit(targets, {name: tuple(shape) for name, shape in _shapes(files)}):
            raise _refusal(folder, came, "give weights of this model")
        new = dict(_tensors(files))
    except (OSError, SafetensorError) as error:
        raise _refusal(folder, f"a file that cannot be read ({error})", "write it again") from error
    for name, tensor in new.items():
        targets[name].copy_(tensor)


@torch.no_grad()
def read_state(module: nn.Module, file: Path) -> None:
    """Put the tensors in `file` into `module`, in place: all of its state, tied tensors under any of their names.

    Raises:
        OSError: the file cannot be read.
        SafetensorError: it is no safetensors file.
        ValueError: tensors are missing, unknown, of another shape or type, or not finite; nothing is changed.
    """
    targets = cast("dict[str, Tensor]", module.state_dict())
    with safe_open(file, framework="pt") as opened:
        names = list(opened.keys())
        if came := _find_misfit(targets, {name: tuple(opened.get_slice(name).get_shape()) for name in names}):
            raise ValueError(f"{file.name} with {came}")
        new = {name: cast(Tensor, opened.get_tensor(name)) for name in names}
        for name, tensor in new.items():
            check_numbers(name, tensor, targets[name].dtype)
        for name, tensor in new.items():
            targets[name].copy_(tensor)


def check_numbers(name: str, tensor: Tensor, dtype: torch.dtype, *, is_positive: bool = False) -> None:
    """Refuse a stored `tensor` of another type than `dtype`, with numbers that are not finite, or that are below 0.

    Raises:
        ValueError: it is so.
    """
    if tensor.dtype != dtype:
        raise ValueError(f"{name} of {tensor.dtype} for {dtype}".replace("torch.", ""))
    if dtype.is_floating_point and not tensor.isfinite().all():
        raise ValueError(f"{name} with numbers that are not finite")
    if is_positive and (tensor < 0).any():
        raise ValueError(f"{name} with numbers below 0")


def _find_misfit(targets: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]]) -> str:
    """Return in what tensors of the shapes `found` are not those of `targets`, tied ones once; "" where they are."""
    if unknown := sorted(found.keys() - targets.keys()):
        return f"a tensor {unknown[0]} that the model has not"
    written = {targets[name].data_ptr() for name in found}
    missing = [
        name for name, tensor in targets.items() if name not in found and tensor.data_ptr() not in written
    ]
    if missing:
        return f"weights without {missing[0]} ({len(missing)} missing)"
    for name, shape in found.items():
        if shape != tuple(targets[name].shape):
            return f"{name} of shape {shape} for {tuple(targets[name].shape)}"
    return ""


def _shapes(files: list[Path]) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and shape of every tensor in `files`."""
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                yield name, opened.get_slice(name).get_shape()


def _tensors(files: list[Path]) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and values of every tensor in `files`."""
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                yield name, opened.get_tensor(name)


def _refusal(folder: Path, came: str, todo: str) -> ModelError:
    """Return the error of a folder of weights."""
    return ModelError(f"weights in {str(folder)!r}: got {came}; {todo}")

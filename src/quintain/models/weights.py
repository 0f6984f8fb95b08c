"""The weights of a model as safetensors files in a folder, and back into a model that is in use.

The names are those of the model's own tensors, as `save_pretrained` writes them; tied tensors stand once. Reading
changes nothing unless every tensor fits, so that a model is of one version or the other and never of both.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

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
        found = {name: tuple(shape) for name, shape in _shapes(files)}
        _check(folder, targets, found)
        new = dict(_tensors(files))
    except (OSError, SafetensorError) as error:
        raise _refusal(folder, f"a file that cannot be read ({error})", "write it again") from error
    for name, tensor in new.items():
        targets[name].copy_(tensor)


def _check(folder: Path, targets: dict[str, Tensor], found: dict[str, tuple[int, ...]]) -> None:
    """Refuse files whose tensors are not those of `targets`, tied ones once."""
    unknown = sorted(found.keys() - targets.keys())
    if unknown:
        raise _refusal(folder, f"a tensor {unknown[0]} that the model has not", "give weights of this model")
    written = {targets[name].data_ptr() for name in found}
    missing = [
        name for name, tensor in targets.items() if name not in found and tensor.data_ptr() not in written
    ]
    if missing:
        raise _refusal(folder, f"weights without {missing[0]} ({len(missing)} missing)", "give all of them")
    for name, shape in found.items():
        if shape != tuple(targets[name].shape):
            raise _refusal(
                folder,
                f"{name} of shape {shape} for {tuple(targets[name].shape)}",
                "give weights of this model",
            )


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

"""Weights and optimizer state on disk: safetensors for tensors, JSON for numbers, nothing that can run code.

What lies in several processes is written by all of them, each its part, and read by any number of them, or by one
process that has it whole.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from quintain.errors import StoreError
from quintain.models.heads import ValueHead

WEIGHTS, MOMENTS, NUMBERS = "weights-{index}.safetensors", "optimizer.safetensors", "learner.json"
SHARDS = "shard-*.safetensors"
OPTIMIZER = "optimizer"
"""What names of the optimizer's tensors in shards begin with."""
HEAD = "value_head."
"""What names of the tensors of a value head in shards begin with."""


def save_state(
    folder: Path, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer, numbers: Mapping[str, int]
) -> None:
    """Write the trained parameters and buffers of `modules`, the state of `optimizer` and `numbers`."""
    for index, module in enumerate(modules):
        save_model(module, str(folder / WEIGHTS.format(index=index)))  # tied weights once
    state: dict[str, Tensor] = {}
    for place, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{place}.{key}"] = torch.as_tensor(value).detach().contiguous()
    save_file(state, folder / MOMENTS)
    save_numbers(folder, numbers)


def load_state(
    folder: Path, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer
) -> dict[str, int]:
    """Take over what `save_state` wrote and return the numbers.

    Raises:
        StoreError: a file is missing, broken or of another model.
    """
    try:
        for index, module in enumerate(modules):
            load_model(module, folder / WEIGHTS.format(index=index))
        moments = load_file(folder / MOMENTS)
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        what = " ".join(str(error).split())[:300]
        raise StoreError(f"checkpoint {folder}: got {what}; resume from another checkpoint") from error
    numbers = load_numbers(folder)
    for place, parameter in enumerate(_parameters(optimizer)):
        prefix = f"{place}."
        entries = {
            key.removeprefix(prefix): value for key, value in moments.items() if key.startswith(prefix)
        }
        if entries:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in entries.items()}
    return numbers


def head_in(folder: Path) -> ValueHead | None:
    """Return a new value head of the shape of the one that the checkpoint in `folder` holds; None where it has none.

    Raises:
        StoreError: its files are missing or broken.
    """
    beside = folder / WEIGHTS.format(index=1)
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        if any(folder.glob(SHARDS)):
            known = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
            named = {name.removeprefix(HEAD): each for name, each in known.items() if name.startswith(HEAD)}
            shapes = {name: tuple(cast("Any", each).size) for name, each in named.items()}
        elif beside.is_file():
            with safe_open(beside, framework="pt") as opened:
                shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        raise StoreError(f"checkpoint {folder}: got {error}; take another checkpoint") from error
    if not shapes:
        return None
    first = shapes.get("inner.0.weight")
    width, hidden = first or (0, shapes["linear.weight"][1])
    return ValueHead(hidden, width=width, has_scales="mean" in shapes)


def save_numbers(folder: Path, numbers: Mapping[str, int]) -> None:
    """Write `numbers` into `folder`."""
    (folder / NUMBERS).write_text(json.dumps(dict(numbers)))


def load_numbers(folder: Path) -> dict[str, int]:
    """Return what `save_numbers` wrote.

    Raises:
        StoreError: the file is missing or broken.
    """
    try:
        found = cast("dict[str, Any]", json.loads((folder / NUMBERS).read_text()))
        return {str(key): int(value) for key, value in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreError(
            f"checkpoint {folder}: got {NUMBERS} that cannot be read ({error}); resume from another checkpoint"
        ) from error


def save_shards(folder: Path, named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """Write this process's part of the parameters `named` and of the state of `optimizer`; all ranks must call it."""
    moments = {
        f"{OPTIMIZER}.{key}.{name}": torch.as_tensor(value)
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save({**named, **moments}, storage_writer=writer)


def load_shards(folder: Path, named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """Take over what any number of ranks wrote by `save_shards`: a rank its part, a process that has no ranks all.

    Raises:
        StoreError: a file is missing, broken or of another model.
    """
    try:
        known = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        moments: dict[str, Tensor] = {}
        for place in known:
            if place.startswith(f"{OPTIMIZER}."):
                _, key, name = place.split(".", 2)
                moments[place] = torch.zeros(()) if key == "step" else torch.zeros_like(named[name].detach())
        with warnings.catch_warnings():  # that there are no ranks here is known
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            reader = HuggingFaceStorageReader(str(folder))
            load({**named, **moments}, storage_reader=reader, no_dist=not dist.is_initialized())
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
        what = " ".join(str(error).split())[:300]
        raise StoreError(f"checkpoint {folder}: got {what}; resume from another checkpoint") from error
    optimizer.state.clear()
    for place, moment in moments.items():
        _, key, name = place.split(".", 2)
        optimizer.state.setdefault(named[name], {})[key] = moment


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

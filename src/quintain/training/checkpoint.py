"""Weights and optimizer state on disk: safetensors for tensors, JSON for numbers, nothing that can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quintain.errors import StoreError

WEIGHTS, MOMENTS, NUMBERS = "weights-{index}.safetensors", "optimizer.safetensors", "learner.json"


def save_state(
    folder: Path, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer, numbers: Mapping[str, int]
) -> None:
    """Write the trained parameters and buffers of `modules`, the state of `optimizer` and `numbers`."""
    for index, module in enumerate(modules):
        save_file(_tensors(module), folder / WEIGHTS.format(index=index))
    state: dict[str, Tensor] = {}
    for place, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{place}.{key}"] = torch.as_tensor(value).detach().contiguous()
    save_file(state, folder / MOMENTS)
    (folder / NUMBERS).write_text(json.dumps(dict(numbers)))


def load_state(
    folder: Path, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer
) -> dict[str, int]:
    """Take over what `save_state` wrote and return the numbers.

    Raises:
        StoreError: a file is missing, broken or of another model.
    """
    try:
        for index, module in enumerate(modules):
            module.load_state_dict(_expanded(module, load_file(folder / WEIGHTS.format(index=index))))
        moments = load_file(folder / MOMENTS)
        found = cast("dict[str, Any]", json.loads((folder / NUMBERS).read_text()))
        numbers = {str(key): int(value) for key, value in found.items()}
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"checkpoint {folder}: got {error}; resume from another checkpoint") from error
    for place, parameter in enumerate(_parameters(optimizer)):
        prefix = f"{place}."
        entries = {
            key.removeprefix(prefix): value for key, value in moments.items() if key.startswith(prefix)
        }
        if entries:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in entries.items()}
    return numbers


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the state of `module` with tensors that share storage (tied weights) once."""
    seen: dict[int, str] = {}
    kept: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen[tensor.data_ptr()] = name
        kept[name] = tensor.detach().contiguous()
    return kept


def _expanded(module: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `tensors` with the names that `_tensors` left out because they share storage."""
    names: dict[int, str] = {}
    full: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        owner = names.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if owner in tensors:
            full[name] = tensors[owner]
    return full


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

"""Weights and optimizer state on disk: safetensors for tensors, JSON for numbers, nothing that can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from quintain.errors import StoreError

WEIGHTS, MOMENTS, NUMBERS = "weights-{index}.safetensors", "optimizer.safetensors", "learner.json"


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
            load_model(module, folder / WEIGHTS.format(index=index))
        moments = load_file(folder / MOMENTS)
        found = cast("dict[str, Any]", json.loads((folder / NUMBERS).read_text()))
        numbers = {str(key): int(value) for key, value in found.items()}
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split())[:300]
        raise StoreError(f"checkpoint {folder}: got {what}; resume from another checkpoint") from error
    for place, parameter in enumerate(_parameters(optimizer)):
        prefix = f"{place}."
        entries = {
            key.removeprefix(prefix): value for key, value in moments.items() if key.startswith(prefix)
        }
        if entries:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in entries.items()}
    return numbers


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

"""Weights and optimizer state on disk: safetensors for tensors, JSON for numbers, nothing that can run code.

What lies in several processes is written by all of them, each its part, and read by any number of them, or by one
process that has it whole.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file, save_model
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from quintain.errors import StoreError
from quintain.learning.optimizers import moment_shapes
from quintain.models.heads import ValueHead
from quintain.models.weights import check_numbers, read_state
from quintain.types.json_text import load_json

WEIGHTS, MOMENTS, NUMBERS = "weights-{index}.safetensors", "optimizer.safetensors", "learner.json"
SHARDS = "shard-*.safetensors"
OPTIMIZER = "optimizer"
"""What names of the optimizer's tensors in shards begin with."""
HEAD = "value_head."
"""What names of the tensors of a value head in shards begin with."""
POSITIVE = ("step", "exp_avg_sq", "variance", "row_var", "col_var")
"""What an optimizer knows that is never below 0."""
MAX_NUMBER = 2**53
"""No count is larger."""


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


def load_state(folder: Path, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer) -> None:
    """Take over what `save_state` wrote, but for the numbers.

    Raises:
        StoreError: a file is missing, broken or of another model; the optimizer is then as it was.
    """
    with _refuse(folder):
        moments = _read_moments(folder / MOMENTS, optimizer)
        load_modules(folder, modules)
    for place, parameter in enumerate(_parameters(optimizer)):
        if own := moments.get(place):
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in own.items()}


def load_modules(folder: Path, modules: Sequence[nn.Module], names: str = WEIGHTS) -> None:
    """Take over the parameters and buffers of `modules` of what `save_state` wrote, or of files of other `names`.

    Raises:
        StoreError: a file is missing, broken or of another model.
    """
    with _refuse(folder):
        for index, module in enumerate(modules):
            read_state(module, folder / names.format(index=index))


def head_in(folder: Path) -> ValueHead | None:
    """Return a new value head of the shape of the one that the checkpoint in `folder` holds; None where it has none.

    Raises:
        StoreError: its files are missing or broken.
    """
    beside = folder / WEIGHTS.format(index=1)
    shapes: dict[str, tuple[int, ...]] = {}
    with _refuse(folder):
        if any(folder.glob(SHARDS)):
            known = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
            named = {name.removeprefix(HEAD): each for name, each in known.items() if name.startswith(HEAD)}
            shapes = {name: tuple(cast("Any", each).size) for name, each in named.items()}
        elif beside.is_file():
            with safe_open(beside, framework="pt") as opened:
                shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        if not shapes:
            return None
        linear, inner = shapes.get("linear.weight", ()), shapes.get("inner.0.weight")
        if len(linear) != 2 or (inner is not None and len(inner) != 2):
            raise ValueError("a value head without its weights")
        width, hidden = inner or (0, linear[1])
        if 4 * max(width, 1) * hidden > sum(file.stat().st_size for file in folder.glob("*.safetensors")):
            raise ValueError(f"a value head of {width} by {hidden}, more than its files hold")
        return ValueHead(hidden, width=width, has_scales="mean" in shapes)


def save_numbers(folder: Path, numbers: Mapping[str, int]) -> None:
    """Write `numbers` into `folder`."""
    (folder / NUMBERS).write_text(json.dumps(dict(numbers)))


def load_numbers(folder: Path, names: Collection[str]) -> dict[str, int]:
    """Return what `save_numbers` wrote, which must be numbers of these `names`.

    Raises:
        StoreError: the file is missing or broken.
    """
    try:
        found: object = load_json((folder / NUMBERS).read_text())
        numbers = cast("dict[str, int]", found) if isinstance(found, dict) else dict[str, int]()
        if numbers.keys() != set(names):
            raise ValueError(f"it must have {', '.join(names)}")
        for name, value in numbers.items():
            if type(value) is not int or not 0 <= value <= MAX_NUMBER:
                raise ValueError(f"{name} is {value!r:.40}")
    except (OSError, ValueError) as error:
        raise StoreError(
            f"checkpoint {folder}: got {NUMBERS} that cannot be read ({error}); resume from another checkpoint"
        ) from error
    return numbers


def save_shards(folder: Path, named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """Write this process's part of the parameters `named` and of the state of `optimizer`; all ranks must call it."""
    moments = {
        f"{OPTIMIZER}.{key}.{name}": torch.as_tensor(value)
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save({**named, **moments}, storage_writer=writer)


def load_shards(
    folder: Path, named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None
) -> None:
    """Take over what any number of ranks wrote by `save_shards`: a rank its part, a process that has no ranks all.

    Without an `optimizer` the parameters alone are taken over.

    Raises:
        StoreError: a file is missing, broken or of another model; the optimizer is then as it was.
    """
    found: dict[str, dict[str, Tensor]] = {}
    moments: dict[str, Tensor] = {}
    with _refuse(folder):
        known = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        for place, described in known.items():
            prefix, _, rest = place.partition(".")
            if prefix != OPTIMIZER:
                own = named.get(place)
                _check_parts(place, described, None if own is None else tuple(own.shape), own)
            elif optimizer is not None:
                key, _, name = rest.partition(".")
                own = named.get(name)
                shape = None if own is None else moment_shapes(optimizer, own).get(key)
                moment = torch.zeros(()) if own is None or key == "step" else torch.zeros_like(own.detach())
                _check_parts(place, described, shape, moment)
                found.setdefault(name, {})[key] = moments[place] = moment
        if missing := sorted(named.keys() - known.keys()):
            raise ValueError(f"weights without {missing[0]} ({len(missing)} missing)")
        if optimizer is not None:
            for name, own in found.items():
                _check_whole(name, own, moment_shapes(optimizer, named[name]))
        with warnings.catch_warnings():  # that there are no ranks here is known
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            reader = HuggingFaceStorageReader(str(folder))
            load({**named, **moments}, storage_reader=reader, no_dist=not dist.is_initialized())
        for place, tensor in (*named.items(), *moments.items()):
            own = tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
            is_positive = place in moments and place.split(".")[1] in POSITIVE
            check_numbers(place, own, own.dtype, is_positive=is_positive)
    if optimizer is not None:
        optimizer.state.clear()
        optimizer.state.update({named[name]: own for name, own in found.items()})


def _check_parts(name: str, described: object, shape: tuple[int, ...] | None, target: Tensor | None) -> None:
    """Refuse what shards hold under `name` where its parts are not all of a tensor of that `shape` for `target`.

    Raises:
        ValueError: it is so, or there is to be none.
    """
    if shape is None or target is None or not isinstance(described, TensorStorageMetadata):
        raise ValueError(f"{name}, which is nothing of this model or its optimizer")
    if tuple(described.size) != shape or described.properties.dtype != target.dtype:
        came = f"{tuple(described.size)} {described.properties.dtype}"
        raise ValueError(f"{name} of {came} for {shape} {target.dtype}".replace("torch.", ""))
    parts = described.chunks
    if any(offset < 0 for part in parts for offset in part.offsets) or math.prod(shape) != sum(
        math.prod(part.sizes) for part in parts
    ):
        raise ValueError(f"{name} in {len(parts)} parts that are not all of it")


def _read_moments(file: Path, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return what `file` keeps for the parameters of `optimizer`, by their places; those without a step have nothing.

    Raises:
        OSError: it cannot be read.
        SafetensorError: it is no safetensors file.
        ValueError: it is of another model or optimizer, or of numbers with which no step can be made.
    """
    parameters = _parameters(optimizer)
    shapes = {place: moment_shapes(optimizer, parameter) for place, parameter in enumerate(parameters)}
    wanted = {f"{place}.{key}": (place, key) for place, own in shapes.items() for key in own}
    found: dict[int, dict[str, Tensor]] = {}
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no mapping)
            if name not in wanted:
                raise ValueError(f"{file.name} with {name}, which the optimizer has not")
            place, key = wanted[name]
            shape = tuple(opened.get_slice(name).get_shape())
            if shape != shapes[place][key]:
                raise ValueError(f"{name} of shape {shape} for {shapes[place][key]} in {file.name}")
            tensor = cast(Tensor, opened.get_tensor(name))
            dtype = torch.get_default_dtype() if key == "step" else parameters[place].dtype
            check_numbers(name, tensor, dtype, is_positive=key in POSITIVE)
            found.setdefault(place, {})[key] = tensor
    for place, own in found.items():
        _check_whole(str(place), own, shapes[place])
    return found


def _check_whole(name: str, own: Mapping[str, Tensor], shapes: Mapping[str, object]) -> None:
    """Refuse the moments of a parameter of which some are missing.

    Raises:
        ValueError: it is so.
    """
    if missing := sorted(shapes.keys() - own.keys()):
        raise ValueError(
            f"an optimizer that knows {', '.join(sorted(own))} of {name}, but not {', '.join(missing)}"
        )


@contextmanager
def _refuse(folder: Path) -> Generator[None]:
    """Turn whatever is wrong with a file of the checkpoint in `folder` into one error.

    Raises:
        StoreError: something is.
    """
    try:
        yield
    except (
        OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError,
        CheckpointException,
    ) as error:  # fmt: skip
        what = " ".join(str(error).split())[:300]
        raise StoreError(f"checkpoint {folder}: got {what}; resume from another checkpoint") from error


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the optimizer's parameters in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

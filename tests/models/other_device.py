"""A device made in Python for tests, ``other``: it computes on the processor, and refuses the processor's own.

It has no numbers of 64 bits behind the point, as that of a Mac has none.

`install` is for a process of its own: the device stays. Tensors of `other` meet those of the processor only in a copy
from one to the other, or where the latter have no dimension; anything else raises, as it would on a GPU.
"""

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "other"
COPIES = ("aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize")
NUMBERS: dict[int, Tensor] = {}
"""storage of a tensor of `other` → the tensor of the processor that stands for it"""
WHOLE = ("abs", "arange", "arange.start", "arange.start_step", "scaled_dot_product_attention")
"""What torch otherwise takes apart into writing to tensors of another size; there are no gradients."""
VIEWS = (
    "_reshape_alias", "diagonal", "expand", "permute", "select.int", "slice.Tensor", "split.Tensor",
    "split_with_sizes", "squeeze", "squeeze.dim", "squeeze.dims", "t", "transpose.int", "unbind.int", "unfold",
    "unsqueeze",
)  # fmt: skip
"""What torch otherwise makes of the distances between numbers, which are others in what stands for a tensor."""
OPEN: list[torch.library.Library] = []
CROSSINGS: list[str] = []
"""what went from the one to the other, or was read as a number: a card is waited for there"""


def is_other(tensor: Tensor) -> bool:
    return tensor.device.type == NAME


def numbers(leaf: Any) -> Any:
    """Return the tensor of the processor that a tensor of `other` stands for; all else as it is."""
    if isinstance(leaf, Tensor) and is_other(leaf):
        held = NUMBERS[cast(Any, leaf.untyped_storage())._cdata]
        return (
            held if held.shape == leaf.shape else held.reshape(leaf.shape)
        )  # torch gave it another shape by itself
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf


def wrapped(held: Tensor) -> Tensor:
    """Return a tensor of `other` that stands for `held`."""
    made: Tensor = cast(Any, torch)._C._acc.create_empty_tensor(list(held.shape), held.dtype)
    NUMBERS[cast(Any, made.untyped_storage())._cdata] = held
    return made


def compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute `op` on what its tensors stand for."""
    name = op._schema.name
    if name == "aten::_local_scalar_dense" or (name == "aten::_to_copy" and kwargs.get("device") is not None):
        CROSSINGS.append(name)
    if name in COPIES:
        source, target = (args[1], args[0]) if name == "aten::copy_" else args[:2]
        if is_other(source) != is_other(target):
            CROSSINGS.append(name)
        if is_other(target) and is_wide(target):
            raise TypeError(f"{name}: got float64, which {NAME} has not")
        numbers(target).copy_(numbers(source))
        return target
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    strangers = [t for t in tensors if not is_other(t) and t.dim() > 0]
    if strangers and any(map(is_other, tensors)) and name != "aten::_to_copy":
        raise RuntimeError(
            f"{name}: got a tensor of the processor, {list(strangers[0].shape)}, beside one of {NAME}"
        )
    wide = [t for t in (*tensors, *map(dtype_of, (kwargs.get("dtype"),))) if is_wide(t)]
    place = str(kwargs.get("device", ""))
    is_here = any(map(is_other, tensors)) or place == NAME
    if wide and is_here and (name != "aten::_to_copy" or place != "cpu"):
        raise TypeError(f"{name}: got float64, which {NAME} has not")
    if name in (
        "aten::view",
        "aten::_reshape_alias",
    ):  # whether it can be one was asked of a tensor that has no gaps
        return wrapped(numbers(args[0]).reshape(args[1]))
    found = op(*tree_map(numbers, args), **tree_map(numbers, kwargs))
    if str(kwargs.get("device", "")) == "cpu":
        return found
    given = {id(numbers(t)): t for t in tensors if is_other(t)}

    def back(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return given[id(leaf)] if id(leaf) in given else wrapped(leaf)

    return tree_map(back, found)


def dtype_of(kind: Any) -> Any:
    """Return an empty tensor of this type."""
    return torch.empty(0, dtype=kind) if kind is not None else torch.empty(0)


def is_wide(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float64


def install() -> torch.device:
    """Make the device and return it."""
    cast(Any, backend_registration)._setup_privateuseone_for_python_backend(NAME)
    cast(Any, torch).other.get_amp_supported_dtype = lambda: [torch.bfloat16]
    library = torch.library.Library("_", "IMPL")
    library.fallback(compute, "PrivateUse1")
    OPEN.append(library)
    aten = torch.library.Library("aten", "IMPL")
    for name in (*WHOLE, *VIEWS):
        base, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, base), overload or "default")
        aten.impl(name, partial(compute, op), "PrivateUse1")
    OPEN.append(aten)
    return torch.device(NAME)

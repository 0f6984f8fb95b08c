"""Linear layers on the processor with factors of 16 bits (bfloat16), summed in 32.

Weights, norms, softmax and the optimizer stay in fp32; only products round their two factors: those of linear layers,
which are nearly all of the work, and in the kernels in C those of attention. A row's result does not depend on the rows
beside it, and sampling and training use the same kernels, so that their log-probs stay together. Without a C compiler
torch computes the products of linear layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import local
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from quintain.models.cpu.native import call, processor, unavailable

LOG = logging.getLogger(__name__)
BLOCK = 16
"""Columns of a block of weights."""
_DEPTH = local()
"""How often each thread is within `HalfProducts`."""


class HalfProducts(TorchFunctionMode):
    """While it is entered, linear layers on 32-bit floats in the processor's memory are computed by `linear`.

    `fused.attention` rounds its factors then, too.
    """

    def __enter__(self) -> Self:
        """Enter it."""
        _DEPTH.number = getattr(_DEPTH, "number", 0) + 1
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        """Leave it."""
        _DEPTH.number -= 1
        super().__exit__(*problem)

    def __torch_function__(  # what torch calls it
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what `func` does, or for a linear layer what `linear` does."""
        if func is F.linear and all(is_plain(part) for part in args if isinstance(part, Tensor)):
            return linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def is_entered() -> bool:
    """Whether this thread is within `HalfProducts`."""
    return getattr(_DEPTH, "number", 0) > 0


@cache
def warn_if_slow() -> None:
    """Say so, once, where the processor has no arithmetic for bfloat16."""
    if "avx512_bf16" not in processor():
        LOG.warning(
            "precision bf16: this processor has no instructions for it (AVX512-BF16), so that it may be "
            "slower than fp32"
        )


def is_plain(tensor: Tensor) -> bool:
    """Whether `tensor` has 32-bit floats in the processor's memory."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `inputs` [..., K] times `weight` [N, K] transposed, plus `bias` [N], in fp32; both factors are rounded."""
    return cast(Tensor, cast(Any, _Linear).apply(inputs, weight, bias))


def multiply_plain(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what `linear` does, without a gradient."""
    flat = inputs.detach().reshape(-1, inputs.shape[-1])
    if unavailable():
        out = F.linear(flat.bfloat16(), weight.bfloat16()).float()
        out = out if bias is None else out + bias
    else:
        added = None if bias is None else bias.detach().contiguous()
        out = product(flat.contiguous(), pairs_of(weight), len(weight), bias=added)
    return out.view(*inputs.shape[:-1], len(weight))


def pairs_of(weight: Tensor) -> Tensor:
    """Return `weight` [N, K] rounded, in blocks [N / 16, K / 2, 16] of pairs (int32), filled up with zeros."""
    num, width = weight.shape
    rounded = weight.detach().to(torch.bfloat16)
    if num % BLOCK or width % 2:
        rounded = F.pad(rounded, (0, width % 2, 0, -num % BLOCK))
    return rounded.contiguous().view(torch.int32).view(-1, BLOCK, -(-width // 2)).transpose(1, 2).contiguous()


def product(
    inputs: Tensor,
    packed: Tensor,
    width: int,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    is_gated: bool = False,
) -> Tensor:
    """Return [M, width]: `inputs` [M, K], rounded, times `packed` (`pairs_of`), plus `bias` and `residual`, in fp32.

    With `is_gated`, blocks of a gate and of what it gates take turns, and the result is silu(gate) · up.
    """
    out = torch.empty(len(inputs), width)
    call("qt_product_half", inputs, packed, bias, residual, out, *inputs.shape, width, int(is_gated))
    return out


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return multiply_plain(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, weight = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        half = grad.bfloat16()
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            (half @ weight.bfloat16()).float().view(inputs.shape) if needs_inputs else None,
            (half.t() @ inputs.reshape(-1, inputs.shape[-1]).bfloat16()).float() if needs_weight else None,
            grad.sum(0) if needs_bias else None,
        )

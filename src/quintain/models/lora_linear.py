"""A linear layer with LoRA as one weight: what an engine multiplies by, and in 16 bits what the learner does, too.

An engine adds the low-rank product into the weight that it adapts, once, and rounds the sum. peft computes both parts
side by side. In fp32 these are the same up to the last bits. In bf16 they are not: the sum is rounded to steps as large
as what is learned, so that log-probs of engine and learner drift apart as training goes on. Here the learner's forward
pass multiplies by the rounded sum as well; its backward pass is that of the two parts.

Weights that lie in 16 bits themselves, a frozen base, stay as they are: nobody adds anything into them. Learner and
engine both compute the two parts side by side (`add_parts`), so that one copy of the base serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from quintain.models.cpu import half


def effective_weight(module: Any) -> Tensor:
    """Return the weight of a linear module, with the delta of the low-rank adapters that are switched on."""
    weight = cast(Tensor, module.weight).detach()
    for adapter in _active_adapters(module):
        a, b, scale = _parts(module, adapter)
        weight = _sum(weight, a.detach(), b.detach(), scale)
    return weight


def round_once(model: nn.Module) -> None:
    """Let peft's linear layers in `model` multiply by `effective_weight` whenever factors have 16 bits."""
    from peft.tuners.lora import Linear

    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = _make_rounded_linear(Linear)


@cache
def _make_rounded_linear(kind: type[Any]) -> type[Any]:
    """Return peft's class for a linear layer with LoRA, with the forward pass of this file."""

    class RoundedLinear(kind):  # peft takes a layer for a linear one where its name has "Linear"
        """A linear layer with LoRA that multiplies by its effective weight whenever factors have 16 bits."""

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            """Return what the layer does to `x` [..., K], as [..., N]."""
            base = self.get_base_layer()
            names = _active_adapters(self)
            if names and lies_in_16_bits(base):
                return add_parts(base(x), x, adapter_parts(self))
            if (
                len(names) != 1
                or not _has_16_bits(x)
                or self.merged
                or type(base) is not nn.Linear
                or base.weight.requires_grad
            ):
                return cast(Tensor, super().forward(x, *args, **kwargs))
            return cast(Tensor, cast(Any, _Product).apply(x, base.weight, base.bias, *_parts(self, names[0])))

    return RoundedLinear


def lies_in_16_bits(module: Any) -> bool:
    """Whether the weight that a linear module came with is kept in 16 bits."""
    return cast(Tensor, module.weight).dtype in (torch.bfloat16, torch.float16)


def adapter_parts(module: Any) -> list[tuple[Tensor, Tensor, float]]:
    """Return A [r, K], B [N, r] and scale of the adapters of a linear module that are switched on."""
    return [_parts(module, name) for name in _active_adapters(module)]


def add_parts(out: Tensor, x: Tensor, parts: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Return `out` [..., N] plus what low-rank `parts` make of `x` [..., K], in the precision of `out`."""
    for a, b, scale in parts:
        inner = F.linear(x.to(out.dtype), a.to(out.dtype))
        out = out + F.linear(inner, b.to(out.dtype)) * scale
    return out


def _active_adapters(module: Any) -> list[str]:
    """Return the names of the adapters of a linear module that its forward pass adds in."""
    if getattr(module, "disable_adapters", True) or module.merged:
        return []
    return [name for name in module.active_adapters if name in module.lora_A]


def _parts(module: Any, adapter: str) -> tuple[Tensor, Tensor, float]:
    """Return A [r, K], B [N, r] and the scale of `adapter`."""
    return module.lora_A[adapter].weight, module.lora_B[adapter].weight, float(module.scaling[adapter])


def _sum(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return `weight` [N, K] plus `scale` times `b` times `a`; one way for all, since a last bit decides a rounding."""
    with torch.autocast(weight.device.type, enabled=False):
        return weight + (b @ a) * scale


def _has_16_bits(x: Tensor) -> bool:
    """Whether linear layers round `x` now."""
    return (half.is_entered() and half.is_plain(x)) or torch.is_autocast_enabled(x.device.type)


class _Product(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, a, b)
        ctx.scale = scale
        effective = _sum(weight, a, b, scale)
        if half.is_entered() and half.is_plain(x):
            return half.multiply_plain(x, effective, bias)
        out = x.bfloat16() @ effective.bfloat16().t()
        return out if bias is None else out + bias.bfloat16()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, a, b = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1]).bfloat16()
        flat = x.reshape(-1, x.shape[-1]).bfloat16()
        effective = _sum(weight, a, b, ctx.scale).bfloat16()
        to_a = ((grad @ b.bfloat16()).t() @ flat).to(a.dtype) * ctx.scale
        to_b = (grad.t() @ (flat @ a.bfloat16().t())).to(b.dtype) * ctx.scale
        to_x = (grad @ effective).to(x.dtype).view(x.shape) if ctx.needs_input_grad[0] else None
        return to_x, None, None, to_a, to_b, None

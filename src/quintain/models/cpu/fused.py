"""The kernels of `models.native` as differentiable functions, for the packed forward pass.

Each equals what torch computes in several steps (`models.packed` holds those), forward and backward.
Call them only where `native.fits` says yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from quintain.models.cpu.half import is_entered
from quintain.models.cpu.native import call


@dataclass(frozen=True, slots=True)
class Families:
    """Streams in packed coordinates, those that share tokens together; int64 tensors, see `Stream`."""

    start: Tensor
    length: Tensor
    past: Tensor
    """tokens that each stream continues"""
    bounds: Tensor
    """[families + 1], first stream of each family; a family comes in depth-first order"""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions: tables [positions, d], and the position of each token [N]."""

    cosine: Tensor
    sine: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """Heads of an attention layer."""

    heads: int
    kv: int
    dimension: int

    @property
    def width(self) -> int:
        """Columns of query, key and value side by side."""
        return (self.heads + 2 * self.kv) * self.dimension


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return `hidden` [N, D] over its root mean square, times `weight` [D]."""
    return cast(Tensor, cast(Any, _RmsNorm).apply(hidden, weight, epsilon))


def gate_silu(joined: Tensor) -> Tensor:
    """Return silu(gate) · up [N, I] of `joined` [N, 2 I], the gate first."""
    return cast(Tensor, cast(Any, _Gated).apply(joined))


def attention(
    joined: Tensor,
    norms: tuple[Tensor, Tensor, float] | None,
    rotation: Rotation,
    sizes: Sizes,
    families: Families,
) -> Tensor:
    """Return the attention output [N, heads · d] of projections `joined` [N, (heads + 2 kv) · d].

    Within `half.HalfProducts` its factors are rounded, as those of the cache that is sampled from; the gradients are
    those of the rounded queries, keys and values.

    Args:
        joined: query, key and value side by side.
        norms: weights [d] of the query's and the key's norm and their epsilon; None where there are none.
        rotation: positions.
        sizes: heads.
        families: which token may look at which.
    """
    query_norm, key_norm, epsilon = norms or (None, None, 0.0)
    query, key, value = cast(Any, _Heads).apply(joined, query_norm, key_norm, epsilon, rotation, sizes)
    return cast(Tensor, cast(Any, _Attention).apply(query, key, value, sizes, families))


def logprobs(logits: Tensor, chosen: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-prob of `chosen` [M] and the entropy, [M] each, of softmax(`logits` [M, V] / temperature)."""
    return cast("tuple[Tensor, Tensor]", cast(Any, _Logprobs).apply(logits, chosen, temperature))


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        hidden = hidden.contiguous()
        out, scales = torch.empty_like(hidden), hidden.new_empty(len(hidden))
        call("qt_rms_norm", hidden, weight, out, scales, *hidden.shape, epsilon)
        ctx.save_for_backward(hidden, weight, scales)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden, weight, scales = ctx.saved_tensors
        dhidden, dweight = torch.empty_like(hidden), torch.empty_like(weight)
        grad = grads[0].contiguous()
        call("qt_rms_norm_backward", grad, hidden, weight, scales, dhidden, dweight, *hidden.shape)
        return dhidden, dweight, None


class _Gated(Function):
    @staticmethod
    def forward(ctx: Any, joined: Tensor) -> Tensor:
        num, width = joined.shape
        out = joined.new_empty(num, width // 2)
        call("qt_gated", joined, out, num, width // 2)
        ctx.save_for_backward(joined)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (joined,) = ctx.saved_tensors
        djoined = torch.empty_like(joined)
        call("qt_gated_backward", grads[0].contiguous(), joined, djoined, len(joined), joined.shape[1] // 2)
        return djoined


class _Heads(Function):
    @staticmethod
    def forward(
        ctx: Any,
        joined: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        epsilon: float,
        rotation: Rotation,
        sizes: Sizes,
    ) -> tuple[Tensor, Tensor, Tensor]:
        num = len(joined)
        query = joined.new_empty(num, sizes.heads, sizes.dimension)
        key = joined.new_empty(num, sizes.kv, sizes.dimension)
        scales = joined.new_empty(num, sizes.heads + sizes.kv)
        tables = (rotation.cosine, rotation.sine, rotation.positions)
        call(
            "qt_heads", joined, query_norm, key_norm, *tables, epsilon, query, key, scales,
            num, sizes.heads, sizes.kv, sizes.dimension,
        )  # fmt: skip
        ctx.rotation, ctx.sizes = rotation, sizes
        ctx.save_for_backward(joined, query_norm, key_norm, scales)
        value = joined[:, (sizes.heads + sizes.kv) * sizes.dimension :].clone()
        return query, key, value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        joined, query_norm, key_norm, scales = ctx.saved_tensors
        sizes, rotation = ctx.sizes, ctx.rotation
        djoined = torch.empty_like(joined)
        dnorms = joined.new_empty(2, sizes.dimension)
        dquery, dkey, dvalue = (grad.contiguous() for grad in grads)
        tables = (rotation.cosine, rotation.sine, rotation.positions)
        call(
            "qt_heads_backward", dquery, dkey, dvalue, joined, query_norm, key_norm, *tables, scales,
            djoined, dnorms, len(joined), sizes.heads, sizes.kv, sizes.dimension,
        )  # fmt: skip
        has_norms = query_norm is not None
        return djoined, dnorms[0] if has_norms else None, dnorms[1] if has_norms else None, None, None, None


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sizes: Sizes, families: Families
    ) -> Tensor:
        is_half = is_entered()
        if is_half:
            query, key, value = (part.bfloat16().float() for part in (query, key, value))
        out = query.new_empty(len(query), sizes.heads * sizes.dimension)
        sums = query.new_empty(len(query), sizes.heads)
        call("qt_packed_attention", query, key, value, *_shape(sizes, families), out, sums, int(is_half))
        ctx.sizes, ctx.families = sizes, families
        ctx.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, out, sums = ctx.saved_tensors
        dquery, dkey, dvalue = (torch.empty_like(part) for part in (query, key, value))
        shape = _shape(ctx.sizes, ctx.families)
        grad = grads[0].contiguous()
        call("qt_packed_attention_backward", query, key, value, *shape, out, sums, grad, dquery, dkey, dvalue)
        return dquery, dkey, dvalue, None, None


def _shape(sizes: Sizes, families: Families) -> tuple[Any, ...]:
    """Return what both passes of the attention are told of the streams."""
    return (
        sizes.kv * sizes.dimension,
        families.start,
        families.length,
        families.past,
        families.bounds,
        len(families.bounds) - 1,
        sizes.heads,
        sizes.kv,
        sizes.dimension,
    )


class _Logprobs(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logits = logits.contiguous()
        found, entropies, sums = (logits.new_empty(len(logits)) for _ in range(3))
        call("qt_logprobs", logits, chosen, temperature, found, entropies, sums, *logits.shape)
        ctx.temperature = temperature
        ctx.save_for_backward(logits, chosen, entropies, sums)
        return found, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits, chosen, entropies, sums = ctx.saved_tensors
        dlogits = torch.empty_like(logits)
        dlogprobs, dentropies = (grad.contiguous() for grad in grads)
        call(
            "qt_logprobs_backward", logits, chosen, ctx.temperature, entropies, sums, dlogprobs, dentropies,
            dlogits, *logits.shape,
        )  # fmt: skip
        return dlogits, None, None

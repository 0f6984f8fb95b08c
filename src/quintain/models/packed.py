"""Forward pass over streams packed end to end, without padding, for the Llama family.

Linear layers, norms and positions run on the packed tokens [N, D], by the model's own modules or by kernels that do the
same. Only attention looks at streams: a `Plan` sorts them by length into buckets, and each bucket is one causal
attention call. Streams that begin with the same tokens may share them: these are then a stream of their own, computed
and stored once, which the others continue and attend to. The result equals the plain padded forward of every stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from quintain.models.context import Context
from quintain.models.cpu import fused
from quintain.models.cpu.fused import Families, Rotation, Sizes
from quintain.models.cpu.native import fits
from quintain.models.families import Backbone, Layer, Norm, backbone, head_sizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PACKED = "quintain_packed"
"""Under which name transformers knows `attend_packed`."""
Again = Callable[..., Any]
"""Calls a function of tensors, and calls it again in the backward pass in place of keeping what it computed."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of attention that run in one call: R rows of at most Lq queries and Lk keys."""

    query: Tensor
    """int64 [R * Lq], packed position of each query; padding repeats the row's first"""
    key: Tensor
    """int64 [R * Lk]"""
    num_rows: int
    mask: Tensor | None
    """bool [R, 1, Lq, Lk], True where a query may look; None where plain causal order says it all"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the attention of a packed batch is computed; the same for every layer."""

    buckets: tuple[Bucket, ...]
    gather: Tensor
    """int64 [N], where the result for packed token n stands in the concatenated outputs of the buckets"""
    families: Families
    """the same for the fused kernels"""
    context: Context | None = None
    """ranks that share the tokens, of which the queries here are this one's; None: all tokens are here"""
    num_tokens: int = 0
    """of all ranks, where there is a context"""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream in packed coordinates: its own tokens, and those of other streams that it continues."""

    start: int
    length: int
    prefix: tuple[tuple[int, int], ...] = ()
    """(start, length) of the streams that it continues, in order"""

    @property
    def prefix_length(self) -> int:
        """Tokens that it continues."""
        return sum(length for _, length in self.prefix)


def plan_rank(
    streams: Sequence[Stream], context: Context, num_tokens: int, *, device: torch.device | str = "cpu"
) -> Plan:
    """Return the plan of this rank's part of the `num_tokens` of `streams`, which may begin and end within one."""
    first, end = context.bounds(num_tokens)[context.rank : context.rank + 2]
    own: list[Stream] = []
    for stream in streams:
        start, last = max(stream.start, first), min(stream.start + stream.length, end)
        if start < last:
            before = [(stream.start, start - stream.start)] if start > stream.start else []
            own.append(Stream(start, last - start, (*stream.prefix, *before)))
    return replace(plan(own, begin=first, device=device), context=context, num_tokens=num_tokens)


def plan(
    streams: Sequence[Stream], *, waste: float = 0.25, begin: int = 0, device: torch.device | str = "cpu"
) -> Plan:
    """Return the attention plan of `streams`; rows in a bucket differ in length by at most the share `waste`.

    `begin` is the packed position of the first query, where those before it are others'.
    """
    order = sorted(
        range(len(streams)),
        key=lambda i: (streams[i].prefix_length > 0, streams[i].prefix_length, streams[i].length),
    )
    groups: list[list[Stream]] = []
    for i in order:
        stream = streams[i]
        first = groups[-1][0] if groups else None
        if (
            first
            and first.prefix_length == stream.prefix_length
            and stream.length <= max(first.length * (1 + waste), first.length + 8)
        ):
            groups[-1].append(stream)
        else:
            groups.append([stream])
    total = sum(stream.length for stream in streams)
    gather = torch.empty(total, dtype=torch.int64)
    buckets: list[Bucket] = []
    offset = 0
    for rows in groups:
        bucket, width = _bucket(rows)
        for i, stream in enumerate(rows):
            place = torch.arange(stream.length) + (offset + i * width)
            gather[stream.start - begin : stream.start - begin + stream.length] = place
        offset += len(rows) * width
        buckets.append(bucket)
    moved = tuple(
        Bucket(
            (b.query - begin).to(device),
            b.key.to(device),
            b.num_rows,
            None if b.mask is None else b.mask.to(device),
        )
        for b in buckets
    )
    return Plan(moved, gather.to(device), families_of(streams))


def families_of(streams: Sequence[Stream]) -> Families:
    """Return `streams` with those that share tokens together, each after what it continues."""

    def path(stream: Stream) -> tuple[int, ...]:
        return (*(start for start, _ in stream.prefix), stream.start)

    ordered = sorted(streams, key=path)
    roots = [path(stream)[0] for stream in ordered]
    sizes = [len(list(members)) for _, members in groupby(roots)]
    return Families(
        start=torch.tensor([stream.start for stream in ordered]),
        length=torch.tensor([stream.length for stream in ordered]),
        past=torch.tensor([stream.prefix_length for stream in ordered]),
        bounds=torch.tensor([0, *sizes]).cumsum(0),
    )


def _bucket(rows: Sequence[Stream]) -> tuple[Bucket, int]:
    """Return the bucket of `rows` (one prefix length) and its number of queries per row."""
    width = max(stream.length for stream in rows)
    prefix = rows[0].prefix_length
    steps = torch.arange(width)
    start = torch.tensor([stream.start for stream in rows])[:, None]
    length = torch.tensor([stream.length for stream in rows])[:, None]
    query = start + torch.where(steps < length, steps, 0)
    if not prefix:
        return Bucket(query.flatten(), query.flatten(), len(rows), None), width
    continued = [torch.cat([torch.arange(at, at + size) for at, size in stream.prefix]) for stream in rows]
    key = torch.cat([torch.stack(continued), query], dim=1)
    causal = torch.ones(width, prefix + width, dtype=torch.bool).tril(diagonal=prefix)
    return Bucket(query.flatten(), key.flatten(), len(rows), causal[None, None]), width


def compute_hidden(
    model: PreTrainedModel,
    token_ids: Tensor,
    position_ids: Tensor,
    attention: Plan,
    *,
    again: Again | None = None,
    use_kernels: bool = True,
) -> Tensor:
    """Return the final hidden states [N, D] of packed `token_ids` [N] at `position_ids` [N].

    With `again`, only what each layer begins with is kept for the backward pass, and the rest is computed anew there.
    The kernels read the weights beside the model's modules; without `use_kernels` everything goes through these.
    """
    base = backbone(model)
    hidden = base.embed_tokens(token_ids)
    is_fused = use_kernels and fits(hidden) and not torch.is_autocast_enabled(hidden.device.type)
    block = _run_fused_block if is_fused else _block
    where = _tables(base, hidden, position_ids) if is_fused else _angles(base, hidden, position_ids)
    sizes = Sizes(*head_sizes(model))
    for layer in base.layers:
        if again is None:
            hidden = block(layer, hidden, cast(Any, where), sizes, attention)
        else:
            hidden = again(block, layer, hidden, cast(Any, where), sizes, attention)
    return rms_norm(hidden, base.norm) if is_fused else cast(Any, base.norm)(hidden)


def _angles(base: Backbone, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [N, d] of the packed tokens."""
    cosine, sine = cast(Any, base.rotary_emb)(hidden[None], position_ids[None])
    return cosine[0], sine[0]


def _tables(base: Backbone, hidden: Tensor, position_ids: Tensor) -> Rotation:
    """Return cosine and sine of every position up to the last, and where each token stands."""
    positions = torch.arange(int(position_ids.max()) + 1)
    cosine, sine = _angles(base, hidden, positions)
    return Rotation(cosine.contiguous(), sine.contiguous(), position_ids.contiguous())


def _block(
    layer: Layer, hidden: Tensor, rotation: tuple[Tensor, Tensor], sizes: Sizes, attention: Plan
) -> Tensor:
    """Return `hidden` [N, D] after one layer, by the model's own modules: what is hooked to them is called."""
    module = cast(Any, layer)
    cosine, sine = rotation
    with _attending(module.self_attn.config):
        found = module(hidden[None], position_embeddings=(cosine[None], sine[None]), packed=attention)
    return found[0]


@contextmanager
def _attending(config: Any) -> Generator[None]:
    """Let the layers of a model with this configuration attend by `attend_packed` meanwhile."""
    ALL_ATTENTION_FUNCTIONS.register(PACKED, attend_packed)
    before = config._attn_implementation
    config._attn_implementation = PACKED
    try:
        yield
    finally:
        config._attn_implementation = before


def attend_packed(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    packed: Plan,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend over packed streams, as transformers asks an attention function: [1, heads, N, d] → [1, N, heads, d]."""
    heads, kv = query.shape[1], key.shape[1]
    queries, keys, values = (part[0].transpose(0, 1).flatten(1) for part in (query, key, value))
    sizes = Sizes(heads, kv, query.shape[-1])
    if packed.context is not None:
        keys, values = (packed.context.whole(part, packed.num_tokens) for part in (keys, values))
    outputs = [_attend_bucket(bucket, queries, keys, values, sizes) for bucket in packed.buckets]
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.index_select(0, packed.gather).view(1, -1, heads, query.shape[-1]), None


def _run_fused_block(
    layer: Layer, hidden: Tensor, rotation: Rotation, sizes: Sizes, attention: Plan
) -> Tensor:
    """Return what `_block` does, by the kernels."""
    module, mlp = cast(Any, layer.self_attn), layer.mlp
    first, second = layer.input_layernorm, layer.post_attention_layernorm
    normed = fused.rms_norm(hidden, first.weight, first.variance_epsilon)
    projected = _apply_side_by_side((module.q_proj, module.k_proj, module.v_proj), normed)
    norms = None
    if hasattr(module, "q_norm"):
        norms = (module.q_norm.weight, module.k_norm.weight, module.q_norm.variance_epsilon)
    mixed = fused.attention(projected, norms, rotation, sizes, attention.families)
    hidden = hidden + module.o_proj(mixed)
    normed = fused.rms_norm(hidden, second.weight, second.variance_epsilon)
    return hidden + mlp.down_proj(fused.gate_silu(_apply_side_by_side((mlp.gate_proj, mlp.up_proj), normed)))


def _apply_side_by_side(modules: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    """Return the outputs of linear `modules` side by side, by one product where they are plain."""
    if all(type(module) is nn.Linear and cast(Any, module).bias is None for module in modules):
        return F.linear(inputs, torch.cat([cast(Tensor, module.weight) for module in modules]))
    return torch.cat([module(inputs) for module in modules], dim=-1)


def _attend_bucket(bucket: Bucket, query: Tensor, key: Tensor, value: Tensor, sizes: Sizes) -> Tensor:
    """Return the attention outputs [R * Lq, heads * dimension] of one bucket."""
    num_heads, num_kv, dimension = sizes.heads, sizes.kv, sizes.dimension
    rows = bucket.num_rows
    queries = query.index_select(0, bucket.query).view(rows, -1, num_heads, dimension).transpose(1, 2)
    keys = key.index_select(0, bucket.key).view(rows, -1, num_kv, dimension).transpose(1, 2)
    values = value.index_select(0, bucket.key).view(rows, -1, num_kv, dimension).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=bucket.mask,
        is_causal=bucket.mask is None,
        enable_gqa=num_heads != num_kv,
    )
    return mixed.transpose(1, 2).reshape(-1, num_heads * dimension)


def rotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to `vectors` [N, heads, dimension]; `cos` and `sin` are [N, dimension]."""
    half = vectors.shape[-1] // 2
    turned = torch.cat([-vectors[..., half:], vectors[..., :half]], dim=-1)
    return vectors * cos[:, None] + turned * sin[:, None]


def rms_norm(hidden: Tensor, norm: Norm) -> Tensor:
    """Return `hidden` divided by its root mean square over the last axis, times the norm's weight.

    In 16 bits the quotient is rounded before it is multiplied, as the model's own module has it.
    """
    if hidden.dtype != torch.float32:
        root = torch.rsqrt(hidden.float().pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        return norm.weight * (hidden.float() * root).to(hidden.dtype)
    return F.rms_norm(hidden, (hidden.shape[-1],), norm.weight.to(hidden.dtype), norm.variance_epsilon)

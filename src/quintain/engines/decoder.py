"""Cached forward passes for `engines.Local`: new tokens of many streams in, logits of each stream's last one out.

A `Decoder` owns the key/value cache, one slot per live stream. `FastDecoder` is written for the Llama family:
a static cache with per-slot lengths, fused query/key/value and gate/up weights, packed linear layers.
`GenericDecoder` runs any Hugging Face causal model with that model's own cache, one stream at a time. The one
rule: `refresh` must follow every change of the weights; it drops every cached key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from quintain.models.families import backbone, head, head_sizes
from quintain.models.packed import rms_norm, rotate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DENSE_SHARE = 0.6
"""Share of slots in use from which attention reads the cache in place instead of gathering rows."""


class Decoder(Protocol):
    """Cached forward passes over slots."""

    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append `new_ids[i]` to the stream in `slots[i]` and return the logits [R, V] after each last token."""
        ...

    def clear(self, slot: int) -> None:
        """Empty `slot`."""
        ...

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Make the streams in `targets` equal to the one in `source`."""
        ...

    def refresh(self) -> None:
        """Take over the model's current weights and empty every slot."""
        ...


class GenericDecoder:
    """Any causal language model of `transformers`, one stream at a time, with the model's own cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._caches: dict[int, Any] = {}

    @torch.inference_mode()
    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.forward`."""
        rows: list[Tensor] = []
        for slot, ids in zip(slots, new_ids, strict=True):
            inputs = torch.tensor([list(ids)], device=self.model.device)
            output: Any = cast(Any, self.model)(
                input_ids=inputs, past_key_values=self._caches.get(slot), use_cache=True
            )
            self._caches[slot] = output.past_key_values
            rows.append(output.logits[0, -1])
        return torch.stack(rows)

    def clear(self, slot: int) -> None:
        """See `Decoder.clear`."""
        self._caches.pop(slot, None)

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """See `Decoder.copy`."""
        from copy import deepcopy

        for target in targets:
            self._caches[target] = deepcopy(self._caches[source])

    def refresh(self) -> None:
        """See `Decoder.refresh`."""
        self._caches.clear()


class FastDecoder:
    """The Llama family with a static cache of [slots, key/value heads, length, dimension] per layer."""

    def __init__(self, model: PreTrainedModel, *, max_length: int) -> None:
        self.model = model
        self.max_length = max_length
        self.num_heads, self.num_kv, self.dimension = head_sizes(model)
        self.lengths: list[int] = []
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._capacity = 0
        self.refresh()

    @torch.inference_mode()
    def refresh(self) -> None:
        """See `Decoder.refresh`."""
        base = backbone(self.model)
        self.lengths = [0] * len(self.lengths)
        self._base = base
        self._head = head(self.model)
        self._layers = [_FusedLayer(cast(Any, layer)) for layer in base.layers]
        if len(self._keys) != len(self._layers):
            self._keys = [torch.empty(0) for _ in self._layers]
            self._values = [torch.empty(0) for _ in self._layers]
        self._cos, self._sin = torch.empty(0), torch.empty(0)
        self._positions(max(self._capacity, 64))

    def clear(self, slot: int) -> None:
        """See `Decoder.clear`."""
        if slot < len(self.lengths):
            self.lengths[slot] = 0

    @torch.inference_mode()
    def copy(self, source: int, targets: Sequence[int]) -> None:
        """See `Decoder.copy`."""
        length = self.lengths[source]
        self._reserve(max(targets) + 1, length)
        index = torch.tensor(targets, device=self._keys[0].device)
        for cache in (*self._keys, *self._values):
            cache[index, :, :length] = cache[source, :, :length]
        for target in targets:
            self.lengths[target] = length

    @torch.inference_mode()
    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.forward`."""
        counts = [len(ids) for ids in new_ids]
        self._reserve(max(slots) + 1, 0)
        starts = [self.lengths[slot] for slot in slots]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        self._reserve(len(self.lengths), max(ends))
        for slot, end in zip(slots, ends, strict=True):
            self.lengths[slot] = end
        rows = _Rows(slots, starts, counts, self._keys[0].device)
        tokens = torch.tensor([token for ids in new_ids for token in ids], device=self._keys[0].device)
        hidden = self._base.embed_tokens(tokens)
        cos, sin = self._cos.index_select(0, rows.positions), self._sin.index_select(0, rows.positions)
        for index, layer in enumerate(self._layers):
            query, key, value = layer.project(hidden, self.num_heads, self.num_kv, self.dimension)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
            keys, values = self._keys[index], self._values[index]
            keys[rows.token_slots, :, rows.positions] = key
            values[rows.token_slots, :, rows.positions] = value.view(-1, self.num_kv, self.dimension)
            hidden = layer.finish(hidden, rows.attend(query, keys, values))
        last = hidden if rows.is_decode else hidden.index_select(0, rows.last)
        return self._head(rms_norm(last, self._base.norm))

    def _reserve(self, num_slots: int, length: int) -> None:
        """Grow the cache to `num_slots` slots of `length` tokens."""
        missing = num_slots - len(self.lengths)
        if missing > 0:
            self.lengths.extend([0] * missing)
        if num_slots <= self._keys[0].shape[0] and length <= self._capacity:
            return
        capacity = max(self._capacity, min(self.max_length, _rounded(length)))
        slots = max(len(self.lengths), self._keys[0].shape[0])
        weight = self._layers[0].qkv_weight
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                new = torch.zeros(
                    slots, self.num_kv, capacity, self.dimension, dtype=weight.dtype, device=weight.device
                )
                if old.numel():
                    new[: old.shape[0], :, : old.shape[2]] = old
                caches[index] = new
        self._capacity = capacity
        self._positions(capacity)

    def _positions(self, length: int) -> None:
        """Tabulate the rotation of the first `length` positions."""
        if self._cos.shape[0] >= length:
            return
        weight = self._base.embed_tokens.weight
        positions = torch.arange(length, device=weight.device)[None]
        cos, sin = cast(Any, self._base.rotary_emb)(weight[:1], positions)
        self._cos, self._sin = cos[0], sin[0]


def _rounded(length: int) -> int:
    """Return a cache length of at least `length`: the next multiple of 64 above five quarters of it."""
    return -(-(length + length // 4) // 64) * 64


class _Rows:
    """Where the new tokens of one forward pass stand, and the attention over them.

    Rows of attention are slots of the cache, read in place, where most slots up to the highest are in use; the
    unused ones among them compute something that nobody reads. Otherwise the used slots are gathered first.
    """

    def __init__(
        self, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], device: torch.device
    ) -> None:
        highest = max(slots) + 1
        self.is_gathered = len(slots) < DENSE_SHARE * highest
        self.num_rows = len(slots) if self.is_gathered else highest
        self.width = max(counts)
        self.is_decode = self.width == 1
        self.length = max(start + count for start, count in zip(starts, counts, strict=True))
        self.slots = torch.tensor(slots, device=device)
        rows = torch.arange(len(slots), device=device) if self.is_gathered else self.slots
        start = torch.tensor(starts, device=device)
        count = torch.tensor(counts, device=device)
        steps = torch.arange(self.width, device=device)
        is_new = steps < count[:, None]
        self.positions = (start[:, None] + steps)[is_new]
        self.token_slots = self.slots[:, None].expand(-1, self.width)[is_new]
        self.last = count.cumsum(0) - 1
        self.place = (rows[:, None] * self.width + steps)[is_new]
        visible = torch.arange(self.length, device=device) <= (start[:, None] + steps)[:, :, None]
        mask = torch.zeros(self.num_rows, self.width, self.length, device=device)
        mask[rows] = mask[rows].masked_fill(~visible, float("-inf"))
        self.mask = mask[:, None]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention output [tokens, heads * dimension] of `query` [tokens, heads, dimension]."""
        num_heads, dimension = query.shape[1:]
        if self.is_gathered:
            keys = keys[:, :, : self.length].index_select(0, self.slots)
            values = values[:, :, : self.length].index_select(0, self.slots)
        keys, values = keys[: self.num_rows], values[: self.num_rows]
        padded = query.new_zeros(self.num_rows * self.width, num_heads * dimension)
        padded.index_copy_(0, self.place, query.flatten(1))
        if self.is_decode:
            mixed = self._decode(padded, keys, values, num_heads)
        else:
            queries = padded.view(self.num_rows, self.width, num_heads, dimension).transpose(1, 2)
            keys, values = keys[:, :, : self.length], values[:, :, : self.length]
            mixed = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=self.mask.to(query.dtype),
                enable_gqa=num_heads != keys.shape[1],
            ).transpose(1, 2)
        return mixed.reshape(self.num_rows * self.width, -1).index_select(0, self.place)

    def _decode(self, query: Tensor, keys: Tensor, values: Tensor, num_heads: int) -> Tensor:
        """Attention of one query per row, as two batched matrix products over the cache in place."""
        num_kv, dimension = keys.shape[1], keys.shape[3]
        grouped = query.view(-1, num_heads // num_kv, dimension) * dimension**-0.5
        keys = keys.view(-1, keys.shape[2], dimension)[:, : self.length]
        values = values.view(-1, values.shape[2], dimension)[:, : self.length]
        scores = torch.bmm(grouped, keys.transpose(1, 2)).view(self.num_rows, num_kv, -1, self.length)
        weights = scores.add_(self.mask).softmax(dim=-1).view(-1, num_heads // num_kv, self.length)
        return torch.bmm(weights.to(values.dtype), values)


class _FusedLayer:
    """One block with its projections joined, so that a step makes four matrix products."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.qkv_weight, self.qkv_bias = _joined([attention.q_proj, attention.k_proj, attention.v_proj])
        self.gate_up_weight, self.gate_up_bias = _joined([mlp.gate_proj, mlp.up_proj])
        self.output, self.down = attention.o_proj, mlp.down_proj
        self.norms = (layer.input_layernorm, layer.post_attention_layernorm)
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None

    def project(
        self, hidden: Tensor, num_heads: int, num_kv: int, dimension: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query [T, heads, d], key [T, kv heads, d] and value [T, kv heads * d] of `hidden` [T, D]."""
        joined = F.linear(rms_norm(hidden, self.norms[0]), self.qkv_weight, self.qkv_bias)
        query, key, value = joined.split(
            [num_heads * dimension, num_kv * dimension, num_kv * dimension], dim=-1
        )
        query, key = query.view(-1, num_heads, dimension), key.view(-1, num_kv, dimension)
        if self.head_norms is not None:
            query, key = rms_norm(query, self.head_norms[0]), rms_norm(key, self.head_norms[1])
        return query, key, value

    def finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Add the attention output and the feed-forward to the residual stream [T, D]."""
        hidden = hidden + self.output(mixed)
        gate, up = F.linear(rms_norm(hidden, self.norms[1]), self.gate_up_weight, self.gate_up_bias).chunk(
            2, dim=-1
        )
        return hidden + self.down(F.silu(gate) * up)


def _joined(modules: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
    """Return the weights (and biases) of linear `modules` stacked; adapters are added to their base weight."""
    weights = [_effective_weight(module) for module in modules]
    biases = [module.bias for module in modules]
    bias = torch.cat([b.detach() for b in biases]) if all(b is not None for b in biases) else None
    return torch.cat(weights), bias


def _effective_weight(module: Any) -> Tensor:
    """Return the weight of a linear module, with the delta of its active low-rank adapters."""
    weight = module.weight.detach()
    for adapter in getattr(module, "active_adapters", ()):
        weight = weight + module.get_delta_weight(adapter).detach()
    return weight

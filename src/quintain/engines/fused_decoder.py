"""Cached forward passes by the kernels of `models.native`: the Llama family in 32-bit floats on the processor.

One call of a kernel takes new tokens through all layers. The cache of a layer is laid out for the kernels: keys in
blocks of 16 with the dimension outermost, so that scores of 16 keys are one vector. In bf16 it is kept in 16 bits.
Streams that begin alike read that from one slot while it is live, so the prompt of a group stays in the processor's
cache. Results equal those of `engines.decoder.FastDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quintain.engines.decoder import round_length, stack_linears
from quintain.models.cpu import half
from quintain.models.cpu.native import call, fits
from quintain.models.families import backbone, head, head_sizes
from quintain.models.lora_linear import effective_weight
from quintain.models.precision import Precision

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BLOCK = 16
"""Keys of a block of the cache."""
ROUND_TOKENS = 1024
"""New tokens that go through the layers together, so that they stay in the processor's cache."""


def can_decode(model: PreTrainedModel) -> bool:
    """Whether the kernels can run `model`, of a family that the fast paths know."""
    return fits(*model.parameters())


class FusedDecoder:
    """See the module; implements `engines.decoder.Decoder`."""

    can_cut = True

    def __init__(self, model: PreTrainedModel, *, max_length: int, precision: Precision = "fp32") -> None:
        self.model = model
        self.max_length = max_length
        self._is_half = precision == "bf16"
        self.num_heads, self.num_kv, self.dimension = head_sizes(model)
        self.lengths: list[int] = []
        self._shared: dict[int, tuple[int, int]] = {}
        """slot -> the group that it shares its first tokens with, and how many they are"""
        self._num_groups = 0
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._layers: list[_Weights] = []
        self.refresh()

    @property
    def num_bytes(self) -> int:
        """Bytes that keys and values take."""
        return sum(cache.numel() * cache.element_size() for cache in (*self._keys, *self._values))

    def drop(self) -> None:
        """Let go of the cache, for whoever needs the memory while nothing is sampled; it is made anew when asked."""
        self.lengths, self._capacity, self._keys, self._values = [], 0, [], []
        self._shared.clear()
        self._tabulate()

    @torch.inference_mode()
    def refresh(self) -> None:
        """See `Decoder.refresh`."""
        self._base = backbone(self.model)
        module: Any = head(self.model)
        self._head: Callable[[Tensor], Tensor] = (
            Product(module.weight, module.bias, is_half=self._is_half)
            if type(module) is nn.Linear
            else module
        )
        old, self._layers = self._layers[::-1], []
        for layer in self._base.layers:
            if old:  # a layer's old weights go before its new ones are made
                old.pop()
            self._layers.append(_Weights(cast(Any, layer), is_half=self._is_half))
        self._epsilons = torch.tensor([layer.epsilons for layer in self._layers])
        self._tabulate()
        self.lengths = [0] * len(self.lengths)
        self._shared.clear()
        self._positions(max(self._capacity, 64))

    def clear(self, slot: int) -> None:
        """See `Decoder.clear`."""
        self.rewind(slot, 0)

    def rewind(self, slot: int, length: int) -> int:
        """See `Decoder.rewind`."""
        if length < self._shared.get(slot, (0, 0))[1]:
            self._shared.pop(slot, None)
        if slot < len(self.lengths):
            self.lengths[slot] = length
        return length

    @torch.inference_mode()
    def copy(self, source: int, targets: Sequence[int], length: int | None = None) -> None:
        """See `Decoder.copy`."""
        length = self.lengths[source] if length is None else length
        self._reserve(max(targets) + 1, length)
        blocks = -(-length // BLOCK)
        index = torch.tensor(targets)
        for cache in (*self._keys, *self._values):
            # A view that fills a slot counts as overlapping with the whole cache, which cannot be written to then.
            cache[index, :, :blocks] = cache[source, :, :blocks].clone()
        self._num_groups += 1
        for slot in targets:
            self.lengths[slot] = length
        for slot in (source, *targets):
            self._shared[slot] = self._num_groups, length // BLOCK * BLOCK

    @torch.inference_mode()
    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.forward`."""
        return self._append(slots, new_ids, is_every=False)

    @torch.inference_mode()
    def read(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.read`."""
        return self._append(slots, new_ids, is_every=True)

    def _append(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]], *, is_every: bool) -> Tensor:
        """Append `new_ids` to the streams in `slots`; see `_rounds` for what is returned."""
        starts = [self.lengths[slot] if slot < len(self.lengths) else 0 for slot in slots]
        ends = [start + len(ids) for start, ids in zip(starts, new_ids, strict=True)]
        self._reserve(max(slots) + 1, max(ends))
        for slot, end in zip(slots, ends, strict=True):
            self.lengths[slot] = end
        return self._rounds(slots, starts, new_ids, self._leaders(slots), is_every=is_every)

    @torch.inference_mode()
    def branch(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.branch`: each reads its stream from the stream's own slot, all but the last block of it."""
        known = len(self.lengths)
        starts = [self.lengths[slot] for slot in slots]
        self._reserve(
            known + len(slots), max(start + len(ids) for start, ids in zip(starts, new_ids, strict=True))
        )
        del self.lengths[known:]
        spare = range(known, known + len(slots))
        to, source, block = (torch.tensor(places) for places in (spare, slots, [s // BLOCK for s in starts]))
        for cache in (*self._keys, *self._values):
            cache[to, :, block] = cache[source, :, block]
        leaders = [(slot, start // BLOCK * BLOCK) for slot, start in zip(slots, starts, strict=True)]
        return self._rounds(spare, starts, new_ids, leaders, is_every=True)

    def _rounds(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        new_ids: Sequence[Sequence[int]],
        leaders: Sequence[tuple[int, int]],
        *,
        is_every: bool = False,
    ) -> Tensor:
        """Return the logits after the last token of each stream, or after every new one, a few streams at a time."""
        outputs: list[Tensor] = []
        first = 0
        while first < len(slots):
            last, tokens = first, 0
            while last < len(slots) and (last == first or tokens + len(new_ids[last]) <= ROUND_TOKENS):
                tokens += len(new_ids[last])
                last += 1
            part = slice(first, last)
            counts = [len(ids) for ids in new_ids[part]]
            rows = _Rows(slots[part], starts[part], counts, leaders[part], is_every=is_every)
            outputs.append(self._round(rows, new_ids[part]))
            first = last
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _round(self, rows: _Rows, new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Return the logits of a few streams."""
        hidden = self._base.embed_tokens(torch.from_numpy(np.array([i for ids in new_ids for i in ids])))
        num_last = len(hidden) if rows.last is None else len(rows.last)
        call(
            "qt_layers", hidden, self._table, self._epsilons, len(self._layers), hidden.shape[1],
            self._layers[0].inner, self._cosine, self._sine, rows.token_slots, rows.positions, len(hidden),
            *rows.places, len(rows.places[0]), rows.last, num_last,
            self.num_heads, self.num_kv, self.dimension, self._capacity, int(self._is_half),
        )  # fmt: skip
        norm = self._base.norm
        return self._head(rms_norm(hidden[:num_last], norm.weight, norm.variance_epsilon))

    def _leaders(self, slots: Sequence[int]) -> list[tuple[int, int]]:
        """Return, for each of `slots`, the slot that it reads its first tokens from, and how many they are."""
        leaders: dict[int, int] = {}
        found: list[tuple[int, int]] = []
        for slot in slots:
            group, shared = self._shared.get(slot, (0, 0))
            found.append((leaders.setdefault(group, slot) if group else slot, shared))
        return found

    def _reserve(self, num_slots: int, length: int) -> None:
        """Grow the cache to `num_slots` slots of `length` tokens."""
        known = self._keys[0].shape[0] if self._keys else 0
        if num_slots > known or length > self._capacity:
            longest = -(-self.max_length // BLOCK) * BLOCK
            self._grow(max(num_slots, known), max(self._capacity, min(longest, round_length(length))))
        self.lengths.extend([0] * (num_slots - len(self.lengths)))

    def _grow(self, slots: int, capacity: int) -> None:
        """Make the cache anew with `slots` of `capacity` tokens."""
        padded = -(-self.dimension // BLOCK) * BLOCK
        dtype = torch.bfloat16 if self._is_half else torch.float32
        grown: list[list[Tensor]] = []
        for caches, width in ((self._keys, self.dimension), (self._values, padded)):
            shape = (slots, self.num_kv, capacity // BLOCK, BLOCK * width)
            new = [torch.zeros(shape, dtype=dtype) for _ in self._layers]
            for to, old in zip(new, caches, strict=False):
                to[: old.shape[0], :, : old.shape[2]] = old
            grown.append(new)
        self._keys, self._values = grown
        self._tabulate()
        self._capacity = capacity
        self._positions(capacity)

    def _tabulate(self) -> None:
        """Tell the kernel where what every layer reads is kept; see `Layer` in `cached.c`."""
        caches = (
            zip(self._keys, self._values, strict=True) if self._keys else [(None, None)] * len(self._layers)
        )
        self._table = torch.tensor(
            [
                [
                    *(0 if part is None else part.data_ptr() for part in (*layer.parts, keys, values)),
                    int(layer.is_joined),
                ]
                for layer, (keys, values) in zip(self._layers, caches, strict=True)
            ]
        )

    def _positions(self, length: int) -> None:
        """Tabulate the rotation of the first `length` positions."""
        hidden = self._base.embed_tokens.weight[:1]
        tables = cast(Any, self._base.rotary_emb)(hidden, torch.arange(length)[None])
        self._cosine, self._sine = (table[0].contiguous() for table in tables)


class _Rows:
    """Where the new tokens of a round stand."""

    def __init__(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        leaders: Sequence[tuple[int, int]],
        *,
        is_every: bool,
    ) -> None:
        count, past, slot = np.array(counts), np.array(starts), np.array(slots)
        ends = count.cumsum()
        is_decode = int(ends[-1]) == len(counts)
        positions = past if is_decode else np.arange(ends[-1]) + (past - ends + count).repeat(count)
        self.token_slots = torch.from_numpy(slot if is_decode else slot.repeat(count))
        self.positions = torch.from_numpy(positions)
        self.last = None if is_decode or is_every else torch.from_numpy(ends - 1)
        """place of each stream's last token; None where each has one, or every token is asked for"""
        leader, shared = np.array(leaders).T.copy()
        self.places = tuple(map(torch.from_numpy, (ends - count, count, past, slot, leader, shared)))


class Product:
    """A linear layer, its weights [N, K] laid out once for the kernel; in bf16 its factors are rounded.

    A row's result does not depend on the rows beside it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, is_half: bool) -> None:
        self.width = len(weight)
        self.packed, self.bias = _lay_out_weight(weight, is_half=is_half), bias
        self._kernel = "qt_product_half" if is_half else "qt_product"

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the layer's output [T, N] for `inputs` [T, K]."""
        out = inputs.new_empty(len(inputs), self.width)
        call(self._kernel, inputs, self.packed, self.bias, None, out, *inputs.shape, self.width, 0)
        return out


def _lay_out_weight(weight: Tensor, *, is_half: bool) -> Tensor:
    """Return `weight` [N, K] as the kernels read it."""
    return half.pairs_of(weight) if is_half else blocks_of(weight)


def blocks_of(weight: Tensor) -> Tensor:
    """Return `weight` [N, K] in blocks [N / 16, K, 16], filled up with zeros."""
    num, width = weight.shape
    filled = F.pad(weight.detach(), (0, 0, 0, -num % BLOCK))
    return filled.view(-1, BLOCK, width).transpose(1, 2).contiguous()


class _Weights:
    """What the kernel reads of one layer, projections joined, adapters added in."""

    def __init__(self, layer: Any, *, is_half: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        both = [mlp.gate_proj, mlp.up_proj]
        self.is_joined = any(module.bias is not None for module in both)
        """whether gate and up lie side by side, with their biases, and not in turns"""
        layers: list[tuple[Tensor, Tensor | None]] = [
            stack_linears([attention.q_proj, attention.k_proj, attention.v_proj]),
            (effective_weight(attention.o_proj), attention.o_proj.bias),
            stack_linears(both),
            (effective_weight(mlp.down_proj), mlp.down_proj.bias),
        ]
        self.inner = layers[3][0].shape[1]
        packed = [_lay_out_weight(weight, is_half=is_half) for weight, _ in layers]
        if not self.is_joined:
            parts = [_lay_out_weight(weight, is_half=is_half) for weight in layers[2][0].chunk(2)]
            packed[2] = torch.stack(parts, dim=1)
        norms = [layer.input_layernorm, layer.post_attention_layernorm]
        heads = [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
        self.epsilons = [float(norm.variance_epsilon) for norm in norms]
        self.epsilons.append(float(heads[0].variance_epsilon) if heads else 0.0)
        self.parts: list[Tensor | None] = [
            *packed,
            *(bias for _, bias in layers),
            *(norm.weight for norm in norms + heads),
            *[None] * (2 - len(heads)),
        ]
        """in the order of `Layer` in `cached.c`"""


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return the root-mean-square norm of `hidden` [T, D]."""
    out = torch.empty_like(hidden)
    call("qt_rms_norm", hidden, weight, out, None, *hidden.shape, epsilon)
    return out

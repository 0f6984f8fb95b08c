"""Cached forward passes for `engines.Local`: new tokens of many streams in, logits of each stream's last one out.

A `Decoder` owns the key/value cache, one slot per live stream. `FastDecoder` is written for the Llama family:
a static cache with per-slot lengths, fused query/key/value and gate/up weights, packed linear layers.
`GenericDecoder` runs any Hugging Face causal model with that model's own cache, one stream at a time. The one
rule: `refresh` must follow every change of the weights; it drops every cached key and value.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quintain.engines.decode_graph import DecodeGraphs, bucket
from quintain.engines.protocol import portions
from quintain.models.families import backbone, head, head_sizes
from quintain.models.lora_linear import adapter_parts, add_parts, effective_weight, lies_in_16_bits
from quintain.models.memory import MAX_TOKENS
from quintain.models.packed import rms_norm, rotate
from quintain.models.precision import Precision, computing

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOG = logging.getLogger(__name__)
Reading = Literal["at once", "one by one", "again as a whole"]
CACHES = ("past_key_values", "cache_params")
"""How the families of transformers call what they keep of a stream."""
PROBE = (7, 3, 11, 5, 2)
"""Tokens on which it is found out how a stream can be continued."""
CHUNK_TOKENS, MIN_ROWS = 384, 8
"""Attention runs over as many streams at once as have this many new tokens, and at least so many."""
BLOCK_TOKENS = 1024
"""New tokens of a row whose attention is computed together in 16 bits, and up to which its mask is kept."""


class Decoder(Protocol):
    """Cached forward passes over slots."""

    can_cut: bool
    """Whether the beginning of a stream can be copied, and not the whole alone."""

    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append `new_ids[i]` to the stream in `slots[i]` and return the logits [R, V] after each last token."""
        ...

    def read(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Do as `forward`, but return the logits after every new token, in order: [sum of their counts, V]."""
        ...

    def branch(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Return the logits after every token of all `new_ids`, each of which continues a stream by itself.

        `new_ids[i]` follow the stream in `slots[i]`, which stays as it is and may be named several times. The result is
        [sum of their lengths, V], in order.
        """
        ...

    def clear(self, slot: int) -> None:
        """Empty `slot`."""
        ...

    def rewind(self, slot: int, length: int) -> int:
        """Go back to the first `length` tokens in `slot` after a pass that broke off; return how many are left."""
        ...

    def copy(self, source: int, targets: Sequence[int], length: int | None = None) -> None:
        """Make the streams in `targets` equal to the one in `source`, or to its first `length` tokens (`can_cut`)."""
        ...

    def refresh(self) -> None:
        """Take over the model's current weights and empty every slot."""
        ...


class GenericDecoder:
    """Any causal language model of `transformers`, one stream at a time, with the model's own cache.

    Not every cache can be continued by several tokens at once: of some models with a recurrent state the new tokens
    would forget it, without a word. What a model can do is found out on five tokens before the first stream, by
    comparison with one pass over all of them (`reading`).
    """

    can_cut = False

    def __init__(self, model: PreTrainedModel, *, precision: Precision = "fp32") -> None:
        self.model = model
        self.precision: Precision = precision
        self._caches: dict[int, Any] = {}
        self._reading: Reading | None = None
        names = inspect.signature(model.forward).parameters
        self._cache_name = next((name for name in CACHES if name in names), CACHES[0])

    @torch.inference_mode()
    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.forward`."""
        return torch.stack([self._append(slot, ids)[-1] for slot, ids in zip(slots, new_ids, strict=True)])

    @torch.inference_mode()
    def read(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.read`."""
        return torch.cat([self._append(slot, ids) for slot, ids in zip(slots, new_ids, strict=True)])

    @property
    def reading(self) -> Reading:
        """How a stream is continued: several tokens at once, one by one, or read again as a whole."""
        if self._reading is None:
            precision, self.precision = self.precision, "fp32"
            try:
                self._reading = self._find_reading()
            finally:
                self.precision = precision
            if self._reading != "at once":
                family = str(self.model.config.model_type)
                LOG.warning("the cache of model type %r: new tokens are read %s", family, self._reading)
        return self._reading

    @torch.inference_mode()
    def _find_reading(self) -> Reading:
        """Return the fastest way in which the model says of a continued stream what it says of a whole one."""
        ids = [number % len(cast(Tensor, self.model.get_input_embeddings().weight)) for number in PROBE]
        whole = self._run(ids, None)[0][3:].float()
        tolerance = float(whole.std()) * (1e-4 if self.model.dtype == torch.float32 else 0.1)
        ways: tuple[Reading, ...] = ("at once", "one by one")
        for way in ways:
            try:
                cache = self._continue(None, ids[:3], way)[1]
                told = self._continue(cache, ids[3:], way)[0]
            except (
                AttributeError,
                TypeError,
                ValueError,
                RuntimeError,
            ) as error:  # what the model's own code leads to
                LOG.info("reading new tokens %s: %s", way, error)
                continue
            if cache is not None and float((told.float() - whole).abs().max()) <= tolerance:
                return way
        return "again as a whole"

    def _append(self, slot: int, ids: Sequence[int]) -> Tensor:
        """Append `ids` to the stream in `slot` and return the logits [tokens, V] after each of them."""
        logits, self._caches[slot] = self._continue(self._caches.get(slot), ids, self.reading)
        return logits

    def _continue(self, cache: Any, ids: Sequence[int], way: Reading) -> tuple[Tensor, Any]:
        """Return the logits [tokens, V] after each of `ids`, which follow those in `cache`, and the longer cache."""
        if way == "again as a whole":
            before: list[int] = cache or []
            return self._run([*before, *ids], None)[0][len(before) :], [*before, *ids]
        if way == "at once" or cache is None:
            return self._run(ids, cache)
        rows: list[Tensor] = []
        for token in ids:
            logits, cache = self._run([token], cache)
            rows.append(logits)
        return torch.cat(rows), cache

    def _run(self, ids: Sequence[int], cache: Any) -> tuple[Tensor, Any]:
        """Return the model's logits [tokens, V] after each of `ids`, which follow those in `cache`, and its cache."""
        inputs = torch.tensor([list(ids)], device=self.model.device)
        with computing(self.precision, self.model.device):
            output: Any = cast(Any, self.model)(input_ids=inputs, use_cache=True, **{self._cache_name: cache})
        return output.logits[0], getattr(output, self._cache_name, None)

    @torch.inference_mode()
    def branch(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.branch`."""
        streams = zip(slots, new_ids, strict=True)
        rows = [self._continue(deepcopy(self._caches[slot]), ids, self.reading)[0] for slot, ids in streams]
        return torch.cat(rows)

    def clear(self, slot: int) -> None:
        """See `Decoder.clear`."""
        self._caches.pop(slot, None)

    def rewind(self, slot: int, length: int) -> int:
        """See `Decoder.rewind`: a pass may have changed any part of the model's own cache, so nothing is left."""
        self.clear(slot)
        return 0

    def copy(self, source: int, targets: Sequence[int], length: int | None = None) -> None:
        """See `Decoder.copy`; a stream is copied as a whole, whatever `length` says."""
        for target in targets:
            self._caches[target] = deepcopy(self._caches[source])

    def refresh(self) -> None:
        """See `Decoder.refresh`."""
        self._caches.clear()


class FastDecoder:
    """The Llama family with a static cache of [slots, key/value heads, length, dimension] per layer.

    In bf16 a device keeps keys and values in 16 bits, and steps of a token a stream are recorded and replayed
    (`records_steps`). Weights that the model keeps in 16 bits are read where they are;
    others are joined in copies, of which a layer's old ones go before its new ones are made.
    """

    can_cut = True

    def __init__(self, model: PreTrainedModel, *, max_length: int, precision: Precision = "fp32") -> None:
        self.model = model
        self.max_length = max_length
        self._dtype = torch.bfloat16 if precision == "bf16" else None
        self.num_heads, self.num_kv, self.dimension = head_sizes(model)
        self.lengths: list[int] = []
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._capacity = 0
        self._layers: list[_FusedLayer] = []
        self._graphs: DecodeGraphs | None = None
        self.records_steps = model.device.type == "cuda" and precision == "bf16"
        self.refresh()

    @property
    def num_bytes(self) -> int:
        """Bytes that keys and values take."""
        return sum(cache.numel() * cache.element_size() for cache in (*self._keys, *self._values))

    @property
    def num_copied(self) -> int:
        """Bytes of weights that are kept here beside those of the model."""
        own = {id(each): each for layer in self._layers for each in layer.weights}
        if isinstance(self._head, Linear):
            own[id(self._head.weight)] = self._head.weight
        theirs = {each.untyped_storage().data_ptr() for each in self.model.parameters()}
        copies = [each for each in own.values() if each.untyped_storage().data_ptr() not in theirs]
        return sum(each.numel() * each.element_size() for each in copies)

    def drop(self) -> None:
        """Let go of the cache, for whoever needs the memory while nothing is sampled; it is made anew when asked."""
        self.lengths, self._capacity, self._graphs = [], 0, None
        self._keys = [torch.empty(0, device=self.model.device) for _ in self._layers]
        self._values = [torch.empty(0, device=self.model.device) for _ in self._layers]

    @torch.inference_mode()
    def refresh(self) -> None:
        """See `Decoder.refresh`."""
        base = backbone(self.model)
        self.lengths, self._graphs = [0] * len(self.lengths), None
        self._base = base
        module: Any = head(self.model)
        self._head: Callable[[Tensor], Tensor] = module
        if type(module) is nn.Linear and self._dtype is not None:
            self._head = Linear(module.weight.detach(), module.bias, self._dtype)
        old, self._layers = self._layers[::-1], []
        for layer in base.layers:
            if old:
                old.pop()
            self._layers.append(_FusedLayer(cast(Any, layer), self._dtype))
        if len(self._keys) != len(self._layers):
            self.drop()
        self._cos, self._sin = torch.empty(0), torch.empty(0)
        self._positions(max(self._capacity, 64))

    def clear(self, slot: int) -> None:
        """See `Decoder.clear`."""
        self.rewind(slot, 0)

    def rewind(self, slot: int, length: int) -> int:
        """See `Decoder.rewind`."""
        if slot < len(self.lengths):
            self.lengths[slot] = length
        return length

    @torch.inference_mode()
    def copy(self, source: int, targets: Sequence[int], length: int | None = None) -> None:
        """See `Decoder.copy`."""
        length = self.lengths[source] if length is None else length
        self._reserve(max(targets) + 1, length)
        index = torch.tensor(targets, device=self._keys[0].device)
        for cache in (*self._keys, *self._values):
            # A view that fills a slot counts as overlapping with the whole cache, which cannot be written to then.
            cache[index, :, :length] = cache[source, :, :length].clone()
        for target in targets:
            self.lengths[target] = length

    @torch.inference_mode()
    def forward(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.forward`; a device reads new prompts a few at a time, as what it computes takes its memory."""
        if self.model.device.type != "cpu" and len(slots) > 1 and sum(map(len, new_ids)) > MAX_TOKENS:
            parts = list(portions(new_ids, most_tokens=MAX_TOKENS))
            firsts = [sum(map(len, parts[:number])) for number in range(len(parts))]
            return torch.cat(
                [
                    self.forward(slots[at : at + len(part)], part)
                    for at, part in zip(firsts, parts, strict=True)
                ]
            )
        if self._records(slots, new_ids):
            return self._replay(slots, [ids[0] for ids in new_ids])
        hidden, rows = self._extend(slots, new_ids)
        return self._head(
            rms_norm(hidden if rows.is_decode else hidden.index_select(0, rows.last), self._base.norm)
        )

    @torch.inference_mode()
    def read(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.read`."""
        return self._head(rms_norm(self._extend(slots, new_ids)[0], self._base.norm))

    @torch.inference_mode()
    def branch(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> Tensor:
        """See `Decoder.branch`: the streams are copied to slots behind all others, for this call."""
        known = len(self.lengths)
        copies: dict[int, list[int]] = {}
        for place, slot in enumerate(slots):
            copies.setdefault(slot, []).append(known + place)
        try:
            for slot, places in copies.items():
                self.copy(slot, places)
            hidden, _ = self._extend(range(known, known + len(slots)), new_ids)
        finally:
            del self.lengths[known:]
        return self._head(rms_norm(hidden, self._base.norm))

    def _extend(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> tuple[Tensor, _Rows]:
        """Append `new_ids` to the streams in `slots` and return the hidden states [N, D] of the new tokens."""
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
            keys[rows.token_slots, :, rows.positions] = key.to(keys.dtype)
            values[rows.token_slots, :, rows.positions] = value.view(-1, self.num_kv, self.dimension).to(
                values.dtype
            )
            hidden = layer.finish(hidden, rows.attend(query, keys, values))
        return hidden, rows

    def _records(self, slots: Sequence[int], new_ids: Sequence[Sequence[int]]) -> bool:
        """Return whether a step of `new_ids` may be a recorded one, which writes behind the end of every stream.

        The cache is grown for it.
        """
        if not self.records_steps or any(len(ids) != 1 for ids in new_ids):
            return False
        longest = max(self.lengths, default=0) + 1
        self._reserve(max(slots) + 1, min(longest, self.max_length))
        return longest <= self._capacity

    def _replay(self, slots: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Append one of `tokens` to each stream in `slots` and return the logits [R, V] after them.

        Streams that are not in `slots` get a token, too, at a place that their next one takes.
        """
        if self._graphs is None:
            self._graphs = DecodeGraphs(self._step, self._keys[0].shape[0], self.model.device)
        positions = [*self.lengths, *[0] * (self._keys[0].shape[0] - len(self.lengths))]
        ids = [0] * len(positions)
        for slot, token in zip(slots, tokens, strict=True):
            ids[slot] = token
            self.lengths[slot] += 1
        longest = max(self.lengths[slot] for slot in slots)
        logits = self._graphs(ids, positions, bucket(longest, self._capacity))
        return logits.index_select(0, torch.tensor(slots, device=logits.device))

    def _step(self, tokens: Tensor, positions: Tensor, length: int) -> Tensor:
        """Return the logits [S, V] after `tokens` [S], one for each slot, of which at most `length` keys are seen."""
        hidden = self._base.embed_tokens(tokens)
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        slots = torch.arange(len(tokens), device=tokens.device)
        places = torch.arange(length, device=tokens.device)
        groups, dtype = self.num_heads // self.num_kv, self._keys[0].dtype
        unseen = torch.zeros(len(tokens), length, dtype=dtype, device=tokens.device)
        unseen.masked_fill_(places > positions[:, None], float("-inf"))
        mask = unseen[:, None, None].expand(-1, 1, groups, -1).contiguous()
        for layer, keys, values in zip(self._layers, self._keys, self._values, strict=True):
            query, key, value = layer.project(hidden, self.num_heads, self.num_kv, self.dimension)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
            keys[slots, :, positions] = key.to(dtype)
            values[slots, :, positions] = value.view(-1, self.num_kv, self.dimension).to(dtype)
            mixed = F.scaled_dot_product_attention(
                query.to(dtype).view(-1, self.num_kv, groups, self.dimension),
                keys[:, :, :length],
                values[:, :, :length],
                attn_mask=mask,
            )
            hidden = layer.finish(hidden, mixed.reshape(len(tokens), -1))
        return self._head(rms_norm(hidden, self._base.norm))

    def _reserve(self, num_slots: int, length: int) -> None:
        """Grow the cache to `num_slots` slots of `length` tokens."""
        known = self._keys[0].shape[0]
        if num_slots > known or length > self._capacity:
            self._grow(max(num_slots, known), max(self._capacity, min(self.max_length, round_length(length))))
        self.lengths.extend([0] * (num_slots - len(self.lengths)))

    def _grow(self, slots: int, capacity: int) -> None:
        """Make the cache anew with `slots` of `capacity` tokens, a part of a layer at a time.

        Where memory runs out, what has grown by then is used as far as the rest goes.
        """
        known, self._graphs = self._keys[0].shape[0], None
        try:
            self._make(slots, capacity)
        except (MemoryError, RuntimeError):
            for caches in (self._keys, self._values):
                caches[:] = [each[:known, :, : self._capacity] if each.numel() else each for each in caches]
            raise
        self._capacity = capacity
        self._positions(capacity)

    def _make(self, slots: int, capacity: int) -> None:
        """Make new keys and values of all layers, with what stands in the old ones."""
        weight = self._base.embed_tokens.weight
        is_half = self._dtype is not None and weight.device.type != "cpu"
        dtype = self._dtype if is_half else weight.dtype
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                new = torch.zeros(
                    slots, self.num_kv, capacity, self.dimension, dtype=dtype, device=weight.device
                )
                if old.numel():
                    new[: old.shape[0], :, : old.shape[2]] = old
                caches[index] = new

    def _positions(self, length: int) -> None:
        """Tabulate the rotation of the first `length` positions."""
        if self._cos.shape[0] >= length:
            return
        weight = self._base.embed_tokens.weight
        positions = torch.arange(length, device=weight.device)[None]
        cos, sin = cast(Any, self._base.rotary_emb)(weight[:1], positions)
        self._cos, self._sin = cos[0], sin[0]


def round_length(length: int) -> int:
    """Return a cache length of at least `length`: the next multiple of 64 above five quarters of it."""
    return -(-(length + length // 4) // 64) * 64


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A few streams whose attention is computed together: R rows, at most W new tokens each, L keys."""

    tokens: slice
    """their place among the new tokens"""
    slots: slice | Tensor
    """their slots; a slice where they are neighbours, so that the cache is read in place"""
    place: Tensor | None
    """int64 [tokens], where each token stands in the rows padded to W; None where nothing is padded"""
    start: Tensor
    """int64 [R, 1], tokens of each row's stream before its new ones"""
    size: tuple[int, int, int]
    """R, W and L"""
    mask: Tensor | None
    """float [R, 1, W, L], 0 where a token may look and -inf elsewhere; None where it would be large"""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention output [tokens, heads * dimension] of `query` [tokens, heads, dimension]."""
        if keys.dtype != torch.float32:
            return self._attend_in_16_bits(query, keys, values)
        num_heads, dimension = query.shape[1:]
        num_rows, width, length = self.size
        mask = self.mask if self.mask is not None else self.mask_of(0, width)
        keys, values = keys[self.slots], values[self.slots]
        num_kv, capacity = keys.shape[1], keys.shape[2]
        padded = query
        if self.place is not None:
            padded = query.new_zeros(num_rows * width, num_heads, dimension).index_copy_(0, self.place, query)
        rows = padded.view(num_rows, width, num_kv, -1, dimension).permute(0, 2, 3, 1, 4)
        grouped = (rows * dimension**-0.5).reshape(num_rows * num_kv, -1, dimension)
        keys = keys.view(-1, capacity, dimension)[:, :length]
        values = values.view(-1, capacity, dimension)[:, :length]
        scores = torch.bmm(grouped, keys.transpose(1, 2)).view(num_rows, num_heads, width, length)
        weights = scores.add_(mask).softmax(dim=-1).view(num_rows * num_kv, -1, length)
        mixed = torch.bmm(weights.to(values.dtype), values).view(num_rows, num_heads, width, dimension)
        joined = mixed.transpose(1, 2).reshape(-1, num_heads * dimension)
        return joined if self.place is None else joined.index_select(0, self.place)

    def _attend_in_16_bits(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Do as `attend` by torch's own attention, which sums in 32 bits, over a block of new tokens at a time.

        Heads that share keys stand as more queries of one head, so that no key is repeated.
        """
        num_heads, dimension = query.shape[1:]
        num_rows, width, length = self.size
        keys, values = keys[self.slots, :, :length], values[self.slots, :, :length]
        num_kv = keys.shape[1]
        groups = num_heads // num_kv
        padded = query.to(keys.dtype)
        if self.place is not None:
            empty = padded.new_zeros(num_rows * width, num_heads, dimension)
            padded = empty.index_copy_(0, self.place, padded)
        rows = padded.view(num_rows, width, num_kv, groups, dimension).permute(0, 2, 3, 1, 4)
        found: list[Tensor] = []
        for first in range(0, width, BLOCK_TOKENS):
            block = rows[:, :, :, first : first + BLOCK_TOKENS]
            count = block.shape[3]
            mask = self.mask if self.mask is not None else self.mask_of(first, first + count)
            mask = (
                mask[:, :, None].expand(-1, -1, groups, -1, -1).reshape(num_rows, 1, groups * count, length)
            )
            mixed = F.scaled_dot_product_attention(
                block.reshape(num_rows, num_kv, groups * count, dimension),
                keys,
                values,
                attn_mask=mask.to(keys.dtype),
            )
            found.append(mixed.view(num_rows, num_kv, groups, count, dimension))
        whole = found[0] if len(found) == 1 else torch.cat(found, dim=3)
        joined = whole.permute(0, 3, 1, 2, 4).reshape(-1, num_heads * dimension)
        return joined if self.place is None else joined.index_select(0, self.place)

    def mask_of(self, first: int, end: int) -> Tensor:
        """Return the mask of the new tokens `first` to `end` of each row."""
        device = self.start.device
        steps, places = torch.arange(first, end, device=device), torch.arange(self.size[2], device=device)
        hidden = places > (self.start + steps)[:, :, None]
        return torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))[:, None]


class _Rows:
    """Where the new tokens of one forward pass stand, and the attention over them, a chunk at a time.

    A chunk's scores fit the processor's cache, and it is padded only to its own longest row.
    """

    def __init__(
        self, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], device: torch.device
    ) -> None:
        self.is_decode = max(counts) == 1
        self.device = device
        count = torch.tensor(counts, device=device)
        ends = count.cumsum(0)
        self.last = ends - 1
        self.token_slots = torch.tensor(slots, device=device).repeat_interleave(count)
        offsets = torch.tensor(starts, device=device) - ends + count
        self.positions = torch.arange(int(ends[-1]), device=device) + offsets.repeat_interleave(count)
        rows = max(MIN_ROWS, CHUNK_TOKENS // max(counts))
        first = 0
        self.chunks: list[_Chunk] = []
        for begin in range(0, len(slots), rows):
            part = slice(begin, begin + rows)
            self.chunks.append(self._chunk(slots[part], starts[part], counts[part], first))
            first += sum(counts[part])

    def _chunk(
        self, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], first: int
    ) -> _Chunk:
        """Return the chunk of a few rows whose new tokens begin at `first`."""
        width = max(counts)
        length = max(start + count for start, count in zip(starts, counts, strict=True))
        steps = torch.arange(width, device=self.device)
        start, count = (torch.tensor(numbers, device=self.device)[:, None] for numbers in (starts, counts))
        place = None
        if min(counts) < width:
            index = torch.arange(len(slots), device=self.device)[:, None] * width + steps
            place = index[steps < count]
        are_neighbours = slots[-1] - slots[0] == len(slots) - 1
        chunk = _Chunk(
            tokens=slice(first, first + sum(counts)),
            slots=slice(slots[0], slots[-1] + 1)
            if are_neighbours
            else torch.tensor(slots, device=self.device),
            place=place,
            start=start,
            size=(len(slots), width, length),
            mask=None,
        )
        return replace(chunk, mask=chunk.mask_of(0, width)) if width <= BLOCK_TOKENS else chunk

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention output [tokens, heads * dimension] of `query` [tokens, heads, dimension]."""
        outputs = [chunk.attend(query[chunk.tokens], keys, values) for chunk in self.chunks]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class Linear:
    """A linear layer whose product is computed in `dtype`, or in that of its weights [N, K] where that is None."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None) -> None:
        self.weight = weight if dtype is None else weight.to(dtype)
        self.bias = bias if dtype is None or bias is None else bias.to(dtype)

    @property
    def weights(self) -> list[Tensor]:
        """The weights, in a list."""
        return [self.weight]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the layer's output [T, N] for `inputs` [T, K], in their type."""
        return F.linear(inputs.to(self.weight.dtype), self.weight, self.bias).to(inputs.dtype)


class SharedLinear:
    """Linear `modules` side by side, by the weights [N, K] that the model keeps in 16 bits and their adapters."""

    def __init__(self, modules: Sequence[Any]) -> None:
        dtype = modules[0].weight.dtype
        self.parts = [
            (
                module.weight.detach(),
                None if module.bias is None else module.bias.detach(),
                [
                    (a.detach().to(dtype), b.detach().to(dtype), scale)
                    for a, b, scale in adapter_parts(module)
                ],
            )
            for module in modules
        ]

    @property
    def weights(self) -> list[Tensor]:
        """The weights, which are the model's own."""
        return [weight for weight, _, _ in self.parts]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the layers [T, sum of N] for `inputs` [T, K], in their type."""
        found: list[Tensor] = []
        for weight, bias, adapters in self.parts:
            rounded = inputs.to(weight.dtype)
            found.append(add_parts(F.linear(rounded, weight, bias), rounded, adapters))
        return (found[0] if len(found) == 1 else torch.cat(found, dim=-1)).to(inputs.dtype)


class _FusedLayer:
    """One block with its projections joined, so that a step makes four matrix products, or read where they lie."""

    def __init__(self, layer: Any, dtype: torch.dtype | None) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        groups = [
            [attention.q_proj, attention.k_proj, attention.v_proj],
            [mlp.gate_proj, mlp.up_proj],
            [attention.o_proj],
            [mlp.down_proj],
        ]
        products: list[Linear | SharedLinear] = [
            SharedLinear(group) if lies_in_16_bits(group[0]) else Linear(*stack_linears(group), dtype)
            for group in groups
        ]
        self.qkv, self.gate_up, self.output, self.down = products
        self.norms = (layer.input_layernorm, layer.post_attention_layernorm)
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None

    @property
    def weights(self) -> list[Tensor]:
        """What its products multiply by."""
        products = (self.qkv, self.gate_up, self.output, self.down)
        return [weight for product in products for weight in product.weights]

    def project(
        self, hidden: Tensor, num_heads: int, num_kv: int, dimension: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query [T, heads, d], key [T, kv heads, d] and value [T, kv heads * d] of `hidden` [T, D]."""
        joined = self.qkv(rms_norm(hidden, self.norms[0]))
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
        gate, up = self.gate_up(rms_norm(hidden, self.norms[1])).chunk(2, dim=-1)
        return hidden + self.down(F.silu(gate) * up)


def stack_linears(modules: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
    """Return the weights (and biases) of linear `modules` stacked; adapters are added to their base weight."""
    weights = [effective_weight(module) for module in modules]
    if len(modules) == 1:
        return weights[0], None if modules[0].bias is None else modules[0].bias.detach()
    biases = [module.bias for module in modules]
    bias = torch.cat([b.detach() for b in biases]) if all(b is not None for b in biases) else None
    return torch.cat(weights), bias

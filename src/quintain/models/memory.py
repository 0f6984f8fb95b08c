"""How much memory a model takes while it is loaded, sampled from, trained and handed over: bytes, before anything is.

Weights, gradients and the optimizer are counted. What a layer keeps of a token for the backward pass was counted once,
by hooks on what autograd saves, and is a sum of the layer's widths (`KEPT`); a test counts it again, and another holds
the whole against peaks that were measured. What stands here is a sum of what is there at the worst moment of a phase,
not a bound: an allocator keeps pieces, and kernels have workspaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from torch import nn

from quintain.models.cpu.native import unavailable
from quintain.models.families import NO_LIMIT, backbone, find_unsupported, head, head_sizes
from quintain.models.precision import Precision

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PhaseName = Literal["load", "sampling", "update", "hand-over"]
Path = Literal["kernels", "autocast", "half"]
GIB = 1 << 30
KEPT: dict[tuple[Path, bool], tuple[int, int, int, int]] = {
    ("kernels", False): (16, 12, 12, 16),
    ("kernels", True): (16, 12, 12, 16),
    ("autocast", False): (26, 8, 12, 10),
    ("autocast", True): (16, 8, 10, 8),
    ("half", False): (16, 8, 12, 10),
    ("half", True): (12, 8, 10, 8),
}
"""(how a layer is computed, whether its weights rest) → bytes that it keeps of a token for each number of the residual
stream, of the feed-forward's inside, of the queries and of the keys. kernels: those in C; autocast: modules in bf16 on
fp32 weights; half: modules on weights in bf16. In fp32 modules keep twice what they do in half."""
COPIED: dict[Path, float] = {"kernels": 8 / 3, "autocast": 2.0, "half": 0.0}
"""Bytes that are kept beside each trained weight of a layer until the backward pass: joined, or rounded."""
MAX_LOGITS = 1 << 26
"""Logits that the learner has at once; of more, each piece is computed again for its gradient."""
MAX_TOKENS = 8192
"""Tokens of new prompts that a device reads at once; the processor reads few."""
MAX_FITTED = 1 << 20
"""Tokens of a pass beyond which nobody asks whether more would fit."""
OPTIMIZER = {"adamw": 8, "sgd": 4, "adafactor": 0}
"""Bytes that an optimizer keeps of each weight that it trains."""
PROGRAM = GIB // 2
"""Bytes of the program itself, with torch and transformers, in main memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the memory of a model follows from: ``shape_of(outline("Qwen/Qwen3-8B"))``."""

    parameters: int
    in_layers: int
    """parameters of linear layers within the layers"""
    adapted: int
    """inputs and outputs of these, in sum: what LoRA layers of rank 1 have parameters for"""
    layers: int
    hidden: int
    inner: int
    """width of the feed-forward's inside"""
    queries: int
    keys: int
    """numbers of a token's key, and of its value"""
    vocabulary: int
    is_known: bool
    """whether the fast paths know its family"""
    longest: int
    """tokens of the longest stream that it takes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What is done with a model: ``Use(device="cuda", precision="bf16", lora_rank=16)``."""

    device: str = "cpu"
    """type of the device"""
    precision: Precision = "fp32"
    is_frozen: bool = False
    """whether the weights that it is loaded with stay; see `precision.storage_dtype`"""
    is_trained: bool = True
    lora_rank: int = 0
    optimizer: str = "adamw"
    checkpoints: bool = False
    tokens: int = 16_384
    """of a forward pass in training"""
    engine: str = ""
    """what samples from it; empty: nothing does"""
    streams: int = 0
    """that are sampled at once"""
    length: int = 0
    """tokens of such a stream"""
    shares: bool = False
    """whether the weights are those of another policy, of which it has an adapter"""
    ranks: int = 1
    """processes that training is sharded over: a card each, or all of them in main memory"""

    @property
    def width(self) -> int:
        """Bytes of a weight that it is loaded with."""
        return 2 if self.device != "cpu" and self.precision == "bf16" and self.is_frozen else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is in memory in a phase: ``Phase(name="update", parts={"weights": 2 << 30, "optimizer": 4 << 30})``."""

    name: PhaseName
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes in sum."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        """Return it in a line, the largest part first."""
        order = sorted(self.parts.items(), key=lambda part: -part[1])
        named = ", ".join(f"{name} {amount(size)}" for name, size in order if size >= GIB // 100)
        return f"{self.name}: {amount(self.total)}{f' ({named})' if named else ''}"


def shape_of(model: PreTrainedModel) -> Shape:
    """Return the shape of `model`, which may be an outline on ``meta``."""
    config: Any = cast(Any, model.config).get_text_config()
    base: Any = backbone(model)
    layers = list(getattr(base, "layers", []))
    linear = [part for layer in layers for part in layer.modules() if isinstance(part, nn.Linear)]
    heads, kv, dimension = head_sizes(model)
    hidden = int(config.hidden_size)
    return Shape(
        parameters=sum(each.numel() for each in model.parameters()),
        in_layers=sum(part.weight.numel() for part in linear),
        adapted=sum(part.in_features + part.out_features for part in linear),
        layers=len(layers) or int(config.num_hidden_layers),
        hidden=hidden,
        inner=int(getattr(config, "intermediate_size", 4 * hidden) or 4 * hidden),
        queries=heads * dimension,
        keys=kv * dimension,
        vocabulary=int(cast(Any, head(model)).weight.shape[0]),
        is_known=find_unsupported(model) is None,
        longest=int(getattr(config, "max_position_embeddings", NO_LIMIT)),
    )


def path_of(use: Use, shape: Shape) -> Path:
    """Return how the layers of a model of `shape` are computed in training."""
    if use.device == "cpu":
        return "kernels" if shape.is_known and not unavailable() else "half"
    return "half" if use.width == 2 or use.precision == "fp32" else "autocast"


def activation_bytes(shape: Shape, use: Use) -> int:
    """Return the bytes that a layer keeps of a token for the backward pass, without checkpointing."""
    path = path_of(use, shape)
    rests = use.lora_rank > 0 or not use.is_trained
    parts = zip(KEPT[path, rests], (shape.hidden, shape.inner, shape.queries, shape.keys), strict=True)
    found = sum(size * width for size, width in parts)
    return 2 * found if path == "half" and use.width == 4 else found


def count_trainable(shape: Shape, use: Use) -> int:
    """Return how many weights are trained."""
    if not use.is_trained:
        return 0
    return use.lora_rank * shape.adapted if use.lora_rank else shape.parameters


def weights(shape: Shape, use: Use) -> int:
    """Return the bytes of the weights here, with layers of LoRA; ranks have theirs beside these."""
    base = 0 if use.shares else shape.parameters * use.width
    return base + (4 * count_trainable(shape, use) if use.lora_rank else 0)


def engine_copy_bytes(shape: Shape, use: Use) -> int:
    """Return the bytes of weights that the engine has beside those of the model, where it is in this process."""
    if use.engine != "local" or not shape.is_known:
        return 0
    if use.device == "cpu" and not unavailable():
        size = 2 if use.precision == "bf16" else 4
        return size * (shape.in_layers + shape.vocabulary * shape.hidden)
    if use.width == 2:
        return 0  # it reads those of the model
    if use.precision == "bf16":
        return 2 * (shape.in_layers + shape.vocabulary * shape.hidden)
    return 4 * shape.in_layers


def cache_by_token(shape: Shape, use: Use) -> int:
    """Return the bytes that the engine keeps of a token."""
    size = 2 if use.precision == "bf16" and (use.device != "cpu" or not unavailable()) else 4
    return 2 * shape.layers * shape.keys * size


def cache(shape: Shape, use: Use) -> int:
    """Return the bytes of the cache: every stream has as much room as the longest, and a quarter more to grow."""
    if use.engine != "local":
        return 0
    room = min(use.length + use.length // 4 + 64, shape.longest)
    return use.streams * room * cache_by_token(shape, use)


def update(shape: Shape, use: Use, tokens: int | None = None) -> Phase:
    """Return what is in memory in an optimizer step with passes of `tokens` (those of `use` unless given)."""
    count, num = count_trainable(shape, use), use.tokens if tokens is None else tokens
    by_layer = activation_bytes(shape, use)
    residual = shape.hidden * (2 if use.width == 2 else 4)
    path = path_of(use, shape)
    copies = 0 if use.lora_rank else round(COPIED[path] * shape.in_layers)
    is_card = use.device != "cpu"
    if use.checkpoints:  # one layer at a time keeps what it computes; on a card 4/3 of that was measured
        kept, again = num * residual * shape.layers, num * by_layer * (4 if is_card else 6) // 3
        copies //= shape.layers
    else:
        kept, again = num * by_layer * shape.layers, num * by_layer
    logits = min(num * shape.vocabulary, MAX_LOGITS) * (8 if path == "kernels" else 16)
    if not shape.is_known:
        logits = num * shape.vocabulary * 12
    if is_card:  # a layer's part comes when the logits are gone
        again = max(again - logits, 0)
    # There is a card for each rank, and one main memory for all of them.
    each, at_once = (use.ranks, 1) if is_card else (1, use.ranks)
    sharded = weights(shape, use) // each if use.ranks > 1 else 0
    return Phase(
        name="update",
        parts={
            "weights": weights(shape, use) + engine_copy_bytes(shape, use),
            "shards": sharded,
            "gradients": 4 * count // each,
            "optimizer": OPTIMIZER.get(use.optimizer, 8) * count // each,
            f"{num:,} tokens": (kept + again) * at_once,
            "logits": logits * at_once,
            "copies": copies,
        },
    )


def sampling(shape: Shape, use: Use) -> Phase:
    """Return what is in memory while `use.streams` streams are sampled, from the second step on."""
    state = (4 if use.optimizer == "sgd" else OPTIMIZER.get(use.optimizer, 8)) * count_trainable(shape, use)
    is_local = use.engine == "local"
    wide = 32 if use.device != "cpu" else 8
    prompts = min(use.streams * use.length, MAX_TOKENS if use.device != "cpu" else 1024)
    return Phase(
        name="sampling",
        parts={
            "weights": weights(shape, use),
            "engine's weights": engine_copy_bytes(shape, use),
            "optimizer": state,
            f"cache of {use.streams} × {use.length:,} tokens": cache(shape, use),
            "logits": use.streams * shape.vocabulary * wide if is_local else 0,
            "prompts": prompts * 4 * (4 * shape.hidden + 3 * shape.inner + shape.queries) if is_local else 0,
        },
    )


def phases(shape: Shape, use: Use) -> list[Phase]:
    """Return what is in memory on the device of a model in each phase of a step, in order."""
    state = OPTIMIZER.get(use.optimizer, 8) * count_trainable(shape, use)
    found = [Phase(name="load", parts={"weights": weights(shape, use)})]
    if use.engine:
        found.append(sampling(shape, use))
    if use.is_trained:
        found.append(update(shape, use))
    if use.engine and use.is_trained:
        layer = engine_copy_bytes(shape, use) // max(shape.layers, 1)
        merged = shape.parameters * use.width if use.device == "cpu" and use.engine == "process" else 0
        parts = {
            "weights": weights(shape, use) + engine_copy_bytes(shape, use),
            "optimizer": state,
            "a layer anew": layer,
            "weights on their way": merged,
        }
        found.append(Phase(name="hand-over", parts=parts))
    return found


def most_tokens(shape: Shape, use: Use, free: int) -> int:
    """Return the tokens of a pass in training for which `free` bytes suffice; 0 where none do."""
    low, high = 0, MAX_FITTED
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if update(shape, use, middle).total <= free else (low, middle - 1)
    return low


def amount(size: int) -> str:
    """Return bytes in words: ``1.5 GiB``, ``320 MiB``."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"


def llama_shape(
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    kv: int,
    dimension: int,
    vocabulary: int,
    *,
    is_tied: bool,
) -> Shape:
    """Return the shape of a model of the Llama family by its numbers."""
    queries, keys = heads * dimension, kv * dimension
    parts = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
    parts += [(hidden, inner), (hidden, inner), (inner, hidden)]
    in_layers = layers * sum(one * other for one, other in parts)
    return Shape(
        parameters=in_layers + vocabulary * hidden * (1 if is_tied else 2) + (2 * layers + 1) * hidden,
        in_layers=in_layers,
        adapted=layers * sum(one + other for one, other in parts),
        layers=layers,
        hidden=hidden,
        inner=inner,
        queries=queries,
        keys=keys,
        vocabulary=vocabulary,
        is_known=True,
        longest=NO_LIMIT,
    )


MODELS = {
    "SmolLM2-135M": llama_shape(576, 1536, 30, 9, 3, 64, 49_152, is_tied=True),
    "Qwen3-0.6B": llama_shape(1024, 3072, 28, 16, 8, 128, 151_936, is_tied=True),
    "Qwen3-1.7B": llama_shape(2048, 6144, 28, 16, 8, 128, 151_936, is_tied=True),
    "Qwen3-4B": llama_shape(2560, 9728, 36, 32, 8, 128, 151_936, is_tied=True),
    "Qwen3-8B": llama_shape(4096, 12_288, 36, 32, 8, 128, 151_936, is_tied=False),
    "Qwen3-14B": llama_shape(5120, 17_408, 40, 40, 8, 128, 151_936, is_tied=False),
    "Qwen3-32B": llama_shape(5120, 25_600, 64, 64, 8, 128, 151_936, is_tied=False),
}
"""Models whose names say something to many, by size."""
CARD_SIZES = {"L4, 4090": 24, "L40S": 48, "A100, H100": 80, "H200": 141}
"""Cards and the GB that they are sold with."""
FITTED_STREAMS, FITTED_LENGTH = 16, 2048
"""Streams that must fit beside the weights for a card to count, and their tokens."""
USABLE = 0.92
"""Share of a card that is left by its driver, its libraries and pieces between tensors."""


def fitting_tokens(shape: Shape, use: Use, free: int) -> int:
    """Return the tokens of a training pass that fit into `free` bytes, where a few streams do as well; else 0."""
    if sampling(shape, use).total > free:
        return 0
    return most_tokens(shape, use, free)


def largest_model(free: int, *, device: str, lora_rank: int) -> str:
    """Return the largest of `MODELS` that can be sampled from and trained in `free` bytes of `device`; "" for none."""
    found = [
        name
        for name, shape in MODELS.items()
        if fitting_tokens(shape, card_use(device, "fp32" if device == "cpu" else "bf16", lora_rank), free)
        >= 1024
    ]
    return found[-1] if found else ""


def card_use(device: str, precision: Precision, lora_rank: int) -> Use:
    """Return how a model is used that is trained with checkpointing and sampled from in the same process."""
    return Use(
        device=device,
        precision=precision,
        lora_rank=lora_rank,
        is_frozen=lora_rank > 0,
        checkpoints=True,
        engine="local",
        streams=FITTED_STREAMS,
        length=FITTED_LENGTH,
    )


def fitting_lines() -> Iterator[str]:
    """Yield the table of the documentation: which model is trained how on which card, and in passes of what size."""
    yield f"| model | trained | precision | {' | '.join(f'{name} ({size} GB)' for name, size in CARD_SIZES.items())} |"
    yield f"|---|---|---|{'---|' * len(CARD_SIZES)}"
    for name, shape in MODELS.items():
        for rank, words in ((0, "all weights"), (16, "LoRA, rank 16")):
            for precision in ("bf16", "fp32"):
                use = card_use("cuda", precision, rank)
                cells = [
                    fitting_tokens(shape, use, int(size * 1e9 * USABLE)) // 1024
                    for size in CARD_SIZES.values()
                ]
                told = [f"{min(cell, 64)}k{'+' if cell > 64 else ''}" if cell else "–" for cell in cells]
                yield f"| {name} | {words} | {precision} | {' | '.join(told)} |"

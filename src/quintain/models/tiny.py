"""Build a tiny Qwen3 from nothing, small enough to train on a laptop's processor.

The architecture is the field's own, so that the result is a plain Hugging Face folder: grouped-query attention, SwiGLU,
RMSNorm, rotary positions, tied embeddings. The weights are a function of the size, the vocabulary and the seed, and the
global random state is left as it was.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from quintain.errors import ModelError, UsageError, suggestion
from quintain.models.seeding import draw_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_PARAMETERS = 2_000_000
COPIES = "begins_by_copying"
"""Key of the configuration of a model that says whether its heads began with what copying is made of."""
SHARP, SHARPEST = 1.5, 3.0
"""Norm of queries and of keys, per number, in a model that is to copy; and, in the first layer, of those that tell
near tokens apart."""
WIDE = 32
"""Least numbers of a head that is to tell tokens apart."""
ROPE_THETA, SLOW_THETA = 10_000.0, 1_000_000.0
"""Base of the angles by which rotary positions turn; and in a model that is to copy, where more of them turn slowly."""
FAR = 128
"""Tokens over which a pair of numbers turns by a radian at most, if it is to compare tokens that lie far apart."""
NUM_TURNED = 3
"""Of the fastest pairs of numbers: those that tell near tokens apart."""
SAME, QUIET, LOUD = 0.5, 0.05, 2.0
"""The number that all embeddings share; what is left of a head's own weights beside those that it begins with; and how
much a head that looks back attends to that number."""
LARGE, SOFT = 4.0, 0.2
"""How large embeddings are, and how much the first layer adds to them, so that what a token is stays legible above it;
steps of Adam are as long for every weight, so what is to outlast the first hundreds must not begin small."""
FIRM = 8.0
"""How large weights of queries and keys are that are normalised afterwards: the larger, the slower they turn."""
WRITTEN = 0.25
"""What a head writes of what it reads, so that it adds to a token about as much as its embedding is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """The shape of a tiny model: ``TinySize(num_layers=2, hidden=32, num_heads=2, intermediate=96)``."""

    num_layers: int = 4
    hidden: int = 128
    num_heads: int = 4
    """Query heads; each is ``hidden / num_heads`` wide."""
    num_key_value_heads: int = 2
    intermediate: int = 384
    max_length: int = 4096
    """Longest token stream, in tokens."""


SIZES = {
    "micro": TinySize(num_layers=2, hidden=32, num_heads=2, num_key_value_heads=1, intermediate=96),
    "mini": TinySize(num_layers=3, hidden=64, num_heads=4, num_key_value_heads=2, intermediate=192),
    "tiny": TinySize(),
    "small": TinySize(hidden=192, intermediate=512),
}
"""With 1024 tokens: micro 0.06M parameters (for tests), mini 0.2M, tiny 0.9M, small 1.8M."""


def build_tiny(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    size: str | TinySize = "tiny",
    seed: int = 0,
    finds_same: bool = False,
) -> "PreTrainedModel":
    """Return a new Qwen3 for the vocabulary of `tokenizer`, in float32 and evaluation mode.

    With `finds_same` its heads begin with what copying is made of; see `find_same`.

    Raises:
        UsageError: `size` has no such name, or a width that its heads do not divide.
        ModelError: the vocabulary makes the model larger than 2M parameters.
    """
    shape = find_size(size)
    wide = shape.hidden // shape.num_heads
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=max(wide, WIDE) if finds_same else wide,
        rope_parameters={"rope_type": "default", "rope_theta": SLOW_THETA if finds_same else ROPE_THETA},
        max_position_embeddings=shape.max_length,
        tie_word_embeddings=True,
        bos_token_id=cast("int | None", tokenizer.bos_token_id),
        eos_token_id=cast("int | None", tokenizer.eos_token_id),
        pad_token_id=cast("int | None", tokenizer.pad_token_id),
    )
    config.update({COPIES: finds_same})
    with draw_weights(seed):
        model = Qwen3ForCausalLM(config)
        initialise(model, shape)
        if finds_same:
            find_same(model, shape, config.head_dim)
    num_parameters = sum(weight.numel() for weight in model.parameters())
    if num_parameters > MAX_PARAMETERS:
        raise ModelError(
            f"a tiny model of at most {MAX_PARAMETERS:,} parameters: got {num_parameters:,} with "
            f"{len(tokenizer):,} tokens; train a tokenizer with a smaller vocab_size"
        )
    return model.eval()


def find_size(size: str | TinySize) -> TinySize:
    """Return the size that `size` names, checked.

    Raises:
        UsageError: there is no such name, or the widths do not fit together.
    """
    if isinstance(size, str):
        if size not in SIZES:
            raise UsageError(f"size of a tiny model: got {size!r}; {suggestion(size, SIZES)}")
        return SIZES[size]
    if min(size.num_layers, size.hidden, size.num_heads, size.num_key_value_heads, size.intermediate) < 1:
        raise UsageError(f"size of a tiny model: got {size}; every count must be at least 1")
    if size.hidden % (2 * size.num_heads) or size.num_heads % size.num_key_value_heads:
        raise UsageError(
            f"size of a tiny model: got {size}; make hidden a multiple of twice num_heads, "
            "and num_heads one of num_key_value_heads"
        )
    return size


def initialise(model: nn.Module, shape: TinySize) -> None:
    """Draw the weights of `model`: normal, of deviation 1/sqrt(inputs), so that narrow layers carry signal.

    The layers that write to the residual stream are smaller by sqrt(2 · layers), as in GPT-2. Embeddings are
    as wide, 1/sqrt(hidden): with the usual 0.02 the first layers drown the tokens, and imitating 100 episodes
    takes several times as many steps. Tied as they are, the first logits then have deviation 1.
    """
    depth = 1 / math.sqrt(2 * shape.num_layers)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=1 / math.sqrt(shape.hidden))
        elif isinstance(module, nn.Linear) and not name.endswith("lm_head"):
            scale = depth if name.endswith(("o_proj", "down_proj")) else 1.0
            nn.init.normal_(module.weight, std=scale / math.sqrt(module.in_features))


def find_same(model: nn.Module, shape: TinySize, wide: int) -> None:
    """Let heads, each `wide` numbers wide, begin with what copying is made of.

    The first query head of every key head looks for the same token: it has its keys as queries and writes what it reads
    as it was read, the mimetic initialization of arXiv 2305.09828 with W_Q = W_K and W_O = W_V transposed in place of
    matrices that are so on average. Rotary positions turn queries and keys with the distance between two tokens, so
    that only pairs of numbers that turn slowly find a token far away: the others begin `QUIET`.

    Where there are two key heads and two layers, those of the last key head begin as an induction head does (see
    `find_next`).
    """
    group = shape.num_heads // shape.num_key_value_heads
    slow = slow_rows(wide)
    parts = {name: cast("nn.Linear", part) for name, part in model.named_modules() if name.endswith("_proj")}
    with torch.no_grad():
        for name, part in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                part.fill_(SHARP)
        for name, query in parts.items():
            if not name.endswith("q_proj"):
                continue
            key, value, out = (parts[name.replace("q_proj", f"{other}_proj")].weight for other in "kvo")
            for head in range(shape.num_key_value_heads):
                own = slice(head * wide, (head + 1) * wide)
                first = slice(head * group * wide, (head * group + 1) * wide)
                key[own] *= torch.where(slow[:, None], FIRM, FIRM * QUIET)
                query.weight[first] = key[own]
                out[:, first] = WRITTEN * value[own].T
        if shape.num_key_value_heads > 1 and shape.num_layers > 1:
            find_next(model, shape, wide)


def slow_rows(wide: int) -> torch.Tensor:
    """Return which numbers of a head turn by a radian at most over `FAR` tokens; bool [wide]."""
    angles = SLOW_THETA ** (-2 * torch.arange(wide // 2) / wide)
    return (angles * FAR <= 1).repeat(2)


def find_next(model: nn.Module, shape: TinySize, wide: int) -> None:
    """Let the last key head of the first two layers begin as the two halves of an induction head (2209.11895).

    In the first layer its heads look one and two tokens back; in the second one looks for tokens before which the token
    stands that it is at. Whatever follows a word where it first stood is thus known where it stands again, which
    is to know that it has been there. A head that looks back needs what is the same at every token: the first
    number of an embedding, which adds the same to every logit. Turned by the angle of some tokens, it matches itself as
    many tokens ago. What the first of them has seen is written where embeddings begin with nothing, so that it is not
    mistaken for the token itself.
    """
    group = shape.num_heads // shape.num_key_value_heads
    last = shape.num_key_value_heads - 1
    own, heads = slice(last * wide, (last + 1) * wide), range(last * group, shape.num_heads)
    weights = dict(model.named_parameters())
    first, second = (
        {each: weights[f"model.layers.{layer}.self_attn.{each}_proj.weight"] for each in "qkvo"}
        for layer in (0, 1)
    )
    slow = slow_rows(wide)
    room = int(slow.sum())
    with torch.no_grad():
        embedding = weights["model.embed_tokens.weight"]
        embedding[:, -room:] = 0.0
        embedding[:, 0] = SAME
        embedding *= LARGE
        weights["model.norm.weight"].div_(LARGE)
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"model.layers.0.{name}.weight"][:] *= SOFT
            weights[f"model.layers.0.{name}.weight"][-room:] = 0.0
        turned = torch.arange(wide) % (wide // 2) < NUM_TURNED
        for name in ("q_norm", "k_norm"):
            weights[f"model.layers.0.self_attn.{name}.weight"][turned] = SHARPEST
        first["k"][own] *= QUIET
        first["k"][own][:NUM_TURNED, 0] += LOUD
        first["v"][own, 0] = 0.0
        for offset, head in enumerate(heads, 1):
            rows = slice(head * wide, (head + 1) * wide)
            first["q"][rows] *= QUIET
            for pair in range(NUM_TURNED):
                angle = offset * SLOW_THETA ** (-2 * pair / wide)
                first["q"][rows][pair, 0] += LOUD * math.cos(angle)
                first["q"][rows][pair + wide // 2, 0] -= LOUD * math.sin(angle)
        rows = slice(heads[0] * wide, (heads[0] + 1) * wide)
        seen = torch.zeros(wide, shape.hidden)
        seen[slow, -room:] = torch.eye(room)
        first["o"][:, rows] = LARGE * WRITTEN * seen.T
        token = first["v"][own].clone()
        token[:, -room:] = 0.0
        second["q"][rows] = FIRM * torch.where(slow[:, None], token, QUIET * second["q"][rows])
        second["k"][own] = FIRM * torch.where(slow[:, None], seen, QUIET * second["k"][own])
        for layer in range(2, shape.num_layers):
            look_near(weights, layer, heads, last, wide)


def look_near(weights: dict[str, nn.Parameter], layer: int, heads: range, key_head: int, wide: int) -> None:
    """Let `heads` of `key_head` begin by looking at the latest dozen of tokens, on which depends most what to do."""
    query, key = (weights[f"model.layers.{layer}.self_attn.{each}_proj.weight"] for each in "qk")
    angles = SLOW_THETA ** (-2 * torch.arange(wide // 2) / wide)
    near = torch.nonzero((angles <= 0.1) & (angles >= 0.01)).flatten()
    for weight, head in [(key, key_head), *((query, head) for head in heads)]:
        weight[head * wide : (head + 1) * wide] *= QUIET
        weight[head * wide + near, 0] += LOUD

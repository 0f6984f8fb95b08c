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

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_PARAMETERS = 2_000_000
SHARP = 1.5
"""Norm of queries and of keys, per number, in a model that is to copy; 1 leaves heads of 16 numbers undecided."""
ROPE_THETA = 10_000.0
"""Base of the angles by which rotary positions turn."""
SAME, QUIET, LOUD, BACK = 0.5, 0.05, 2.0, 0.7
"""The number that all embeddings share; what is left of a head that looks back instead; how much it attends to that
number; and how large that is what it reads."""
NUM_TURNED = 3
"""Of the fastest pairs of numbers: those that tell near tokens apart."""


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
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.hidden // shape.num_heads,
        max_position_embeddings=shape.max_length,
        tie_word_embeddings=True,
        bos_token_id=cast("int | None", tokenizer.bos_token_id),
        eos_token_id=cast("int | None", tokenizer.eos_token_id),
        pad_token_id=cast("int | None", tokenizer.pad_token_id),
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        initialise(model, shape)
        if finds_same:
            find_same(model, shape)
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


def find_same(model: nn.Module, shape: TinySize) -> None:
    """Let heads begin with what copying is made of: they look for the same token, back, and for what follows it.

    A head that looks for the same token has its keys as queries and writes what it reads as it was read: the mimetic
    initialization of arXiv 2305.09828, with W_Q = W_K and W_O = W_V transposed in place of matrices that are so on
    average. The first query head of every key head begins so, and attention is `SHARP`. Where there are two key heads
    and two layers, those of the last key head begin as an induction head does (2209.11895): in the first layer they
    look one and two tokens back, and in the second one looks for tokens before which the token stands that it is at.
    """
    wide, group = shape.hidden // shape.num_heads, shape.num_heads // shape.num_key_value_heads
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
                query.weight[first] = key[own]
                out[:, first] = value[own].T
        if shape.num_key_value_heads > 1 and shape.num_layers > 1:
            find_next(model, shape)


def find_next(model: nn.Module, shape: TinySize) -> None:
    """Let the last key head of the first two layers begin as the two halves of an induction head; see `find_same`.

    A head that looks back needs what is the same at every token: the first number of an embedding, which adds the same
    to every logit. Turned by the angle of some tokens, it matches itself as many tokens ago.
    """
    wide, group = shape.hidden // shape.num_heads, shape.num_heads // shape.num_key_value_heads
    last = shape.num_key_value_heads - 1
    own, heads = slice(last * wide, (last + 1) * wide), range(last * group, shape.num_heads)
    weights = dict(model.named_parameters())
    first, second = (
        {each: weights[f"model.layers.{layer}.self_attn.{each}_proj.weight"] for each in "qkvo"}
        for layer in (0, 1)
    )
    with torch.no_grad():
        weights["model.embed_tokens.weight"][:, 0] = SAME
        first["k"][own] *= QUIET
        first["k"][own][:NUM_TURNED, 0] += LOUD
        for offset, head in enumerate(heads, 1):
            rows = slice(head * wide, (head + 1) * wide)
            first["q"][rows] *= QUIET
            for pair in range(NUM_TURNED):
                angle = offset * ROPE_THETA ** (-2 * pair / wide)
                first["q"][rows][pair, 0] += LOUD * math.cos(angle)
                first["q"][rows][pair + wide // 2, 0] -= LOUD * math.sin(angle)
            nn.init.normal_(first["o"][:, rows], std=BACK / math.sqrt(wide))
        first["o"][0] = 0.0
        rows = slice(heads[0] * wide, (heads[0] + 1) * wide)
        second["q"][rows] = LOUD * first["v"][own]
        second["k"][own] = LOUD * first["o"][:, rows].T
        second["o"][:, rows] = second["v"][own].T

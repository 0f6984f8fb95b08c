"""Which models the fast forward passes know, and how their layers are laid out.

The packed forward (`quintain.models.packed`) and the cached decoder of `engines.Local` are written for the
Llama family: pre-norm blocks, rotary positions, gated SiLU feed-forward, grouped-query attention, optional
query/key norms. `find_unsupported` says in words why a model is not one of them; the caller then falls back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor, nn

from quintain.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = frozenset({"qwen3", "llama", "qwen2", "mistral"})
ROPE_TYPES = frozenset({"default", "linear", "llama3"})
NO_LIMIT = 1 << 20
"""Tokens of a stream of a model that sets no limit."""


def longest_stream(model: PreTrainedModel) -> int:
    """Return the tokens of the longest stream that `model` takes."""
    return int(getattr(model.config, "max_position_embeddings", NO_LIMIT))


class Norm(Protocol):
    """A root-mean-square norm of the Llama family."""

    weight: Tensor
    variance_epsilon: float


class Attention(Protocol):
    """The projections of one attention layer."""

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    o_proj: nn.Module


class FeedForward(Protocol):
    """The projections of one gated feed-forward layer."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module


class Layer(Protocol):
    """One block."""

    self_attn: Attention
    mlp: FeedForward
    input_layernorm: Norm
    post_attention_layernorm: Norm


class Backbone(Protocol):
    """The model without its head."""

    embed_tokens: nn.Embedding
    layers: Sequence[Layer]
    norm: Norm
    rotary_emb: nn.Module


def find_unsupported(model: PreTrainedModel) -> str | None:
    """Return why the fast paths cannot run `model`, or None when they can."""
    config: Any = model.config
    if config.model_type not in FAMILIES:
        return f"model type {config.model_type!r} is not one of {', '.join(sorted(FAMILIES))}"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act!r} is not silu"
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind not in ROPE_TYPES:
        return f"rope type {kind!r} is not one of {', '.join(sorted(ROPE_TYPES))}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "some layers have sliding-window attention"
    if config.model_type == "mistral" and config.sliding_window is not None:
        return "sliding-window attention"
    return None


def backbone(model: PreTrainedModel) -> Backbone:
    """Return the part of `model` below its head, also when adapters wrap it."""
    wrapped: Any = model
    base: Any = wrapped.get_base_model() if hasattr(model, "get_base_model") else model
    return cast(Backbone, base.model)


def trunk(model: PreTrainedModel, head_layers: int) -> list[nn.Parameter]:
    """Return the parameters below the last `head_layers` layers and the norm behind them.

    Embeddings are among them; so is the output head where it is the embedding, as in tied models.

    Raises:
        ConfigError: the model has not so many layers, and one below them.
    """
    base = backbone(model)
    num = len(base.layers)
    if not 1 <= head_layers < num:
        raise ConfigError(
            f"head_layers: got {head_layers} of a model of {num} layers; give 1 to {num - 1}, so that some rest"
        )
    above = [*base.layers[num - head_layers :], base.norm, head(model)]
    tied = {id(p) for p in base.embed_tokens.parameters()}
    learning = {id(p) for part in above for p in cast(nn.Module, part).parameters()} - tied
    return [p for p in model.parameters() if id(p) not in learning]


def head(model: PreTrainedModel) -> nn.Module:
    """Return the module from hidden states to logits."""
    return cast(nn.Module, model.get_output_embeddings())


def head_sizes(model: PreTrainedModel) -> tuple[int, int, int]:
    """Return (query heads, key/value heads, head dimension)."""
    config: Any = model.config
    num_heads = int(config.num_attention_heads)
    dimension = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    return num_heads, int(getattr(config, "num_key_value_heads", None) or num_heads), int(dimension)

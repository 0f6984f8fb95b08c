"""A byte-level tokenizer of 262 tokens, and small models of three families, made from nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
FAMILIES: dict[str, Callable[[int], "PreTrainedModel"]] = {
    "qwen3": lambda size: Qwen3ForCausalLM(Qwen3Config(vocab_size=size, **SHAPE)),
    "llama": lambda size: LlamaForCausalLM(LlamaConfig(vocab_size=size, **SHAPE)),
    "gemma": lambda size: Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=size, **SHAPE)),
}


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(tokenizer_models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=core)
    fast.add_special_tokens({"pad_token": "<|pad|>", "eos_token": "<|end|>"})
    return fast


@pytest.fixture
def family(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast) -> "PreTrainedModel":
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return FAMILIES[cast("str", request.param)](len(tokenizer)).eval()

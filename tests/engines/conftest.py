from typing import Any

import pytest
import torch
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 200,
}


def small_model(family: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    if family == "gemma":
        return GemmaForCausalLM(GemmaConfig(**SHAPE)).eval()
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True)).eval()


@pytest.fixture(params=["qwen3", "llama", "gemma"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return small_model(request.param)


@pytest.fixture
def qwen() -> PreTrainedModel:
    return small_model("qwen3")

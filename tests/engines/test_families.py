"""Families that transformers keeps in its own ways: each continues a stream as one pass over all of it would."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from tests.learning.streams import streamed
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from quintain.data.pack import pack
from quintain.engines.decoder import GenericDecoder, Reading
from quintain.learning.learner import Learner, Optimization
from quintain.losses.imitation import imitation

SHAPE: dict[str, Any] = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2}


def deepseek() -> PreTrainedModel:
    config = DeepseekV3Config(
        **SHAPE, intermediate_size=48, moe_intermediate_size=16, num_attention_heads=4, num_key_value_heads=4,
        n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1,
        q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config)


def qwen_next() -> PreTrainedModel:
    config = Qwen3NextConfig(
        **SHAPE, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
        moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=4, num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    return Qwen3NextForCausalLM(config)


def mamba() -> PreTrainedModel:
    return MambaForCausalLM(MambaConfig(**SHAPE, state_size=8))


def mamba2() -> PreTrainedModel:
    config = Mamba2Config(**SHAPE, state_size=8, num_heads=4, head_dim=16, n_groups=2, chunk_size=8)
    return Mamba2ForCausalLM(config)


@pytest.mark.parametrize("make", [mamba, mamba2, deepseek, qwen_next])
def test_a_continued_stream_is_read_as_a_whole_one_and_trains(make: Callable[[], PreTrainedModel]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    decoder = GenericDecoder(model)
    ids = list(range(3, 16))
    whole = torch.log_softmax(decoder.read([0], [ids]), dim=-1)
    decoder.clear(0)
    parts = [decoder.read([0], [piece]) for piece in (ids[:4], ids[4:9], ids[9:10], ids[10:])]
    torch.testing.assert_close(torch.log_softmax(torch.cat(parts), -1), whole, atol=1e-5, rtol=1e-5)
    decoder.clear(0)
    decoder.forward([0], [ids[:5]])
    branches = decoder.branch([0, 0], [ids[5:8], [1, 2]])
    torch.testing.assert_close(torch.log_softmax(branches[:3], -1), whole[5:8], atol=1e-5, rtol=1e-5)
    told = whole[4:-1].gather(1, torch.tensor(ids[5:])[:, None])[:, 0].tolist()
    batch = pack([streamed(ids, first=5, logprobs=told)])
    report = Learner(model, Optimization(learning_rate=1e-3)).step([batch], imitation(), is_on_policy=True)
    assert report.metrics["gap/max"] < 1e-4
    assert report.grad_norm > 0


class Forgetful(MambaForCausalLM):
    """Gives no cache that could be continued."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **{**kwargs, "cache_params": None})
        cast(Any, output).cache_params = {}
        return output


@pytest.mark.parametrize(
    ("kind", "expected"), [(MambaForCausalLM, "one by one"), (Forgetful, "again as a whole")]
)
def test_how_a_stream_is_continued_is_found_out(kind: type[MambaForCausalLM], expected: Reading) -> None:
    torch.manual_seed(0)
    model = kind(MambaConfig(**SHAPE, state_size=8)).eval()
    decoder = GenericDecoder(model)
    assert decoder.reading == expected
    whole = decoder.read([0], [[1, 2, 3, 4, 5, 6]])
    decoder.clear(0)
    parts = torch.cat([decoder.read([0], [piece]) for piece in ([1, 2], [3, 4, 5], [6])])
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from quintain.models.families import find_unsupported, head, head_sizes
from quintain.models.packed import Stream, compute_hidden, plan

SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
}


def built(family: str) -> PreTrainedModel:
    torch.manual_seed(1)
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE)).double().eval()
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE)).double().eval()


QWEN, LLAMA = built("qwen3"), built("llama")


def plain(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    return cast(Any, model)(ids[None]).logits[0]


@pytest.mark.parametrize("model", [QWEN, LLAMA], ids=["qwen3", "llama"])
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_packed_streams_equal_the_plain_forward(
    model: PreTrainedModel, lengths: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    streams = [torch.randint(0, 40, (length,)) for length in lengths]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    attention = plan([Stream(start, length) for start, length in zip(starts, lengths, strict=True)])
    positions = torch.cat([torch.arange(length) for length in lengths])
    with torch.no_grad():
        logits = head(model)(compute_hidden(model, torch.cat(streams), positions, attention))
        for start, stream in zip(starts, streams, strict=True):
            torch.testing.assert_close(logits[start : start + len(stream)], plain(model, stream))


@pytest.mark.parametrize("model", [QWEN, LLAMA], ids=["qwen3", "llama"])
def test_streams_that_share_a_prefix_equal_the_plain_forward(model: PreTrainedModel) -> None:
    prefix = torch.randint(0, 40, (7,))
    rests = [torch.randint(0, 40, (length,)) for length in (5, 9, 1)]
    places = [7, 12, 21]
    streams = [Stream(0, 7)]
    streams += [Stream(place, len(rest), ((0, 7),)) for place, rest in zip(places, rests, strict=True)]
    positions = torch.cat([torch.arange(7), *(torch.arange(7, 7 + len(rest)) for rest in rests)])
    with torch.no_grad():
        logits = head(model)(compute_hidden(model, torch.cat([prefix, *rests]), positions, plan(streams)))
        for place, rest in zip(places, rests, strict=True):
            whole = plain(model, torch.cat([prefix, rest]))
            torch.testing.assert_close(logits[place : place + len(rest)], whole[7:])
            torch.testing.assert_close(logits[:7], whole[:7])


def test_streams_of_like_length_run_in_one_call() -> None:
    streams = [Stream(0, 20), Stream(20, 22), Stream(42, 100), Stream(142, 25)]
    assert [bucket.num_rows for bucket in plan(streams).buckets] == [3, 1]


def test_unsupported_says_why() -> None:
    model = built("qwen3")
    assert find_unsupported(model) is None
    model.config.hidden_act = "gelu"
    assert find_unsupported(model) == "activation 'gelu' is not silu"
    model.config.hidden_act = "silu"
    model.config.layer_types = ["sliding_attention", "full_attention"]
    assert find_unsupported(model) == "some layers have sliding-window attention"
    model.config.layer_types = None
    model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4}
    assert "rope type 'dynamic'" in (find_unsupported(model) or "")
    vars(model.config)["model_type"] = "gpt2"
    assert "model type 'gpt2'" in (find_unsupported(model) or "")
    mistral = built("llama")
    vars(mistral.config).update(model_type="mistral", sliding_window=128)
    assert find_unsupported(mistral) == "sliding-window attention"


def test_head_sizes() -> None:
    assert head_sizes(QWEN) == (4, 2, 6)


def test_what_is_hooked_to_modules_is_called() -> None:
    model = built("qwen3").float()
    called: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    attention, ids = plan([Stream(0, 5)]), torch.arange(5)
    config = cast(Any, model.config)
    before = config._attn_implementation
    compute_hidden(model, ids, torch.arange(5), attention, use_kernels=False)
    for part in ("self_attn", "self_attn.q_proj", "self_attn.k_norm", "mlp.down_proj", "input_layernorm"):
        assert called.count(f"model.layers.1.{part}") == 1
    assert {"model.embed_tokens", "model.norm", "model.layers.0"} <= set(called)
    assert config._attn_implementation == before

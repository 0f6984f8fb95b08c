from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.models.adapters import add_lora
from quintain.models.lora_linear import effective_weight
from quintain.models.packed import Stream, compute_hidden, plan
from quintain.models.precision import computing
from quintain.models.tiny import build_tiny
from quintain.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CPU = torch.device("cpu")


@pytest.fixture
def learned(tokenizer: PreTrainedTokenizerFast) -> "PreTrainedModel":
    """A model with LoRA layers as large as after much training."""
    model = add_lora(build_tiny(tokenizer, size="micro"), rank=3, alpha=6.0)
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.2, generator=generator)
    return model


def layer_of(model: "PreTrainedModel") -> Any:
    return next(module for module in model.modules() if hasattr(module, "lora_A"))


def test_the_sum_of_both_parts_is_rounded_once(learned: "PreTrainedModel") -> None:
    layer = layer_of(learned)
    inputs = torch.randn(5, layer.in_features)
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    whole = (layer.base_layer.weight + b @ a * 2.0).detach()
    assert torch.equal(effective_weight(layer), whole)
    expected = (inputs.bfloat16().double() @ whole.bfloat16().double().t()).float()
    with computing("bf16", CPU):
        found = layer(inputs)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer(inputs), F.linear(inputs, whole), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_parts(learned: "PreTrainedModel") -> None:
    layer = layer_of(learned)
    parts = [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    inputs, towards = (
        torch.randn(200, layer.in_features, requires_grad=True),
        torch.randn(200, layer.out_features),
    )

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad((layer(inputs) * towards).sum(), [inputs, *parts]))

    exact = gradients()
    with computing("bf16", CPU):
        rounded = gradients()
    for each, other in zip(exact, rounded, strict=True):
        assert F.cosine_similarity(each.flatten(), other.flatten(), dim=0) > 0.9999
        torch.testing.assert_close(other.norm(), each.norm(), rtol=0.01, atol=0)
    assert layer.base_layer.weight.grad is None


def test_under_autocast_too(learned: "PreTrainedModel") -> None:
    layer = layer_of(learned)
    inputs = torch.randn(4, layer.in_features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(inputs)
    assert found.dtype == torch.bfloat16
    expected = inputs.bfloat16() @ effective_weight(layer).bfloat16().t()
    torch.testing.assert_close(found, expected)


def test_a_layer_that_is_switched_off_is_its_base(learned: "PreTrainedModel") -> None:
    layer = layer_of(learned)
    inputs = torch.randn(4, layer.in_features)
    cast("Any", learned).disable_adapters()
    assert torch.equal(effective_weight(layer), layer.base_layer.weight)
    with computing("bf16", CPU):
        assert torch.equal(layer(inputs), layer.base_layer(inputs))
    plain = nn.Linear(3, 2)
    assert torch.equal(effective_weight(plain), plain.weight)


def test_engine_and_learner_say_the_same_in_bf16(learned: "PreTrainedModel") -> None:
    prompt = (4, 8, 15, 16, 23)
    engine = build_engine(EngineSettings(precision="bf16"), learned)
    engine.submit(Request(session="a", prompt_ids=prompt, seed=0, sampling=Sampling(max_tokens=6)))
    replies = engine.advance()
    while not replies:
        replies = engine.advance()
    reply = replies[0].result
    assert isinstance(reply, Completion)
    ids = torch.tensor([*prompt, *reply.token_ids])
    with torch.no_grad(), computing("bf16", CPU):
        hidden = compute_hidden(learned, ids, torch.arange(len(ids)), plan([Stream(0, len(ids))]))
        logits = cast("Any", learned).lm_head(hidden)
    told = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, ids[len(prompt) :, None])[:, 0]
    torch.testing.assert_close(told, torch.tensor(reply.logprobs), atol=2e-4, rtol=0)

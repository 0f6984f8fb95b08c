"""A base that is kept in 16 bits: read where it lies by learner and engine, and right beside a trained adapter."""

from typing import Any, cast

import pytest
import torch
from tests.engines.conftest import small_model
from tests.learning.streams import streamed
from torch import Tensor
from transformers import PreTrainedModel

from quintain.data.pack import pack
from quintain.engines import decoder as decoding
from quintain.engines.decoder import FastDecoder, SharedLinear
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.learning.gap import STOP
from quintain.learning.learner import Learner, Optimization
from quintain.losses.imitation import imitation
from quintain.models.adapters import add_lora, merge_adapters
from quintain.models.memory import Use, cache_by_token, shape_of
from quintain.types import Completion

PROMPTS = {"a": (3, 1, 4, 1, 5, 9), "b": (3, 1, 4), "c": (2, 7, 1, 8, 2, 8, 1, 8)}


def adapted(family: str = "qwen3") -> PreTrainedModel:
    """Return a model in 16 bits with trained layers of LoRA beside it, whose tokens are not all alike."""
    model = cast(Any, small_model(family)).to(torch.bfloat16)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    add_lora(model, rank=4, alpha=8.0)
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.1, generator=generator)
    return model


def storages(tensors: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def sampled(engine: Local) -> dict[str, Completion]:
    for seed, (name, prompt) in enumerate(PROMPTS.items()):
        engine.submit(Request(session=name, prompt_ids=prompt, seed=seed, sampling=Sampling(max_tokens=12)))
    found: dict[str, Completion] = {}
    while len(found) < len(PROMPTS):
        for reply in engine.advance():
            assert isinstance(reply.result, Completion)
            found[reply.session] = reply.result
    return found


def test_what_is_trained_is_in_32_bits_and_the_base_is_not_touched() -> None:
    model = adapted()
    for name, weight in model.named_parameters():
        assert weight.dtype == (torch.float32 if "lora_" in name else torch.bfloat16), name
        assert weight.requires_grad is ("lora_" in name)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    learner = Learner(model, Optimization(precision="bf16", learning_rate=1e-2))
    batch = pack([streamed([3, 1, 4, 1, 5, 9, 2, 6], first=2, logprobs=[-4.0] * 6)])
    learner.step([batch], imitation())
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) is ("lora_" not in name), name


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_the_engine_copies_nothing_of_the_base_and_says_what_the_learner_says(family: str) -> None:
    model = adapted(family)
    engine = Local(model, precision="bf16")
    decoder = engine.decoder
    assert isinstance(decoder, FastDecoder) and decoder.num_copied == 0
    own = storages(model.parameters())
    layers = decoder._layers  # pyright: ignore[reportPrivateUsage]
    assert all(isinstance(layer.qkv, SharedLinear) and storages(layer.weights) <= own for layer in layers)
    learner = Learner(model, Optimization(precision="bf16", learning_rate=3e-3))
    for _ in range(2):
        told = sampled(engine)
        streams = [
            streamed([*PROMPTS[name], *each.token_ids], first=len(PROMPTS[name]), logprobs=each.logprobs)
            for name, each in told.items()
        ]
        report = learner.step([pack(streams)], imitation(), is_on_policy=True)
        assert report.metrics["gap/mean"] < STOP / 2
        for name in PROMPTS:
            engine.release(name)
        engine.load_weights(learner.version, None)


def test_the_cache_has_16_bits_and_as_many_bytes_as_are_reckoned() -> None:
    model = adapted()
    engine = Local(model, precision="bf16")
    sampled(engine)
    keys: list[Tensor] = engine.decoder._keys  # type: ignore[attr-defined] # pyright: ignore
    assert {cache.dtype for cache in keys} == {torch.bfloat16}
    rows, _, capacity, _ = keys[0].shape
    use = Use(device="cuda", precision="bf16", is_frozen=True, lora_rank=4)
    assert engine.stats().cache_bytes == rows * capacity * cache_by_token(shape_of(model), use)


def test_attention_in_blocks_is_attention_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted()
    ids = [list(range(3, 40)), list(range(5, 16))]
    whole = FastDecoder(model, max_length=64, precision="bf16").forward([0, 1], ids)
    monkeypatch.setattr(decoding, "BLOCK_TOKENS", 8)
    parts = FastDecoder(model, max_length=64, precision="bf16").forward([0, 1], ids)
    torch.testing.assert_close(parts, whole, atol=2e-2, rtol=2e-2)


def test_a_merged_copy_is_rounded_once_and_lies_in_main_memory() -> None:
    model = adapted()
    layer: Any = next(module for module in model.modules() if hasattr(module, "lora_A"))
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    whole = (layer.base_layer.weight.float() + b @ a * 2.0).detach()
    name = next(name for name, module in model.named_modules() if module is layer)
    found = cast(Any, merge_adapters(model)).get_submodule(name).weight
    assert found.dtype == torch.bfloat16 and torch.equal(found, whole.bfloat16())
    assert found.device.type == "cpu" and found.data_ptr() != layer.base_layer.weight.data_ptr()


def test_layers_of_the_engine_are_made_anew_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("qwen3")
    decoder = FastDecoder(model, max_length=64)
    there: list[int] = []
    made: Any = decoding._FusedLayer  # pyright: ignore[reportPrivateUsage]

    class Counted(made):
        alive = 0

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            Counted.alive += 1
            there.append(Counted.alive)

        def __del__(self) -> None:
            Counted.alive -= 1

    monkeypatch.setattr(decoding, "_FusedLayer", Counted)
    for _ in range(3):
        decoder.refresh()
    assert max(there) == len(decoder._layers)  # pyright: ignore[reportPrivateUsage]

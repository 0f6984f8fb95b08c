"""Steps over all slots of a cache, as they are recorded on a card: what each stream says, and what stays."""

from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quintain.engines.decode_graph import DecodeGraphs, bucket
from quintain.engines.decoder import FastDecoder

CONFIG: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
}  # fmt: skip


def replaying(model: Qwen3ForCausalLM) -> FastDecoder:
    """Return a decoder that takes the steps of a card on a processor, where nothing is recorded."""
    decoder = FastDecoder(model, max_length=512)
    decoder.records_steps = True
    return decoder


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**CONFIG)).eval()


def test_a_step_over_all_slots_says_what_one_of_some_says(model: Qwen3ForCausalLM) -> None:
    decoders = [FastDecoder(model, max_length=512), replaying(model)]
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 97, (size,), generator=generator).tolist() for size in (3, 11, 7, 60)]
    for decoder in decoders:
        decoder.forward(range(4), prompts)
    for slots in ([0, 2, 3], [3], [1, 3], [0, 1, 2, 3], [4], [2, 4]):  # 4 is new, and others rest meanwhile
        ids = [[int(torch.randint(0, 97, (), generator=generator))] for _ in slots]
        expected, found = (decoder.forward(slots, ids) for decoder in decoders)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert decoders[0].lengths == decoders[1].lengths


def test_streams_that_grow_and_weights_that_change(model: Qwen3ForCausalLM) -> None:
    decoders = [FastDecoder(model, max_length=512), replaying(model)]
    for decoder in decoders:
        decoder.forward([0, 1], [[5, 6], [7]])
    for step in range(80):  # the cache grows twice
        expected, found = (decoder.forward([0, 1], [[step], [96 - step]]) for decoder in decoders)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    before = model.lm_head.weight.detach().clone()
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    try:
        for decoder in decoders:
            decoder.refresh()
            decoder.forward([0, 1], [[5, 6], [7]])
        expected, found = (decoder.forward([0, 1], [[1], [2]]) for decoder in decoders)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    finally:
        with torch.no_grad():
            model.lm_head.weight.copy_(before)


@pytest.mark.parametrize(
    ("length", "capacity", "size"), [(1, 64, 64), (200, 1000, 256), (257, 1000, 512), (700, 1000, 1000)]
)
def test_keys_that_are_looked_at(length: int, capacity: int, size: int) -> None:
    assert bucket(length, capacity) == size


def test_a_processor_takes_the_step_itself() -> None:
    seen: list[tuple[list[int], list[int], int]] = []

    def step(tokens: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
        seen.append((tokens.tolist(), positions.tolist(), length))
        return tokens[:, None].float()

    graphs = DecodeGraphs(step, 3, torch.device("cpu"))
    assert graphs([1, 2, 3], [4, 5, 6], 256).tolist() == [[1], [2], [3]]
    assert seen == [([1, 2, 3], [4, 5, 6], 256)]

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from quintain.errors import ModelError, UsageError
from quintain.models.fingerprint import fingerprint
from quintain.models.tiny import MAX_PARAMETERS, SHARP, SIZES, WIDE, WRITTEN, TinySize, build_tiny, find_size


def with_vocabulary(tokenizer: PreTrainedTokenizerFast, size: int) -> PreTrainedTokenizerFast:
    larger = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|end|>")
    larger.add_tokens([f"<{i}>" for i in range(size - len(larger))])
    return larger


@pytest.mark.parametrize(
    ("size", "vocabulary", "num_parameters"),
    [
        # vocabulary·hidden + layers·(attention + swiglu + norms) + last norm
        ("tiny", 1024, 1024 * 128 + 4 * (3 * 128 * 128 + 3 * 128 * 384 + 2 * 128 + 2 * 32) + 128),
        ("small", 1024, 1024 * 192 + 4 * (3 * 192 * 192 + 3 * 192 * 512 + 2 * 192 + 2 * 48) + 192),
    ],
)
def test_sizes(tokenizer: PreTrainedTokenizerFast, size: str, vocabulary: int, num_parameters: int) -> None:
    model = build_tiny(with_vocabulary(tokenizer, vocabulary), size=size)
    assert sum(p.numel() for p in model.parameters()) == num_parameters <= MAX_PARAMETERS
    assert model.get_parameter("lm_head.weight") is model.get_parameter("model.embed_tokens.weight")


def test_the_seed_names_the_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    first, again, other = (build_tiny(tokenizer, size="micro", seed=seed) for seed in (1, 1, 2))
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)


def test_the_global_random_state_is_left_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    before = torch.get_rng_state()
    model = build_tiny(tokenizer, size="micro", seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert fingerprint(build_tiny(tokenizer, size="micro", seed=5)) == fingerprint(model)


def test_first_logits_have_deviation_one(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer)
    with torch.no_grad():
        logits = model(input_ids=torch.arange(200)[None]).logits
    # but for the token just read, whose embedding is still in the stream
    others = ~torch.nn.functional.one_hot(torch.arange(200), len(tokenizer)).bool()
    assert logits[0][others].std().item() == pytest.approx(1, abs=0.1)
    assert logits[0][others].mean().item() == pytest.approx(0, abs=0.1)


def test_layers_draw_their_declared_deviation(tokenizer: PreTrainedTokenizerFast) -> None:
    state = build_tiny(tokenizer).state_dict()
    for name, deviation in (
        ("model.embed_tokens.weight", 128**-0.5),
        ("model.layers.1.self_attn.q_proj.weight", 128**-0.5),
        ("model.layers.1.self_attn.o_proj.weight", 128**-0.5 * 8**-0.5),
        ("model.layers.1.mlp.down_proj.weight", 384**-0.5 * 8**-0.5),
    ):
        assert state[name].std().item() == pytest.approx(deviation, rel=0.03)


def test_special_tokens_reach_the_configuration(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size="micro")
    assert model.config.eos_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id


def test_unknown_size(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UsageError, match="did you mean 'tiny'"):
        build_tiny(tokenizer, size="tinny")


@pytest.mark.parametrize(
    "size",
    [
        TinySize(num_layers=0),
        TinySize(hidden=100),
        TinySize(num_heads=4, num_key_value_heads=3),
    ],
)
def test_sizes_that_do_not_fit(size: TinySize) -> None:
    with pytest.raises(UsageError, match="size of a tiny model: got TinySize"):
        find_size(size)


def test_own_size(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size=TinySize(num_layers=1, hidden=16, num_heads=2, num_key_value_heads=2))
    assert model.config.num_hidden_layers == 1
    assert find_size("tiny") is SIZES["tiny"]


def test_a_large_vocabulary_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ModelError, match="smaller vocab_size"):
        build_tiny(with_vocabulary(tokenizer, 12_000))


@pytest.fixture
def copyist(tokenizer: PreTrainedTokenizerFast) -> Any:
    model = build_tiny(tokenizer, size="mini", seed=0, finds_same=True)
    model.set_attn_implementation("eager")
    return model


def looks(model: Any, ids: list[int], layer: int) -> torch.Tensor:
    """What each head of `layer` looks at, of the last of `ids`."""
    with torch.no_grad():
        return model(torch.tensor([ids]), output_attentions=True).attentions[layer][0, :, -1]


def test_a_head_may_begin_by_looking_for_what_is_the_same(
    tokenizer: PreTrainedTokenizerFast, copyist: Any
) -> None:
    """However far away: the numbers that it compares hardly turn with the distance."""
    usual: Any = build_tiny(tokenizer, size="mini", seed=0)
    usual.set_attn_implementation("eager")
    ids = [7, *range(20, 120), 7]
    seen = looks(copyist, ids, 0)[0]
    assert float(seen[0] + seen[-1]) > 0.8 and float(seen[0]) > 0.3 > 0.1 > float(looks(usual, ids, 0)[0, 0])
    attention = copyist.model.layers[2].self_attn
    wide = attention.head_dim
    assert wide == WIDE > 64 // 4 == usual.config.head_dim
    assert torch.equal(attention.q_proj.weight[:wide], attention.k_proj.weight[:wide])
    assert torch.equal(attention.o_proj.weight[:, :wide], WRITTEN * attention.v_proj.weight[:wide].T)
    assert attention.q_norm.weight.tolist() == attention.k_norm.weight.tolist() == [SHARP] * wide
    assert (copyist.config.begins_by_copying, usual.config.begins_by_copying) == (True, False)


def test_heads_may_begin_by_looking_back_and_for_what_follows(copyist: Any) -> None:
    """One and two tokens back; and at what followed the token before, with both layers."""
    ids = torch.randperm(len(ids_of(copyist)), generator=torch.Generator().manual_seed(0))[:100].tolist()
    seen = looks(copyist, ids, 0)
    assert [int(seen[head].argmax()) for head in (2, 3)] == [98, 97]
    assert float(seen[2, 98]) > 0.7 < float(seen[3, 97])
    follows = [float(looks(copyist, [*ids[:-1], ids[n]], 1)[2, n + 1]) for n in range(20, 80, 2)]
    assert sum(follows) / len(follows) > 0.5


def test_heads_of_later_layers_may_begin_by_looking_at_what_is_near(copyist: Any) -> None:
    ids = torch.randperm(len(ids_of(copyist)), generator=torch.Generator().manual_seed(1))[:100].tolist()
    seen = looks(copyist, ids, 2)
    assert [float(seen[head, -20:].sum()) > 0.9 for head in range(4)] == [False, False, True, True]


def test_first_logits_are_as_wide_in_a_model_that_is_to_copy(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size="mini", finds_same=True)
    with torch.no_grad():
        logits = model(input_ids=torch.arange(200)[None]).logits[0]
    others = ~torch.nn.functional.one_hot(torch.arange(200), len(tokenizer)).bool()
    assert logits[others].std().item() == pytest.approx(1, abs=0.3)


def ids_of(model: Any) -> range:
    """The token ids of `model`."""
    return range(model.config.vocab_size)

"""What is reckoned of a model's memory, against what autograd keeps and what tensors take."""

from typing import Any, cast

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from quintain.models import memory
from quintain.models.adapters import add_lora
from quintain.models.cpu.native import unavailable
from quintain.models.memory import (
    GIB,
    Phase,
    Shape,
    Use,
    activation_bytes,
    amount,
    cache_by_token,
    count_trainable,
    most_tokens,
    path_of,
    phases,
    sampling,
    shape_of,
    update,
    weights,
)
from quintain.models.packed import Stream, compute_hidden, plan
from quintain.models.precision import DTYPES, Precision, storage_dtype

TOKENS = 77
QWEN_8B: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960,
}  # fmt: skip


def outlined(**changes: Any) -> Shape:
    with torch.device("meta"):
        return shape_of(Qwen3ForCausalLM(Qwen3Config(**{**QWEN_8B, **changes})))


def model_of(layers: int, *, dtype: torch.dtype, lora: bool, **widths: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=64, num_hidden_layers=layers, max_position_embeddings=128, **widths)
    model = cast(Any, Qwen3ForCausalLM(config).eval()).to(dtype)
    return add_lora(model, rank=4, alpha=8.0) if lora else model


def kept(model: PreTrainedModel, path: str) -> int:
    """Return the bytes of tensors of tokens that autograd keeps of a pass."""
    own = {part.untyped_storage().data_ptr() for part in [*model.parameters(), *model.buffers()]}
    found: dict[int, tuple[int, torch.Tensor]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage()
        if place.data_ptr() not in own and TOKENS in tensor.shape:
            found[place.data_ptr()] = place.nbytes(), tensor
        return tensor

    ids, places = torch.arange(TOKENS) % 64, torch.arange(TOKENS)
    cast_is_on = torch.autocast("cpu", dtype=torch.bfloat16, enabled=path == "autocast")
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), cast_is_on:
        compute_hidden(model, ids, places, plan([Stream(0, TOKENS)]), use_kernels=path == "kernels")
    return sum(size for size, _ in found.values())


@pytest.mark.parametrize("path", ["kernels", "autocast", "half"])
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize(
    ("hidden", "inner", "heads", "kv", "dimension"), [(96, 520, 4, 2, 32), (320, 200, 6, 2, 16)]
)
def test_what_a_layer_keeps_of_a_token(
    path: memory.Path, lora: bool, hidden: int, inner: int, heads: int, kv: int, dimension: int
) -> None:
    if path == "kernels" and unavailable():
        pytest.skip("no C compiler here")
    widths: dict[str, Any] = {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": dimension,
    }  # fmt: skip
    dtype = torch.bfloat16 if path == "half" else torch.float32
    shallow, deep = (kept(model_of(layers, dtype=dtype, lora=lora, **widths), path) for layers in (1, 2))
    shape = shape_of(model_of(2, dtype=dtype, lora=False, **widths))
    device = "cpu" if path == "kernels" else "cuda"
    use = Use(device=device, precision="fp32" if path == "kernels" else "bf16", is_frozen=path == "half")
    use = Use(
        device=device, precision=use.precision, is_frozen=use.is_frozen, lora_rank=4 * lora, is_trained=True
    )
    assert path_of(use, shape) == path
    assert activation_bytes(shape, use) == pytest.approx((deep - shallow) / TOKENS, rel=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_weights_are_reckoned_as_they_are_loaded(precision: Precision, is_frozen: bool, device: str) -> None:
    dtype = DTYPES[storage_dtype(precision, torch.device(device), is_frozen=is_frozen)]
    assert Use(device=device, precision=precision, is_frozen=is_frozen).width == dtype.itemsize


def test_numbers_of_qwen3_8b() -> None:
    shape = outlined()
    assert shape.parameters == 8_190_735_360
    base = Use(device="cuda", precision="bf16", is_frozen=True, lora_rank=16)
    assert weights(shape, base) / GIB == pytest.approx(15.3 + 0.16, abs=0.05)
    assert count_trainable(shape, base) == 43_646_976
    assert weights(shape, Use(device="cuda")) / GIB == pytest.approx(30.5, abs=0.1)
    assert cache_by_token(shape, base) == 36 * 2 * 8 * 128 * 2
    whole = Use(device="cuda", precision="bf16")
    assert activation_bytes(shape, Use(device="cuda", precision="bf16", lora_rank=16)) // 1024 == 208
    assert update(shape, whole).total > 4 * 30 * GIB, "weights, gradients and two moments in fp32"
    kept_again = update(
        shape, Use(device="cuda", precision="bf16", is_frozen=True, lora_rank=16, checkpoints=True)
    )
    assert kept_again.total < 30 * GIB, "which an H100 has"


def test_lora_has_as_many_parameters_as_are_reckoned() -> None:
    model = model_of(2, dtype=torch.float32, lora=False, hidden_size=96, intermediate_size=200)
    shape = shape_of(model)
    add_lora(model, rank=4, alpha=8.0)
    count = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    assert count_trainable(shape, Use(lora_rank=4)) == count
    assert count_trainable(shape, Use(is_trained=False)) == 0


def test_ties_count_once_and_other_families_are_told() -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        tie_word_embeddings=True,
    )  # fmt: skip
    shape = shape_of(LlamaForCausalLM(config))
    assert shape.is_known and shape.vocabulary == 64 and shape.keys == 32
    assert shape.parameters == sum(p.numel() for p in LlamaForCausalLM(config).parameters())


def test_as_many_tokens_as_fit_fit() -> None:
    shape = outlined()
    for use in (
        Use(device="cuda", precision="bf16", is_frozen=True, lora_rank=16),
        Use(device="cuda", precision="bf16", is_frozen=True, lora_rank=16, checkpoints=True),
    ):
        most = most_tokens(shape, use, 60 * GIB)
        assert most > 1024
        assert update(shape, use, most).total <= 60 * GIB < update(shape, use, 2 * most).total
    assert most_tokens(shape, Use(device="cuda"), 60 * GIB) == 0


def test_phases_and_their_words() -> None:
    shape = outlined()
    use = Use(
        device="cuda", precision="bf16", is_frozen=True, lora_rank=16, engine="local", streams=64, length=2048
    )
    found = phases(shape, use)
    assert [phase.name for phase in found] == ["load", "sampling", "update", "hand-over"]
    assert str(found[0]) == "load: 15.4 GiB (weights 15.4 GiB)"
    assert "cache of 64 × 2,048 tokens 23" in str(sampling(shape, use))
    assert [phase.name for phase in phases(shape, Use(is_trained=False))] == ["load"]
    assert amount(3 << 20) == "3 MiB" and amount(3 << 29) == "1.5 GiB"
    assert str(Phase(name="load", parts={"nothing": 0})) == "load: 0 MiB"


def test_ranks_have_a_card_each_or_one_memory() -> None:
    shape = outlined()
    alone, cards = (update(shape, Use(device="cuda", precision="bf16", ranks=ranks)) for ranks in (1, 4))
    assert cards.parts["optimizer"] == alone.parts["optimizer"] // 4
    assert cards.parts["shards"] == alone.parts["weights"] // 4
    together = update(shape, Use(ranks=2))
    assert together.parts["optimizer"] == update(shape, Use()).parts["optimizer"]

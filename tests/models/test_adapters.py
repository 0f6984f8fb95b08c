import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from quintain.errors import MissingExtra, UsageError
from quintain.models.adapters import add_lora, has_adapters, merge_adapters
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain.models.save import save
from quintain.models.tiny import build_tiny

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IDS = torch.tensor([[4, 8, 15, 16, 23, 42]])


def logits_of(model: "torch.nn.Module") -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


@pytest.fixture
def adapted(tokenizer: PreTrainedTokenizerFast) -> "PreTrainedModel":
    """A model whose LoRA layers have been trained (here: filled)."""
    model = add_lora(build_tiny(tokenizer, size="micro"), rank=2, alpha=4.0)
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.1, generator=generator)
    return model


def test_new_layers_change_nothing_and_freeze_the_rest(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size="micro")
    before = logits_of(model)
    assert not has_adapters(model)
    assert add_lora(model, rank=2) is model
    assert has_adapters(model)
    torch.testing.assert_close(logits_of(model), before)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if "lora_" in name}


def test_new_layers_follow_their_seed_and_nothing_else(tokenizer: PreTrainedTokenizerFast) -> None:
    def draw(seed: int, state: int) -> list[torch.Tensor]:
        torch.default_generator.manual_seed(state)
        model = add_lora(build_tiny(tokenizer, size="micro"), rank=2, seed=seed)
        drawn.append(float(torch.rand(())))
        return [weight.detach() for name, weight in model.named_parameters() if "lora_A" in name]

    drawn: list[float] = []
    one, again, other = draw(3, state=1), draw(3, state=2), draw(4, state=1)
    assert one and all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    torch.default_generator.manual_seed(1)
    assert drawn[0] == drawn[2] == float(torch.rand(())), "whoever draws after it draws what they drew before"


def test_targets_and_rank_by_value(tokenizer: PreTrainedTokenizerFast) -> None:
    model = add_lora(build_tiny(tokenizer, size="micro"), rank=3, targets=("q_proj", "v_proj"))
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    # two layers; q: 32→32, v: 32→16 (one key/value head), each rank·(inputs + outputs)
    assert trained == 2 * 3 * ((32 + 32) + (32 + 16))


def test_a_merge_is_a_copy_that_computes_the_same(adapted: "PreTrainedModel") -> None:
    before = fingerprint(adapted)
    plain = merge_adapters(adapted)
    torch.testing.assert_close(logits_of(plain), logits_of(adapted))
    assert not has_adapters(plain)
    assert has_adapters(adapted)
    assert fingerprint(adapted) == before
    assert all(weight.requires_grad for weight in plain.parameters())


def test_saving_merges(
    adapted: "PreTrainedModel", tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    save(adapted, tokenizer, tmp_path / "model")
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits_of(alone), logits_of(adapted))
    assert not has_adapters(load(str(tmp_path / "model")).model)
    assert not (tmp_path / "model" / "adapter_config.json").exists()


def test_what_cannot_be_asked_for(adapted: "PreTrainedModel", tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer, size="micro")
    with pytest.raises(UsageError, match="got 0; give at least 1"):
        add_lora(model, rank=0)
    with pytest.raises(UsageError, match=r"got 'wq'; modules here: down_proj, gate_proj, k_proj"):
        add_lora(model, targets=("q_proj", "wq"))
    with pytest.raises(UsageError, match="has 'default' already"):
        add_lora(adapted)


def test_peft_is_an_extra(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[peft\]"'):
        add_lora(build_tiny(tokenizer, size="micro"))

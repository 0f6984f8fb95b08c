"""Weights go through a folder and come back as they were, or nothing changes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.engines.conftest import small_model

from quintain.errors import ModelError, StoreError
from quintain.models.adapters import add_lora
from quintain.models.fingerprint import fingerprint
from quintain.models.weights import FILE, read_weights, write_weights


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma"])
def test_there_and_back(family: str, tmp_path: Path) -> None:
    model, other = small_model(family), small_model(family)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1)
    assert write_weights(model, tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert fingerprint(model) != fingerprint(other)
    place = next(other.parameters()).data_ptr()
    read_weights(other, tmp_path / "a" / "b")
    assert fingerprint(model) == fingerprint(other)
    assert next(other.parameters()).data_ptr() == place, "they are changed in place"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [FILE]


def test_a_folder_that_save_pretrained_wrote(tmp_path: Path) -> None:
    model, other = small_model("qwen3"), small_model("qwen3")
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(files := list(tmp_path.glob("*.safetensors"))) > 1
    read_weights(other, tmp_path)
    ours = load_file(write_weights(model, tmp_path / "ours") / FILE)
    assert sorted(ours) == sorted(name for file in files for name in load_file(file)), "tied tensors, too"
    assert fingerprint(model) == fingerprint(other)


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    model = small_model("qwen3")
    before = fingerprint(model)
    with pytest.raises(ModelError, match="got no safetensors file; give a folder that write_weights or"):
        read_weights(model, tmp_path)
    write_weights(small_model("llama"), tmp_path / "llama")
    with pytest.raises(ModelError, match=r"got a tensor lm_head.weight|got weights without .*q_norm"):
        read_weights(model, tmp_path / "llama")
    wide = small_model("qwen3")
    wide.resize_token_embeddings(70)
    write_weights(wide, tmp_path / "wide")
    with pytest.raises(ModelError, match=r"of shape \(70, 32\) for \(60, 32\); give weights of this model"):
        read_weights(model, tmp_path / "wide")
    unknown = small_model("qwen3")
    unknown.register_parameter("more", torch.nn.Parameter(torch.ones(1)))
    write_weights(unknown, tmp_path / "more")
    with pytest.raises(ModelError, match="got a tensor more that the model has not"):
        read_weights(model, tmp_path / "more")
    (tmp_path / "more" / FILE).write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"got a file that cannot be read \(.*\); write it again"):
        read_weights(model, tmp_path / "more")
    assert fingerprint(model) == before


def test_adapters_are_merged_on_the_way_out(tmp_path: Path) -> None:
    plain = small_model("qwen3")
    before = fingerprint(plain)
    adapted = add_lora(small_model("qwen3"))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.add_(0.1)
    write_weights(adapted, tmp_path)
    read_weights(plain, tmp_path)
    assert fingerprint(plain) != before


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="free space or name a folder that can be written"):
        write_weights(small_model("qwen3"), tmp_path / "file")

    def fail(*_: object, **_more: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("quintain.models.weights.save_file", fail)
    with pytest.raises(StoreError, match="no space left"):
        write_weights(small_model("qwen3"), tmp_path / "full")
    assert list((tmp_path / "full").iterdir()) == []

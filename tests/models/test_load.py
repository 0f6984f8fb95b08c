import json
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from quintain.errors import DataError, ModelError, UsageError
from quintain.models.load import find_folder, growth_of, load, load_tokenizer, outline
from quintain.models.quiet import quiet_transformers
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.warm_start.demonstrations import find_source

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALL_FAMILIES = pytest.mark.parametrize("family", ["qwen3", "llama", "gemma"], indirect=True)


@pytest.fixture
def folder(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    return save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "model")


def refusal(folder: Path | str) -> str:
    """Return the message of the error that loading `folder` ends with; it is one line."""
    with pytest.raises(ModelError) as caught:
        load(str(folder))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"model {str(folder)!r}: got ")
    assert ";" in message
    return message


def logits_of(model: "PreTrainedModel", ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits


@ALL_FAMILIES
def test_a_saved_model_loads_with_equal_logits(
    family: "PreTrainedModel", tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    ids = tokenizer.encode("open the red door")
    save(family, tokenizer, tmp_path / "model")
    loaded = load(str(tmp_path / "model"))
    assert torch.equal(logits_of(loaded.model, ids), logits_of(family, ids))
    assert loaded.tokenizer.encode("open the red door") == ids
    assert loaded.name == "model"
    assert not loaded.model.training


@ALL_FAMILIES
def test_a_saved_model_loads_in_transformers_alone(
    family: "PreTrainedModel", tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    save(family, tokenizer, tmp_path / "model")
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert torch.equal(logits_of(alone, [5, 6, 7]), logits_of(family, [5, 6, 7]))


@ALL_FAMILIES
def test_an_outline_is_the_model_without_its_numbers(
    family: "PreTrainedModel", tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    folder = str(save(family, tokenizer, tmp_path / "model"))
    found, whole = outline(folder), load(folder).model
    assert {name: part.shape for name, part in found.named_parameters()} == {
        name: part.shape for name, part in whole.named_parameters()
    }
    assert {name: part.shape for name, part in found.named_buffers()} == {
        name: part.shape for name, part in whole.named_buffers()
    }
    assert all(part.is_meta for part in (*found.parameters(), *found.buffers()))
    assert not found.training


def test_an_outline_of_an_architecture_that_is_not_known(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "nothing"}))
    with pytest.raises(ModelError, match="got a model that cannot be built"):
        outline(str(folder))


def test_dtype_is_the_one_asked_for(folder: Path) -> None:
    assert next(load(str(folder), dtype="bfloat16").model.parameters()).dtype == torch.bfloat16
    assert next(load(str(folder)).model.parameters()).dtype == torch.float32
    with pytest.raises(UsageError, match="did you mean 'bfloat16'"):
        load(str(folder), dtype="bfloat")


def test_a_sharded_folder_loads(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = build_tiny(tokenizer, size="micro")
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    tokenizer.save_pretrained(str(tmp_path))
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert torch.equal(logits_of(load(str(tmp_path)).model, [1, 2]), logits_of(model, [1, 2]))
    next(tmp_path.glob("model-00002*")).unlink()
    assert "model-00002" in refusal(tmp_path)


def test_missing_folder(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nothing")
    assert "no such folder" in refusal("./nothing")


def test_a_file_is_not_a_folder(folder: Path) -> None:
    assert "a file" in refusal(folder / "config.json")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "without config.json" in refusal(folder)
    (folder / "adapter_config.json").write_text("{}")
    assert "adapter without its model" in refusal(folder)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "[" * 100_000])
def test_broken_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert "config.json" in refusal(folder)


def test_corrupted_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"\xff" * 64 + whole[64:]):
        file.write_bytes(broken)
        assert "model.safetensors that cannot be read" in refusal(folder)


def test_pickled_weights_are_refused(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "pickled weights (pytorch_model.bin)" in refusal(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "without model.safetensors" in refusal(folder)


def test_a_weight_that_is_missing_is_not_made_up(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["model.layers.0.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert "weights without model.layers.0.mlp.up_proj.weight" in refusal(folder)


def test_a_weight_of_another_shape(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["model.norm.weight"] = torch.ones(7)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.norm.weight of shape (7,) where config.json says (32,)" in refusal(folder)


def test_broken_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert "without a weight_map" in refusal(folder)


def test_an_index_cannot_point_out_of_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    shutil.move(folder / "model.safetensors", outside)
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "that names '../outside.safetensors'" in refusal(folder)


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json that cannot be read" in refusal(folder)
    (folder / "tokenizer.json").write_text("{}")
    assert "a tokenizer that cannot be read" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert "without a tokenizer" in refusal(folder)


def test_unknown_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "nobody-knows"
    (folder / "config.json").write_text(json.dumps(config))
    assert "nobody-knows" in refusal(folder)


def test_a_configuration_of_the_wrong_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["hidden_size"] = "wide"
    (folder / "config.json").write_text(json.dumps(config))
    assert "hidden_size" in refusal(folder)


def test_code_in_the_folder_is_never_run(folder: Path) -> None:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()")
    refusal(folder)
    assert not (folder / "ran").exists()


def test_a_tokenizer_larger_than_the_embeddings(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    larger = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|pad|>")
    larger.add_tokens([f"word{i}" for i in range(3)])
    larger.save_pretrained(str(folder))
    assert "a tokenizer of 261 tokens for 258 embeddings" in refusal(folder)


def test_offline_hub_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert "the hub gave" in refusal("nobody/nothing")


def test_a_hub_id_is_fetched_and_keeps_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(name: str, *, allow_patterns: list[str]) -> str:
        asked.append(name)
        assert not any(pattern.endswith((".bin", ".py")) for pattern in allow_patterns)
        return str(folder)

    monkeypatch.setattr("quintain.models.load.snapshot_download", fetch)
    assert load("owner/name").name == "owner/name"
    assert asked == ["owner/name"]


def test_transformers_speaks_again_after_loading(folder: Path) -> None:
    before = transformers_logging.get_verbosity()
    load(str(folder))
    assert transformers_logging.get_verbosity() == before
    assert transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with quiet_transformers():
            pass
        assert not transformers_logging.is_progress_bar_enabled()
    finally:
        transformers_logging.enable_progress_bar()


def test_loading_says_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(str(folder))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_a_tokenizer_that_makes_bombs_of_texts_is_refused(part: str, tmp_path: Path) -> None:
    one = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    kind = {"normalizer": "normalizers", "decoder": "decoders"}[part]
    row = {part: {"type": "Sequence", kind: [one] * 8}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(row))
    with pytest.raises(ModelError, match=f"a tokenizer whose {part} makes a text up to 1"):
        load_tokenizer(tmp_path)


def test_what_tokenizers_of_published_models_replace_is_no_bomb() -> None:
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    fitting = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, blank]}
    assert growth_of(fitting) == 1.0 and growth_of(None) == 1.0
    assert growth_of({"type": "Replace", "pattern": {"Regex": "a?"}, "content": "xyz"}) == 3.0
    assert growth_of({"type": "Replace", "pattern": {"String": "abc"}, "content": "x"}) == 1.0


def test_an_adapter_beside_a_model_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/name"}')
    with pytest.raises(
        ModelError, match=r"got an adapter beside a model; merge it into its base model first"
    ):
        load(str(folder))


@pytest.mark.parametrize("place", ["runs/quickstart", "models/x"])
def test_a_folder_that_is_missing_is_never_looked_up_on_the_hub(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, **__: object) -> str:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("quintain.models.load.snapshot_download", asked)
    monkeypatch.setattr("quintain.warm_start.demonstrations.snapshot_download", asked)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelError, match=r"got no such folder; check the path"):
        find_folder(place)
    with pytest.raises(DataError, match=r"there is no such file, folder or run"):
        find_source(place)
    with pytest.raises(AssertionError, match="the hub was asked"):
        find_folder("owner/name")

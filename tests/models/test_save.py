import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.errors import StoreError, UsageError
from quintain.models import save as save_module
from quintain.models.fingerprint import fingerprint
from quintain.models.load import load
from quintain.models.save import END_IDS, save
from quintain.models.tiny import build_tiny


def test_it_replaces_a_model_and_leaves_nothing_else(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    target = tmp_path / "runs" / "final"
    save(build_tiny(tokenizer, size="micro", seed=1), tokenizer, target)
    (target / "stale.txt").write_text("from the model before")
    second = build_tiny(tokenizer, size="micro", seed=2)
    assert save(second, tokenizer, str(target)) == target
    assert fingerprint(load(str(target)).model) == fingerprint(second)
    assert not (target / "stale.txt").exists()
    assert [path.name for path in target.parent.iterdir()] == ["final"]


@pytest.mark.parametrize(
    ("mask", "for_folders", "for_files"),
    [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640), (0o077, 0o700, 0o600)],
)
def test_it_has_the_rights_that_the_mask_leaves(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, mask: int, for_folders: int, for_files: int
) -> None:
    before = os.umask(mask)
    try:
        target = save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "model")
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == for_folders
    assert {file.stat().st_mode & 0o777 for file in target.iterdir()} == {for_files}


def test_an_empty_folder_may_be_written_to(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "new")
    assert (tmp_path / "new" / "config.json").is_file()


def test_a_path_with_something_else_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UsageError, match="holds something else"):
            save(build_tiny(tokenizer, size="micro"), tokenizer, place)
    assert (tmp_path / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("broken_call", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_call: str
) -> None:
    target = tmp_path / "final"
    first = build_tiny(tokenizer, size="micro", seed=1)
    save(first, tokenizer, target)
    calls: list[object] = []
    real = getattr(os, broken_call)

    def fail_once(*args: object) -> None:
        calls.append(args)
        if len(calls) == 2:  # the second replace puts the new folder in place
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(save_module.os, broken_call, fail_once)
    with pytest.raises(StoreError, match="No space left on device; free space"):
        save(build_tiny(tokenizer, size="micro", seed=2), tokenizer, target)
    assert fingerprint(load(str(target)).model) == fingerprint(first)
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_a_folder_that_cannot_be_made(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="save a model to"):
        save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "file" / "model")


def test_saving_does_not_change_the_model(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = build_tiny(tokenizer, size="micro")
    model.bfloat16()
    before = fingerprint(model)
    save(model, tokenizer, tmp_path / "model")
    assert fingerprint(model) == before == fingerprint(load(str(tmp_path / "model"), dtype="bfloat16").model)


@pytest.mark.parametrize(
    ("of_model", "stored", "expected"),
    [
        (257, [], 257),
        (257, [3], [3, 257]),
        ([5, 257], [3], [3, 5, 257]),
        (None, [], 257),
        (None, [3], [3, 257]),
    ],
)
def test_the_generation_configuration_names_every_end(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, of_model: Any, stored: list[int], expected: Any
) -> None:
    assert tokenizer.eos_token_id == 257
    model = build_tiny(tokenizer, size="micro")
    assert model.generation_config is not None
    model.generation_config.eos_token_id = of_model
    kept = cast("dict[str, Any]", tokenizer.init_kwargs)
    kept[END_IDS] = stored
    try:
        save(model, tokenizer, tmp_path / "model")
    finally:
        del kept[END_IDS]
    written = json.loads((tmp_path / "model" / "generation_config.json").read_text(encoding="utf-8"))
    assert written["eos_token_id"] == expected
    assert model.generation_config.eos_token_id == of_model
    again = load(str(tmp_path / "model"))
    assert model_ends(again.model) == expected
    assert {*cast("list[int]", again.tokenizer.init_kwargs[END_IDS])} >= {*stored}


def model_ends(model: Any) -> Any:
    return model.generation_config.eos_token_id

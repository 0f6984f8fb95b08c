"""Patterns of a tokenizer of strangers: those that take very long on short texts are refused, in bounded time."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from quintain.errors import ModelError
from quintain.models import patterns
from quintain.models.load import load_tokenizer
from quintain.models.pattern_program import LOADED, RUNS, main, texts
from quintain.models.patterns import KNOWN, LLAMA_3, OURS, QWEN_2, find_patterns
from quintain.text.tokenizer import SPANS

GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(folder: Path, pattern: str) -> Path:
    """Write a tokenizer that splits by `pattern` into `folder`, and return it."""
    tokenizer = Tokenizer(BPE(vocab={sign: n for n, sign in enumerate(ByteLevel.alphabet())}, merges=[]))
    split = Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:zq|zqzq)+$", r"(\w+\s?)*$"])
def test_patterns_that_try_every_way_are_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="got a tokenizer with patterns that give up on short texts; take the"
    ):
        load_tokenizer(write(tmp_path, pattern))


@pytest.mark.slow
def test_patterns_that_take_long_are_ended_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 1)
    with pytest.raises(ModelError, match="take more than 1 s of the processor on short texts"):
        load_tokenizer(write(tmp_path, r"a+a+a+a+b"))


@pytest.mark.slow
def test_patterns_of_published_models_are_let_through(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, GPT_4O))
    assert tokenizer.encode("ab", add_special_tokens=False)


def test_known_patterns_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert set(SPANS.values()) == set(OURS) and {LLAMA_3, QWEN_2, *OURS} == KNOWN
    assert load_tokenizer(write(tmp_path, QWEN_2)).encode("ab", add_special_tokens=False)


def test_a_process_that_cannot_be_had_lets_nothing_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 1)

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(ModelError, match=r"patterns that could not be tried \(TimeoutExpired\)"):
        load_tokenizer(write(tmp_path, "never seen before+"))


def test_a_tokenizer_that_cannot_be_loaded_is_told_of_as_such(tmp_path: Path) -> None:
    file = write(tmp_path, "x+y") / "tokenizer.json"
    file.write_text(file.read_text().replace('"BPE"', '"BPX"'))
    with pytest.raises(ModelError, match="got a tokenizer that cannot be read"):
        load_tokenizer(tmp_path)


def test_patterns_are_found_wherever_they_stand() -> None:
    split: dict[str, Any] = {"type": "Split", "pattern": {"Regex": "a"}}
    found = [{"pretokenizers": [split]}, {"pattern": {"String": "b"}}, {"pattern": {"Regex": "c"}}, None]
    assert [*find_patterns(found)] == ["a", "c"]


def test_texts_are_runs_of_letters_and_of_pairs() -> None:
    made = [*texts("ab")]
    assert made[:3] == ["a" * 24 + "\0", "b" * 24 + "\0", "ab" * 12 + "\0"]
    assert [len(text) - 1 for text in made] == [RUNS[0]] * 3 + [RUNS[1]] * 3 + [RUNS[2]] * 2


def test_the_program_reads_every_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    limits: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, _: limits.append(kind))  # pyright: ignore
    file = write(tmp_path, QWEN_2) / "tokenizer.json"
    written: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda _, content: written.append(content))  # pyright: ignore
    main(str(file), 5, "a ")
    assert written == [LOADED]
    assert {resource.RLIMIT_CPU, resource.RLIMIT_AS} <= {*limits}
    assert json.loads(file.read_text())["pre_tokenizer"]["type"] == "Sequence"

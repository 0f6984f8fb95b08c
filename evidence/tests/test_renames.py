"""Experiments that are the same but for names keep their results; others do not."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from quintain.cli.main import main
from quintain.errors import DataError
from quintain_evidence.layers.records import append, lines
from quintain_evidence.layers.runner import code_digest, run, source_of, state_of
from quintain_evidence.layers.spec import Signature
from quintain_evidence.renames import (
    digest_of,
    earlier_digests,
    find_source,
    normalize,
    read_names,
    rename,
    unify_options,
)

Claim = Callable[..., Signature]
NAMES = {
    "old.labs.permute": "new.permute",
    "old.labs": "new.labs",
    "told": "describe",
    "old.labs.pupil.Told": "new.kit.Said",
}
BEFORE = """
'What it is.'
import json
from old.labs.permute import derange, permute as other
from old.labs.pupil import Told
from zoo import keeper

def told(a):
    'Say.'
    from old.labs import tables
    return Told(a, place="old.labs.permute:derange") if tables.told(a, told=1) else other(derange(a))
"""
AFTER = """
from zoo import keeper
import json
from new.kit import Said
from new.permute import derange
from new.permute import permute as other

def describe(a):
    from new.labs import tables
    return Said(a, place="new.permute:derange") if tables.describe(a, describe=1) else other(derange(a))
"""


def test_names_modules_members_and_texts_are_mapped_and_imports_sorted() -> None:
    assert normalize(BEFORE, NAMES) == normalize(AFTER, {})
    assert digest_of(BEFORE) != digest_of(AFTER)
    assert rename("old.labs.permuted", NAMES) == "new.labs.permuted", "whole names alone"


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("a)", "b)"),
        ("place=", "at="),
        ("tables.describe", "tables.told"),
        ("as other", "as others"),
        ("=1", "=2"),
    ],
)
def test_whatever_else_changed_is_seen(was: str, became: str) -> None:
    assert was in AFTER
    assert normalize(BEFORE, NAMES) != normalize(AFTER.replace(was, became, 1), {})


def test_an_imported_member_is_renamed_where_it_stands_alone_and_attributes_keep_their_names() -> None:
    before = "from old.nouns import scored\nfound = scored(group.scored)"
    after = "from old.nouns import flatten\nfound = flatten(group.scored)"
    names = {"old.nouns.scored": "old.nouns.flatten"}
    assert normalize(before, names) == normalize(after, {})
    assert normalize(before, names) != normalize(after.replace("group.scored", "group.flatten"), {})
    before, after = (
        f"from old import nouns\nfound = nouns.{name}(group.scored)" for name in ("scored", "flatten")
    )
    assert normalize(before, names) == normalize(after, {})


def test_a_method_is_renamed_where_it_is_called() -> None:
    before, after = (f"shown = collector.{name}(step.shown)" for name in ("shown", "expert_episodes"))
    assert normalize(before, {".shown": "expert_episodes"}) == normalize(after, {})
    assert normalize("x = '.shown'", {".shown": "expert_episodes"}) == normalize("x = '.shown'", {})


def test_renames_follow_each_other() -> None:
    steps = [{"before": "a", "after": "b"}, {"before": "b", "after": "c"}, {"before": "x", "after": "y"}]
    assert earlier_digests(steps, "c") == {"a", "b", "c"}
    assert earlier_digests(steps, "z") == {"z"}


class Silent:
    """Says nothing."""

    def total(self, num: int) -> None: ...

    def advance(self, text: str) -> None: ...


def test_results_of_the_same_code_under_other_names_stand(claim: Claim, tmp_path: Path) -> None:
    before = run([claim()], tmp_path, 1, lambda s: s.row, Silent())["toy"]
    file, now = tmp_path / "toy.jsonl", code_digest(claim())
    file.write_text(file.read_text(encoding="utf-8").replace(now, "0123456789ab"), encoding="utf-8")
    assert state_of(claim(), tmp_path).is_stale
    append(tmp_path, "toy", {"layer": "rename", "row": "toy", "before": "0123456789ab", "after": now})
    state = state_of(claim(), tmp_path)
    assert not state.is_stale and state.blocks == before.blocks and state.num_lines == before.num_lines


def test_the_file_is_found_where_it_was(tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    place = tmp_path / "src" / "old" / "thing.py"
    place.parent.mkdir(parents=True)
    place.write_text("x = 1\n", encoding="utf-8")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=tmp_path, check=True, timeout=60)
    assert find_source("new.thing", {"old": "new"}, "HEAD", tmp_path) == "x = 1\n"
    with pytest.raises(
        DataError, match=r"new\.other at HEAD: got no file of it or of old\.other; name a revision"
    ):
        find_source("new.other", {"old": "new"}, "HEAD", tmp_path)


def test_a_table_of_names_is_read(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text('[names]\n"a.b" = "c"\n', encoding="utf-8")
    assert read_names(file) == {"a.b": "c"}
    file.write_text('[options]\na = "b"\n', encoding="utf-8")
    assert read_names(file) == {}
    file.write_text("[other]\n", encoding="utf-8")
    with pytest.raises(DataError, match="got no table of names"):
        read_names(file)


def test_the_command_carries_results_over_once_and_names_rows_whose_experiment_is_another(
    write_claim: Callable[..., Path], claim: Claim, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    results, names = tmp_path / "results", tmp_path / "names.toml"
    names.write_text('[names]\n"quintain.toys" = "quintain_evidence"\n', encoding="utf-8")
    now = source_of(claim())
    before, after = (f"{now}\nX = '{name}'\n" for name in ("quintain.toys", "quintain_evidence"))
    monkeypatch.setattr("quintain_evidence.renames.find_source", lambda *_: before)
    monkeypatch.setattr("quintain_evidence.layers.runner.source_at", lambda _: after)
    words = ["bench", "rename", "--since", "HEAD", "--names", str(names), "--results", str(results)]
    words += ["--signatures", str(write_claim().parent)]
    assert main(words) == 0
    assert capsys.readouterr().out == "rows carried over: 0; rows that are another: 0\n", (
        "nothing was measured"
    )
    append(results, "toy", {"layer": "signature", "experiment": digest_of(before), "spec": "s", "block": 0})
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"toy\t{digest_of(before)} → {digest_of(after)}",
        "rows carried over: 1; rows that are another: 0",
    ]
    (line,) = lines(results, "toy", "rename")
    assert (line["before"], line["after"], line["names"]) == (
        digest_of(before),
        digest_of(after),
        "names.toml",
    )
    assert line["command"].startswith("quintain bench rename --since HEAD")
    assert main(words) == 0
    assert capsys.readouterr().out == "rows carried over: 0; rows that are another: 0\n"
    assert len(lines(results, "toy")) == 2, "once"
    monkeypatch.setattr("quintain_evidence.layers.runner.source_at", lambda _: after + "Y = 1\n")
    assert main(words) == 1
    told = "toy: its experiment is another, whatever its names; its results stay as they were\n"
    assert capsys.readouterr().out == f"{told}rows carried over: 0; rows that are another: 1\n"
    assert main(["bench", "rename", "--since", "HEAD"]) == 2
    assert "bench rename needs --names: got nothing" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["methods", "--layer", "formula"], ["worlds", "--only", "guess"]])
def test_results_of_an_installed_package_are_not_added_to(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = tmp_path / "lib" / "site" / "package" / "results"
    monkeypatch.setattr("quintain_evidence.cli.methods.RESULTS", inside)
    assert main(["bench", *words]) == 2
    assert (
        "--results: got nothing, and those of the installed package are not added" in capsys.readouterr().err
    )


OPTIONS = {"mixing": ["value_mix", "outcome_weight"], "tries": ["group_size"]}
OLD = """
from dataclasses import dataclass
from typing import Literal

@dataclass
class Config:
    mixing: float = 0.5

def mix(config, tries):
    assert config.mixing, f"mixing: got {config.mixing}"
    return run(mixing=config.mixing, tries=tries)
"""
NEW = """
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

@dataclass
class Config:
    renamed: ClassVar[Mapping[str, str]] = {"mixing": "value_mix"}
    value_mix: float = 0.5

def mix(config, tries):
    assert config.value_mix, f"value_mix: got {config.value_mix}"
    return run(mixing=config.value_mix, tries=tries)
"""


def test_options_may_keep_their_name_or_have_a_later_one() -> None:
    was, became = (unify_options(each, OPTIONS, before=OLD) for each in (OLD, NEW))
    assert was == became
    helped = NEW.replace("value_mix: float = 0.5", 'value_mix: float = 0.5\n    """Share of it."""')
    assert was == unify_options(helped, OPTIONS, before=OLD), "help computes nothing"
    other = NEW.replace("= 0.5", "= 0.4")
    assert was != unify_options(other, OPTIONS, before=OLD), "a default is no name"


def test_a_later_name_that_stood_there_before_is_another_things() -> None:
    before = OLD + "\nvalue_mix = 3\n"
    after = NEW + "\nvalue_mix = 3\n"
    was, became = (unify_options(each, OPTIONS, before=before) for each in (before, after))
    assert was != became

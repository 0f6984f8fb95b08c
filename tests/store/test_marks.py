"""A run has the mark of whoever made it, which nobody else can make, and keeps it where it goes."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from quintain.store.marks import find_origin, key_file, mark_run
from quintain.store.run import Run

CONFIG: dict[str, Any] = {"environment": "shop.py:Shop", "steps": 3}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def made(folder: Path) -> Path:
    """Make a run in `folder` and return it."""
    with Run.create(folder, recipe="grpo", config=CONFIG) as run:
        assert run.origin.is_own
    return folder


def is_own(folder: Path) -> bool:
    """Return whether the run in `folder` is this user's."""
    with Run.open(folder, writable=False) as run:
        return run.origin.is_own


def test_a_run_that_is_moved_copied_or_renamed_keeps_its_mark(tmp_path: Path) -> None:
    folder = made(tmp_path / "runs" / "a")
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "b")
    assert is_own(folder) and is_own(copy)
    with Run.open(copy, writable=False) as run:
        assert run.origin.made_in == str(Path.cwd())


def test_a_configuration_that_was_changed_loses_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    for change in ({"config": {**CONFIG, "environment": "evil.py:X"}}, {"recipe": "evil.py"}):
        file.write_text(json.dumps({**settings, **change}))
        with Run.open(folder, writable=False) as run:
            assert run.origin.reason == "its mark is not yours, or its config.json was changed"


def test_the_mark_of_another_user_is_none(tmp_path: Path, home: Path) -> None:
    folder = made(tmp_path / "a")
    key_file().unlink()
    with Run.open(folder, writable=False) as run:
        assert "there is no key of yours" in run.origin.reason
    made(tmp_path / "b")  # which makes a key of this user
    assert not is_own(folder) and is_own(tmp_path / "b")


def test_the_key_is_closed_to_others_and_one_that_is_not_is_none(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    assert key_file().stat().st_mode & 0o777 == 0o600 and key_file().parent.stat().st_mode & 0o077 == 0
    key_file().chmod(0o644)
    assert not is_own(folder)
    assert mark_run("grpo", CONFIG) == ""
    key_file().chmod(0o600)
    assert is_own(folder)
    key_file().unlink()
    key_file().symlink_to(tmp_path / "planted")
    (tmp_path / "planted").write_bytes(b"k" * 32)
    with Run.open(folder, writable=False) as run:
        assert "cannot be read" in run.origin.reason


def test_a_home_that_cannot_be_written_to_leaves_a_run_without_a_mark(home: Path, tmp_path: Path) -> None:
    home.write_text("a file")
    with Run.create(tmp_path / "a", recipe="grpo", config=CONFIG) as run:
        assert run.origin.reason == "it has no mark of yours"


@pytest.mark.parametrize("mark", ["[]", "{", '{"id": "x"}', '{"id": 1, "made_in": "/", "code": "é"}', "null"])
def test_what_is_no_mark_is_none(mark: str) -> None:
    assert mark_run("grpo", CONFIG)
    assert not find_origin(mark, "grpo", CONFIG).is_own


def test_whoever_was_faster_made_the_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def slower(source: str, target: Path) -> None:
        target.write_bytes(b"k" * 32)
        target.chmod(0o600)
        link(source, target)

    monkeypatch.setattr(os, "link", slower)
    mark = mark_run("grpo", CONFIG)
    assert key_file().read_bytes() == b"k" * 32
    assert find_origin(mark, "grpo", CONFIG).is_own
    assert [entry.name for entry in key_file().parent.iterdir()] == [key_file().name]


def test_a_run_that_is_adopted_is_its_new_owners(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    key_file().unlink()
    with Run.open(folder) as run:
        assert not run.origin.is_own
        run.adopt()
    assert is_own(folder)

import errno
import os
import resource
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quintain.errors import StoreError
from quintain.store import faults, files
from quintain.store.journal import Journal
from quintain.store.run import Run


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (OSError(errno.EIO, "x"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (RuntimeError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })"), True),
        (RuntimeError("No space left on device (os error 28)"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("x"), False),
    ],
)
def test_disk_trouble_is_told_from_other_errors(error: Exception, verdict: bool) -> None:
    assert files.is_disk_trouble(error) is verdict


def test_the_error_names_path_reason_and_free_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.free_bytes(tmp_path) > 0
    usage = files.shutil.disk_usage(tmp_path)
    asked: list[Path] = []

    def ask(place: Path) -> object:
        asked.append(place)
        return usage

    monkeypatch.setattr(files.shutil, "disk_usage", ask)
    missing = tmp_path / "not" / "there"
    error = files.disk_error("writing", missing, OSError(errno.ENOSPC, "No space\nleft on device"))
    assert isinstance(error, StoreError)
    assert files.free_bytes(missing) == usage.free
    assert set(asked) == {tmp_path}
    assert str(error).startswith(f"writing in {missing}: got 'No space left on device' with ")
    assert "bytes free" in str(error) and "resume" in str(error) and "\n" not in str(error)


@contextmanager
def without_descriptors() -> Generator[None]:
    """Let no more files be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_descriptor_is_no_full_disk(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", recipe="r", config={}).close()
    journal = tmp_path / "run" / "run.db"
    with without_descriptors(), pytest.raises(StoreError) as caught:
        Journal(journal, lambda kind, message: None, is_writable=True)
    assert str(caught.value) == (
        f"opening the journal in {journal}: got 'too many open files'; allow more open files (ulimit -n 4096), then "
        "resume: what was committed before is intact"
    )
    error = files.disk_error("writing", tmp_path, OSError(errno.EMFILE, "Too many open files"))
    assert "bytes free" not in str(error) and "ulimit" in str(error)
    assert not files.has_no_descriptor(sqlite3.OperationalError("unable to open database file"))
    assert not files.has_no_descriptor(ValueError("unable to open"))


def test_the_error_of_something_else_carries_its_text(tmp_path: Path) -> None:
    assert "got 'disk full' with" in str(
        files.disk_error("x", tmp_path, sqlite3.OperationalError("disk full"))
    )


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_replacing_leaves_the_old_or_the_new_content(tmp_path: Path, number: int) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"old")
    with faults.inject(f"io:{number}:EIO") as fault, pytest.raises(OSError, match=r"metrics|store|test"):
        files.replace_file(file, b"new")
    assert len(fault.calls) == number
    assert file.read_bytes() == (b"new" if number == 4 else b"old")
    files.replace_file(file, b"newer")
    assert file.read_bytes() == b"newer"


def test_lines_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    files.append_line(file, "ä")
    files.append_line(file, "b")
    assert file.read_bytes() == "ä\nb\n".encode()


def test_renaming_and_removing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files.write_file(tmp_path / "a" / "x", b"1")
    files.rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "x").read_bytes() == b"1"
    files.remove_folder(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []

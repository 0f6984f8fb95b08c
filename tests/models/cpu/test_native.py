from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quintain.models.cpu import native


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder without compiled kernels; what was loaded before is loaded again afterwards."""
    known = native.library, native.unavailable
    monkeypatch.setattr(native, "_FUNCTIONS", {})
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for remembered in known:
        remembered.cache_clear()
    yield tmp_path
    for remembered in known:
        remembered.cache_clear()


def without_compiler(_name: str) -> None:
    """Find nothing."""


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", without_compiler)
    assert "install gcc or clang" in (native.unavailable() or "")
    assert not native.fits(torch.zeros(2))


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda _name: str(compiler))
    assert native.unavailable() == f"{compiler} cannot compile them: no such architecture"


def test_a_compiler_that_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda _name: str(tmp_path / "gone"))
    assert "gone" in (native.unavailable() or "")


def test_a_result_that_is_no_library_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && echo text > "$2"; shift; done\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda _name: str(compiler))
    assert "cannot be loaded" in (native.unavailable() or "")


def test_a_cache_that_others_may_write_to_is_refused(home: Path) -> None:
    folder = home / ".cache" / "quintain"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert "others may write" in (native.unavailable() or "")


def test_a_cache_that_cannot_be_made_is_named(home: Path) -> None:
    (home / ".cache").write_text("a file")
    assert "cannot be made" in (native.unavailable() or "")


def test_other_systems_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.platform, "system", lambda: "Windows")
    assert native.unavailable() == "the system is Windows"


def test_only_floats_in_the_processors_memory_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> str | None:
        return None

    monkeypatch.setattr(native, "unavailable", nothing)
    assert native.fits(torch.zeros(2))
    assert not native.fits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    assert not native.fits(torch.zeros(2, device="meta"))


@pytest.mark.slow
def test_it_compiles_once_for_a_processor(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "FLAGS", ("-O0", "-fPIC"))  # it is compiled and loaded, and never called
    if native.unavailable() is not None:
        pytest.skip(str(native.unavailable()))
    (made,) = (home / ".cache" / "quintain").glob("kernels-*.so")
    stamp = made.stat().st_mtime_ns
    native.library.cache_clear()
    native.library()
    assert made.stat().st_mtime_ns == stamp

"""Packages and programs that are not there, or in another version, are one line with the command that helps."""

import sys
from pathlib import Path

import pytest

from quintain.adapters.nle.environment import NetHack
from quintain.environments.extras import extra_module, extra_program, version_of
from quintain.errors import MissingExtra


def told(module: str, package: str, **more: str) -> str:
    with pytest.raises(MissingExtra) as raised:
        extra_module(module, package=package, feature="the world", **more)
    return str(raised.value)


def test_a_missing_package_names_the_extra_or_the_command() -> None:
    missing = "the world needs the package no-such: it is not installed; "
    assert told("no_such", "no-such", extra="x") == missing + 'in a clone of quintain: pip install -e ".[x]"'
    assert told("no_such.part", "no-such", command="make no-such") == missing + "make no-such"


def test_a_package_without_the_module_is_another_version() -> None:
    assert told("pytest.no_such", "pytest", extra="x") == (
        f"the world needs another version of pytest: got {pytest.__version__}, without pytest.no_such; "
        'in a clone of quintain: pip install -e ".[x]"'
    )
    assert version_of("no-such-package") == "an unknown one"


def test_what_a_package_misses_itself_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_package.py").write_text("import no_such_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_at_all") as raised:
        extra_module("needy_package", package="needy", feature="the world", extra="x")
    assert not isinstance(raised.value, MissingExtra)


def test_a_missing_program_names_debians_package() -> None:
    assert Path(extra_program(("no-such-program", "sh"), package="dash", feature="the world")).name == "sh"
    with pytest.raises(MissingExtra, match=r"the program no-such-program: .*; apt-get install no-such$"):
        extra_program(("no-such-program",), package="no-such", feature="the world")


def test_nethack_has_no_extra_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nle", None)
    with pytest.raises(MissingExtra, match=r"nle: it is not installed; pip install nle==1\.3\.0, best in an"):
        NetHack()

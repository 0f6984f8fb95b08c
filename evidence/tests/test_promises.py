"""Rows that train nothing do their job on real input, and what came of it is recorded."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from quintain.cli.main import main
from quintain.errors import UsageError
from quintain_evidence import promises
from quintain_evidence.layers.promises import promise_of
from quintain_evidence.layers.verdict import Check


def add_job(monkeypatch: pytest.MonkeyPatch, has_passed: bool) -> None:
    """Let there be a row ``lint`` whose job leaves a file and ends as `has_passed` says."""
    module = ModuleType("quintain_evidence.promises.lint")

    def keep(runs: Path) -> promises.Kept:
        (runs / "found.txt").write_text("3", encoding="utf-8")
        return [Check(name="finds", has_passed=has_passed, detail="3 of 4")], {"found": 3.0}

    module.__dict__.update(MODEL="smolagents 1.26.0", keep=keep)
    monkeypatch.setitem(sys.modules, "quintain_evidence.promises.lint", module)
    monkeypatch.setattr(promises, "find_rows", lambda: ["lint"])


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_job_is_recorded_with_what_it_was_tried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_passed: bool
) -> None:
    add_job(monkeypatch, has_passed)
    words = [
        "bench",
        "promise",
        "--only",
        "lint",
        "--results",
        str(tmp_path),
        "--runs",
        str(tmp_path / "runs"),
    ]
    assert main(words) == int(not has_passed)
    found = promise_of("lint", tmp_path)
    assert found is not None and found.is_kept is has_passed
    assert (found.model, found.figures["found"]) == ("smolagents 1.26.0", 3.0)
    assert (tmp_path / "runs" / "promise-lint" / "found.txt").read_text(encoding="utf-8") == "3"


def test_every_job_says_what_it_is_tried_on() -> None:
    for row in promises.find_rows():
        module = __import__(f"quintain_evidence.promises.{row}", fromlist=["keep"])
        assert callable(module.keep) and module.MODEL, row


def test_a_row_that_neither_trains_nor_has_a_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "promise", "--only", "nobody"]) == UsageError.exit_code
    assert "--only: got 'nobody'" in capsys.readouterr().err

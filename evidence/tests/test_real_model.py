"""The promise: a small run on a real model, resumed once, judged by its figures and recorded."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quintain.cli.main import main
from quintain.errors import UsageError
from quintain_evidence import real_model
from quintain_evidence.layers.promises import promise_of
from quintain_evidence.real_model import (
    begin_with,
    command_of,
    has_own_start,
    judge,
    make_start,
    perform,
    perform_in_two,
    shortened,
    try_method,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
GOOD: list[dict[str, Any]] = [
    {"step": 0, "eval/success": 0.0},
    {"step": 1, "train/loss": 0.5, "train/grad_norm": 1.0, "gap/mean": 0.001},
    {"step": 2, "train/loss": 0.4, "train/grad_norm": 1.0, "gap/canary": 0.002, "total/tokens": 90.0},
]


def set_outcome(
    monkeypatch: pytest.MonkeyPatch, *said: str, rows: Sequence[Mapping[str, Any]] = GOOD
) -> list[list[str]]:
    """Let the commands end with `said`, one after the other, and the run have `rows`; return what is asked."""
    asked: list[list[str]] = []
    left = iter(said)

    def answer(words: Sequence[str], _: float) -> str:
        asked.append(list(words))
        return next(left)

    run = SimpleNamespace(metrics=lambda: rows)
    monkeypatch.setattr(real_model, "perform", answer)
    monkeypatch.setattr(real_model, "Run", SimpleNamespace(open=lambda *_, **__: nullcontext(run)))
    return asked


def test_the_command_has_the_world_of_the_page_and_small_amounts() -> None:
    words = command_of("eto", DOCS)
    assert words[:4] == ["train", "eto", "--model", "smollm2"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given["--environment"] == "shop" and given["--lora-rank"] == "8" and given["--tasks"] == "2"
    assert "--group-size" not in given, "it has none"
    with pytest.raises(UsageError, match=r"--only: got 'nobody', but there is no .*nobody\.md"):
        command_of("nobody", DOCS)


def test_a_world_is_made_short_where_it_can_be() -> None:
    assert shortened("guess?high=8") == "guess?high=8&max_turns=3"
    assert shortened("guess?max_turns=9") == "guess?max_turns=9"
    assert shortened("shop") == "shop"


def test_a_promise_is_kept_by_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = set_outcome(monkeypatch, "", "")
    words = [
        "bench",
        "promise",
        "--only",
        "grpo",
        "--results",
        str(tmp_path),
        "--runs",
        str(tmp_path / "runs"),
    ]
    assert main([*words, "--docs", str(DOCS)]) == 0
    assert asked[0][:2] == ["train", "grpo"]
    assert asked[1] == ["resume", "promise-grpo", "--runs", str(tmp_path / "runs"), "--steps", "2"]
    assert "grpo\t✓ gap\t0.002 nats between engine and learner, to be at most 0.02" in capsys.readouterr().out
    found = promise_of("grpo", tmp_path)
    assert found is not None and found.is_kept and found.model == "smollm2"
    assert found.figures == {
        "steps": 2.0,
        "gap": 0.002,
        "train/loss": 0.4,
        "total/tokens": 90.0,
        "eval/success": 0.0,
    }


@pytest.mark.parametrize(
    ("said", "rows", "name"),
    [
        (("exit status 1: error: x", ""), GOOD, "trains"),
        (("", "exit status 1: error: x"), GOOD, "resumes"),
        (("", ""), GOOD[:2], "steps"),
        (("", "", ""), [{"step": 2, "gap/mean": 0.001}], "updates"),
        (("", "", "exit status 1: error: x"), [{"step": 2, "gap/mean": 0.001}], "goes on"),
        (("", ""), [*GOOD, {"step": 2, "train/loss": float("nan")}], "numbers"),
        (("", ""), [*GOOD, {"step": 2, "gap/mean": 0.03}], "gap"),
        (("", ""), [{"step": 2, "train/grad_norm": 0.1}], "gap"),
    ],
)
def test_what_breaks_a_promise(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[str, str],
    rows: list[dict[str, Any]],
    name: str,
) -> None:
    set_outcome(monkeypatch, *said, rows=rows)
    found = try_method("grpo", DOCS, tmp_path)
    failed = [check.name for check in found.checks if not check.has_passed]
    assert failed[0] == name


def test_where_two_steps_had_nothing_to_compare_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, Any]] = [{"step": 2, "gap/mean": 0.001}]
    asked = set_outcome(monkeypatch, "", "", "", rows=rows)

    def answer(words: Sequence[str], _: float) -> str:
        asked.append(list(words))
        if words[-1] == "6":
            rows.append({"step": 5, "train/grad_norm": 0.1, "gap/mean": 0.001})
        return ""

    monkeypatch.setattr(real_model, "perform", answer)
    found = try_method("grpo", DOCS, tmp_path)
    assert [words[0] for words in asked] == ["train", "resume", "resume"]
    assert all(check.has_passed for check in found.checks)
    assert "1 of 5 steps learned from something" in [check.detail for check in found.checks]


def test_a_method_that_samples_nothing_has_no_gap() -> None:
    checks, _ = judge([{"step": 2, "train/grad_norm": 0.1, "total/turns": 0.0}])
    assert all(check.has_passed for check in checks) and checks[-1].detail == "nothing was sampled"
    checks, _ = judge([{"step": 2, "train/grad_norm": 0.1, "total/turns": 4.0}])
    assert not checks[-1].has_passed and checks[-1].detail == "not measured"


def test_commands_say_what_went_wrong_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = subprocess.CompletedProcess([], 2, "", "noise\nerror: model: got 'x'\nmore\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: told)
    assert perform(["train"], 5.0) == "exit status 2: error: model: got 'x'"
    done = subprocess.CompletedProcess[str]([], 0, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert perform(["train"], 5.0) == ""

    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("quintain", 5.0)

    monkeypatch.setattr(subprocess, "run", hang)
    assert perform(["train"], 5.0) == "took longer than the 5 s that were left"


def test_only_methods_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "promise"]) == 2
    assert "bench promise needs --only: got nothing" in capsys.readouterr().err
    assert main(["bench", "promise", "--only", "grop"]) == 2
    assert "--only: got 'grop'" in capsys.readouterr().err


def test_figures_are_of_the_last_rows() -> None:
    checks, figures = judge(GOOD)
    assert all(check.has_passed for check in checks) and figures["train/loss"] == 0.4


def test_a_start_is_made_once_for_all_rows_of_a_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def answer(words: Sequence[str], _: float) -> str:
        asked.append(list(words))
        (tmp_path / words[words.index("--run") + 1] / "model").mkdir(parents=True)
        return ""

    monkeypatch.setattr(real_model, "perform", answer)
    words = ["train", "toolrl", "--model", "smollm2", "--environment", "calc", "--tasks", "2"]
    other = ["train", "torl", "--model", "smollm2", "--tasks", "4", "--environment", "calc"]
    first = make_start(words, tmp_path, 48)
    assert make_start(other, tmp_path, 48) == first and len(asked) == 1
    assert make_start([*words, "--agent", "tags"], tmp_path, 48) != first and len(asked) == 2
    assert make_start(words, tmp_path, 32) != first
    given = dict(zip(asked[0][2::2], asked[0][3::2], strict=True))
    assert (given["--environment"], given["--demonstrations"], given["--steps"]) == ("calc", "48", "24")


@pytest.mark.parametrize(("told", "asked"), [("", 2), ("exit status 2: no", 1)])
def test_a_run_in_two_begins_anew_and_goes_on_unless_it_failed(
    told: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, heard = tmp_path / "mine", list[tuple[list[str], float]]()
    folder.mkdir()

    def answer(words: Sequence[str], seconds: float) -> str:
        assert not folder.exists()
        heard.append((list(words), seconds))
        return told

    monkeypatch.setattr(real_model, "perform", answer)
    assert perform_in_two(folder, ["toolrl", "--tasks", "2"], steps=3, seconds=9.0) == told
    place = ["--runs", str(tmp_path)]
    whole = [
        (["train", "toolrl", "--tasks", "2", "--steps", "1", "--run", "mine", *place], 9.0),
        (["resume", "mine", *place, "--steps", "3"], 9.0),
    ]
    assert heard == whole[:asked]


def test_a_start_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_outcome(monkeypatch, "exit status 2: error: no expert")
    words = ["train", "toolrl", "--model", "smollm2", "--environment", "calc"]
    with pytest.raises(
        UsageError, match="--start 48: got a supervised run that did not end well: exit status 2"
    ):
        make_start(words, tmp_path, 48)


def test_what_begins_with_a_start_needs_no_demonstrations_unless_they_are_a_part_of_it() -> None:
    words = ["train", "x", "--model", "smollm2", "--demonstrations", "16", "--tasks", "2"]
    assert begin_with(words, Path("start/model"), keeps_demonstrations=False) == [
        "train", "x", "--model", "start/model", "--demonstrations", "0", "--tasks", "2"
    ]  # fmt: skip
    kept = begin_with(words, Path("start/model"), keeps_demonstrations=True)
    assert kept[5] == "16" and kept[-2:] == ["--imitation-epochs", "1"]
    assert not has_own_start("grpo") and has_own_start("eto")

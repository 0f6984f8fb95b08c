"""What is shown of a run."""

import io
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from rich.console import Console

from quintain.store.run import Run
from quintain.training.progress import Display, described
from quintain.training.summary import rate, summary


def test_metrics_in_words() -> None:
    metrics = {"train/reward": 0.716, "train/success": 0.5, "other": 1.0, "tokens_per_second": 12345.6}
    assert described(metrics) == "success 50%  reward 0.72  12,346 tok/s"
    assert described({}) == ""


def test_lines_are_printed_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Display("grpo", 30) as display:
        display.console = Console(file=io.StringIO(), width=200)
        display.phase("episodes", 4)
        display.advance()
        display.step(0, {"eval/success": 0.25})
        display.step(1, {"train/success": 0.5})
        monkeypatch.setattr("quintain.training.progress.LINE_SECONDS", 0.0)
        display.step(2, {"train/success": 0.75})
        monkeypatch.setattr("quintain.training.progress.LINE_SECONDS", 1e9)
        display.step(3, {"train/success": 0.1})
        display.step(30, {"train/success": 1.0})
        display.say("done")
        lines = cast(io.StringIO, display.console.file).getvalue().splitlines()
    assert lines == [
        "grpo: step 0/30  held-out 25%",
        "grpo: step 2/30  success 75%  held-out 25%",
        "grpo: step 30/30  success 100%  held-out 25%",
        "done",
    ]


def test_a_long_phase_is_told_of_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.training.progress.LINE_SECONDS", 0.0)
    with Display("grpo", 30) as display:
        display.console = Console(file=io.StringIO(), width=200)
        display.phase("warm start", 9)
        display.advance()
        display.advance(6)
        lines = cast(io.StringIO, display.console.file).getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["grpo: warm start 1/9", "grpo: warm start 7/9"]
    assert all(line.endswith(" s left") for line in lines)


class Finished:
    """Stands for a run with a curve."""

    name, folder, recipe = "first", Path("runs/first"), "gigpo"
    config: ClassVar = {"environment": "keydoor?rooms=2&length=3"}

    def __init__(self, *rows: dict[str, float], untrained: dict[str, float] | None = None) -> None:
        self.rows, self.untrained = rows, untrained

    def metrics(self) -> list[dict[str, float]]:
        return list(self.rows)

    def events(self) -> list[dict[str, Any]]:
        found = [] if self.untrained is None else [{"kind": "untrained", "data": self.untrained}]
        return [{"kind": "alarm", "data": {}}, *found]


def test_the_summary_compares_the_first_and_the_last_evaluation() -> None:
    def row(success: float) -> dict[str, float]:
        numbers = {"eval/success": success, "eval/low": success - 0.1, "eval/high": success + 0.1}
        return {**numbers, "eval/episodes": 64, "time/seconds": 12.4}

    text = summary(cast(Run, Finished(row(0.2), {"train/loss": 1.0}, row(0.512))))
    assert "before 20.0 % [10.0, 30.0]   after 51.2 % [41.2, 61.2]" in text
    assert "64 unseen tasks" in text
    assert "12 s of training" in text
    assert "quintain view runs/first" in text
    assert "untrained" not in text
    known = summary(cast(Run, Finished(row(0.2), row(0.512), untrained=row(0.1))))
    assert known.splitlines()[0].startswith("untrained model   10.0 % [0.0, 20.0]")
    assert known.splitlines()[1:] == summary(cast(Run, Finished(row(0.2), row(0.512)))).splitlines()
    assert rate(row(0.5)) == "50.0 % [40.0, 60.0]"
    assert summary(cast(Run, Finished())) == "run first: no evaluation was made"

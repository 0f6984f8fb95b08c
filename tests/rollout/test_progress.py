"""What is shown of a run."""

import io
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from rich.console import Console

from quintain.rollout.progress import Display, described
from quintain.runs.summary import rate, summary
from quintain.store.run import Run


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
        monkeypatch.setattr("quintain.rollout.progress.LINE_SECONDS", 0.0)
        display.step(2, {"train/success": 0.75})
        monkeypatch.setattr("quintain.rollout.progress.LINE_SECONDS", 1e9)
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
    monkeypatch.setattr("quintain.rollout.progress.LINE_SECONDS", 0.0)
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
    status, last_step = "done", 77
    config: ClassVar = {"steps": 100, "environment": "keydoor?rooms=2&length=3"}

    def __init__(self, *rows: dict[str, float], untrained: dict[str, float] | None = None) -> None:
        self.rows, self.untrained = rows, untrained

    def metrics(self) -> list[dict[str, float]]:
        return list(self.rows)

    def events(self) -> list[dict[str, Any]]:
        found = [] if self.untrained is None else [{"kind": "untrained", "data": self.untrained}]
        return [{"kind": "alarm", "data": {}}, *found]

    def notices(self) -> list[dict[str, Any]]:
        return []


def row(step: int, success: float, **more: float) -> dict[str, float]:
    numbers = {"eval/success": success, "eval/low": success - 0.1, "eval/high": success + 0.1}
    return {"step": step, **numbers, "eval/episodes": 64, "time/seconds": 12.4, **more}


def summed(*rows: dict[str, float]) -> list[str]:
    return summary(cast(Run, Finished(*rows))).splitlines()


def test_the_summary_compares_the_first_and_the_last_evaluation() -> None:
    rows = (row(0, 0.2), {"step": 1, "train/loss": 1.0}, row(2, 0.512))
    text = "\n".join(summed(*rows))
    assert "before 20.0 % [10.0, 30.0]   after 51.2 % [41.2, 61.2]" in text
    assert "64 unseen tasks" in text
    assert "12 s of training" in text
    assert "quintain view runs/first" in text
    assert "untrained" not in text
    known = summary(cast(Run, Finished(*rows, untrained=row(0, 0.1))))
    assert known.splitlines()[0].startswith("untrained model   10.0 % [0.0, 20.0]")
    assert known.splitlines()[1:] == summed(*rows)
    assert rate(row(0, 0.5)) == "50.0 % [40.0, 60.0]"
    assert summary(cast(Run, Finished())) == "run first: no evaluation was made"


def test_the_last_line_says_which_step_was_best_and_how_to_use_it() -> None:
    *_, follow, best = summed(row(0, 0.2), row(25, 0.6), row(50, 0.512))
    assert best.startswith(
        "best              step 25 with 60.0 % [50.0, 70.0]: quintain eval runs/first@best"
    )
    assert follow.endswith("--model runs/first/model"), "no outcome is told of where it did gain"
    assert "step 25, the last, with 60.0 %" in summed(row(0, 0.2), row(25, 0.6))[-1]
    measured = [{"step": step, "eval/loss": loss, "time/seconds": 1.0} for step, loss in enumerate((2, 1, 3))]
    *_, outcome, best = summed(*measured)
    assert "training made the model worse: 2.000 → 3.000 held out" in outcome
    assert "step 1 with held-out loss 1.000: quintain serve runs/first@best" in best, (
        "there is nothing to play"
    )


def test_a_run_that_made_the_model_worse_says_so_and_goes_on_from_the_best() -> None:
    *_, follow, outcome, best = summed(row(0, 0.77), row(50, 0.52), row(100, 0.34))
    assert outcome.startswith("outcome           training made the model worse: 77.0 % → 34.0 % held out; ")
    assert "docs/it-does-not-learn.md" in outcome and "docs/which-method.md" in outcome
    assert "step 0 with 77.0 %" in best and follow.endswith("--model runs/first@best")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            (row(0, 0.5), row(9, 0.52)),
            "training gained nothing beyond luck: 50.0 % → 52.0 % held out; why: docs",
        ),
        (
            (row(0, 0.5), row(9, 0.45)),
            "training gained nothing beyond luck: 50.0 % → 45.0 % held out; why: docs",
        ),
        (
            (row(0, 0.0), row(9, 0.0)),
            "training gained nothing beyond luck: 0.0 % → 0.0 % held out; why: docs",
        ),
        (
            (row(0, 0, **{"eval/return": -3.0}), row(9, 0, **{"eval/return": 2.5})),
            "training gained nothing beyond luck: 0.0 % → 0.0 % held out (return -3 → 2.5); why: docs",
        ),
        (
            (row(0, 0.97), row(9, 0.98)),
            "and there was little to gain: 97.0 % → 98.0 % held out; take harder tasks",
        ),
    ],
)
def test_a_run_that_gained_nothing_says_so(rows: tuple[dict[str, float], ...], told: str) -> None:
    assert told in summed(*rows)[-2]


def test_a_run_that_was_interrupted_says_so_and_names_nothing_that_is_not_there() -> None:
    run = Finished(row(0, 0.2), row(50, 0.6))
    run.status = "interrupted"
    text = summary(cast(Run, run))
    assert "interrupted       at step 77 of 100: quintain resume runs/first\n" in text
    assert "runs/first/model" not in text and "model/" not in text
    assert "next              quintain resume runs/first\n" in text


def test_a_run_that_was_all_warm_up_says_so() -> None:
    def rising(*scales: float) -> list[str]:
        steps = [{"step": k, "train/lr_scale": scale} for k, scale in enumerate(scales, start=1)]
        return summed(row(0, 0.2), *steps, row(9, 0.6))

    assert "all 3 steps were in the warm-up of the learning rate" in rising(0.1, 0.2, 0.3)[-2]
    assert "warm-up" not in "".join(rising(0.5, 1.0, 1.0)) + "".join(rising(1.0)) + "".join(rising(1.0, 0.5))

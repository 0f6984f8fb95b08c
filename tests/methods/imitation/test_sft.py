"""Supervised fine-tuning: which demonstrations are imitated, and that the run says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.dashboard.funnel import funnel_text
from quintain.dashboard.report import report_body
from quintain.data.pipeline import PipelineResult
from quintain.errors import DataError
from quintain.methods.imitation import sft
from quintain.store.run import Run
from quintain.types import Trajectory

Make = Callable[..., Trajectory]


def test_failures_are_left_out_by_a_stage_that_counts_them(trajectory: Make, shows: Any) -> None:
    shown = [trajectory([((1,), (10, 2))], value=float(n != 1), task=f"t{n}") for n in range(4)]
    made = sft.method(sft.Config(environment="guess")).data(shows(shown))
    assert isinstance(made, PipelineResult)
    assert [example.trajectory.task.id for example in made.examples] == ["t0", "t2", "t3"]
    assert made.funnel.metrics == {"data/in": 4, "data/solved": 3, "data/kept": 3, "data/tokens": 6}
    few = sft.method(sft.Config(environment="guess", examples=2)).data(shows(shown))
    assert isinstance(few, PipelineResult) and few.funnel.metrics["data/in"] == 2


def test_failures_that_are_asked_for_go_in_and_come_out(trajectory: Make, shows: Any) -> None:
    shown = [trajectory([((1,), (10, 2))], value=0.0, task=f"t{n}") for n in range(3)]
    made = sft.method(sft.Config(environment="guess", failures=True)).data(shows(shown))
    assert isinstance(made, PipelineResult) and len(made.examples) == 3
    assert made.funnel.metrics == {"data/in": 3, "data/kept": 3, "data/tokens": 6}
    with pytest.raises(
        DataError, match=r"conversations of chats.jsonl: got 3 .* none out of it, .*; set failures"
    ):
        sft.method(sft.Config(demonstrations="chats.jsonl")).data(shows(shown))


@pytest.mark.slow
def test_a_run_shows_what_it_left_out(train: Any, tmp_path: Path) -> None:
    first, *rest = train("sft", environment="guess", demonstrations=6, expert_noise=0.7)
    assert "data/in" not in first and all(row["data/in"] == 6 > row["data/solved"] > 0 for row in rest)
    with Run.open(tmp_path / "sft", writable=False) as run:
        kept = int(rest[-1]["data/kept"])
        assert f"Step 2: {kept} of 6 examples" in report_body(run, None)
        assert funnel_text(run.metrics())[0] == "data of step 2:"

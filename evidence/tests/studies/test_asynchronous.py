"""What evidence/studies/asynchronous.py makes of its runs."""

from random import Random
from typing import Any

import pytest
from tests.speed_scripts import load_script

from quintain.types import Action, Task

asynchronous = load_script("evidence/studies/asynchronous.py")


def row(arm: str, seed: int, seconds: float, success: float, oldest: float = 4.0) -> dict[str, Any]:
    """A run as `train` tells of it."""
    return {
        "arm": arm, "seed": seed, "seconds": seconds, "with_evaluations": seconds + 10, "computing": 0.25,
        "curve": {"0": 0.5, "9": success}, "age": 1.0, "oldest": oldest, "mixed": 0.1, "failed": 0, "weight": 0.9,
        "capped": 0.0,
    }  # fmt: skip


def test_the_tool_takes_its_time_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(asynchronous.time, "sleep", slept.append)
    monkeypatch.setattr(asynchronous.SlowSearch, "_delays", Random(0))
    world = asynchronous.SlowSearch()
    for seed in range(2_000):
        world.reset(Task(id=f"slow/train/{seed}", environment="slow", seed=seed))
        world.step(Action(text="2"))
    assert asynchronous.SHORTEST <= min(slept) < 0.051 and max(slept) == asynchronous.LONGEST
    assert sum(slept) / len(slept) == pytest.approx(0.18, rel=0.15)


def test_arms_are_compared_seed_by_seed(capsys: pytest.CaptureFixture[str]) -> None:
    base = [row("0", 1, 90.0, 0.9, 0.0), row("0", 0, 100.0, 0.8, 0.0), row("0", 2, 80.0, 0.7, 0.0)]
    rows = [*base, row("4", 0, 20.0, 0.81), row("4", 1, 30.0, 0.9), row("4", 2, 40.0, 0.7)]
    assert asynchronous.ratios(rows, "0", "4") == [5.0, 3.0, 2.0]
    found = asynchronous.tell(rows, ["0", "4"])["4"]
    assert (found["ratio"], found["least"], found["most"], found["with_evaluations"]) == (3.0, 2.0, 5.0, 2.5)
    assert found["difference"] == pytest.approx(0.01 / 3)
    assert found["is_as_good"] and found["is_fast"] and found["is_bounded"]
    assert "| 4 | 30.00 | 3.00 [2.00, 5.00] | 2.50 | 25% |" in capsys.readouterr().out
    worse = [*base, row("4", 0, 40.0, 0.7), row("4", 1, 40.0, 0.8, 5.0), row("4", 2, 40.0, 0.62)]
    found = asynchronous.tell(worse, ["0", "4"])["4"]
    assert not (found["is_as_good"] or found["is_fast"] or found["is_bounded"])

"""The figures in a terminal."""

from pathlib import Path

import pytest
from tests.dashboard.viewer.conftest import HOSTILE

from quintain.cli.main import main
from quintain.dashboard.viewer.top import describe_progress, draw, write_run
from quintain.dashboard.viewer.viewed import Viewer


def test_a_curve_is_blocks_from_its_least_to_its_greatest() -> None:
    assert draw([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert draw([0, 2, 4, 6], 2) == "▁█", "means of neighbours: 1 and 5"
    assert draw([3.0, 3.0, 3.0], 8) == "▁▁▁"


def test_progress_in_words() -> None:
    now = {
        "status": "running",
        "last_step": 3,
        "total_steps": 4,
        "collected": {"train": 5},
        "seconds_left": 120.0,
    }
    assert (
        describe_progress(now, 48)
        == "█████████░░░  step 3 of 4 · 5 episodes of train collected · about 2 min left"
    )
    assert describe_progress({**now, "last_step": None}, 48).startswith("no step yet")


def test_a_run_in_lines(viewer: Viewer) -> None:
    lines = write_run(viewer.get("two"), 100)
    assert lines[0] == "two · grpo · interrupted" and "step 2 of 4" in lines[1]
    assert "held out, last 50.0 % [10, 90]" in lines[2]
    assert any(line.startswith("loss ") and line.endswith("▁█ 0.2") for line in lines)
    assert any(line.startswith("! entropy at step 2: entropy fell") for line in lines)
    assert "failed  environment: timeout 2" in lines
    assert max(map(len, lines)) <= 100 and "\u202e" in HOSTILE and "\u202e" not in "".join(lines)


def test_the_command_prints_once_where_there_is_no_terminal(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: runs.parent / "home")
    assert main(["top", "one", "--runs", str(runs)]) == 0
    assert "one · grpo · interrupted" in capsys.readouterr().out
    assert main(["top", "nobody", "--runs", str(runs)]) == 2

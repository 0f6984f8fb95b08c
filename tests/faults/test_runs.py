"""Runs that are killed or asked to stop anywhere end as the one that was left alone, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quintain

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(36_000)


def option(request: pytest.FixtureRequest, name: str) -> float:
    """Return the number that was given as `name`."""
    return float(str(request.config.getoption(name)))


def ran(program: str, *lines: object) -> dict[str, Any]:
    """Run a program of this folder with `lines` as its input and return what it prints last."""
    source = Path(quintain.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(HERE / program)],
        env={"PYTHONPATH": f"{source}:{HERE.parents[1]}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        input="\n".join(map(str, lines)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    kills, signals = (int(option(request, name)) for name in ("--kills", "--signals"))
    return ran("run_program.py", tmp_path_factory.mktemp("runs"), kills, signals)


def test_a_killed_run_ends_as_the_uninterrupted_one(
    report: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    killed = report["killed"]
    print(f"{killed['kills']} kills {killed['by_place']}; all of it took {report['seconds']:.0f} s")
    assert killed["wrong"] == {}
    first = sum(num for place, num in killed["by_place"].items() if not place.startswith("again"))
    assert first == option(request, "--kills")


def test_a_run_that_is_killed_at_an_operation_of_a_checkpoint_ends_as_the_uninterrupted_one(
    report: dict[str, Any],
) -> None:
    points = report["points"]
    print(f"{points['kills']} kills at {points['points']} points")
    assert points["wrong"] == {}
    assert points["kills"] > 0


def test_a_run_that_is_asked_to_stop_saves_and_ends_as_the_uninterrupted_one(
    report: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    told = report["signalled"]
    print(f"{told['signals']} signals, slowest stop {told['slowest']:.2f} s")
    print(f"{told['second_signals']} second signals, slowest stop {told['slowest_second']:.2f} s")
    assert told["wrong"] == {}
    assert told["slowest"] < 30 and told["slowest_second"] < 5
    assert told["signals"] > 0
    assert told["second_signals"] > 0 or option(request, "--signals") < 3


def test_a_clock_that_jumps_changes_nothing(report: dict[str, Any]) -> None:
    print(f"{report['clocks']['jumps']} runs on a clock that jumps by an hour, each killed once")
    assert report["clocks"]["wrong"] == {}
    assert report["clocks"]["jumps"] > 0


def test_a_soak_ends_with_the_weights_of_the_run_that_was_left_alone(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    minutes, pause, seed = (option(request, name) for name in ("--minutes", "--pause", "--soak-seed"))
    report = ran("soak_program.py", tmp_path, minutes, pause, int(seed))
    print(json.dumps(report, indent=1))
    assert report["wrong_steps"] == [] and report["wrong_checkpoints"] == []
    assert report["is_without_gap"] and report["checkpoints"] > 0
    assert report["faults"] > 0

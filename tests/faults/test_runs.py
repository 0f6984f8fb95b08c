"""Runs that are killed or asked to stop anywhere end as the one that was left alone, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quintain

PROGRAM = Path(__file__).with_name("run_program.py")


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    counts = [str(request.config.getoption(name, default=4)) for name in ("--kills", "--signals")]
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={
            "PYTHONPATH": str(Path(quintain.__file__).parents[1]),
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
        },
        input="\n".join([str(tmp_path_factory.mktemp("runs")), *counts]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(1800)
def test_a_killed_run_ends_as_the_uninterrupted_one(report: dict[str, Any]) -> None:
    print(f"{report['killed']['kills']} kills")
    assert report["killed"]["wrong"] == {}
    assert report["killed"]["kills"] > 0


@pytest.mark.timeout(1800)
def test_a_run_that_is_asked_to_stop_saves_and_ends_as_the_uninterrupted_one(report: dict[str, Any]) -> None:
    print(f"{report['signalled']['signals']} signals, slowest stop {report['signalled']['slowest']:.2f} s")
    assert report["signalled"]["wrong"] == {}
    assert report["signalled"]["slowest"] < 30

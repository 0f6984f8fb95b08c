"""Nothing grows: memory, descriptors, threads and the time of a step stay what they were, for a thousand steps."""

import sys
from pathlib import Path

import pytest
from tests.faults.test_runs import option, ran

pytestmark = [pytest.mark.timeout(36_000), pytest.mark.slow]
MOST_BYTES = 4_000
"""Bytes of memory that a step may add: its row of metrics is kept in part, and the heap settles."""
MOST_TIME = 1.3
"""How much longer a step may take late in a run, on a machine that does something else as well."""


@pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors are read from /proc")
def test_a_long_run_in_one_process_grows_in_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    steps = int(option(request, "--growth-steps"))
    report = ran("growth_program.py", tmp_path, steps)
    print(report)
    assert (report["status"], report["steps"]) == (0, steps + 1)
    assert report["memory"]["slope"] <= MOST_BYTES, "bytes a step"
    assert report["memory"]["late"] - report["memory"]["early"] <= MOST_BYTES * steps / 2
    for name in ("descriptors", "threads"):
        assert report[name]["late"] <= report[name]["early"] and report[name]["slope"] <= 0, name
    assert report["time"]["late"] <= MOST_TIME * report["time"]["early"]

"""A run of every loop that is killed, asked to stop and resumed ends as the one that was left alone."""

import pytest
from tests.faults.loops import LOOPS
from tests.faults.test_runs import option, ran

pytestmark = [pytest.mark.timeout(36_000), pytest.mark.slow]


@pytest.mark.parametrize("name", LOOPS)
def test_a_killed_run_of_each_loop_ends_as_the_uninterrupted_one(
    name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kills, seed = int(option(request, "--loop-kills")), int(option(request, "--soak-seed"))
    report = ran("loops_program.py", tmp_path_factory.mktemp("loops"), kills, seed, name)[name]
    print(f"{name}: {report}")
    assert report["wrong"] == [], report.get("said")
    assert report["kills"] > 0

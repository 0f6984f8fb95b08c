"""A run of every loop follows, from its recorded episodes alone."""

from pathlib import Path

import pytest
from tests.faults.loops import LOOPS, UNORDERED, arguments

from quintain.cli.main import main
from quintain.store.run import Run
from quintain.time_travel.verify import verify_run

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.slow]


@pytest.mark.parametrize("name", LOOPS)
def test_a_run_of_each_loop_follows(name: str, tmp_path: Path) -> None:
    assert main(arguments(name, tmp_path)) == 0
    verification = verify_run(tmp_path / "run")
    assert verification.follows, verification
    with Run.open(tmp_path / "run", writable=False) as run:
        sampled = sum(
            1
            for each in run.read_rows()
            if each.phase in ("train", "eval", "branch") and each.trajectory.turns
        )
    assert verification.num_steps == verification.num_weights == verification.last + 1
    share = (
        0.5 if name in UNORDERED else 0.9
    )  # those take back what is newer than a checkpoint, in the copy, too
    assert verification.num_recalled >= sampled * share, "what was recorded is not played again"

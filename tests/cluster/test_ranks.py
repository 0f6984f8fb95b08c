"""Learners over one, two and four processes, that die and are taken up by another number (make test-cluster)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import product
from pathlib import Path
from threading import Thread

import pytest
from tests.learning.sharding.cases import CASES, alone, check_case, distance, few, save_start, sharded

from quintain.errors import EngineFault
from quintain.learning.learner import Optimization
from quintain.learning.sharding.ranks import Ranks
from quintain.losses.imitation import imitation
from quintain.processes.tree import below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
ADAM = Optimization(learning_rate=1e-2)
RUN = [
    "ppo", "--environment", "guess?high=8&max_turns=3", "--model", "micro", "--steps", "6", "--eval-every", "1",
    "--eval-episodes", "8", "--demonstrations", "16", "--imitation-epochs", "2",
    "--optimizer", "sgd", "--learning-rate", "3e-2",
]  # fmt: skip
"""SGD keeps rounding as small as it is; AdamW makes as much of gradients that are rounding alone as of others, and then
a token is sampled otherwise."""


@pytest.fixture(scope="module", name="start")
def _start(tmp_path_factory: pytest.TempPathFactory) -> Path:  # pyright: ignore[reportUnusedFunction]
    return save_start(tmp_path_factory.mktemp("start"))


@pytest.fixture(name="ranks_of")
def _ranks_of() -> Generator[Callable[[int], Ranks]]:  # pyright: ignore[reportUnusedFunction]
    made: list[Ranks] = []

    def make(count: int) -> Ranks:
        made.append(Ranks(count))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()


@pytest.mark.parametrize(("count", "sharing"), [(1, (1,)), (2, (1,)), (4, (1, 2))])
def test_any_number_of_ranks_has_the_same_gradient(start: Path, count: int, sharing: tuple[int, ...]) -> None:
    with closing(Ranks(count)) as ranks:
        for name, context_ranks in product(CASES, sharing):
            check_case(ranks, start, name, context_ranks=context_ranks)


def test_a_checkpoint_is_taken_up_by_another_number_of_ranks(
    start: Path, tmp_path: Path, ranks_of: Callable[[int], Ranks]
) -> None:
    four = sharded(ranks_of(4), start, "policy", optimization=ADAM)
    four.step(few(), imitation())
    four.save(tmp_path)
    for count in (1, 3):
        other = sharded(ranks_of(count), start, "policy", optimization=ADAM)
        other.load(tmp_path)
        assert distance(other.parameters, four.parameters) == 0
        other.step(few(), imitation())
        one = alone(optimization=ADAM)
        one.load(tmp_path)
        one.step(few(), imitation())
        assert distance(other.parameters, one.parameters) < 1e-5


@pytest.mark.parametrize("moment", ["step", "save"])
def test_a_rank_that_is_killed_is_named_and_the_run_goes_on_from_its_checkpoint(
    start: Path, tmp_path: Path, ranks_of: Callable[[int], Ranks], moment: str
) -> None:
    ranks = ranks_of(2)
    lost = sharded(ranks, start, "policy", optimization=ADAM)
    lost.step(few(), imitation())
    good, torn = tmp_path / "good", tmp_path / "torn"
    good.mkdir()
    torn.mkdir()
    lost.save(good)
    (victim,) = below(ranks.process_ids[1])
    killer = Thread(target=lambda: (time.sleep(0.05), os.kill(victim, signal.SIGKILL)))
    killer.start()
    with pytest.raises(EngineFault, match=r"rank 1 of 2 ended with signal SIGKILL.*resumed from its last"):
        while True:
            lost.save(torn) if moment == "save" else lost.step(few(), imitation(), rate_scale=1e-3)
    killer.join()
    assert not [each for process in ranks.process_ids for each in below(process)]
    again, one = sharded(ranks_of(2), start, "policy", optimization=ADAM), alone(optimization=ADAM)
    for learner in (again, one):
        learner.load(good)
        learner.step(few(), imitation())
    assert distance(again.parameters, one.parameters) < 1e-5


def test_a_run_whose_rank_dies_is_resumed_on_four_and_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def begun(name: str, *more: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "quintain.cli",
            "train",
            *RUN,
            "--run",
            name,
            "--runs",
            str(tmp_path),
            *more,
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    whole = begun("whole")
    assert whole.communicate(timeout=1500) and whole.returncode == 0
    dies = begun("dies", "--learner-ranks", "2")
    told = tmp_path / "dies" / "metrics.jsonl"
    while dies.poll() is None and not (told.exists() and told.read_text().count("\n") > 1):
        time.sleep(0.05)
    ranks = [each for each in below(dies.pid) if "sharding.host" in _command(each)]
    assert ranks, "they are there"
    os.kill(ranks[-1], signal.SIGKILL)
    output, _ = dies.communicate(timeout=1500)
    assert dies.returncode == EngineFault.exit_code, output
    assert "ended with signal SIGKILL" in output
    resumed = subprocess.run(
        [sys.executable, "-m", "quintain.cli", "resume", str(tmp_path / "dies"), "--learner-ranks", "4"],
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    one, other = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "dies")
    )
    assert [row["step"] for row in one] == [row["step"] for row in other] == [*range(7)]
    for row, same in zip(one, other, strict=True):
        names = {"eval/success", *(("train/loss", "train/grad_norm", "train/success") if row["step"] else ())}
        assert {name: row[name] for name in names} == {
            name: pytest.approx(same[name], rel=1e-3, abs=1e-6) for name in names
        }, row["step"]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode()
    except OSError:
        return ""

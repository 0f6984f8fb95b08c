"""Two launchers of torchrun, which are two machines but for the cable (make test-cluster)."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.learning.sharding.cases import save_start

from quintain.errors import UsageError
from quintain.processes.tree import below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
RUN = [
    "train", "ppo", "--environment", "guess?high=8&max_turns=3", "--model", "micro", "--steps", "3",
    "--eval-every", "1", "--eval-episodes", "8", "--demonstrations", "16", "--imitation-epochs", "2",
    "--optimizer", "sgd", "--learning-rate", "3e-2",
]  # fmt: skip
"""SGD keeps rounding as small as it is; AdamW makes as much of gradients that are rounding alone as of others, and then
a token is sampled otherwise."""
Launcher = subprocess.Popen[str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launchers(*commands: list[str], processes: int = 1) -> list[Launcher]:
    """Start a launcher for each of `commands`, on "machines" that meet at one port."""
    port = free_port()
    return [
        subprocess.Popen(
            [
                "env", f"PYTHONPATH={ROOT}", "OMP_NUM_THREADS=1", sys.executable, "-m", "torch.distributed.run",
                "--nnodes", str(len(commands)), "--node-rank", str(number), "--nproc-per-node", str(processes),
                "--rdzv-backend", "c10d", "--rdzv-id", "test",
                "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1", *command,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        )
        for number, command in enumerate(commands)
    ]  # fmt: skip


def ended(started: list[Launcher]) -> tuple[list[int], str]:
    """Return the exit statuses of launchers and all that they said."""
    said = [each.communicate(timeout=1500)[0] for each in started]
    return [each.returncode for each in started], "\n".join(said)


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def quintain(*words: str) -> list[str]:
    return [sys.executable, "-m", "quintain.cli", *words]


def under_torchrun(*words: str) -> list[str]:
    # Without the two dashes it would take --run for its own --run-path.
    return ["-m", "--", "quintain.cli", *words]


@pytest.fixture(scope="module", name="alone")
def _alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:  # pyright: ignore[reportUnusedFunction]
    """The metrics of the run in one process."""
    root = tmp_path_factory.mktemp("alone")
    command = quintain(*RUN, "--run", "one", "--runs", str(root))
    subprocess.run(command, check=True, timeout=1500, capture_output=True)
    return rows(root / "one")


def check_equal(found: list[dict[str, float]], alone: list[dict[str, float]]) -> None:
    assert [row["step"] for row in found] == [row["step"] for row in alone] == [0, 1, 2, 3]
    for row, same in zip(found, alone, strict=True):
        names = {"eval/success", *(("train/loss", "train/grad_norm", "train/success") if row["step"] else ())}
        assert {name: row[name] for name in names} == {
            name: pytest.approx(same[name], rel=1e-3, abs=1e-6) for name in names
        }, row["step"]


def test_ranks_of_two_machines_have_the_gradient_of_one_process(tmp_path: Path) -> None:
    program = str(ROOT / "tests" / "cluster" / "torchrun_program.py")
    start = save_start(tmp_path / "start")
    command = [program, str(tmp_path / "ranks"), str(start)]
    statuses, said = ended(launchers(command, command, processes=2))
    assert statuses == [0, 0], said
    assert "the gradient of one process in 4 ranks" in said


def test_a_run_on_two_machines_is_that_of_one_process(tmp_path: Path, alone: list[dict[str, float]]) -> None:
    command = under_torchrun(*RUN, "--run", "two", "--runs", str(tmp_path))
    statuses, said = ended(launchers(command, command))
    assert statuses == [0, 0], said
    check_equal(rows(tmp_path / "two"), alone)
    assert not (tmp_path / "two" / "ranks" / "learner").exists()


def test_machines_with_other_configurations_are_refused_in_one_line(tmp_path: Path) -> None:
    own = under_torchrun(*RUN, "--run", "apart", "--runs", str(tmp_path))
    statuses, said = ended(launchers(own, [*own, "--learning-rate", "0.5"]))
    assert all(statuses) and said.count("quintain: error") == 1, said
    assert "torchrun: got learning_rate" in said
    assert "give all machines the same packages, command and files" in said
    assert f"exitcode  : {UsageError.exit_code}" in said
    assert not (tmp_path / "apart").exists()


def test_a_rank_that_is_killed_ends_the_run_which_goes_on_without_torchrun(
    tmp_path: Path, alone: list[dict[str, float]]
) -> None:
    command = under_torchrun(*RUN, "--run", "dies", "--runs", str(tmp_path))
    started = launchers(command, command)
    told = tmp_path / "dies" / "metrics.jsonl"
    while all(each.poll() is None for each in started) and not (
        told.exists() and told.read_text().count("\n") > 1
    ):
        time.sleep(0.05)
    children = [number for each in started for number in below(each.pid)]
    written = (tmp_path / "dies" / "run.db").resolve()  # by the driver; files of weights are opened by all
    followers = [number for number in children if not _has_open(number, written)]
    assert len(followers) == 1, children
    os.kill(followers[0], signal.SIGKILL)
    statuses, said = ended(started)
    # What torchrun calls the end depends on which launcher hears of it first; the line of the driver does not.
    assert all(statuses), said
    assert (
        "quintain: error: ranks of the learner" in said
        and "torchrun ends all, and the run can be resumed from its last checkpoint" in said
    )
    resumed = subprocess.run(
        quintain("resume", str(tmp_path / "dies"), "--learner-ranks", "1"),
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    check_equal(rows(tmp_path / "dies"), alone)


def _has_open(process: int, file: Path) -> bool:
    return any(Path(os.path.realpath(each)) == file for each in Path(f"/proc/{process}/fd").iterdir())

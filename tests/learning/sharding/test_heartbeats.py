"""A rank that hangs is named, whether it is stopped or waits for nothing, wherever ranks are started."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.learning.sharding.hang_program import LIMIT

from quintain.errors import EngineFault
from quintain.learning.sharding import heartbeats
from quintain.learning.sharding import ranks as ranks_module
from quintain.learning.sharding.heartbeats import Heartbeat, HeartbeatMonitor
from quintain.learning.sharding.ranks import Ranks
from quintain.processes.tree import below

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (
    f"import sys; sys.path[:0] = [{{!r}}, {str(ROOT)!r}]; "
    "from tests.learning.sharding.hang_program import serve_rank; serve_rank()"
)


def monitor_of(count: int, do: str = "forward", *, is_on_card: bool = False) -> HeartbeatMonitor:
    made = HeartbeatMonitor(count, is_on_card=is_on_card)
    made.begin(do, 0.0)
    return made


def note_all(monitor: HeartbeatMonitor, now: float, beats: Iterable[tuple[int, float]]) -> None:
    for rank, (collectives, seconds) in enumerate(beats):
        monitor.note(rank, Heartbeat(collectives=collectives, seconds=seconds), now)


def test_one_without_a_sign_of_life_hangs_after_a_minute() -> None:
    monitor = monitor_of(2)
    for now in range(0, 62, 2):
        monitor.note(0, Heartbeat(seconds=now), float(now))
        assert monitor.find_hung(float(now)) is None
    assert monitor.find_hung(61.0) == (1, "gave no sign of life for 61 s and hangs")
    monitor.settle(1)
    assert monitor.find_hung(61.0) is None, "it has answered"


def test_what_computes_or_talks_is_at_work_and_of_those_that_stand_still_the_last_one_hangs() -> None:
    monitor = monitor_of(3)
    for now in range(
        0, 300, 2
    ):  # one computes what takes minutes, and the others wait for it in a collective
        note_all(monitor, now, [(8, 1.0), (7, 1.0 + now / 50), (8, 1.0)])
        assert monitor.find_hung(now) is None
    note_all(monitor, 300, [(9, 1.0), (8, 7.0), (9, 1.0)])
    for now in range(302, 362, 2):
        note_all(monitor, now, [(9, 1.0), (8, 7.0), (9, 1.0)])
        assert monitor.find_hung(now) is None
    assert monitor.find_hung(361) == (
        1, "stands still for 61 s with 8 collectives, others have 9; it hangs"
    )  # fmt: skip


def test_where_all_stand_in_one_collective_it_is_their_network() -> None:
    monitor = monitor_of(2)
    note_all(monitor, 1, [(5, 1.0), (5, 1.0)])
    note_all(monitor, 60, [(5, 1.0), (5, 1.0)])
    assert monitor.find_hung(62) == (
        None, "stands still for 61 s, as all do, in collective 5; see their network"
    )  # fmt: skip
    monitor.settle(0)
    assert monitor.find_hung(62) == (1, "stands still for 61 s with 5 collectives, others have 5; it hangs")


@pytest.mark.parametrize(
    ("do", "is_on_card", "limit"),
    [("load", False, 1800), ("build", True, 1800), ("backward", True, 180), ("backward", False, 60)],
)
def test_files_and_cards_take_longer_but_signs_of_life_do_not(do: str, is_on_card: bool, limit: int) -> None:
    monitor = monitor_of(2, do, is_on_card=is_on_card)
    for now in range(0, limit + 1, 2):
        note_all(monitor, now, [(0, 0.0), (0, 0.0)])
        assert monitor.find_hung(now) is None
    assert monitor.find_hung(limit + 1) is not None
    monitor.begin(do, limit)
    assert monitor.find_hung(limit + 61) == (0, "gave no sign of life for 61 s and hangs")


def test_processes_that_start_and_those_that_wait_to_be_asked() -> None:
    monitor = monitor_of(2, "join")
    assert monitor.find_hung(290) is None
    assert monitor.find_hung(301) is not None
    monitor.begin(heartbeats.WAIT, 0, ranks=[0])
    for now in range(0, 10_000, 50):
        monitor.note(0, Heartbeat(), now)
        assert monitor.find_hung(now) is None
    assert monitor.find_hung(10_020) == (0, "gave no sign of life for 70 s and hangs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "words"),
    [("short", "gave no sign of life"), ("long" * (1 << 18), "took in nothing")],
    ids=["short", "long"],
)
def test_a_rank_that_is_stopped_is_named(
    question: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "SILENCE", LIMIT)
    made = Ranks(2)
    try:
        for process in below(made.process_ids[1]):
            os.kill(process, signal.SIGSTOP)
        with pytest.raises(EngineFault, match=rf"rank 1 of 2 {words} for \d+ s and hangs; all were ended"):
            made.ask("see", str(tmp_path), question)
    finally:
        made.close()


@pytest.mark.slow
def test_a_rank_that_lives_and_does_not_go_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "STILL", LIMIT)
    monkeypatch.setattr(ranks_module, "PROGRAM", PROGRAM)
    made = Ranks(2)
    try:
        with pytest.raises(
            EngineFault,
            match=r"clip: rank 1 of 2 stands still for \d+ s with 1 collectives, others have 2; it hangs; all",
        ):
            made.ask("clip", "policy")
    finally:
        made.close()
    assert not [each for process in made.process_ids for each in below(process)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("which", "how", "words"),
    [
        (1, "sleeps", "stands still for"),
        (1, "stops", "gave no sign of life for"),
        (0, "stops", "gave no sign of life for"),
    ],
)
def test_processes_of_torchrun_end_with_a_line_that_names_the_one_that_hangs(
    which: int, how: str, words: str, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    variables = {
        "TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "tests.learning.sharding.hang_program",
        str(tmp_path / "ranks"),
        str(which),
        how,
    ]
    started = [
        subprocess.Popen(
            ["env", *(f"{name}={value}" for name, value in {**variables, "RANK": rank}.items()), *command],
            stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        other = started[1 - which]
        _, said = other.communicate(timeout=240)
        assert other.returncode == EngineFault.exit_code, said
        (line,) = [each for each in said.splitlines() if each.startswith("quintain: error")]
        assert f": rank {which} ({socket.gethostname()}) of 2 {words}" in line
        assert "torchrun ends all, and the run can be resumed from its last checkpoint" in line
    finally:
        for each in started:
            each.kill()
            each.communicate()

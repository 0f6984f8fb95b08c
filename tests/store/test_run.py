import json
import logging
import math
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import trajectory

import quintain.store
from quintain.errors import DataError, StoreError, UsageError
from quintain.store import faults
from quintain.store.run import Run


def weights(step: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "weights").write_text(str(step))

    return write


def do(run: Run, make: Any, *steps: int, text: str = "left") -> None:
    for step in steps:
        run.append([make(i, text=text) for i in range(2)], step=step)
        run.commit(step, {"train/success": step / 10})


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_records_and_reads_back(run: Run, folder: Path, make: Any) -> None:
    do(run, make, 0, 1)
    run.append([make(7)], step=1, phase="eval")
    run.commit(1, {"eval/success": 1}, phase="eval")
    run.event("note", "hello", a=1)
    assert (run.name, run.recipe, run.config, run.status) == ("one", "rl/grpo", {"steps": 3}, "running")
    assert run.metrics() == curve(folder) == [
        {"step": 0, "phase": "train", "train/success": 0.0},
        {"step": 1, "phase": "train", "train/success": 0.1},
        {"step": 1, "phase": "eval", "eval/success": 1},
    ]  # fmt: skip
    assert [row["step"] for row in run.metrics("eval")] == [1]
    assert list(run.trajectories()) == [make(0), make(1), make(0), make(1), make(7)]
    assert list(run.trajectories(1, "eval")) == [make(7)]
    assert [(r.row, r.step, r.phase) for r in run.read_rows(step=1)] == [
        (3, 1, "train"),
        (4, 1, "train"),
        (5, 1, "eval"),
    ]
    assert [(e["kind"], e["message"], e["data"]) for e in run.events()] == [("note", "hello", {"a": 1})]
    assert run.last_step == 1


def test_what_is_not_finite_is_null(run: Run, folder: Path) -> None:
    run.commit(0, {"a": math.nan, "b": math.inf, "c": 1})
    assert curve(folder) == run.metrics() == [{"step": 0, "phase": "train", "a": None, "b": None, "c": 1}]


def test_a_bad_metric_commits_nothing(run: Run) -> None:
    with pytest.raises(DataError, match="rename the metric"):
        run.commit(0, {"step": 1.0})
    assert run.metrics() == []


@pytest.mark.parametrize("step", [-1, True, 1 << 32])
def test_steps_count_from_zero(run: Run, make: Any, step: Any) -> None:
    for call in (
        lambda: run.append([make()], step=step),
        lambda: run.commit(step, {}),
        lambda: run.checkpoint(step, weights(0)),
    ):
        with pytest.raises(UsageError, match=f"step: got {step}; count steps from 0"):
            call()


def test_resuming_continues_after_the_newest_checkpoint(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        assert run.next_step == 0 and run.latest_checkpoint() is None
        do(run, make, 0, 1)
        assert run.checkpoint(1, weights(1)) == folder / "checkpoints" / "step-000001"
        assert run.next_step == 2
        do(run, make, 2, 3)
    with Run.open(folder) as run:
        assert run.next_step == 2
        checkpoint = run.latest_checkpoint()
        assert checkpoint is not None and (checkpoint.folder / "weights").read_text() == "1"
        assert [row["step"] for row in run.metrics()] == [row["step"] for row in curve(folder)] == [0, 1]
        assert len(list(run.trajectories())) == 4
        do(run, make, 2)
        assert [row["step"] for row in curve(folder)] == [0, 1, 2]
        (event,) = run.events()
        assert (event["kind"], event["message"], event["data"]) == (
            "resume",
            "at step 2",
            {"abandoned_trajectories": 4},
        )


def test_without_a_checkpoint_a_run_starts_again_from_nothing(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0, 1)
    with Run.open(folder) as run:
        assert run.next_step == 0 and run.metrics() == [] == curve(folder)
        do(run, make, 0)


def test_a_torn_last_line_of_the_curve_is_mended(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0)
        run.checkpoint(0, weights(0))
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 1, "tr')
    Run.open(folder).close()
    assert curve(folder) == [{"step": 0, "phase": "train", "train/success": 0.0}]


def test_a_repeated_step_with_other_trajectories_is_reported_once(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0, 1, 2)
    with Run.open(folder) as run:
        do(run, make, 0)
        assert [event["kind"] for event in run.events()] == ["resume"]
        do(run, make, 1, 2, text="right")
        assert [event["kind"] for event in run.events()] == ["resume", "drift"]
        assert "step 1 of 'train' saw other trajectories" in run.events()[-1]["message"]


def test_a_step_names_its_weights_and_a_repeated_one_that_leads_to_others_is_reported(
    folder: Path, make: Any
) -> None:
    def commit(run: Run, step: int, weights: str | None) -> None:
        run.append([make(0)], step=step)
        run.commit(step, {}, weights=weights, policy_version=step)

    with Run.create(folder, recipe="r", config={}) as run:
        for step, weights in enumerate(("a", "b", None, "d")):
            commit(run, step, weights)
        assert run.weights() == {0: "a", 1: "b", 3: "d"}
    with Run.open(folder) as run:
        for step, weights in enumerate(("a", None, "c")):
            commit(run, step, weights)
        assert [event["kind"] for event in run.events()] == ["resume"], (
            "what is not known differs from nothing"
        )
        commit(run, 3, "other")
        assert "step 3 of 'train' led to other weights" in run.events()[-1]["message"]


def drift_of(run: Run) -> str:
    """The one report of a drift."""
    (message,) = [event["message"] for event in run.events() if event["kind"] == "drift"]
    return message


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ("EPYC, 2 threads", ""),
        (
            "Xeon, 2 threads",
            ", which was on another machine (EPYC, 2 threads); this is Xeon, 2 threads. Processors, libraries "
            "and numbers of threads round differently, so equal bits are not to be expected; continue where the "
            "run began if they must be equal",
        ),
    ],
)
def test_a_drift_says_whether_the_step_was_repeated_on_another_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, here: str, told: str
) -> None:
    monkeypatch.setattr("quintain.store.run.machine", lambda: "EPYC, 2 threads")
    with Run.create(folder, recipe="r", config={}) as run:
        for step in range(3):
            run.commit(step, {}, weights=f"{step}")
        run.checkpoint(0, weights(0))
    monkeypatch.setattr("quintain.store.run.machine", lambda: here)
    with Run.open(folder) as run:
        run.commit(1, {}, weights="other")
        assert drift_of(run) == f"step 1 of 'train' led to other weights than before the interruption{told}"
        run.commit(2, {}, weights="other, too")
        assert drift_of(run), "once is enough"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr("quintain.store.run.machine", lambda: "EPYC, 2 threads")
    with Run.open(folder) as run:
        run.commit(1, {}, weights="other")
        run.commit(2, {}, weights="2")
        message = run.events()[-1]["message"]
        assert message.startswith("step 2") and ("another machine (Xeon" in message) == bool(told), (
            "it is compared with the last time"
        )


def test_each_step_has_its_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        for step, name in enumerate(("a", "a", "b", "a", "b")):
            monkeypatch.setattr("quintain.store.run.machine", lambda name=name: name)
            run.commit(step, {})
    raw = sqlite3.connect(folder / "run.db")
    noted = raw.execute("SELECT value FROM meta WHERE key LIKE 'machine%' ORDER BY key").fetchall()
    raw.execute("DELETE FROM meta WHERE key LIKE 'machine%01'")
    raw.commit()
    raw.close()
    assert noted == [("a",), ("b",), ("a",), ("b",)], "it is noted where it changes"
    with Run.open(folder) as run:
        run.append([trajectory()], step=0)
        run.commit(0, {})
        assert ", which was on a machine that was not noted; this is b. " in drift_of(run)


def test_a_journal_that_ends_before_its_checkpoint_is_reported(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0)
        run.checkpoint(0, weights(0))
    with Run.open(folder) as run:
        assert [event["kind"] for event in run.events()] == ["resume"]
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("DELETE FROM episodes WHERE row = 2")
    raw.commit()
    raw.close()
    with Run.open(folder) as run:
        assert run.next_step == 1
        assert [event["kind"] for event in run.events()] == ["resume", "journal behind", "resume"]
        message = run.events()[1]["message"]
    assert message == "trajectories end at row 1, and the checkpoint of step 0 has seen row 2"


def test_a_damaged_checkpoint_is_reported_and_set_aside(
    folder: Path, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        for step in range(2):
            do(run, make, step)
            run.checkpoint(step, weights(step))
    (folder / "checkpoints" / "step-000001" / "weights").write_text("x")
    with caplog.at_level(logging.WARNING), Run.open(folder, writable=False) as run:
        assert run.next_step == 1
        assert run.events() == []
    assert "step-000001 cannot be used: weights is not what was written" in caplog.text
    with Run.open(folder) as run:
        assert run.next_step == 1
        assert [event["kind"] for event in run.events()] == ["damaged checkpoint", "resume"]
        assert [row["step"] for row in run.metrics()] == [0]
        latest = run.latest_checkpoint()
        assert latest is not None and latest.step == 0
    names = sorted(entry.name for entry in (folder / "checkpoints").iterdir())
    assert names == ["damaged-step-000001", "step-000000"]


def test_checkpoints_that_are_all_damaged_stop_the_resume_and_change_nothing(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0)
        run.checkpoint(0, weights(0))
    (folder / "checkpoints" / "step-000000" / "weights").unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="got 1 and none is intact"):
            Run.open(folder)
    with Run.open(folder, writable=False) as run:
        assert [row["step"] for row in run.metrics()] == [0]


def test_the_second_writer_is_refused_and_readers_are_not(run: Run, folder: Path, make: Any) -> None:
    with pytest.raises(StoreError, match=f"process {os.getpid()} on host .* is writing"):
        Run.open(folder)
    do(run, make, 0)
    with Run.open(folder, writable=False) as reader:
        assert reader.status == "running"
        assert list(reader.trajectories()) == [make(0), make(1)]
        do(run, make, 1)
        assert len(reader.metrics()) == 2
        for call in (
            lambda: reader.append([make()], step=5),
            lambda: reader.commit(5, {}),
            lambda: reader.checkpoint(5, weights(5)),
            lambda: reader.event("a", "b"),
            reader.finish,
        ):
            with pytest.raises(UsageError, match="got a run opened for reading"):
                call()


def test_the_end_of_a_run(folder: Path) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        with pytest.raises(UsageError, match="got 'fine'; use one of running, done"):
            run.finish("fine")  # type: ignore[arg-type]
        run.finish()
        run.close()
    run.close()
    with Run.open(folder, writable=False) as reader:
        assert reader.status == "done"
        assert reader.events()[-1]["kind"] == "finish"
    with Run.open(folder) as run:
        assert run.status == "running"
    with Run.open(folder, writable=False) as reader:
        assert reader.status == "interrupted"


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_an_error_is_the_end_of_a_run(folder: Path, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), Run.create(folder, recipe="r", config={}):
        raise error
    with Run.open(folder, writable=False) as reader:
        assert reader.status == status
        assert reader.events()[-1]["message"] == status


def test_a_full_disk_while_ending_does_not_hide_the_first_error(folder: Path) -> None:
    run = Run.create(folder, recipe="r", config={})
    with faults.inject("io:1:ENOSPC"), pytest.raises(ValueError, match="first"), run:
        raise ValueError("first")
    with Run.open(folder, writable=False) as reader:
        assert reader.status == "interrupted"


def test_damaged_rows_are_counted_and_reported(run: Run, folder: Path, make: Any) -> None:
    do(run, make, 0, 1)
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE episodes SET payload = x'00' WHERE row = 2")
    raw.commit()
    raw.close()
    assert list(run.trajectories()) == [make(0), make(0), make(1)]
    assert run.num_quarantined == 1
    assert "trajectory row 2 of" in run.events()[-1]["message"]


def test_reporting_on_a_full_disk_still_reads(run: Run, folder: Path, make: Any) -> None:
    do(run, make, 0)
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE episodes SET payload = x'00' WHERE row = 2")
    raw.commit()
    raw.close()
    with faults.inject("io:1:ENOSPC"):
        assert list(run.trajectories()) == [make(0)]


def test_a_failing_curve_file_is_named_and_mended_on_resuming(folder: Path, make: Any) -> None:
    run = Run.create(folder, recipe="r", config={})
    with (
        faults.inject("io:3:ENOSPC"),
        pytest.raises(StoreError, match=r"adding metrics in .*metrics.jsonl: .*bytes free"),
    ):
        run.commit(0, {"a": 1})
    run.checkpoint(0, weights(0))
    run.close()
    Run.open(folder).close()
    assert curve(folder) == [{"step": 0, "phase": "train", "a": 1}]


def test_resuming_may_fail_at_any_operation_and_be_repeated(folder: Path, make: Any) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        do(run, make, 0)
        run.checkpoint(0, weights(0))
        do(run, make, 1)
    with faults.inject("io:0:EIO") as count:
        Run.open(folder).close()
    for number in range(1, len(count.calls) + 1):
        with faults.inject(f"io:{number}:EIO"), pytest.raises(StoreError, match="bytes free"):
            Run.open(folder)
        with Run.open(folder) as run:
            assert run.next_step == 1 and [row["step"] for row in curve(folder)] == [0]


def test_a_lock_that_cannot_be_made_is_an_error_of_the_store(folder: Path) -> None:
    Run.create(folder, recipe="r", config={}).close()
    (folder / "run.lock").unlink()
    (folder / "run.lock").mkdir()
    with pytest.raises(StoreError, match="locking the run in"):
        Run.open(folder)


def test_a_damaged_journal_releases_the_lock(folder: Path) -> None:
    Run.create(folder, recipe="r", config={}).close()
    good = (folder / "run.db").read_bytes()
    (folder / "run.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match=r"run\.db: got a damaged file"):
        Run.open(folder)
    (folder / "run.db").write_bytes(good)
    Run.open(folder).close()


def test_threads_may_share_a_run(run: Run, make: Any) -> None:
    def work(step: int) -> None:
        do(run, make, step)
        run.event("done", str(step))

    threads = [threading.Thread(target=work, args=(step,)) for step in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["step"] for row in run.metrics()) == list(range(8))
    assert len(list(run.trajectories())) == 16


def test_a_missing_run_is_a_usage_error(tmp_path: Path) -> None:
    for writable in (True, False):
        with pytest.raises(UsageError, match="which is no folder"):
            Run.open(tmp_path / "x", writable=writable)


def test_the_room_offers_its_nouns() -> None:
    assert set(quintain.store.__all__) == {"Checkpoint", "Run", "RunInfo", "run_folder", "runs_in"}

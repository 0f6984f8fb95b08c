import json
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import MissingExtra, UsageError
from quintain.runs import trackers
from quintain.runs.trackers import Tracked, Trackers, identity, tracker_names, tracking
from quintain.store.manifest import check_plain

ROWS = {1: {"eval/success": 0.5, "train/loss": float("nan")}, 2: {"eval/success": 0.75}}


def told(folder: Path, next_step: int = 0) -> Tracked:
    return Tracked(folder=folder / "runs" / "a", config={"steps": 2, "seed": 3}, next_step=next_step)


class Recorder:
    """Notes what it is told; fails where it is asked to."""

    failing = ""
    rows: list[tuple[int, dict[str, float]]]
    is_closed = False
    made: list["Recorder"]

    def __init__(self, run: Tracked) -> None:
        if self.failing == "init":
            raise OSError("no network\nmore")
        self.rows = []
        type(self).made.append(self)

    def log(self, step: int, row: dict[str, float]) -> None:
        if self.failing == "log":
            raise OSError("no network")
        self.rows.append((step, dict(row)))

    def close(self) -> None:
        if self.failing == "close":
            raise OSError("no network")
        self.is_closed = True


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    kind: Any = type("Fresh", (Recorder,), {"made": []})
    monkeypatch.setitem(trackers.KINDS, "wandb", kind)
    monkeypatch.setattr(trackers, "find_spec", lambda name: None if name == "mlflow" else kind)
    return kind


def test_rows_without_what_is_not_finite(recorder: type[Recorder], tmp_path: Path) -> None:
    with tracking("wandb", told(tmp_path)) as found:
        for step, row in ROWS.items():
            found.log(step, row)
    assert recorder.made[0].rows == [(1, {"eval/success": 0.5}), (2, {"eval/success": 0.75})]
    assert recorder.made[0].is_closed


@pytest.mark.parametrize("when", ["init", "log", "close"])
def test_one_that_fails_is_given_up(
    recorder: type[Recorder], tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    recorder.failing = when
    with caplog.at_level(logging.WARNING):
        found = Trackers(("wandb",), told(tmp_path))
        found.log(1, ROWS[1])
        found.log(2, ROWS[2])
        found.close()
    assert [record.getMessage() for record in caplog.records] == [
        "track: got OSError from wandb (no network); the run goes on without it, metrics.jsonl has everything"
    ]


@pytest.mark.usefixtures("recorder")
def test_names() -> None:
    assert tracker_names("") == ()
    assert tracker_names("wandb, tensorboard") == ("wandb", "tensorboard")
    with pytest.raises(UsageError, match=r"track: got 'tensorbord'; did you mean 'tensorboard'"):
        tracker_names("tensorbord")
    with pytest.raises(MissingExtra, match=r'tracking by mlflow needs .*pip install -e "\.\[mlflow\]"'):
        tracker_names("mlflow")


def test_a_run_is_found_again_by_its_place_and_seed(tmp_path: Path) -> None:
    assert identity(told(tmp_path)) == "runs-a-3"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason='pip install -e ".[tensorboard]"')
    from tensorboard.backend.event_processing.event_accumulator import (  # pyright: ignore[reportMissingTypeStubs]
        EventAccumulator,
    )

    for next_step, steps in ((0, (1, 2)), (2, (2,))):  # step 2 is taken back and done again
        with tracking("tensorboard", told(tmp_path, next_step)) as found:
            for step in steps:
                found.log(step, ROWS[step])
    events = EventAccumulator(str(tmp_path / "runs" / "a" / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["eval/success"]
    assert [(e.step, e.value) for e in events.Scalars("eval/success")] == [(1, 0.5), (2, 0.75)]


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_holds_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason='pip install -e ".[wandb]"')
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    with tracking("wandb", told(tmp_path)) as found:
        for step, row in ROWS.items():
            found.log(step, row)
    wandb.teardown()  # its process writes the file
    files = list((tmp_path / "runs" / "a" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 1
    assert b"eval/success" in files[0].read_bytes()
    check_plain(tmp_path / "runs" / "a")


@pytest.mark.parametrize("fails", [False, True])
def test_links_of_wandb_that_lead_out_of_the_run_are_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    folder, log = tmp_path / "runs" / "a", tmp_path / "core.log"
    log.write_text("of the user")
    logs = folder / "wandb" / "offline-run-1" / "logs"
    logs.mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("offline-run-1")

    class Fake:
        """Makes the links that wandb's own process makes, when it begins and once more."""

        def init(self, **_: Any) -> "Fake":
            (logs / "debug-core.log").symlink_to(log)
            if fails:
                raise OSError("no network")
            return self

        def log(self, row: dict[str, float], step: int) -> None:
            check_plain(folder)  # a run that is killed here can be resumed

        def finish(self) -> None:
            (logs / "debug-core.log").symlink_to(log)

    monkeypatch.setattr(trackers, "find_spec", lambda name: name)
    monkeypatch.setattr(trackers, "import_module", lambda name: Fake())
    with tracking("wandb", told(tmp_path)) as found:
        found.log(1, ROWS[1])
    check_plain(folder)
    assert (folder / "wandb" / "latest-run").is_symlink() and log.read_text() == "of the user"


@pytest.mark.filterwarnings("ignore")
def test_trackio_holds_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason='pip install -e ".[trackio]"')
    with tracking("trackio", told(tmp_path)) as found:
        for step, row in ROWS.items():
            found.log(step, row)
    databases = list((tmp_path / "trackio").rglob("*.db"))
    with sqlite3.connect(databases[0]) as opened:
        rows = opened.execute("select step, metrics from metrics order by step").fetchall()
    assert [step for step, _ in rows] == [1, 2]
    assert "0.75" in json.dumps(str(rows[1][1]))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_holds_the_numbers_and_a_resumed_run_goes_on_as_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason='pip install -e ".[mlflow]"')
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    rows = {1: {**ROWS[1], "task/keydoor?rooms=3/success": 0.25}, 2: ROWS[2]}
    for next_step, steps in ((0, (1,)), (2, (2,))):
        with tracking("mlflow", told(tmp_path, next_step)) as found:
            for step in steps:
                found.log(step, rows[step])
    client: Any = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("quintain").experiment_id])
    assert (run.info.run_name, run.info.status) == ("a", "FINISHED")
    assert run.data.params == {"steps": "2", "seed": "3"}
    assert run.data.metrics == {"eval/success": 0.75, "task/keydoor_rooms_3/success": 0.25}
    history = client.get_metric_history(run.info.run_id, "eval/success")
    assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 0.75)]

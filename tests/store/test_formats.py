"""Runs saved by earlier formats are taken up, and those of a later one are refused with what to do."""

import itertools
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
from tests.learning.test_learner import nll, qwen, streams
from tests.store.conftest import trajectory
from tests.store.formats.make import rich, uses

from quintain.data.pack import pack
from quintain.errors import StoreError
from quintain.learning.learner import Learner, Optimization
from quintain.models.fingerprint import fingerprint
from quintain.store import faults
from quintain.store.run import Run
from quintain.store.schema import UPGRADES, VERSION, VIEWS
from quintain.types import Failure

SAVED = Path(__file__).with_name("formats")
FORMATS = range(1, VERSION + 1)
BROKEN = Failure(owner="tool", kind="timeout", message="it hung")


@pytest.fixture(params=FORMATS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the run that was saved in each format; see ``formats/make.py``."""
    return Path(shutil.copytree(SAVED / f"format-{request.param}", tmp_path / "saved"))


def version_of(folder: Path) -> int:
    raw = sqlite3.connect(folder / "run.db")
    try:
        return raw.execute("PRAGMA user_version").fetchone()[0]
    finally:
        raw.close()


def test_a_run_is_kept_of_every_format() -> None:
    assert {folder.name for folder in SAVED.glob("format-*")} == {f"format-{number}" for number in FORMATS}
    assert set(UPGRADES) == set(VIEWS) == set(FORMATS) - {VERSION}


def test_a_saved_run_can_be_read_as_it_is(saved: Path) -> None:
    before = version_of(saved)
    with Run.open(saved, writable=False) as run:
        assert list(run.trajectories(phase="train")) == [trajectory(0), trajectory(1, outcome=BROKEN)] * 3
        ids = [each.id for each in run.trajectories(phase="train")]
        assert [run.episode(each).index for each in ids] == [0, 1] * 3 and len(set(ids)) == 6
        check_uses(run, before, ids)
        assert len(list(run.trajectories(phase="branches"))) == (3 if before > 2 else 0)
        assert [row["step"] for row in run.metrics()] == [0, 1, 2]
        assert (run.num_quarantined, run.status, run.recipe) == (0, "interrupted", "grpo")
        assert len(run.weights()) == (0 if before == 1 else 3)
    assert version_of(saved) == before


def check_uses(run: Run, version: int, ids: list[str]) -> None:
    """A step of the first formats used what was collected for it; later ones name what they used, and over what."""
    used = [(step, use.episode) for step, use in run.uses()]
    stale = [(step, ids[0]) for step in (1, 2)] if version > 2 else []
    assert sorted(used) == sorted([*((number // 2, name) for number, name in enumerate(ids)), *stale])
    signals = [use.signals for _, use in run.uses() if use.signals is not None]
    assert len(signals) == (3 if version > 2 else 0)
    rivals = [use.rejected for _, use in run.uses() if use.rejected]
    assert rivals == (ids[1::2] if version > 3 else [])
    for each in signals:
        assert each.advantages is not None and each.advantages.tolist() == [0.5] * 4
        assert each.logprobs is not None and each.logprobs.tolist() == [-0.1, -0.2, -0.3, -0.4]
        assert each.returns is each.weights is None
    for number, branch in enumerate(run.trajectories(phase="branches")):
        assert branch == rich(ids[2 * number])


def test_an_upgrade_names_the_same_episodes_as_reading(saved: Path) -> None:
    version = version_of(saved)
    with Run.open(saved, writable=False) as run:
        before = [(each.id, each) for each in run.trajectories()]
        used = [(step, use.episode) for step, use in run.uses()]
    with Run.open(saved) as run:  # continues after step 1
        after = [(each.id, each) for each in run.trajectories()]
        assert (
            after == [pair for pair in before if pair[0] in dict(after)]
            and len(after) == 2 * len(before) // 3
        )
        assert [(step, use.episode) for step, use in run.uses()] == [each for each in used if each[0] < 2]
        check = list(run.uses(1, phase="train"))
        assert len(check) == (3 if version > 2 else 2)


def test_a_saved_run_goes_on_where_it_was(saved: Path) -> None:
    torch.set_num_threads(1)
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    with Run.open(saved, writable=False) as run:
        recorded = run.metrics()[2]["train/loss"]
    before = version_of(saved)
    with Run.open(saved) as run:
        checkpoint = run.latest_checkpoint()
        assert checkpoint is not None and run.next_step == 2
        learner.load(checkpoint.folder)
        assert fingerprint(learner.model) == run.weights()[1]
        report = learner.step([pack(streams(2))], nll)
        ids = run.append([trajectory(0), trajectory(1, outcome=BROKEN)], step=2)
        weights, used = fingerprint(learner.model), uses(run, 2, ids, version=before) if before > 2 else None
        run.commit(2, {"train/loss": report.loss}, weights=weights, policy_version=3, uses=used)
        assert report.loss == pytest.approx(recorded, rel=1e-4)
        drifts = [event["message"] for event in run.events() if event["kind"] == "drift"]
        told = "step 2 of 'train' led to other weights than before the interruption, which was on "
        machines = (f"{told}another machine (", f"{told}a machine that was not noted")
        assert all(message.startswith(machines) for message in drifts), "it was recorded on another processor"
        assert len(drifts) <= 1
        assert list(run.weights()) == [0, 1, 2]
        run.checkpoint(2, learner.save)
    assert version_of(saved) == VERSION


def test_a_step_of_a_saved_run_repeats_within_rounding(saved: Path) -> None:
    """The bits are those of the processor that it was recorded on; a step moves weights by a hundredth."""
    checkpoints = saved / "checkpoints"
    learner, other = (Learner(qwen(), Optimization(learning_rate=1e-2)) for _ in range(2))
    learner.load(checkpoints / "step-000000")
    before = [parameter.detach().clone() for parameter in learner.parameters]
    learner.step([pack(streams(1))], nll)
    other.load(checkpoints / "step-000001")
    for got, want, was in zip(learner.parameters, other.parameters, before, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
        assert float((want - was).abs().max().detach()) > 1e-3


def test_bringing_a_run_up_to_date_may_fail_anywhere_and_be_repeated(tmp_path: Path) -> None:
    for number, version in itertools.product(range(1, 4), range(1, VERSION)):
        folder = Path(shutil.copytree(SAVED / f"format-{version}", tmp_path / f"{version}-{number}"))
        with faults.inject(f"io:{number}:EIO"), pytest.raises(StoreError, match="bytes free"):
            Run.open(folder)
        with Run.open(folder) as run:
            assert run.next_step == 2 and list(run.weights()) == [0, 1]


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_run_of_a_later_format_is_refused_with_what_to_do(saved: Path, is_writable: bool) -> None:
    raw = sqlite3.connect(saved / "run.db")
    raw.execute(f"PRAGMA user_version={VERSION + 1}")
    raw.close()
    before = {
        file: file.read_bytes() for file in saved.rglob("*") if file.is_file() and file.suffix != ".lock"
    }
    told = f"got schema version {VERSION + 1}, and this release reads up to {VERSION}; upgrade quintain"
    with pytest.raises(StoreError, match=told):
        Run.open(saved, writable=is_writable)
    assert {file: file.read_bytes() for file in before} == before, "it is left as it was"


@pytest.mark.parametrize(("text", "drifts"), [("left", False), ("right", True)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_repeated_step_of_an_earlier_format_is_compared(
    tmp_path: Path, version: int, text: str, drifts: bool
) -> None:
    folder = Path(shutil.copytree(SAVED / f"format-{version}", tmp_path / "saved"))
    with Run.open(folder) as run:
        run.append([trajectory(0, text=text), trajectory(1, outcome=BROKEN)], step=2)
        run.commit(2, {})
        assert ("drift" in [event["kind"] for event in run.events()]) == drifts


def test_a_commit_of_an_earlier_format_that_does_not_say_what_it_used_is_not_compared(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SAVED / "format-2", tmp_path / "saved"))
    raw = sqlite3.connect(folder / "run.db")
    for table in ("steps", "trajectories"):
        raw.execute(f"UPDATE {table} SET is_abandoned = 1 WHERE step = 2")
    raw.commit()
    raw.close()
    with Run.open(folder) as run:
        run.append([trajectory(0, text="right")], step=2)
        run.commit(2, {}, weights="other")
        assert "drift" not in [event["kind"] for event in run.events()]

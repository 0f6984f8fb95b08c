"""Training from Python: the run that `train` returns, what stands beside it, and the cells of a notebook."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quintain
from quintain.errors import DataError, MissingExtra, ModelError, UsageError
from quintain.store.run import Run
from quintain.trained import TrainedRun

SESSION = Path(__file__).with_name("session_program.py")


def made(folder: Path, scores: dict[int, float]) -> TrainedRun:
    """A run of the method grpo with these held-out scores by step."""
    with Run.create(folder, recipe="grpo", config={"environment": "guess"}) as run:
        for step, score in scores.items():
            run.commit(step, {"eval/success": score, "loss": 0.1})
        run.finish()
    return TrainedRun(folder)


def test_a_run_is_its_folder(tmp_path: Path) -> None:
    run = made(tmp_path / "one", {0: 0.25})
    assert isinstance(run, Path) and run == tmp_path / "one" == run.folder
    assert str(run) == os.fspath(run) == str(tmp_path / "one") and hash(run) == hash(tmp_path / "one")
    assert run.name == "one" and (run / "run.db").is_file()
    assert type(run / "run.db") is type(run.folder) is type(tmp_path), "what lies in it is no run"
    assert repr(run) == f"TrainedRun({str(tmp_path / 'one')!r})"


def test_a_run_reads_what_lies_in_it(tmp_path: Path) -> None:
    run = made(tmp_path / "one", {0: 0.25, 1: 0.75, 2: 0.5})
    assert [(row["step"], row["eval/success"]) for row in run.metrics] == [(0, 0.25), (1, 0.75), (2, 0.5)]
    assert run.best == 1
    assert run.episodes() == run.episodes(step=1, phase="eval") == []
    with pytest.raises(ModelError, match="got a run without one"):
        run.model()
    with pytest.raises(ModelError, match="got step 1, which is not kept"):
        run.model("best")
    assert made(tmp_path / "none", {}).best is None


def test_runs_are_compared_by_their_evaluations(tmp_path: Path) -> None:
    run = made(tmp_path / "one", {0: 0.25})
    with pytest.raises(UsageError, match="needs two runs or more: got 1"):
        quintain.compare(run)
    with pytest.raises(DataError, match="got the step '7', which was not evaluated; those that were are 0"):
        quintain.compare(run, f"{run}@7")
    with pytest.raises(UsageError, match="got 'other'; choose from"):
        quintain.compare(run, f"{run}@0", baseline="other")


def test_serving_needs_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        pytest.raises(MissingExtra, match=r'quintain.serving needs .*uvicorn.* pip install -e "\.\[serve\]"'),
        quintain.serving(tmp_path),
    ):
        pass


def test_the_names_stand_in_the_package_and_nothing_is_loaded() -> None:
    names = [
        "check",
        "collect",
        "compare",
        "evaluate",
        "bisect",
        "lab",
        "replay",
        "resume",
        "serving",
        "train",
        "verify",
        "TrainedRun",
    ]
    assert set(names) <= set(quintain.__all__)
    assert all(callable(getattr(quintain, name)) for name in names)
    code = "import sys, quintain; quintain.check; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


def test_a_notebook_shows_the_curve_of_a_run(tmp_path: Path) -> None:
    run = made(tmp_path / "one", {0: 0.25})
    show = vars(TrainedRun)["_repr_png_"]
    assert show(run) is None, "it was not drawn yet"
    (run / "curve.png").write_bytes(b"a picture")
    assert show(run) == b"a picture"


@pytest.mark.slow
def test_cells_train_evaluate_resume_compare_and_serve(tmp_path: Path) -> None:
    """What ``docs/python.md`` shows, in a session whose cells have no file."""
    done = subprocess.run(
        [sys.executable, "-"], input=SESSION.read_text(encoding="utf-8"), cwd=tmp_path,
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all cells ran"
    assert "--environment __main__:Guess" not in done.stdout, "no command could find it"
    kept = (tmp_path / "runs" / "numbers" / "environment.py").read_text(encoding="utf-8")
    assert kept.startswith("class Guess(quintain.Environment)")
    other = subprocess.run(
        [sys.executable, "-m", "quintain", "resume", "numbers"], cwd=tmp_path,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert other.returncode == UsageError.exit_code
    assert "'__main__:Guess', a class of another session" in other.stderr

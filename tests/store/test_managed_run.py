"""What becomes of the folder of a run that fails."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain import api as launch
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError, EngineFault, StoreError
from quintain.store import Run
from quintain.store.managed_run import is_of_the_disk, looked_after
from quintain.types import Task

Cli = Callable[..., Any]
FULL = OSError(errno.ENOSPC, "No space left on device")


def begun(tmp_path: Path, *, with_start: bool) -> Run:
    run = Run.create(tmp_path / "one", recipe="sft", config={})
    if with_start:
        (run.folder / "start").mkdir()
    return run


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            EngineFault("2 requests: got no reply; restart it"),
            EngineFault,
            "2 requests: got no reply; restart it",
        ),
        (
            FULL,
            StoreError,
            "starting the run {}: got 'No space left on device'; make room, then start it again",
        ),
        (KeyError("x"), KeyError, "'x'"),
    ],
)
def test_a_new_run_that_holds_nothing_is_taken_away(
    tmp_path: Path, error: Exception, kind: type[Exception], text: str
) -> None:
    with (
        pytest.raises(kind) as caught,
        looked_after(begun(tmp_path, with_start=False), start="start", is_new=True),
    ):
        raise error
    assert str(caught.value) == text.format(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [DataError("a.jsonl line 1: got no JSON"), ConfigError("prompts: got none")]
)
def test_a_new_run_whose_settings_cannot_come_to_anything_is_taken_away(
    tmp_path: Path, error: Exception
) -> None:
    run = begun(tmp_path, with_start=True)
    with pytest.raises(type(error), match=f"^{error}$"), looked_after(run, start="start", is_new=True):
        raise error
    assert not run.folder.exists()


@pytest.mark.parametrize("has_episode", [True, False])
def test_a_record_stays_as_soon_as_it_has_an_episode(tmp_path: Path, *, has_episode: bool) -> None:
    run = begun(tmp_path, with_start=True)
    with (
        pytest.raises(DataError) as caught,
        looked_after(run, start="start", is_new=True, is_continued=False),
    ):
        if has_episode:
            run.append([make_episode(make_turn())], step=0, phase="eval")
        raise DataError("a cluster: got one")
    assert run.folder.exists() is has_episode
    assert str(caught.value) == "a cluster: got one" + (
        f" (it is kept in {run.folder})" if has_episode else ""
    )


@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_that_can_be_continued_stays_and_the_error_says_how(tmp_path: Path, is_new: bool) -> None:
    run = begun(tmp_path, with_start=is_new)
    with pytest.raises(EngineFault) as caught, looked_after(run, start="start", is_new=is_new):
        raise EngineFault("2 requests: got no reply; restart it")
    kept = f"(the run is kept: `quintain resume {run.folder}`)"
    assert str(caught.value) == f"2 requests: got no reply; restart it {kept}"
    with Run.open(run.folder) as again:  # noqa: SIM117 (the lock is given back first)
        with pytest.raises(StoreError) as full, looked_after(again, start="start", is_new=False):
            raise FULL
    assert str(full.value).startswith(f"writing the run in {run.folder}: got 'No space left on device' with ")
    assert str(full.value).endswith(kept)


def test_an_interrupted_run_stays(tmp_path: Path) -> None:
    run = begun(tmp_path, with_start=False)
    with pytest.raises(KeyboardInterrupt), looked_after(run, start="start", is_new=True):
        raise KeyboardInterrupt
    assert run.folder.is_dir()


def test_what_is_of_the_disk() -> None:
    assert is_of_the_disk(FULL) and is_of_the_disk(OSError(errno.EMFILE, "Too many open files"))
    assert is_of_the_disk(ValueError("Error while serializing: I/O error: File too large (os error 27)"))
    assert not is_of_the_disk(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
    assert not is_of_the_disk(StoreError("the run one: got a schema of tomorrow; upgrade"))
    assert not is_of_the_disk(EngineFault("the disk is full of requests"))


class Counted(Environment):
    """Go."""

    num_open = 0

    def __init__(self) -> None:
        Counted.num_open += 1

    def reset(self, task: Task) -> str:
        return "x"

    def legal_actions(self) -> tuple[str, ...]:
        return ("left", "right")

    def step(self, action: Any) -> Any:
        raise RuntimeError("boo")

    def close(self) -> None:
        Counted.num_open -= 1


def test_collecting_closes_every_environment_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the episodes is left out: rehearsal and tokenizer stand aside."""
    from quintain.environments.catalog import find
    from quintain.text.tokenizer import train_tokenizer

    monkeypatch.setattr(launch, "find_ready", lambda spec, **_: find(spec))
    monkeypatch.setattr(launch, "new_tokenizer", lambda make, seed: train_tokenizer(["left right x"], 300))
    monkeypatch.setattr(launch, "build_engine", lambda *_: pytest.fail("no model is needed"))
    with pytest.raises(Exception, match="boo"):
        launch.collect(Counted, "random", episodes=4)
    assert Counted.num_open == 1, "the one that names tasks"

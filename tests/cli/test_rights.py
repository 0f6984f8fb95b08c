"""Who may read what a command wrote: a run is its owner's alone, what was exported is as the user's mask leaves it."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
SMALL = (
    "--model", "micro", "--environment", "guess", "--eval-episodes", "2", "--max-turn-tokens", "8", "--run", "one",
)  # fmt: skip
WARM = ("--demonstrations", "4", "--imitation-epochs", "1", "--tasks", "2", "--group-size", "2")
RUNS: dict[str, tuple[str, ...]] = {
    "imitation": ("train", "sft", *SMALL, "--demonstrations", "4", "--steps", "2", "--eval-every", "1"),
    "reinforcement": ("train", "gigpo", *SMALL, *WARM, "--steps", "2", "--kl-coef", "0.1"),
    "a critic": ("train", "ppo", *SMALL, "--demonstrations", "4", "--episodes", "4", "--steps", "1"),
    "an engine of its own": ("train", "grpo", *SMALL, *WARM, "--steps", "1", "--engine", "process"),
    "rounds of pairs": ("train", "eto", *SMALL, *WARM[:4], "--tasks", "2", "--steps", "1"),
    "replay": ("train", "archer", *SMALL, *WARM, "--steps", "1", "--batch-size", "2", "--critic-updates", "1"),
    "LoRA layers": (
        "train", "sft", *SMALL, "--demonstrations", "4", "--steps", "1", "--lora-rank", "2", "--keeps-adapter", "true",
    ),
    "a tracker": ("train", "sft", *SMALL, "--demonstrations", "4", "--steps", "1", "--track", "tensorboard"),
    "collected": ("collect", "guess", "--episodes", "2", "--out", "runs/one"),
}  # fmt: skip


def rights(folder: Path) -> dict[str, str]:
    """Return the rights of `folder` and of all that is in it."""
    return {str(place): oct(stat.S_IMODE(place.stat().st_mode)) for place in (folder, *folder.rglob("*"))}


@pytest.fixture
def mask() -> Iterator[None]:
    """A mask that leaves to others what nobody closes."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("mask")
@pytest.mark.parametrize("kind", RUNS)
def test_a_finished_run_is_its_owners_alone(kind: str, cli: Cli) -> None:
    if kind == "LoRA layers":
        pytest.importorskip("peft")
    if kind == "a tracker":
        pytest.importorskip("tensorboard")
    done = cli(*RUNS[kind])
    assert done.status == 0, done.error
    found = rights(Path("runs/one"))
    assert len(found) > 4
    assert not {place: mode for place, mode in found.items() if int(mode, 8) & 0o077}
    if kind == "imitation":
        assert cli("view", "one", "--static").status == cli("eval", "one", "--episodes", "2").status == 0
        found = rights(Path("runs/one"))
        assert not {place: mode for place, mode in found.items() if int(mode, 8) & 0o077}
        assert cli("export", "one", "--to", "hf", "--out", "model").status == 0
        assert cli("export", "one", "--to", "messages", "--out", "m.jsonl").status == 0
        theirs = rights(Path("model"))
        assert theirs.pop("model") == "0o755" and {*theirs.values()} == {"0o644"}
        assert rights(Path("m.jsonl")) == {"m.jsonl": "0o644"}

"""A corridor that anything can be asked of, and runs that begin with one shared policy."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.config import build
from quintain.learning.saved import START
from quintain.methods.find import find_method
from quintain.methods.method import Method
from quintain.runs.context import TrainingContext
from quintain.store.run import Run

WORLD = str(Path(__file__).with_name("corridor.py"))
SMALL: dict[str, Any] = {
    "environment": f"{WORLD}:Corridor",
    "model": "micro",
    "demonstrations": 2,
    "imitation_epochs": 1,
    "steps": 2,
    "eval_every": 5,
    "eval_episodes": 2,
    "learning_rate": 3e-3,
    "max_turn_tokens": 16,
}
CLOCKS = ("time/", "machine/", "tokens_per_second")


class Runner:
    """Trains by methods from one policy, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self._start: Path | None = None

    def config(self, method: str, **fields: Any) -> Any:
        return find_method(method).config_class(**{**SMALL, **fields})

    def train(self, method: str, **fields: Any) -> Path:
        """Train and return the folder of the run, also of one that was interrupted."""
        found, config = find_method(method), self.config(method, **fields)
        return self.train_method(found.make(config), config, method)

    def train_method(self, method: Method, config: Any, name: str) -> Path:
        """Train by a method of one's own and return the folder of the run, also of one that was interrupted."""
        self.count += 1
        folder = self.folder / f"{name}-{self.count}"
        with Run.create(folder, recipe=name, config=asdict(config)) as run:
            if self._start is not None:
                shutil.copytree(self._start, folder / START)
            try:
                method.train(run, config)
            except KeyboardInterrupt:
                return folder
        self._start = folder / START
        return folder

    def resume(self, folder: Path) -> None:
        with Run.open(folder) as run:
            found = find_method(run.recipe)
            config = build(found.config_class, run.config, str(folder), is_stored=True)
            found.make(config).train(run, config)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The curve without what the clock says."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(CLOCKS)} for line in lines]


def weights(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("model*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    torch.set_num_threads(1)
    return Runner(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def runner_in() -> Callable[[Path], Runner]:
    """Return what makes a trainer with a policy of its own."""
    return Runner


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short warm-up and a small corpus."""
    shorten_corpus(monkeypatch, 2)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that asks every run to stop once a step is committed."""
    record: Callable[..., None] = TrainingContext.record

    def interrupting(step: int) -> None:
        def record_and_ask(context: TrainingContext, committed: int, *rest: Any) -> None:
            record(context, committed, *rest)
            context.interruption.is_asked = committed == step

        monkeypatch.setattr(TrainingContext, "record", record_and_ask)

    return interrupting


@pytest.fixture(name="rows")
def _rows() -> Callable[[Path], list[dict[str, Any]]]:  # pyright: ignore[reportUnusedFunction]
    return rows


@pytest.fixture(name="weights")
def _weights() -> Callable[[Path], str]:  # pyright: ignore[reportUnusedFunction]
    return weights

"""A small run of grpo with four steps and two checkpoints, made once; tests change copies of it."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.methods.find import find_method
from quintain.store.run import Run

SMALL: dict[str, Any] = {
    "environment": "guess?high=8&max_turns=3",
    "model": "micro",
    "demonstrations": 24,
    "imitation_epochs": 16,
    "steps": 4,
    "eval_every": 2,
    "eval_episodes": 4,
    "learning_rate": 3e-3,
    "max_turn_tokens": 16,
    "tasks": 2,
    "group_size": 4,
}


def train(folder: Path, recipe: str = "grpo", **fields: Any) -> Path:
    """Train a small run in `folder`; what `fields` say is None is left out."""
    found = find_method(recipe)
    given = {name: value for name, value in {**SMALL, **fields}.items() if value is not None}
    config = found.config_class(**given)
    with Run.create(folder, recipe=recipe, config=asdict(config)) as run:
        found.make(config).train(run, config)
    return folder


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run; it is not to be changed."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten_corpus(monkeypatch)
        return train(tmp_path_factory.mktemp("runs") / "run", num_epochs=1, num_minibatches=1)


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(small_run, tmp_path / "run"))

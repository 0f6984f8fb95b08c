"""Short runs of methods that imitate, and a collector that shows what it is given."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.environments.noisy import NoisyExpert
from quintain.methods.find import find_method
from quintain.store.run import Run
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn

SMALL: dict[str, Any] = {
    "model": "micro",
    "demonstrations": 8,
    "steps": 2,
    "eval_every": 5,
    "eval_episodes": 2,
    "batch_size": 4,
    "max_turn_tokens": 16,
}


def made(
    turns: Sequence[tuple[Sequence[int], Sequence[int]]],
    texts: Sequence[str] = (),
    *,
    value: float = 1.0,
    task: str = "t",
    environment: str = "e",
) -> Trajectory:
    """Return an episode of `turns`, each what was read and what was said; `texts` are the actions."""
    actions = texts or [""] * len(turns)
    return Trajectory(
        task=Task(id=task, environment=environment, seed=0),
        turns=tuple(
            Turn(
                observation=(),
                prompt_ids=tuple(read),
                completion=Completion(token_ids=tuple(said), logprobs=(-0.5,) * len(said), stop="stop"),
                action=Action(text=text),
            )
            for (read, said), text in zip(turns, actions, strict=True)
        ),
        outcome=Score(value=value, is_success=value == 1.0),
        stop=Stop.TERMINATED,
        seed=0,
        group=task,
        index=0,
    )


@pytest.fixture(name="trajectory")
def _trajectory() -> Callable[..., Trajectory]:  # pyright: ignore[reportUnusedFunction]
    """Return what makes an episode of turns."""
    return made


class Shown:
    """A collector whose teachers show the episodes it was given; it remembers which teachers were asked."""

    environment = "stream"

    def __init__(self, *shown: Sequence[Trajectory]) -> None:
        self.shown, self.teachers = list(shown), list[tuple[NoisyExpert, ...]]()

    def demonstrations(self, *teachers: NoisyExpert) -> list[Trajectory]:
        self.teachers.append(teachers)
        return list(self.shown[min(len(self.teachers), len(self.shown)) - 1])

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(map(str, token_ids))


@pytest.fixture
def shows() -> Callable[..., Any]:
    """Return what makes a collector that shows given episodes."""
    return Shown


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Return what trains a method shortly and returns its metrics."""
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)

    def train(name: str, **fields: Any) -> list[dict[str, Any]]:
        found = find_method(name)
        known = {field.name for field in dataclass_fields(found.config_class)}
        config = found.config_class(**{**{k: v for k, v in SMALL.items() if k in known}, **fields})
        config.check()
        with Run.create(tmp_path / name, recipe=name, config=asdict(config)) as run:
            found.make(config).train(run, config)
            return list(run.metrics())

    return train

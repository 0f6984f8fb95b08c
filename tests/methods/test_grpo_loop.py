"""GRPO in one file, `examples/grpo_loop.py`: the same weights as the method's, and few files to read."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import weights

import quintain
from quintain.methods.find import find_method
from quintain.runs.collector import Collector
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Task

PACKAGE = Path(quintain.__file__).parent
EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_loop.py"
ROOMS = ("methods", "credit", "losses", "rewards", "learning", "warm_start", "runs", "data")
MOST_READ = 8
"""Files, the example among them, in which a function runs in a step of it."""
SMALL: dict[str, Any] = {
    "environment": f"{Path(__file__).parent / 'test_training.py'}:Coin", "model": "micro", "demonstrations": 4,
    "imitation_epochs": 1, "steps": 3, "eval_every": 5, "eval_episodes": 4, "max_turn_tokens": 16, "tasks": 3,
    "group_size": 4, "learning_rate": 3e-3,
}  # fmt: skip


def train(name: str, folder: Path) -> dict[str, str]:
    """Train by the method `name` in `folder`; return its weights."""
    found = find_method(name)
    config = found.config_class(**SMALL)
    with Run.create(folder, recipe=found.label, config=asdict(config)) as run:
        found.make(config).train(run, config)
    return weights(folder / "model")


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_it_has_the_weights_of_grpo(tmp_path: Path) -> None:
    one, other = train("grpo", tmp_path / "grpo"), train(str(EXAMPLE), tmp_path / "loop")
    assert one == other
    with Run.open(tmp_path / "loop", writable=False) as run:
        assert any(row.get("train/grad_norm") for row in run.metrics()), "a step that learned"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_step_of_it_is_read_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its tasks to its new weights: every file of the rooms that say how a method learns of which a function runs.

    What is measured and recorded of a step afterwards is not read to know what it is.
    """
    ran = set[str]()
    draw, measure = Collector.tasks, TrainingContext.measure

    def begin(self: Collector, step: int, count: int) -> Sequence[Task]:
        sys.setprofile(lambda frame, _, __: ran.add(frame.f_code.co_filename))
        return draw(self, step, count)

    def end(self: TrainingContext, *arguments: Any) -> Any:
        sys.setprofile(None)
        return measure(self, *arguments)

    monkeypatch.setattr(Collector, "tasks", begin)
    monkeypatch.setattr(TrainingContext, "measure", end)
    try:
        train(str(EXAMPLE), tmp_path / "run")
    finally:
        sys.setprofile(None)
    inside = {Path(name).relative_to(PACKAGE) for name in ran if Path(name).is_relative_to(PACKAGE)}
    read = {EXAMPLE.name, *(str(path) for path in inside if path.parts[0] in ROOMS)}
    assert str(EXAMPLE) in ran and "learning/learner.py" in read
    assert len(read) <= MOST_READ, sorted(read)

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.environments.protocol import Environment
from quintain.methods.rl import grpo
from quintain.store.run import Run
from quintain.types import Action, StepResult, Task


class Lever(Environment):
    """A lever that wants to be pulled up."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        return "A lever."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="ok", reward=float(action.text == "up"), is_terminated=True)

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def expert_action(self) -> Action:
        return Action(text="up")


def train(folder: Path, **fields: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Train for a step and return the curve, the events about the untrained model and what its episodes came to."""
    config = grpo.Config(
        environment=f"{__file__}:Lever",
        model="micro",
        steps=1,
        eval_episodes=16,
        tasks=1,
        group_size=2,
        **fields,
    )
    with Run.create(folder, recipe="grpo", config=asdict(config)) as run:
        grpo.method(config).train(run, config)
        events = [event for event in run.events() if event["kind"] == "untrained"]
        played = [turn.action.text for t in run.trajectories(phase="untrained") for turn in t.turns]
        return run.metrics(), events, played


@pytest.mark.slow
def test_the_model_is_measured_before_it_imitates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    shorten_corpus(monkeypatch)
    plain, none, _ = train(tmp_path / "plain", demonstrations=0)
    taught, (found,), played = train(tmp_path / "taught", demonstrations=16, eval_untrained=True)
    assert none == []
    # Without demonstrations, step 0 is the untrained model: the same tasks with the same seeds come to the same.
    assert found["data"] == {key: value for key, value in plain[0].items() if key in found["data"]}
    assert found["data"]["eval/success"] < taught[0]["eval/success"]
    assert len(played) == 16 and played.count("up") == 16 * found["data"]["eval/success"]


def test_the_model_is_measured_on_the_tasks_of_every_later_evaluation(tmp_path: Path) -> None:
    config = grpo.Config(
        environment=f"{__file__}:Lever",
        model="micro",
        steps=1,
        eval_episodes=4,
        eval_untrained=True,
        task_offset=1_000,
        tasks=1,
        group_size=2,
    )
    with Run.create(tmp_path / "run", recipe="grpo", config=asdict(config)) as run:
        grpo.method(config).train(run, config)
        asked = [
            [t.task.id for t in run.trajectories(phase=phase) if t.task.split == "eval"]
            for phase in ("untrained", "eval")
        ]
    assert asked[0] and asked[0] == asked[1][:4]


def test_the_evaluation_before_the_first_step_can_be_left_out(tmp_path: Path) -> None:
    rows, _, _ = train(tmp_path / "run", demonstrations=0, eval_start=False)
    assert ["eval/success" in row for row in rows] == [False, True]

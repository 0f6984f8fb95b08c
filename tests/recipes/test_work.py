"""What a run proves of itself: alarms in the journal, and weights that are those of the journal."""

import sqlite3
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.environments.protocol import Environment
from quintain.errors import DataError, InvariantError
from quintain.recipes.monitors.alarms import Alarm, Spans
from quintain.recipes.monitors.thresholds import Thresholds
from quintain.recipes.rl import grpo
from quintain.store.run import Run
from quintain.types import Action, Split, StepResult, Task


class Lever(Environment):
    """Up is right."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        return "A lever."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", reward=float(action.text == "up"), is_terminated=True)

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def expert_action(self) -> Action:
        return Action(text="up")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.recipes.corpus.NUM_EPISODES", 4)


@pytest.fixture
def config() -> grpo.Config:
    return grpo.Config(
        environment=f"{__file__}:Lever",
        model="micro",
        demonstrations=0,
        steps=3,
        eval_every=1,
        eval_episodes=2,
        tasks=2,
        group_size=4,
        monitors="window=2,zero_variance=0.000001",
    )


def train(folder: Path, config: grpo.Config) -> list[dict[str, Any]]:
    with Run.create(folder, recipe="grpo", config=asdict(config)) as run:
        grpo.train(config, run)
        return run.events()


def test_a_run_measures_proves_and_raises(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def always(spans: Spans, bounds: Thresholds) -> list[Alarm]:
        return [Alarm(name="hacking", message="the reward was bought")]

    monkeypatch.setattr("quintain.recipes.monitors.alarms.RULES", (always,))
    events = train(tmp_path / "run", config)
    (alarm,) = [event for event in events if event["kind"] == "alarm"]
    assert alarm["message"] == "the reward was bought"
    assert alarm["data"]["step"] == 2 and alarm["data"]["name"] == "hacking"
    assert all(each["text"].startswith("< A lever.\n> ") for each in alarm["data"]["transcripts"])
    assert "alarm at step 2 (hacking): the reward was bought" in capsys.readouterr().err
    with Run.open(tmp_path / "run", writable=False) as run:
        rows = run.metrics()
    assert [row.get("alarm/hacking") for row in rows] == [None, None, 1.0, 1.0]
    assert all(row["gap/canary"] < 1e-4 for row in rows)
    assert all(row["monitor/entropy"] > 0 and row["monitor/failures"] == 0 for row in rows[1:])
    assert [event["data"]["step"] for event in events if event["kind"] == "weights"] == [0, 1, 2, 3]


def test_a_journal_of_other_weights_is_not_resumed(tmp_path: Path, config: grpo.Config) -> None:
    folder = tmp_path / "run"
    train(folder, config)
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE events SET message = 'abc' WHERE kind = 'weights'")
    raw.commit()
    raw.close()
    with (
        Run.open(folder) as run,
        pytest.raises(InvariantError, match=r"of step 3: got fingerprint .* has abc;"),
    ):
        grpo.train(config, run)


def test_held_out_tasks_are_not_trained_on(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Environment.task

    def same(self: Environment, split: Split, index: int) -> Task:
        return replace(own(self, "eval", index), split=split)

    monkeypatch.setattr(Lever, "task", same)
    monkeypatch.setattr("quintain.recipes.work.find", lambda name: Lever)
    with pytest.raises(DataError, match="training tasks that are not held out: got 2 of 2"):
        train(tmp_path / "run", replace(config, eval_episodes=8))
    with Run.open(tmp_path / "run", writable=False) as run:
        assert list(run.trajectories(phase="train")) == []

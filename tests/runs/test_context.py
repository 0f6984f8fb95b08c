"""What a run proves of itself: alarms in the journal, and weights that are those of the journal."""

import os
import signal
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from quintain.environments.protocol import Environment
from quintain.errors import DataError, InvariantError
from quintain.learning.thresholds import Thresholds
from quintain.methods.rl import grpo
from quintain.runs.collector import Collector
from quintain.runs.interrupt import Interruption
from quintain.runs.monitors.alarms import Alarm, Spans
from quintain.store.checkpoints import damage
from quintain.store.run import Run
from quintain.types import Action, Batch, Group, Loss, LossReport, Outputs, Split, StepResult, Task


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


pytestmark = pytest.mark.usefixtures("quick")


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
        grpo.method(config).train(run, config)
        return run.events()


def test_an_alarm_that_comes_and_goes_is_said_once_in_a_while(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def now_and_then(spans: Spans, bounds: Thresholds) -> list[Alarm]:
        return [Alarm(name="hacking", message="bought")] if (spans.last[-1]["step"] or 0) % 2 else []

    monkeypatch.setattr("quintain.runs.monitors.alarms.RULES", (now_and_then,))
    monkeypatch.setattr("quintain.runs.context.QUIET_STEPS", 4)
    events = train(tmp_path / "run", replace(config, steps=9, eval_every=9))
    assert [e["data"]["step"] for e in events if e["kind"] == "alarm"] == [3, 5, 7, 9]
    said = capsys.readouterr().err
    assert [step for step in range(10) if f"alarm at step {step} (hacking)" in said] == [3, 7]


@pytest.mark.parametrize("more", [{}, {"num_epochs": 2}, {"num_minibatches": 2}])
def test_the_gap_is_in_the_metrics_of_every_update(
    tmp_path: Path, config: grpo.Config, more: dict[str, int]
) -> None:
    train(tmp_path / "run", replace(config, demonstrations=16, imitation_epochs=2, tasks=4, **more))
    with Run.open(tmp_path / "run", writable=False) as run:
        rows = run.metrics()
    learned = [row for row in rows if row.get("train/grad_norm")]
    assert learned and all(0 <= row["gap/mean"] <= row["gap/max"] < 1e-4 for row in learned)
    idle = {f"machine/{who}_idle" for who in ("engine", "environments", "learner")}
    assert all({"machine/memory_gib", "time/hand_over"} | idle <= row.keys() for row in learned)


def test_a_run_measures_proves_and_raises(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def always(spans: Spans, bounds: Thresholds) -> list[Alarm]:
        return [Alarm(name="hacking", message="the reward was bought")]

    monkeypatch.setattr("quintain.runs.monitors.alarms.RULES", (always,))
    events = train(tmp_path / "run", config)
    (alarm,) = [event for event in events if event["kind"] == "alarm"]
    assert alarm["message"].startswith("the reward was bought; read the transcripts")
    assert alarm["data"]["step"] == 2 and alarm["data"]["name"] == "hacking"
    assert all(each["text"].startswith("< A lever.\n> ") for each in alarm["data"]["transcripts"])
    assert "alarm at step 2 (hacking): the reward was bought" in capsys.readouterr().err
    with Run.open(tmp_path / "run", writable=False) as run:
        rows = run.metrics()
    assert [row.get("alarm/hacking") for row in rows] == [None, None, 1.0, 1.0]
    assert all(row["gap/canary"] < 1e-4 for row in rows)
    assert all(row["monitor/entropy"] > 0 and row["monitor/failures"] == 0 for row in rows[1:])
    with Run.open(tmp_path / "run", writable=False) as run:
        assert list(run.weights()) == [0, 1, 2, 3]


def test_a_journal_of_other_weights_is_not_resumed(tmp_path: Path, config: grpo.Config) -> None:
    folder = tmp_path / "run"
    train(folder, config)
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE steps SET weights = 'abc'")
    raw.commit()
    raw.close()
    with (
        Run.open(folder) as run,
        pytest.raises(InvariantError, match=r"of step 3: got fingerprint .* has abc;"),
    ):
        grpo.method(config).train(run, config)


class Slow(Lever):
    """Does not answer for a long time, once, when it is told to."""

    is_slow: ClassVar[threading.Event] = threading.Event()
    is_stuck: ClassVar[threading.Event] = threading.Event()
    goes_on: ClassVar[threading.Event] = threading.Event()

    def step(self, action: Action) -> StepResult:
        if self.is_slow.is_set():
            self.is_slow.clear()
            self.is_stuck.set()
            self.goes_on.wait(25)
        return super().step(action)


@pytest.mark.slow
def test_a_step_that_does_not_end_after_a_signal_is_broken_off_and_the_one_before_it_saved(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_clocks(run: Run) -> list[dict[str, Any]]:
        clocks = ("time/", "machine/", "tokens_per")
        return [{k: v for k, v in row.items() if not k.startswith(clocks)} for row in run.metrics()]

    monkeypatch.setattr("quintain.runs.context.find", lambda name: Slow)
    monkeypatch.setattr("quintain.runs.context.Interruption", partial(Interruption, patience=0.1))
    slow = replace(config, eval_every=100, demonstrations=16, imitation_epochs=3)
    train(tmp_path / "whole", slow)
    sample = Collector.sample

    def sample_slowly(collector: Collector, step: int, tasks: Sequence[Task], **fields: Any) -> list[Group]:
        if step == 2 and not Slow.is_stuck.is_set():
            Slow.is_slow.set()
        return sample(collector, step, tasks, **fields)

    monkeypatch.setattr(Collector, "sample", sample_slowly)

    def strike() -> None:
        assert Slow.is_stuck.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    nemesis = threading.Thread(target=strike)
    nemesis.start()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", slow)
    Slow.goes_on.set()
    nemesis.join()
    with Run.open(tmp_path / "run") as run:
        assert run.next_step == 2, "step 2 was broken off"
        grpo.method(slow).train(run, slow)
        resumed = without_clocks(run), run.weights()
    with Run.open(tmp_path / "whole", writable=False) as run:
        assert resumed == (without_clocks(run), run.weights())
        assert len(set(run.weights().values())) > 2


def test_what_is_not_finite_ends_a_run_with_the_last_good_checkpoint_named(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(**bounds: float) -> Loss:
        num: list[int] = []

        def loss(outputs: Outputs, batch: Batch) -> LossReport:
            num.append(1)
            return LossReport(loss=outputs.logprobs.sum() * (float("nan") if len(num) > 2 else 1e-3))

        return loss

    monkeypatch.setattr(grpo, "clip_ratio", spoiled)
    folder = tmp_path / "run"
    with pytest.raises(InvariantError, match=r"in a row; .*; the last good checkpoint is ") as caught:
        train(folder, replace(config, steps=9, learning_rate=1e-6, demonstrations=16, imitation_epochs=3))
    named = Path(str(caught.value).rpartition(" is ")[2])
    assert named.name == "step-000004" and damage(named) is None
    with Run.open(folder, writable=False) as run:
        assert [row["train/skipped"] for row in run.metrics()[1:]] == [0, 0, 1, 1]
        assert list(run.weights().values())[2:] == [run.weights()[2]] * 3


def test_held_out_tasks_are_not_trained_on(
    tmp_path: Path, config: grpo.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Environment.task

    def same(self: Environment, split: Split, index: int) -> Task:
        return replace(own(self, "eval", index), split=split)

    monkeypatch.setattr(Lever, "task", same)
    monkeypatch.setattr("quintain.runs.context.find", lambda name: Lever)
    with pytest.raises(DataError, match="training tasks that are not held out: got 2 of 2"):
        train(tmp_path / "run", replace(config, eval_episodes=8))
    with Run.open(tmp_path / "run", writable=False) as run:
        assert list(run.trajectories(phase="train")) == []

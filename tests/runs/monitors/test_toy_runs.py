"""Each alarm on the real loop: a toy run raises it within five steps of going wrong, and clean runs raise none."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.build import shorten_corpus
from tests.methods.test_training import train
from tests.runs.monitors import toy
from tests.runs.monitors.toy import (
    GROUP_SIZE,
    NUM_TASKS,
    Scene,
    Told,
    Words,
    for_right,
    now,
    right_or_wrong,
)
from transformers import PreTrainedTokenizerBase

from quintain.agents.protocol import Agent
from quintain.engines.build import hand_over
from quintain.environments.protocol import Factory
from quintain.errors import FailureRateError
from quintain.learning.thresholds import Thresholds
from quintain.learning.train_config import TrainConfig
from quintain.methods.rl import grpo
from quintain.runs.collector import Collector
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Group, Task, ToolCall, Use
from quintain.warm_start import start

WITHIN = 5
"""Steps within which an alarm must come."""
QUICK, MUCH = ("stop_failures", "retries", "hacking"), pytest.mark.faults
"""Scenes that every run of the suite has; the others come with ``make test-faults``."""


def say_calls(step: int, number: int, task: Task) -> Words:
    """Use one tool after another."""
    return (ToolCall(name=("push", "pull", "turn", "hold")[number % 4], arguments={"force": 3}),)


def one_tool(step: int, number: int, task: Task) -> Words:
    return say_calls(step, number if step <= WITHIN else number // 4 * 4, task)


def unreadable_calls(step: int, number: int, task: Task) -> Words:
    force = "hard" if number % 4 else 3
    return (ToolCall(name="push", arguments={"force": force}),)


def broken_calls(step: int, number: int, task: Task) -> Words:
    return say_calls(step, number, task) if step <= WITHIN else "<tool_call>oh"


def from_then_on(words: str) -> "toy.Callable[[int, int, Task], Words]":
    return lambda step, number, task: right_or_wrong(step, number, task) if step <= WITHIN else words


def gullible(text: str, step: int) -> tuple[float, bool]:
    """Pay for what is right, and for asking."""
    reward, is_success = for_right(text, step)
    return max(reward, float("highest" in text)), is_success or "highest" in text


SCENES: dict[str, Scene] = {
    "tool_failures": Scene(world="Tools", say=say_calls, tool_fails=lambda call: call == 3),
    "invalid_calls": Scene(world="Tools", say=unreadable_calls),
    "unreadable": Scene(world="Tools", say=broken_calls, onset=WITHIN),
    "tool_coverage": Scene(world="Tools", say=one_tool, onset=WITHIN),
    "zero_variance": Scene(say=lambda step, number, task: f"wrong {'ab'[number > GROUP_SIZE]}"),
    "ngrams": Scene(say=lambda step, number, task: f"{'right' if number % 2 else 'wrong'} {'no ' * 20}"),
    "length_advantage": Scene(
        say=lambda step, number, task: f"right {'and so on ' * 9}" if number % 2 else "no"
    ),
    "reward_share": Scene(terms=lambda reward: {"goal": 1.0, "format": 0.01}),
    "failures": Scene(breaks=lambda step, attempt: step == 1 and attempt in (1, 9)),
    "stop_failures": Scene(breaks=lambda step, attempt: attempt in (1, 9), is_fatal=True),
    "retries": Scene(breaks=lambda step, attempt: attempt in (1, 2)),
    "canaries": Scene(pay=gullible),
    "hacking": Scene(pay=lambda text, step: (step * (0.2 + 0.1 * ("right" in text)), False)),
    "boundary": Scene(say=from_then_on("wrong"), onset=WITHIN),
    "diversity": Scene(say=from_then_on("neither"), onset=WITHIN),
    "length": Scene(say=from_then_on("wrong" + " and so on" * 9), onset=WITHIN),
    "cost": Scene(
        say=lambda step, number, task: right_or_wrong(step, number if step <= WITHIN else number // 8, task),
        onset=WITHIN,
    ),
    "entropy": Scene(
        pay=lambda text, step: (len(text) % 2, False),
        say=lambda step, number, task: None,
        sharpen=WITHIN + 1,
        onset=WITHIN,
    ),
}
CLEAN = {"words": Scene(), "tools": Scene(world="Tools", say=say_calls)}


def alarms_of(scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Do a run of the real loop in `scene` and return its alarms: step and name."""
    torch.set_num_threads(1)
    now(scene).counts.clear()
    world = vars(toy)[scene.world]
    record, sample = TrainingContext.record, Collector.sample
    contexts: list[TrainingContext] = []

    def harness(config: TrainConfig, tokenizer: PreTrainedTokenizerBase, make: Factory) -> Agent:
        return Told(start.harness(config, tokenizer, make), len(tokenizer))

    def recorded(
        context: TrainingContext, step: int, row: dict[str, float], uses: Sequence[Use] | None = None
    ) -> None:
        contexts[:] = [context]
        record(context, step, row, uses)

    def begun(collector: Collector, step: int, tasks: Sequence[Task], **fields: Any) -> list[Group]:
        scene.begin(step)
        if step == scene.sharpen:
            main = contexts[0].policies.main
            with torch.no_grad():
                cast(Any, main.model.get_output_embeddings()).weight.mul_(30)
            assert main.engine is not None
            hand_over(main.engine, main.model, main.version, folder / "engines")
        return sample(collector, step, tasks, **fields)

    shorten_corpus(monkeypatch)
    monkeypatch.setattr("quintain.runs.context.find", lambda name: world)
    monkeypatch.setattr("quintain.runs.context.harness", harness)
    monkeypatch.setattr(Collector, "sample", begun)
    monkeypatch.setattr(TrainingContext, "record", recorded)
    config = grpo.Config(
        environment=f"{toy.__file__}:{scene.world}",
        model="micro",
        demonstrations=0,
        steps=scene.onset + WITHIN,
        eval_every=1 if scene.onset == 0 else 100,
        eval_episodes=2,
        tasks=NUM_TASKS,
        group_size=GROUP_SIZE,
        learning_rate=1e-6,
        max_broken=1.0,
    )
    with Run.create(folder, recipe="grpo", config=asdict(config)) as run:
        if scene.is_fatal:
            with pytest.raises(FailureRateError):
                grpo.method(config).train(run, config)
        else:
            grpo.method(config).train(run, config)
        return [(e["data"]["step"], e["data"]["name"]) for e in run.events() if e["kind"] == "alarm"]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=MUCH) for name in SCENES]
)
def test_a_run_that_goes_wrong_raises_its_alarm_within_five_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SCENES[name]
    found = alarms_of(scene, tmp_path / "run", monkeypatch)
    assert name in dict(map(reversed, found)), found  # type: ignore[arg-type]
    assert all(step > scene.onset for step, _ in found)


@pytest.mark.parametrize("name", ["words", pytest.param("tools", marks=MUCH)])
def test_a_clean_run_raises_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = CLEAN[name]
    scene.onset = WITHIN
    assert alarms_of(scene, tmp_path / "run", monkeypatch) == []


def test_dpo_that_makes_both_sides_unlikely_is_told(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"imitation_weight": 0.0, "learning_rate": 3e-2, "tasks": 16, "steps": 3}
    folder = train("dpo", tmp_path / "run", monitors="window=1,chosen=0.1", **fields)
    with Run.open(folder, writable=False) as run:
        found = [(e["data"]["step"], e["data"]["name"]) for e in run.events() if e["kind"] == "alarm"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert found == [(2, "chosen")], lines


def test_every_alarm_has_its_toy_run() -> None:
    # That of a policy which judges itself comes in its method's own run (test_self_rewarding.py), and so do verdicts
    # that cannot be read (test_agent_q.py); what a reward model is led to takes more steps than a toy run has
    # (test_alarms.py). Branches are lost in the runs of the methods that branch (test_branches.py).
    elsewhere = {"window", "chosen", "judge", "overoptimised", "unread", "lost_branches"}
    assert set(SCENES) | elsewhere == set(Thresholds.__slots__)

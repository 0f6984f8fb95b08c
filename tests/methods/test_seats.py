"""Two seats of one environment as two policies: LoRA adapters on one model, one of them frozen, then both trained."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quintain.config import build
from quintain.credit.group import group_relative
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups
from quintain.store.run import Run
from quintain.types import Action, Group, Score, StepResult, Task


class Duet(Environment):
    """Say a or b; A and B take turns."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        self.number = 0
        return "begin"

    def seats(self) -> tuple[str, ...]:
        return ("A", "B")

    def seat(self) -> str:
        return "AB"[self.number % 2]

    def legal_actions(self) -> tuple[str, ...]:
        return ("a", "b")

    def step(self, action: Action) -> StepResult:
        self.number += 1
        return StepResult(observation=f"{action.text} was said", is_terminated=self.number == self.max_turns)


SEATS: dict[str, Any] = {
    "environment": f"{__file__}:Duet",
    "model": "micro",
    "demonstrations": 2,
    "imitation_epochs": 1,
    "steps": 1,
    "eval_every": 5,
    "eval_episodes": 1,
    "tasks": 1,
    "group_size": 2,
    "learning_rate": 1e-2,
    "lora_rank": 2,
    "seats": {"B": "partner"},
}
PARTNER: dict[str, Any] = {"shares": "policy", "lora_rank": 2}


def pay(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` whose second episode is worth more: so that there is something to learn from."""
    return [
        replace(
            group,
            trajectories=tuple(
                replace(t, outcome=Score(value=float(t.index), is_success=False)) for t in group.trajectories
            ),
        )
        for group in groups
    ]


METHOD = OnPolicy(
    collect=sample_groups(1, 2),
    reward=pay,
    credit=lambda groups, _: group_relative(groups),
    update=Update(loss=reinforce(), lr_warmup=0),
)


def trained(folder: Path, partner: dict[str, Any]) -> tuple[Run, dict[str, dict[str, torch.Tensor]]]:
    """Return a run of one step, and what its last checkpoint has of each policy."""
    config = build(GroupConfig, {**SEATS, "policies": {"partner": partner}}, "test")
    with Run.create(folder, recipe="test", config=asdict(config)) as run:
        METHOD.train(run, config)
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    places = {"policy": checkpoints[-1], "partner": checkpoints[-1] / "partner"}
    weights = {
        name: load_file(place / "weights-0.safetensors")
        for name, place in places.items()
        if (place / "weights-0.safetensors").exists()
    }
    return Run.open(folder, writable=False), weights


def test_both_seats_learn_as_adapters_on_one_model(tmp_path: Path) -> None:
    run, weights = trained(tmp_path / "both", PARTNER)
    with run:
        episodes = list(run.trajectories(step=1, phase="train"))
        speakers = {(turn.speaker, turn.completion.policy) for t in episodes for turn in t.turns}
        assert speakers == {("A", "policy"), ("B", "partner")}
        uses = [use for _, use in run.uses(1)]
        assert [use.episode for use in uses] == [t.id for t in episodes]
        for trajectory, use in zip(episodes, uses, strict=True):
            assert use.signals is not None and use.signals.advantages is not None
            assert len(use.signals.advantages) == trajectory.num_sampled, "seats of an episode are one use"
            assert use.signals.logprobs is not None and (use.signals.logprobs < 0).all()
        assert "partner/train/loss" in run.metrics()[-1]
    for name, tensors in weights.items():
        assert all(f"/{name}/" in key and "lora_" in key for key in tensors), "an adapter alone is saved"
        assert any(key.endswith("lora_B/" + name + "/weight") and t.any() for key, t in tensors.items())
    assert set(weights) == {"policy", "partner"}


def test_a_frozen_seat_plays_and_stays_as_it_was(tmp_path: Path) -> None:
    run, weights = trained(tmp_path / "one", {**PARTNER, "is_trained": False})
    with run:
        policies = {u.completion.policy for t in run.trajectories(step=1, phase="train") for u in t.turns}
        assert policies == {"policy", "partner"}
        assert not any(name.startswith("partner/train") for name in run.metrics()[-1])
    assert set(weights) == {"policy"}


def test_a_seat_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = build(
        GroupConfig, {**SEATS, "seats": {"C": "partner"}, "policies": {"partner": PARTNER}}, "test"
    )
    with (
        Run.create(tmp_path / "run", recipe="test", config=asdict(config)) as run,
        pytest.raises(ConfigError, match=r"seats: got 'C' .* its seats are A, B"),
    ):
        METHOD.train(run, config)

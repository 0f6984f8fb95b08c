"""MARFT: one seat at a time, a critic of its own, and a step of a run in which both seats are policies."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.test_seats import Duet

from quintain.config import build
from quintain.credit.layout import Critic
from quintain.data.seats import split_seats
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.multiagent import marft
from quintain.methods.multiagent.marft import Config, method
from quintain.store.run import Run
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Action, Credit, Group, StepResult, flatten_scored


def step_of(loop: OnPolicy, seed: int) -> Credit:
    """Return the credit of a step of one talk; `loop` takes it in."""
    said = [turn_of((2, 3), seat=seat, reward=float(seed)) for seat in "ABA"]
    whole = [Group(task=TASK, trajectories=(episode_of(said, 1.0, seed=seed),))]
    loop.state.update(whole)
    groups = split_seats(whole)
    values = [[np.zeros(2) for _ in t.turns] for t in flatten_scored(groups)]
    return loop.credit(groups, Estimates(values=Critic(values=values)))


def test_one_seat_learns_at_a_time() -> None:
    loop = method(Config(one_at_a_time=2))
    seats = [{t.turns[0].seat for t in step_of(loop, step).trajectories} for step in range(5)]
    assert seats == [{"A"}, {"A"}, {"B"}, {"B"}, {"A"}]
    everybody = method(Config())
    assert {t.turns[0].seat for t in step_of(everybody, 0).trajectories} == {"A", "B"}


def test_a_zero_is_a_number_in_mean_and_deviation() -> None:
    credit = step_of(method(Config(entropy_coef=0.0)), 1)
    flat = np.concatenate([array for turns in credit.advantages for array in turns])
    assert flat.mean() == pytest.approx(0, abs=1e-6) and flat.std() == pytest.approx(1, abs=1e-3)


def test_the_critic_is_a_policy_of_its_own() -> None:
    needs = method(Config()).needs
    assert needs.critic_policy == "critic" and needs.others["critic"].is_trained
    assert method(Config()).update.keeps_zeros and not method(Config(entropy_coef=0.0)).update.keeps_zeros


class PaidDuet(Duet):
    """A and B say something in turn; a b of the last is paid."""

    max_turns = 2

    def step(self, action: Action) -> StepResult:
        return replace(super().step(action), reward=float("b" in action.text))


@pytest.mark.slow
def test_two_policies_and_their_critic_learn_in_a_run(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "environment": f"{__file__}:PaidDuet", "model": "micro", "lora_rank": 2, "demonstrations": 4,
        "imitation_epochs": 1, "steps": 2, "eval_every": 5, "eval_episodes": 1, "episodes": 4, "num_epochs": 1,
        "max_turn_tokens": 4, "seats": {"B": "second"}, "policies": {"second": {"shares": "policy", "lora_rank": 2}},
    }  # fmt: skip
    config = build(Config, told, "test")
    with Run.create(tmp_path / "run", recipe="marft", config=asdict(config)) as run:
        method(config).train(run, config)
        rows = run.metrics()
        assert {
            turn.completion.policy for t in run.trajectories(step=1, phase="train") for turn in t.turns
        } == {
            "policy",
            "second",
        }
    last = rows[-1]
    for name in ("train/grad_norm", "second/train/grad_norm", "critic/loss", "value/explained_variance"):
        assert np.isfinite(last[name]), name
    assert marft.Config().gae_lambda == 0.8

"""A reward model is trained as a run, is measured on what is held out, and is loaded with its head by others."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.rlhf.conftest import SMALL

import quintain
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.policies import build_policies
from quintain.learning.train_config import PolicySpec, TrainConfig
from quintain.models.heads import FILE, ValueHead
from quintain.models.load import load
from quintain.runs.context import make_engine
from quintain.store.run import Run


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_its_head_is_kept_beside_the_model_and_no_task_is_played(reward_model: Path) -> None:
    folder = reward_model / "model"
    assert (folder / FILE).is_file()
    hidden = int(load(str(folder)).model.config.hidden_size)
    assert not torch.equal(ValueHead.of(hidden, folder).linear.weight, ValueHead(hidden).linear.weight)
    assert torch.equal(
        ValueHead.of(hidden, reward_model / "start").linear.weight, ValueHead(hidden).linear.weight
    )
    assert all("eval/success" not in row for row in rows(reward_model))


def test_it_is_measured_on_held_out_comparisons(reward_model: Path) -> None:
    last = rows(reward_model)[-1]
    assert 0 <= last["eval/reward_model/agreement"] <= 1 and 0 <= last["eval/reward_model/ece"] <= 0.5
    assert last["eval/loss"] > 0 and last["data/comparisons"] >= 6


def test_other_runs_score_by_it_whoever_sampled(reward_model: Path) -> None:
    spec = PolicySpec(head="value", model=str(reward_model / "model"))
    policies = build_policies(
        TrainConfig(),
        reward_model / "start",
        {"reward_model": spec},
        has_critic=False,
        make_engine=make_engine,
    )
    model = policies["reward_model"]
    with Run.open(reward_model, writable=False) as opened:
        episodes = list(opened.trajectories(step=0, phase="train"))[:6]
    scores = model.episode_scores(episodes)
    assert scores[:2] == pytest.approx(
        model.episode_scores(episodes[:2]), abs=1e-5
    )  # whatever stands beside them
    assert len({round(score, 4) for score in scores}) > 1 and model.episode_scores([]) == []
    model.shift_values(1.0)
    assert model.episode_scores(episodes) == pytest.approx([score + 1 for score in scores], abs=1e-5)
    with pytest.raises(UsageError, match="scores by the policy policy: got one without a value head"):
        policies.main.episode_scores(episodes)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"answers": 1}, "answers: got 1"),
        ({"answers": 3, "tie_band": 0.1}, "tie_band: got 0.1 with 3 answers"),
        ({"tasks": 1, "group_size": 2}, "comparisons: got [01] comparisons"),
        ({"labeller_temperature": 0.0, "demonstrations": 1}, "and 0 that prefer something"),
    ],
)
def test_what_cannot_be_ranked_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        quintain.train("reward_model", run="x", root=tmp_path, steps=1, **{**SMALL, **wrong})

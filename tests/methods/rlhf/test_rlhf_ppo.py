"""PPO against a reward model: the three policies of InstructGPT in one run, its prices, its corpus, what is refused."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.imitation.conftest import made
from tests.methods.rlhf.conftest import ENVIRONMENT

import quintain
from quintain.credit.layout import Critic
from quintain.errors import ConfigError, DataError, ModelError, UsageError
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl.parts.kl import EPISODE
from quintain.methods.rlhf import instruct_gpt, learning_to_summarize
from quintain.models.heads import ValueHead
from quintain.models.load import load
from quintain.types import Group

SMALL: dict[str, Any] = {
    "environment": ENVIRONMENT, "eval_episodes": 2, "episodes": 8, "steps": 2, "eval_every": 2,
}  # fmt: skip


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


Train = Callable[..., Path]


@pytest.fixture
def train(reward_model: Path) -> Train:
    def run(method: str, name: str, **fields: Any) -> Path:
        given: dict[str, Any] = {
            "model": str(reward_model / "start"),
            "reward_model": "rm",
            **SMALL,
            **fields,
        }
        return quintain.train(method, run=name, root=reward_model.parent, replace=True, **given)

    return run


@pytest.mark.slow
def test_without_its_corpus_instruct_gpt_is_ppo_bit_for_bit_and_with_it_another(train: Train) -> None:
    alike = {"kl_coef": 0.05, "num_epochs": 1, "num_minibatches": 2, "lr_schedule": "constant"}
    plain = train("learning_to_summarize", "plain", **alike)
    without = train("instruct_gpt", "without", ptx_coef=0.0, **alike)
    mixed = train("instruct_gpt", "mixed", ptx_coef=1.0, **alike)
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (plain, without, mixed)]
    assert weights[0] == weights[1] != weights[2]
    last = rows(mixed)[-1]
    assert last["mixing/nll"] > 0 and "mixing/nll" not in rows(plain)[-1]
    assert {"reward_model/score", "reward_model/gold", EPISODE, "critic/loss"} <= set(last)
    assert rows(plain)[1][EPISODE] == pytest.approx(0.0, abs=1e-4)  # it is its own reference at first
    assert (mixed / "checkpoints").exists()


@pytest.mark.slow
def test_a_corpus_of_conversations_is_read_from_a_file(train: Train, tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "4"}]}
    file = tmp_path / "corpus.jsonl"
    file.write_text(json.dumps(chat) + "\n")
    assert rows(train("instruct_gpt", "filed", corpus=str(file), steps=1))[-1]["mixing/nll"] > 0


@pytest.mark.slow
def test_what_cannot_pay_is_refused(train: Train, reward_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reward_model: got none, and nothing else pays"):
        train("instruct_gpt", "x", reward_model="")
    with pytest.raises(ConfigError, match=r"kl_target: got 1\.0 with kl_coef 0"):
        train("instruct_gpt", "x", kl_coef=0.0, kl_target=1.0)
    with pytest.raises(
        ConfigError, match=r"policies.reward_model.model: got .*whose tokenizer is not that of"
    ):
        train("instruct_gpt", "x", model="micro", environment="collab")
    with pytest.raises(ModelError, match="got one that is not finished; quintain resume"):
        unfinished = tmp_path / "unfinished"
        copytree(reward_model, unfinished, ignore=ignore_patterns("model"))
        train("instruct_gpt", "x", reward_model=str(unfinished))


@pytest.mark.slow
def test_a_constant_reward_model_ends_the_run(train: Train, reward_model: Path) -> None:
    with pytest.raises(ModelError, match="got the score 0 for all of"):
        train("instruct_gpt", "flat", reward_model=str(flat(reward_model)))


def flat(reward_model: Path) -> Path:
    """A copy whose head says nothing."""
    folder = reward_model.parent / "flat-model"
    shutil.copytree(reward_model / "model", folder, dirs_exist_ok=True)
    head = ValueHead(int(load(str(folder)).model.config.hidden_size))
    torch.nn.init.zeros_(head.linear.weight)
    head.keep(folder)
    return folder


def test_the_price_adapts_and_is_paid_token_by_token() -> None:
    config = learning_to_summarize.Config(reward_model="rm", kl_coef=0.5, kl_target=1.0)
    method = learning_to_summarize.method(config)
    episode = made([((1,), (2, 3))])  # log-probs -.5
    group = Group(task=episode.task, trajectories=(episode,))
    seen = Estimates(
        values=Critic(values=[[np.zeros(2)]]), reference=[[np.array([-1.5, -1.5])]], scores=[4.0]
    )
    credit = method.credit([group], seen)
    assert credit.metrics[EPISODE] == pytest.approx(2.0) and credit.metrics["kl/coefficient"] == 0.5
    assert credit.returns is not None
    assert credit.returns[0][0].tolist() == pytest.approx([-0.5 + 0.95 * 3.5, 3.5])  # -β, then 4 - β
    method.state.observe({EPISODE: 12.0, "credit/trajectories": 64.0})
    again = method.credit([group], seen)
    assert again.metrics["kl/coefficient"] == pytest.approx(0.5 * (1 + 0.2 * 64 / 10_000))
    with pytest.raises(UsageError, match="scores of a reward model: got none"):
        method.credit([group], replace(seen, scores=None))


def test_a_corpus_of_nothing_is_an_error() -> None:
    class Shown:
        def tasks(self, step: int, count: int) -> Sequence[object]:
            return []

        def expert_episodes(self, tasks: Sequence[object]) -> list[object]:
            return []

    config = instruct_gpt.Config(reward_model="rm")
    method: OnPolicy = instruct_gpt.method(config)
    context: Any = type("Context", (), {"collector": Shown()})
    assert method.companion is not None
    with pytest.raises(DataError, match="corpus that updates are mixed with: got nothing"):
        method.companion.start(context, config)

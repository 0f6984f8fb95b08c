"""WebGPT: the best of n by the reward model is measured beside the policy, on the same answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.methods.imitation.conftest import made

from quintain.credit.layout import Critic
from quintain.engines.judge import Judge
from quintain.errors import ConfigError, FailureRateError
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.rlhf import web_gpt
from quintain.methods.rlhf.web_gpt import picks
from quintain.types import Failure, Group


def group(*values: float) -> Group:
    episodes = [replace(made([((1,), (2,))], value=value), index=place) for place, value in enumerate(values)]
    return Group(task=episodes[0].task, trajectories=tuple(episodes))


def test_picks_skip_what_failed_and_groups_of_nothing() -> None:
    failed = Failure(owner="environment", kind="crash", message="it broke")
    broken = replace(group(0.0, 0.0), trajectories=tuple(
        replace(t, outcome=failed) for t in group(0.0, 0.0).trajectories
    ))  # fmt: skip
    found = picks([group(0.0, 1.0, 0.5), broken, group(2.0, 0.0)], [0.0, 0.5, 0.9, 1.0, 1.0])
    assert found == {
        "best_of/picked": 1.25, "best_of/mean": 0.75, "best_of/oracle": 1.5, "best_of/share": pytest.approx(2 / 3),
    }  # fmt: skip
    assert picks([broken], []) == {}


def test_credit_is_that_of_ppo_and_says_what_would_have_been_picked() -> None:
    method = web_gpt.method(web_gpt.Config(reward_model="rm", kl_coef=0.0))
    given: dict[str, Any] = {"values": Critic(values=[[np.zeros(1)], [np.zeros(1)]]), "scores": [1.0, 3.0]}
    credit = method.credit([group(1.0, 0.0)], Estimates(**given))
    assert credit.metrics["best_of/picked"] == 0.0 and credit.metrics["reward_model/gold"] == 0.5
    assert credit.returns is not None and [float(turns[0][0]) for turns in credit.returns] == [1.0, 3.0]
    assert method.needs.reference_logprobs is False


def test_a_judge_behind_an_endpoint_pays_in_the_place_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def told(_: Judge, materials: Sequence[Mapping[str, Any]]) -> list[float]:
        asked.append(len(materials))
        return [0.25 for _ in materials]

    monkeypatch.setattr(Judge, "scores", told)
    method = web_gpt.method(web_gpt.Config(reward_model="http://127.0.0.1:1/v1?model=m", kl_coef=0.0))
    assert method.needs.reward_model is None and method.needs.others["critic"].copies == "policy"
    values = Critic(values=[[np.zeros(1)], [np.zeros(1)]])
    (paid,) = method.reward([group(1.0, 0.0)])
    credit = method.credit([paid], Estimates(values=values))
    assert credit.metrics["reward_model/score"] == 0.25 and asked == [1]  # both say the same: asked once
    assert credit.metrics["best_of/picked"] == 1.0
    with pytest.raises(ConfigError, match="judge"):
        web_gpt.Config(reward_model="http://127.0.0.1:1/v1?model=m&rubrik=x").check()


def test_an_episode_that_a_judge_says_nothing_of_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Failure(owner="judge", kind="judge_unreadable", message="m")
    given: list[float | Failure] = [0.25, silent, 0.75]
    monkeypatch.setattr(Judge, "prepare", lambda *_: None)
    monkeypatch.setattr(Judge, "measure", lambda _, trajectory: given[trajectory.index])
    method = web_gpt.method(web_gpt.Config(reward_model="http://127.0.0.1:1/v1?model=m", kl_coef=0.0))
    (paid,) = method.reward([group(1.0, 0.0, 1.0)])
    assert [t.index for t in paid.scored] == [0, 2] and paid.trajectories[1].outcome == silent
    credit = method.credit([paid], Estimates(values=Critic(values=[[np.zeros(1)]] * 2)))
    assert credit.metrics["reward_model/score"] == 0.5
    assert method.measure([], lambda _: "") == {"verdicts/unread": pytest.approx(1 / 3)}
    given[:] = [silent] * 3
    method = web_gpt.method(web_gpt.Config(reward_model="http://127.0.0.1:1/v1?model=m", kl_coef=0.0))
    with pytest.raises(FailureRateError, match="got 3 of 3 that cannot be used"):
        method.reward([group(1.0, 0.0, 1.0)])

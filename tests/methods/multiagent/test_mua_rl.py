from dataclasses import replace

import pytest
import torch

from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.methods.multiagent.mua_rl import Config, failures_of, intents_of, measure_talks, method
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Outputs, Text, ToolCall, ToolError, Trajectory

TALK = (
    ("I want a refund.", Action(text="say What is your name?")),
    ("I am Ann.", Action(text="find Ann")),
    ("Ann: orders 15.", Action(text="say What is your name?")),
    ("I am Ann.", Action(text="", tool_calls=(ToolCall(name="refund", arguments={"order": 15}),))),
    ("Order 15: refund done.", Action(text="say Done.")),
)


def talk(reward: float = 1.0, index: int = 0, *, fails: bool = False) -> Trajectory:
    turns = [
        replace(
            turn_of((5 + number, 2), action, starts_segment=not number),
            observation=(Text(text=seen),),
            prompt_ids=(1, 2, 3),
            tool_errors=(ToolError(tool="find", cause="tool_error"),) if fails and number == 1 else (),
        )
        for number, (seen, action) in enumerate(TALK)
    ]
    return episode_of(turns, reward, is_success=reward > 0, index=index)


def test_what_turns_are_up_to() -> None:
    assert intents_of(talk()) == ["asks", "looks", "repeats", "decides", "talks"]
    assert failures_of(talk(fails=True)) == 0.2


def test_metrics_are_means_over_episodes() -> None:
    episodes = (talk(), talk(0.0, 1, fails=True))
    found = measure_talks([Group(task=episodes[0].task, trajectories=episodes)], lambda _: "")
    assert found["user/asks"] == 1.0 and found["user/decides"] == 1.0
    assert found["user/tool_failures"] == pytest.approx(0.1)
    assert measure_talks([], lambda _: "") == {}


def test_words_of_user_and_tools_have_no_gradient() -> None:
    episodes = (talk(), talk(0.0, 1))
    update = method(Config()).update
    credit = group_relative([Group(task=episodes[0].task, trajectories=episodes)])
    (batch,) = micro_batches(samples_from(credit), max_tokens=1 << 20, aggregation="sequence_mean")
    batch = replace(
        batch, extra=replace(batch.extra, reference_logprobs=torch.zeros(len(batch.token_ids)) - 1)
    )
    logprobs = (torch.zeros(len(batch.token_ids)) - 0.5).requires_grad_()
    outputs = Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs), values=None)
    update.loss(outputs, batch).loss.backward()
    assert logprobs.grad is not None
    sampled = batch.turn_id >= 0
    assert torch.all(logprobs.grad[~sampled] == 0) and torch.all(logprobs.grad[sampled] != 0)
    assert int(sampled.sum()) == 20 and int((~sampled).sum()) == 30


def test_the_defaults_are_the_papers() -> None:
    found = method(Config())
    assert (Config().group_size, Config().clip, Config().kl_coef) == (8, 0.2, 0.001)
    assert found.needs.reference and not method(Config(kl_coef=0.0)).needs.reference

"""MemAgent: one outcome for all conversations of an episode, and what is measured of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.errors import ConfigError
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.horizon.mem_agent import Config, measure_memory, method
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.rl import dr_grpo
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Batch, Credit, Group, Outputs, Trajectory

NOTHING_KNOWN = Estimates(values=None, reference=None)


def reading(conversations: int, reward: float, index: int = 0, *, said: int = 2) -> Trajectory:
    turns = [turn_of(range(2, 2 + said), starts_segment=True) for _ in range(conversations)]
    return episode_of(turns, reward, is_success=reward > 0, index=index)


def credit_of(*episodes: Trajectory) -> Credit:
    return method(Config()).credit([Group(task=episodes[0].task, trajectories=episodes)], NOTHING_KNOWN)


def numbers(credit: Credit) -> list[list[float]]:
    return [[float(turn[0]) for turn in own] for own in credit.advantages]


def test_statistics_are_over_episodes_and_reach_every_conversation() -> None:
    """Over the rows of all conversations it would be .25 and -.75."""
    assert numbers(credit_of(reading(3, 1.0), reading(1, 0.0, 1))) == [[0.5] * 3, [-0.5]]


def test_a_group_of_one_has_nothing_to_compare() -> None:
    assert numbers(credit_of(reading(2, 1.0))) == [[0.0, 0.0]]


def test_with_one_conversation_each_it_is_dr_grpo() -> None:
    episodes = [reading(1, reward, k) for k, reward in enumerate((1.0, 0.0, 0.0, 0.5))]
    group = [Group(task=episodes[0].task, trajectories=tuple(episodes))]
    own, other = method(Config()), dr_grpo.method(dr_grpo.Config())
    assert numbers(own.credit(group, NOTHING_KNOWN)) == numbers(other.credit(group, NOTHING_KNOWN))


def gradient(batches: list[Batch], update: Update) -> list[float]:
    """Return the gradient by the log-probs of all trained tokens, in order."""
    found: list[float] = []
    for batch in batches:
        logprobs = torch.full((len(batch.token_ids),), -0.7).requires_grad_()
        outputs = Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs), values=None)
        clip_ratio(0.2, 0.2, dual=3.0)(outputs, batch).loss.backward()
        assert logprobs.grad is not None
        found += logprobs.grad[batch.turn_id >= 0].tolist()
    return found


def test_unequal_passes_give_the_gradient_of_one_batch() -> None:
    credit = credit_of(reading(3, 1.0, said=1), reading(1, 0.0, 1, said=5), reading(2, 0.0, 2))
    update = method(Config()).update
    whole, parts = (
        list(micro_batches(samples_from(credit), max_tokens=size, aggregation=update.aggregation))
        for size in (1 << 20, 7)
    )
    assert len(whole) == 1 and len(parts) > 1
    assert sorted(gradient(parts, update)) == pytest.approx(sorted(gradient(whole, update)), abs=1e-6)
    assert np.abs(gradient(whole, update)).min() > 0


def test_lengths_of_conversations() -> None:
    episode = reading(3, 1.0)
    longer = replace(episode.turns[1], prompt_ids=(1,) * 9)
    appended = replace(turn_of((2,)), prompt_ids=(1, 1))
    episode = replace(episode, turns=(episode.turns[0], longer, episode.turns[2], appended))
    found = measure_memory([Group(task=episode.task, trajectories=(episode,))], lambda _: "")
    assert found == {"memory/conversations": 3.0, "memory/tokens": 2.0, "memory/peak": 11.0}
    assert measure_memory([], lambda _: "") == {}


def test_a_dual_bound_within_the_clip() -> None:
    with pytest.raises(ConfigError, match="dual_clip: got 1; give more than 1"):
        Config(dual_clip=1.0).check()

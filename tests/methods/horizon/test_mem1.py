"""MEM1: the reward counts right answers, and what is trained is what was sampled, turn by turn."""

import numpy as np
import pytest
import torch

from quintain.agents.catalog import build
from quintain.credit.group import group_relative
from quintain.credit.layout import Critic
from quintain.data.samples import samples_from
from quintain.engines.local import Local
from quintain.methods.horizon.mem1 import Config, count_matches, method
from quintain.methods.loops.on_policy import Estimates
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.testing.episodes import episode_of, turn_of
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Group, Trajectory
from quintain.worlds.stream.game import Stream


def test_the_reward_is_the_number_of_right_answers() -> None:
    paid = (("reading", -0.02), ("answer", 0.5), ("answer", 0.0), ("answer", 0.25))
    turns = [turn_of(reward=value, reward_terms={name: value}) for name, value in paid]
    trajectory = episode_of(turns, 0.73)
    (group,) = count_matches([Group(task=trajectory.task, trajectories=(trajectory,))])
    assert [turn.reward for turn in group.trajectories[0].turns] == [0.0, 1.0, 0.0, 1.0]
    assert group.scored[0].outcome.value == 2.0  # pyright: ignore[reportAttributeAccessIssue]


def test_it_has_a_critic_and_needs_answers() -> None:
    needs = method(Config()).needs
    assert needs.critic and needs.answers


def test_each_turn_is_trained_as_it_was_sampled() -> None:
    """A row of its own with positions of its own: log-probs are those of sampling, and nothing pruned changes them."""
    chat = Chat(
        train_tokenizer(["<|system|>Read.<|user|>Page 1: red = 4. red?<|assistant|>read<|end|>"], 400)
    )
    model = build_tiny(chat.tokenizer, size="micro", seed=0)

    def book() -> Stream:
        return Stream(pages=4, facts=1, questions=2, closed_book=0.0)

    agent = build("memory?form=one&max_tokens=8+text", chat, book(), max_tokens=8)
    rollout = Rollout(agent, book, Local(model), limits=Limits(max_turns=4))
    groups = rollout.groups([book().task("train", n) for n in range(3)], size=2, seed=5)
    rollout.close()
    turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
    assert len(turns) == 24 and all(turn.starts_segment for turn in turns)
    samples = samples_from(group_relative(groups))
    assert len(samples) == len(turns)
    for sample, turn in zip(samples, turns, strict=True):
        ids = (*turn.prompt_ids, *turn.completion.token_ids)
        assert sample.token_ids.tolist() == list(ids), "the row holds its own turn and no other"
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        places = np.arange(len(turn.prompt_ids), len(ids))
        found = logits[places - 1, torch.tensor(ids)[places]].tolist()
        assert found == pytest.approx(list(turn.completion.logprobs), abs=1e-4)


def test_a_state_is_paid_by_the_end_and_not_by_what_the_critic_says_of_the_next() -> None:
    """Advantages 1, 1 and 0, -1, whitened: what the critic says of the second state is no reward for the first."""
    groups = [Group(task=t.task, trajectories=(t,)) for t in (two_turns(1.0), two_turns(0.0))]
    values = [[np.zeros(1), np.full(1, said)] for said in (0.0, 1.0)]
    found = method(Config()).credit(groups, Estimates(values=Critic(values=values), reference=None))
    first = [float(own[0][0]) for own in found.advantages]
    assert first == pytest.approx([0.75 / np.sqrt(0.6875), -0.25 / np.sqrt(0.6875)])


def two_turns(reward: float) -> Trajectory:
    turns = [turn_of(starts_segment=True), turn_of(starts_segment=True, reward=reward)]
    return episode_of(turns, reward)

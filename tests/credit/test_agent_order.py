"""Advantages along the order of agents: fixtures by hand, the decomposition, limits and where rewards go."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from quintain.credit.agent_order import gae_agents
from quintain.credit.gae import gae_tokens, gae_turns
from quintain.credit.layout import Critic
from quintain.data.seats import order_turns, split_seats
from quintain.errors import UsageError
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import Credit, Group, Stop, Trajectory, flatten_scored


def talk(order: str, rewards: Sequence[float], tokens: int = 1, **fields: Any) -> list[Group]:
    """Return the parts of an episode whose turns are by the seats of `order`."""
    said = [turn_of((2,) * tokens, seat=seat, reward=r) for seat, r in zip(order, rewards, strict=True)]
    return split_seats([Group(task=TASK, trajectories=(episode_of(said, sum(rewards), **fields),))])


def value_turns(groups: Sequence[Group], order: str, values: Sequence[float]) -> Critic:
    """Return a critic that says `values`, in the order of speaking, before each token of a turn."""
    left = {seat: [v for s, v in zip(order, values, strict=True) if s == seat] for seat in order}
    arrays = [
        [np.full(len(t.completion.token_ids), left[t.speaker].pop(0)) for t in part.turns]
        for part in flatten_scored(groups)
    ]
    return Critic(values=arrays, final=[7.0] * len(arrays))


def estimate(groups: Sequence[Group], critic: Critic, **options: Any) -> Credit:
    orders = order_turns(flatten_scored(groups))
    return gae_agents(groups, critic, orders, **options)


def read_spoken(groups: Sequence[Group], credit: Credit) -> list[float]:
    """Return the first advantage of each turn in the order of speaking."""
    (order,) = order_turns(flatten_scored(groups))
    return [float(credit.advantages[i][k][0]) for i, k in order]


def test_the_fixture_of_the_code_with_and_without_a_discount_between_agents() -> None:
    groups = talk("AB", (0, 1))
    critic = value_turns(groups, "AB", (0.2, 0.5))
    assert read_spoken(groups, estimate(groups, critic, agent_discount=0.99)) == pytest.approx([0.76525, 0.5])
    found = estimate(groups, critic, turn_discount=0.99)
    assert read_spoken(groups, found) == pytest.approx([0.775, 0.5])
    assert found.returns is not None
    assert [float(turns[0][0]) for turns in found.returns] == pytest.approx([0.975, 1.0])


def test_a_step_ends_where_an_agent_speaks_again() -> None:
    groups = talk("ABAB", (0, 0, 0, 1))
    critic = value_turns(groups, "ABAB", (0, 0, 0, 0))
    options = {"gae_lambda": 1.0, "agent_discount": 0.5, "turn_discount": 0.1}
    assert read_spoken(groups, estimate(groups, critic, **options)) == pytest.approx([0.025, 0.05, 0.5, 1.0])
    skipped = talk("ABBA", (0, 0, 0, 1))
    found = estimate(skipped, value_turns(skipped, "ABBA", (0, 0, 0, 0)), **options)
    assert read_spoken(skipped, found) == pytest.approx([0.025, 0.05, 0.5, 1.0]), "B speaks twice: two steps"


@pytest.mark.parametrize(
    ("pays", "expected"),
    [("last", [0.0, 3.0, 0.0, 1.5]), ("each", [1.5, 3.0, 0.75, 1.5]), ("own", [3.0, 3.0, 1.5, 1.5])],
)
def test_where_rewards_go(pays: str, expected: list[float]) -> None:
    groups = talk("ABAB", (1, 2, 0, 1.5))
    critic = value_turns(groups, "ABAB", (0, 0, 0, 0))
    found = estimate(groups, critic, pays=pays, gae_lambda=0.0, agent_discount=0.5)
    assert read_spoken(groups, found) == pytest.approx(expected)


def test_what_a_silent_turn_was_paid_goes_to_the_turn_before() -> None:
    said = [turn_of((2,) * n, seat=s, reward=r) for s, n, r in (("A", 1, 1.0), ("B", 1, 2.0), ("A", 0, 4.0))]
    groups = split_seats([Group(task=TASK, trajectories=(episode_of(said, 7.0),))])
    critic = Critic(values=[[np.zeros(1), np.zeros(0)], [np.zeros(1)]])
    found = gae_agents(groups, critic, order_turns(flatten_scored(groups)), gae_lambda=0.0)
    assert [[list(turn) for turn in turns] for turns in found.advantages] == [[[0.0], []], [[7.0]]]


@pytest.mark.parametrize("is_cut", [True, False])
def test_one_agent_is_ppo_bit_for_bit(is_cut: bool) -> None:
    rng = np.random.default_rng(3)
    stop = Stop.MAX_TOKENS if is_cut else Stop.TERMINATED
    whole = episode_of([turn_of((2, 3), reward=float(r)) for r in rng.normal(size=3)], 1.0, stop=stop)
    groups = [Group(task=TASK, trajectories=(whole,))]
    critic = Critic(values=[[rng.normal(size=2) for _ in range(3)]], final=[0.4])
    for level, other in (
        ("action", gae_turns(groups, critic, discount=0.9, gae_lambda=0.7)),
        ("token", gae_tokens(groups, critic, discount=0.8, turn_discount=0.9, gae_lambda=0.7)),
    ):
        found = estimate(groups, critic, level=level, turn_discount=0.9, token_discount=0.8, gae_lambda=0.7)
        assert [[list(a) for a in turns] for turns in found.advantages] == [
            [list(a) for a in turns] for turns in other.advantages
        ]
        assert found.metrics == other.metrics


def test_tokens_agree_with_actions_without_discount_where_lambda_is_one() -> None:
    groups = talk("ABA", (0, 0.5, 1), tokens=3)
    critic = value_turns(groups, "ABA", (0.2, 0.5, 0.1))
    action, token = (estimate(groups, critic, level=level, gae_lambda=1.0) for level in ("action", "token"))
    assert read_spoken(groups, action) == pytest.approx(read_spoken(groups, token))


def test_the_end_of_a_cut_episode_is_the_last_speakers() -> None:
    groups = talk("AB", (0, 0), stop=Stop.MAX_TOKENS)
    critic = replace(value_turns(groups, "AB", (0, 0)), final=[5.0, 7.0])
    assert read_spoken(groups, estimate(groups, critic, gae_lambda=0.0)) == [0.0, 7.0]


def test_joint_advantages_are_the_sum_of_those_along_the_order() -> None:
    generator = torch.Generator().manual_seed(0)
    pays = torch.rand(3, 3, generator=generator, dtype=torch.float64)
    first = torch.softmax(torch.randn(3, generator=generator, dtype=torch.float64), 0)
    second = torch.softmax(torch.randn(3, 3, generator=generator, dtype=torch.float64), 1)
    heard = (second * pays).sum(1)
    value = float((first * heard).sum())
    for a, b in product(range(3), range(3)):
        groups = talk("AB", (0, float(pays[a, b])))
        critic = value_turns(groups, "AB", (value, float(heard[a])))
        found = read_spoken(groups, estimate(groups, critic, gae_lambda=0.0))
        assert sum(found) == pytest.approx(float(pays[a, b]) - value, abs=1e-6)
        assert found[0] == pytest.approx(float(heard[a]) - value, abs=1e-6)


def test_other_words_are_refused() -> None:
    groups: list[Group] = []
    with pytest.raises(UsageError, match="level of advantages over agents: got 'turn'; "):
        estimate(groups, Critic(values=[]), level="turn")
    with pytest.raises(UsageError, match="pays of advantages over agents: got 'all'; "):
        estimate(groups, Critic(values=[]), pays="all")


def test_parts_keep_what_their_turns_paid() -> None:
    parts: tuple[Trajectory, ...] = flatten_scored(talk("ABA", (1, 2, 4)))
    assert [part.turn_rewards for part in parts] == [(1, 4), (2,)]
    assert [[turn.reward for turn in part.turns] for part in parts] == [[3, 4], [7]]

"""With one turn an agent is a model that answers once: every idea of credit is what reinforcement by verifiable
rewards without turns has."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.credit.conftest import group, trajectory

from quintain.credit.anchor import state_anchored
from quintain.credit.bilevel import gae_bilevel
from quintain.credit.discounted import discounted_return
from quintain.credit.gae import gae_tokens, gae_turns
from quintain.credit.group import group_process, group_relative
from quintain.credit.layout import Critic
from quintain.credit.outcome import outcome_return
from quintain.credit.progress import complete, progress_rewards
from quintain.credit.turn_group import turn_group_relative
from quintain.types import Credit, Group

Idea = Callable[[Sequence[Group]], Credit]


def unvalued(groups: Sequence[Group]) -> Critic:
    """A critic that expects nothing."""
    scored = [t for g in groups for t in g.scored]
    return Critic(values=[[np.zeros(len(turn.completion.token_ids)) for turn in t.turns] for t in scored])


def contributed(groups: Sequence[Group]) -> Credit:
    found = [complete([0.3], t.turns[0].reward) for g in groups for t in g.scored]
    return discounted_return(progress_rewards(groups, found, beta=0.0))


RETURNS: dict[str, Idea] = {
    "return": lambda g: discounted_return(g, discount=0.5),
    "gae over tokens": lambda g: gae_tokens(g, unvalued(g), turn_discount=0.5, gae_lambda=1.0),
    "gae over turns": lambda g: gae_turns(g, unvalued(g), discount=0.5, gae_lambda=0.5),
    "bi-level gae": lambda g: gae_bilevel(g, unvalued(g), turn_discount=0.5),
    "contributions": contributed,
}
GROUPS: dict[str, Idea] = {
    "process": lambda g: group_process(g, epsilon=1e-6),
    "turn groups": lambda g: turn_group_relative(g, epsilon=1e-6),
    "anchored states": lambda g: state_anchored(g, discount=0.5),
}
REWARDS = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=6)


def one_turn(rewards: Sequence[float]) -> list[Group]:
    """Episodes of one turn, in states that are all different."""
    return [group(*(trajectory([r], states=[str(i)], tokens=[2]) for i, r in enumerate(rewards)))]


def numbers(credit: Credit) -> list[float]:
    return [float(x) for turns in credit.advantages for array in turns for x in array]


@pytest.mark.parametrize("name", RETURNS)
@given(rewards=REWARDS)
def test_every_return_is_the_reward(name: str, rewards: list[float]) -> None:
    groups = one_turn(rewards)
    assert numbers(RETURNS[name](groups)) == pytest.approx(numbers(outcome_return(groups)))


@pytest.mark.parametrize("name", GROUPS)
@given(rewards=REWARDS)
def test_every_comparison_is_that_of_grpo(name: str, rewards: list[float]) -> None:
    groups = one_turn(rewards)
    assert numbers(GROUPS[name](groups)) == pytest.approx(numbers(group_relative(groups)))

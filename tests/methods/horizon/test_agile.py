"""AGILE: a session is credited as a whole, or each question for itself, and what is measured of advice."""

import numpy as np
import pytest

from quintain.credit.gae import gae_turns
from quintain.credit.layout import Critic
from quintain.credit.whiten import whiten
from quintain.methods.horizon.agile import Config, measure_asks, method
from quintain.methods.loops.on_policy import Estimates
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Group, Trajectory

PRICE = 0.6


def session(*paid: float) -> Trajectory:
    turns = [
        turn_of(
            (2,), reward=value, reward_terms={"advice": -PRICE} if value == 1 - PRICE else {"answer": value}
        )
        for value in paid
    ]
    return episode_of(turns, sum(paid))


def credit_of(discount: float, sessions: list[Trajectory]) -> list[list[float]]:
    groups = [Group(task=t.task, trajectories=(t,)) for t in sessions]
    critic = Critic(values=[[np.zeros(1) for _ in t.turns] for t in sessions])
    found = method(Config(discount=discount, gae_lambda=1.0)).credit(
        groups, Estimates(values=critic, reference=None)
    )
    wanted = whiten(gae_turns(groups, critic, discount=discount, gae_lambda=1.0))
    assert [[a.tolist() for a in own] for own in found.advantages] == [
        [a.tolist() for a in own] for own in wanted.advantages
    ]
    return [[float(turn[0]) for turn in own] for own in found.advantages]


def test_asking_that_never_pays_for_its_own_question_pays_in_the_session() -> None:
    """Advice and three right answers are 3.4; guesses that are right every second time are 2."""
    sessions = [session(1 - PRICE, 1, 1, 1), session(1, 0, 1, 0)]
    whole, alone = credit_of(1.0, sessions), credit_of(0.0, sessions)
    assert whole[0][0] > whole[1][0]
    assert alone[0][0] < alone[1][0]


def test_the_questions_of_a_session_sum_up_to_its_return() -> None:
    found = session(1 - PRICE, 0, 1)
    (group,) = [Group(task=found.task, trajectories=(found,))]
    critic = Critic(values=[[np.zeros(1)] * 3])
    credit = gae_turns([group], critic, discount=1.0, gae_lambda=1.0)
    assert float(credit.advantages[0][0][0]) == pytest.approx(1.4, abs=1e-6)


@pytest.mark.parametrize("place", range(20))
def test_asking_pays_in_one_question_where_a_guess_is_worse_than_its_price(place: int) -> None:
    """With a chance p to know, an answer is worth p and advice 1 - c: ask where p < 1 - c."""
    p = (place + 0.5) / 20
    num = 40
    right = round(p * num)
    sessions = [session(*([1.0])) for _ in range(right)] + [session(0.0) for _ in range(num - right)]
    asked = [session(1 - PRICE)] * num
    found = credit_of(1.0, [*sessions, *asked])
    answering = sum(own[0] for own in found[:num]) / num
    asking = sum(own[0] for own in found[num:]) / num
    assert (asking > answering) == (right / num < 1 - PRICE)


def test_what_is_said_of_advice() -> None:
    groups = [Group(task=t.task, trajectories=(t,)) for t in (session(1 - PRICE, 1 - PRICE), session(1, 0))]
    assert measure_asks(groups, lambda _: "") == {"advice/asked": 1.0, "advice/paid": pytest.approx(PRICE)}
    assert measure_asks([], lambda _: "") == {}

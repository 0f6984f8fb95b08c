from collections.abc import Callable

import numpy as np
import pytest

from quintain.credit.discounted import discounted_return, returns_to_go
from quintain.credit.outcome import outcome_return
from quintain.credit.penalty import kl_rewards
from quintain.credit.progress import complete, progress_rewards
from quintain.credit.selection import exponential_weights
from quintain.credit.turn_group import turn_group_relative
from quintain.errors import DataError, UsageError
from quintain.types import Completion, Credit, Failure, Group, Score, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def by_turn(credit: Credit) -> list[list[float]]:
    """The advantage of the first token of each turn."""
    return [[float(array[0]) for array in turns] for turns in credit.advantages]


def every(credit: Credit) -> list[list[list[float]]]:
    return [[array.tolist() for array in turns] for turns in credit.advantages]


def test_the_outcome_reaches_every_token(trajectory: Make, group: MakeGroup) -> None:
    episodes = group(trajectory([0, 1], tokens=[2, 1]), trajectory([0]))
    assert every(outcome_return([episodes])) == [[[1, 1], [1]], [[0, 0]]]
    assert every(outcome_return([episodes], baseline=0.25)) == [[[0.75, 0.75], [0.75]], [[-0.25, -0.25]]]


def test_returns_to_go_by_hand() -> None:
    assert returns_to_go([0, 10], 0.95) == [9.5, 10]
    assert returns_to_go([1, 2, 4], 0.5) == [3, 4, 4]
    assert returns_to_go([], 0.5) == []


def test_the_discount_is_over_turns_and_not_over_tokens(trajectory: Make, group: MakeGroup) -> None:
    credit = discounted_return([group(trajectory([1, 0, 4], tokens=[3, 1, 2]))], discount=0.5)
    assert every(credit) == [[[2, 2, 2], [2], [4, 4]]]


def test_undiscounted_with_a_reward_at_the_end_is_the_outcome(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0, 0, 1]), trajectory([0, 0]))]
    assert every(discounted_return(episodes)) == every(outcome_return(episodes))


def test_token_rewards_count_from_their_token_on(trajectory: Make, group: MakeGroup) -> None:
    rewards = [[np.array([0.5, 0.25]), np.array([1.0])]]
    credit = discounted_return(
        [group(trajectory([0, 2], tokens=[2, 1]))], discount=0.5, token_rewards=rewards
    )
    assert every(credit) == [[[2.25, 1.75], [3]]]


def test_token_rewards_that_do_not_fit_are_refused(trajectory: Make, group: MakeGroup) -> None:
    with pytest.raises(DataError, match="token rewards per sampled token"):
        discounted_return([group(trajectory([0, 2]))], token_rewards=[[np.zeros(2)]])
    with pytest.raises(DataError, match="expected"):
        discounted_return([group(trajectory([0, 2]))], token_rewards=[])


def test_kl_rewards_pull_to_the_reference(trajectory: Make, group: MakeGroup) -> None:
    reference = [[np.array([-1.0, -0.25])]]
    (arrays,) = kl_rewards([group(trajectory([1]))], reference, coefficient=0.1)
    assert arrays[0].tolist() == pytest.approx([-0.05, 0.025])


def test_kl_rewards_need_log_probs(trajectory: Make, group: MakeGroup) -> None:
    episode = trajectory([1])
    object.__setattr__(episode.turns[0], "completion", Completion(token_ids=(1,), logprobs=(), stop="stop"))
    with pytest.raises(DataError, match="needs sampled episodes"):
        kl_rewards([group(episode)], [[np.zeros(1)]], coefficient=0.1)


def test_turn_and_outcome_fixture(trajectory: Make, group: MakeGroup) -> None:
    episodes = [trajectory([turn, out]) for turn, out in [(1.0, 1.0), (0.5, 0), (0, 0), (0.5, 1)]]
    credit = turn_group_relative([group(*episodes)])
    assert by_turn(credit)[0] == pytest.approx([2.09032, 0.86588], abs=1e-5)
    assert by_turn(credit)[2] == pytest.approx([-1.22444 - 0.86588, -0.86588], abs=1e-5)
    assert by_turn(credit)[3] == pytest.approx([0.86588, 0.86588], abs=1e-5)
    without = turn_group_relative([group(*episodes)], weight=0.0)
    assert by_turn(without)[0] == pytest.approx([0.86588, 0.86588], abs=1e-5)


def test_turn_numbers_that_one_episode_reaches_are_singletons(trajectory: Make, group: MakeGroup) -> None:
    credit = turn_group_relative([group(trajectory([0, 5, 1]), trajectory([0, 1]))], std="biased", epsilon=0)
    assert by_turn(credit) == [[0, 0, 0], [0, 0]]
    alone = turn_group_relative([group(trajectory([3, 1]))])
    assert by_turn(alone) == [[0, 0]]


def test_contributions_are_completed_to_the_outcome() -> None:
    assert complete([0.2, 0.5], 1) == pytest.approx([0.35, 0.65])
    assert complete([], 1) == []


def test_progress_is_placed_at_its_own_turn(trajectory: Make, group: MakeGroup, failure: Failure) -> None:
    broken = trajectory([0], outcome=failure)
    episodes = group(trajectory([0, 0, 1]), broken)
    (made,) = progress_rewards([episodes], [[0.1, 0.2, 0.4]])
    rewards = [turn.reward for turn in made.trajectories[0].turns]
    assert rewards == pytest.approx([0.7, 0.8, 1.0])
    assert sum(rewards) == pytest.approx(1 + 3 * 0.5)
    assert made.trajectories[0].outcome == Score(value=1, is_success=True)
    assert made.trajectories[1] is broken
    plain = discounted_return(progress_rewards([episodes], [[0, 0, 1]], beta=0))
    assert by_turn(plain) == [[1, 1, 1]]


@pytest.mark.parametrize("contributions", [[], [[1.0]]])
def test_every_turn_needs_a_contribution(
    trajectory: Make, group: MakeGroup, contributions: list[list[float]]
) -> None:
    with pytest.raises(DataError, match="give one to each of 2 turns"):
        progress_rewards([group(trajectory([0, 1]))], contributions)


def test_exponential_weights(outcomes: MakeGroup) -> None:
    credit = exponential_weights([outcomes(1, 0)], temperature=0.5)
    assert by_turn(credit) == [pytest.approx([np.e]), pytest.approx([1 / np.e])]
    assert by_turn(exponential_weights([outcomes(7)])) == [[1]]
    assert by_turn(exponential_weights([outcomes(1, 0)], temperature=1e-9, cap=5)) == [
        [pytest.approx(5)],
        [0],
    ]
    assert by_turn(exponential_weights([outcomes(1, 0)], temperature=1e9)) == [[pytest.approx(1)]] * 2
    with pytest.raises(UsageError, match="above 0"):
        exponential_weights([outcomes(1)], temperature=0)

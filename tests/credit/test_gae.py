from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quintain.credit.bilevel import gae_bilevel
from quintain.credit.discounted import discounted_return
from quintain.credit.gae import gae, gae_tokens, gae_turns, join_advantages, length_adaptive
from quintain.credit.layout import Critic
from quintain.errors import DataError
from quintain.types import Credit, Group, Stop, Trajectory

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]
Numbers = Sequence[Sequence[float]]


def arrays(*trajectories: Numbers) -> list[list[NDArray[np.float64]]]:
    return [[np.array(turn, np.float64) for turn in turns] for turns in trajectories]


def flat(layout: Sequence[Sequence[NDArray[np.float32]]] | None) -> list[float]:
    assert layout is not None
    return [float(x) for turns in layout for array in turns for x in array]


def test_fixture_of_the_cards(trajectory: Make, group: MakeGroup) -> None:
    one_turn = [group(trajectory([1.0], tokens=[3]))]
    credit = gae_tokens(one_turn, Critic(values=arrays([[0.2, 0.4, 0.5]])))
    assert flat(credit.advantages) == pytest.approx([0.74625, 0.575, 0.5])
    assert flat(credit.returns) == pytest.approx([0.94625, 0.975, 1])


def test_the_chain_crosses_observations(trajectory: Make, group: MakeGroup) -> None:
    spread = [group(trajectory([0, 0, 1.0], tokens=[1, 1, 1]))]
    credit = gae_tokens(spread, Critic(values=arrays([[0.2], [0.4], [0.5]])))
    assert flat(credit.advantages) == pytest.approx([0.74625, 0.575, 0.5])


def test_rewards_fall_on_the_last_token_of_their_turn(trajectory: Make, group: MakeGroup) -> None:
    credit = gae_tokens(
        [group(trajectory([1, 10], tokens=[2, 2]))], Critic(values=arrays([[0, 0], [0, 0]])), gae_lambda=0
    )
    assert flat(credit.advantages) == [0, 1, 0, 10]


def test_rewards_of_a_turn_without_tokens_go_to_the_one_before(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([5, 1, 10, 2], tokens=[0, 2, 0, 1]))]
    critic = Critic(values=arrays([[], [0, 0], [], [0]]))
    assert flat(gae_tokens(episodes, critic, gae_lambda=0).advantages) == [0, 11, 2]
    assert flat(gae_turns(episodes, critic, gae_lambda=0).advantages) == [11, 11, 2]
    assert flat(gae_bilevel(episodes, critic, gae_lambda=0).advantages) == [0, 11, 2]


def test_truncation_bootstraps_and_termination_does_not(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0.0], tokens=[1], stop=Stop.CUT), trajectory([0.0], tokens=[1]))]
    values = arrays([[0.5]], [[0.5]])
    with_final = Critic(values=values, final=[2.0, 2.0])
    assert flat(gae_tokens(episodes, with_final, discount=0.5).advantages) == [0.5, -0.5]
    assert flat(gae_turns(episodes, with_final, discount=0.5).advantages) == [0.5, -0.5]
    assert flat(gae_bilevel(episodes, with_final, turn_discount=0.5).advantages) == [0.5, -0.5]
    assert flat(gae_tokens(episodes, Critic(values=values)).advantages) == [-0.5, -0.5]


def test_the_tasks_own_limit_of_turns_is_its_end(trajectory: Make, group: MakeGroup) -> None:
    late = [group(trajectory([0.0], tokens=[1], stop=Stop.MAX_TURNS))]
    critic = Critic(values=arrays([[0.5]]), final=[2.0])
    for estimate in (gae_tokens, gae_turns, gae_bilevel):
        assert flat(estimate(late, critic).advantages) == [-0.5]


def test_explained_variance_is_measured_against_what_came(trajectory: Make, group: MakeGroup) -> None:
    ended = (
        trajectory([0.0, 1.0], tokens=[1, 2]),
        trajectory([0.0, 0.0], tokens=[1, 2], stop=Stop.MAX_TURNS),
    )
    cut = trajectory([0.0, 0.0], tokens=[1, 2], stop=Stop.CUT)
    right, wrong = [[1.0], [1.0, 1.0]], [[0.0], [0.0, 0.0]]
    for estimate in (gae_tokens, gae_turns, partial(gae_bilevel, turn_discount=1.0)):
        for values, found in (((right, wrong), 1.0), ((wrong, wrong), -1.0), ((wrong, right), -3.0)):
            critic = Critic(values=arrays(*values, [[9.0], [9.0, 9.0]]))
            measured = estimate([group(*ended, cut)], critic).metrics["value/explained_variance"]
            assert measured == pytest.approx(found)
    alone = gae_tokens([group(cut)], Critic(values=arrays(right)))
    assert alone.metrics["value/explained_variance"] == 0.0


def test_discounts_are_those_of_the_estimate(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0.0, 1.0], tokens=[2, 2]), trajectory([0.0, 0.0], tokens=[2, 2]))]
    none = [[0.0, 0.0], [0.0, 0.0]]
    tokens = Critic(values=arrays([[0.125, 0.25], [0.5, 1]], none))
    turns = Critic(values=arrays([[0.25, 0.25], [0.5, 0.5]], none))
    both = Critic(values=arrays([[0.0625, 0.125], [0.5, 1]], none))
    found = (
        gae_tokens(episodes, tokens, discount=0.5),
        gae_turns(
            [group(trajectory([0.0, 0.5], tokens=[2, 2]), trajectory([0.0, 0.0], tokens=[2, 2]))],
            turns,
            discount=0.5,
        ),
        gae_bilevel(episodes, both, discount=0.5, turn_discount=0.125),
    )
    assert [credit.metrics["value/explained_variance"] for credit in found] == pytest.approx([1, 1, 1])


def test_two_discounts(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0, 1.0], tokens=[2, 2]))]
    critic = Critic(values=arrays([[0, 0], [0, 0]]))
    credit = gae_tokens(episodes, critic, discount=1.0, turn_discount=0.5, gae_lambda=1.0)
    assert flat(credit.advantages) == [0.5, 0.5, 1, 1]
    same = gae_tokens(episodes, critic, discount=0.5, gae_lambda=1.0)
    assert flat(same.advantages) == [0.125, 0.25, 0.5, 1]


def test_token_rewards_join_the_chain(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0, 1.0], tokens=[2, 1]))]
    critic = Critic(values=arrays([[0, 0], [0]]), token_rewards=arrays([[0.25, 0.5], [-1]]))
    assert flat(gae_tokens(episodes, critic, gae_lambda=1).advantages) == [0.75, 0.5, 0]
    assert flat(gae_turns(episodes, critic, gae_lambda=1).advantages) == [0.75, 0.75, 0]


def test_over_turns_all_tokens_share(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0, 0, 1.0], tokens=[2, 1, 2]))]
    critic = Critic(values=arrays([[0.2, 9], [0.4], [0.5, 9]]))
    credit = gae_turns(episodes, critic)
    assert flat(credit.advantages) == pytest.approx([0.74625, 0.74625, 0.575, 0.5, 0.5])
    assert flat(credit.returns) == pytest.approx([0.94625, 0.94625, 0.975, 1, 1])


def test_macro_actions_discount_by_their_duration(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([0, 8.0], tokens=[3, 1]))]
    critic = Critic(values=arrays([[0, 0, 0], [0]]))
    credit = gae_turns(
        episodes, critic, discount=0.5, gae_lambda=1, duration=lambda turn: len(turn.completion.token_ids)
    )
    assert flat(credit.advantages) == [1, 1, 1, 8]


def test_lambda_zero_is_the_step_value(trajectory: Make, group: MakeGroup) -> None:
    credit = gae_turns(
        [group(trajectory([0, 1.0], tokens=[1, 1]))], Critic(values=arrays([[0.25], [0.75]])), gae_lambda=0
    )
    assert flat(credit.advantages) == [0.5, 0.25]


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 4)), min_size=1, max_size=5), st.floats(0, 1))
def test_lambda_one_is_monte_carlo(turns: list[tuple[float, int]], discount: float) -> None:
    rewards, values, discounts = (
        [reward for reward, _ in turns],
        [float(n) for _, n in turns],
        [discount] * len(turns),
    )
    chain = gae(rewards, values, discounts=discounts, gae_lambda=1.0, final=0.0)
    to_go = [sum(discount ** (k - t) * rewards[k] for k in range(t, len(turns))) for t in range(len(turns))]
    assert [a + v for a, v in zip(chain, values, strict=True)] == pytest.approx(to_go, abs=1e-9)


def test_lambda_one_with_turn_discount_is_the_discounted_return(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([1, 0, 3], tokens=[2, 3, 1]), trajectory([2, 1]))]
    critic = Critic(values=arrays([[0.1, 0.7], [0.2, 0.3, 0.9], [0.4]], [[0.5, 0.6], [0.8, 0.2]]))
    credit = gae_tokens(episodes, critic, discount=1.0, turn_discount=0.9, gae_lambda=1.0)
    want = discounted_return(episodes, discount=0.9)
    assert flat(credit.returns) == pytest.approx(flat(want.advantages), abs=1e-6)


def test_length_adaptive(trajectory: Make, group: MakeGroup) -> None:
    decay = length_adaptive(0.05)
    assert decay(trajectory([0.0], tokens=[400])) == pytest.approx(0.95)
    assert decay(trajectory([0.0], tokens=[20])) == 0
    assert decay(trajectory([0.0], tokens=[10])) == 0
    episodes = [group(trajectory([1.0], tokens=[3]))]
    critic = Critic(values=arrays([[0.2, 0.4, 0.5]]))
    assert flat(gae_tokens(episodes, critic, gae_lambda=decay).advantages) == pytest.approx([0.2, 0.1, 0.5])


def test_decoupled(trajectory: Make, group: MakeGroup) -> None:
    episodes = [group(trajectory([1.0], tokens=[3]))]
    critic = Critic(values=arrays([[0.2, 0.4, 0.5]]))
    credit = join_advantages(
        gae_tokens(episodes, critic, gae_lambda=0.95), gae_tokens(episodes, critic, gae_lambda=1.0)
    )
    assert flat(credit.advantages) == pytest.approx([0.74625, 0.575, 0.5])
    assert flat(credit.returns) == pytest.approx([1, 1, 1])


def test_bilevel_fixture(trajectory: Make, group: MakeGroup) -> None:
    values = (np.arange(10) + 1) / 10
    critic = Critic(values=[[values[:5], values[5:]]])
    credit = gae_bilevel([group(trajectory([1, 1], tokens=[5, 5]))], critic)
    expected = [1.85, 1.75, 1.65, 1.55, 1.45, 0.4, 0.3, 0.2, 0.1, 0]
    assert flat(credit.advantages) == pytest.approx(expected, abs=1e-6)


def test_a_turn_without_reward_keeps_its_boundary(trajectory: Make, group: MakeGroup) -> None:
    def advantages(rewards: list[float]) -> list[float]:
        critic = Critic(values=arrays([[0, 0], [0, 0], [0, 0]]))
        episodes = [group(trajectory(rewards, tokens=[2, 2, 2]))]
        return flat(gae_bilevel(episodes, critic, turn_discount=0.5).advantages)

    assert advantages([0, 0, 1]) == [0.25, 0.25, 0.5, 0.5, 1, 1]
    assert advantages([1, 0, 0]) == [1, 1, 0, 0, 0, 0]


def bad(values: Sequence[Numbers], final: list[float] | None = None) -> Critic:
    return Critic(values=arrays(*values), final=final)


@pytest.mark.parametrize(
    ("critic", "message"),
    [
        (bad([[[0.0]]]), "values per sampled token"),
        (bad([[[0.0, 0.0]], [[0.0]]]), "values per sampled token"),
        (bad([[[0.0, float("nan")]]]), "not finite"),
        (bad([[[0.0, 0.0]]], final=[]), "final values of 1 trajectories: got 0"),
        (Critic(values=arrays([[0, 0]]), token_rewards=arrays([[0]])), "token rewards per sampled token"),
    ],
)
def test_a_critic_that_does_not_fit_is_refused(
    trajectory: Make, group: MakeGroup, critic: Critic, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        gae_tokens([group(trajectory([1.0]))], critic)


def test_nothing_scored_is_an_empty_credit() -> None:
    credit: Credit = gae_tokens([], Critic(values=[]))
    assert credit.advantages == () and credit.returns == ()


def test_bilevel_below_lambda_one_reads_the_values_at_turn_ends(trajectory: Make, group: MakeGroup) -> None:
    critic = Critic(values=arrays([[0.1, 0.5], [0.2, 1.0]]))
    credit = gae_bilevel([group(trajectory([0, 2]))], critic, turn_discount=0.5, gae_lambda=0.5)
    assert flat(credit.advantages) == pytest.approx([0.525, 0.25, 1.3, 1])


def test_an_estimate_that_is_cut_between_turns_sees_its_own_turn_alone(
    trajectory: Make, group: MakeGroup
) -> None:
    """PAG: the value of the next turn's first token is never part of a turn's return."""

    def advantages(reward: float, value: float) -> list[float]:
        critic = Critic(values=arrays([[0.2, 0.4], [value]]))
        credit = gae_tokens(
            [group(trajectory([1, reward], tokens=[2, 1]))], critic, turn_discount=0.0, gae_lambda=1.0
        )
        return flat(credit.advantages)

    assert advantages(0, 0.9) == pytest.approx([0.8, 0.6, -0.9])
    assert advantages(-5, 7.0)[:2] == pytest.approx([0.8, 0.6])


def test_three_macro_actions_by_hand(trajectory: Make, group: MakeGroup) -> None:
    """TWOSOME: durations 1, 3 and 2 with γ = 1/2: 8 at the end is worth 1 before three steps, and 1/2 before four."""
    episodes = [group(trajectory([0, 0, 8.0], tokens=[1, 3, 2]))]

    def advantages(decay: float, values: Numbers) -> list[float]:
        critic = Critic(values=arrays(values))
        credit = gae_turns(
            episodes,
            critic,
            discount=0.5,
            gae_lambda=decay,
            duration=lambda turn: len(turn.completion.token_ids),
        )
        return [float(array[0]) for array in credit.advantages[0]]

    nothing = [[0.0], [0.0] * 3, [0.0] * 2]
    assert advantages(1.0, nothing) == pytest.approx([0.5, 1, 8])
    assert advantages(0.5, nothing) == pytest.approx([0.125, 0.5, 8])
    assert advantages(0.0, [[0.25], [2.0] * 3, [4.0] * 2]) == pytest.approx([0.75, -1.5, 4])

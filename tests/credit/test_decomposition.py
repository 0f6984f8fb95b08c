"""Contributions that are learned from outcomes, and values from rollouts, by value."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from quintain.credit.decomposition import Contributions, EarlierSteps, describe_turns
from quintain.credit.gae import gae_turns
from quintain.credit.layout import Critic
from quintain.credit.progress import progress_rewards
from quintain.credit.step_value import return_from, step_value
from quintain.errors import DataError
from quintain.types import Completion, Group, Score, Trajectory, Turn

Make = Callable[..., Trajectory]
MakeGroup = Callable[..., Group]


def told(trajectory: Make, words: list[int], value: float) -> Trajectory:
    """An episode whose turn k says the token words[k], with the outcome `value` and no turn rewards."""
    base = trajectory([0.0] * len(words), tokens=[1] * len(words))
    turns = tuple(
        replace(turn, completion=Completion(token_ids=(word,), logprobs=(-1.0,), stop="stop"))
        for turn, word in zip(base.turns, words, strict=True)
    )
    return replace(base, turns=turns, outcome=Score(value=value, is_success=value > 0))


@pytest.fixture
def learned(trajectory: Make, group: MakeGroup) -> Contributions:
    """Token 1 is worth .5, token 2 is worth -.25, token 3 nothing; only sums are ever seen."""
    worth = {1: 0.5, 2: -0.25, 3: 0.0}
    generator = np.random.default_rng(0)
    estimator = Contributions(256, ridge=1.0, discount=1.0)
    episodes: list[Trajectory] = []
    for _ in range(400):
        words = generator.integers(1, 4, generator.integers(1, 6)).tolist()
        episodes.append(told(trajectory, words, sum(worth[word] for word in words)))
    estimator.update([group(*episodes[:200])])
    estimator.update([group(*episodes[200:])])
    return estimator


def test_contributions_are_found_from_sums_alone(learned: Contributions, trajectory: Make) -> None:
    held_out = told(trajectory, [3, 1, 2, 1], 0.75)
    nothing, much, less, last = learned.predict(held_out)
    assert min(much, last) > nothing + 0.2 > nothing > less + 0.1
    assert learned.error(held_out) < 0.3


def test_a_turn_contributes_what_is_expected_after_it_less_what_was_before(
    trajectory: Make, group: MakeGroup
) -> None:
    """The action says nothing; what is seen after the first turn decides the outcome."""

    def seeing(*prompts: int) -> Trajectory:
        base = told(trajectory, [5] * len(prompts), float(8 in prompts))
        turns = (replace(t, prompt_ids=(1, p, 1)) for t, p in zip(base.turns, prompts, strict=True))
        return replace(base, turns=tuple(turns))

    estimator = Contributions(256, ridge=0.1, discount=1.0)
    estimator.update([group(*[seeing(7, 8, 7), seeing(7, 9, 7)] * 20)])
    won, lost = estimator.predict(seeing(7, 8, 7)), estimator.predict(seeing(7, 9, 7))
    assert won[0] > 0.3 and lost[0] < -0.3
    assert all(abs(c) < 0.35 * won[0] for c in (*won[1:], *lost[1:]))


def test_order_and_cuts_of_the_evidence_mean_nothing(trajectory: Make, group: MakeGroup) -> None:
    episodes = [told(trajectory, [1, 2], 1.0), told(trajectory, [2], 0.0), told(trajectory, [1], 1.0)]
    whole, parts = Contributions(32), Contributions(32)
    whole.update([group(*episodes)])
    for episode in reversed(episodes):
        parts.update([group(episode)])
    assert whole.predict(episodes[0]) == pytest.approx(parts.predict(episodes[0]), abs=1e-6)
    forgetful, fresh = Contributions(32, most=1), Contributions(32)
    forgetful.update([group(*episodes)])
    forgetful.update([group(told(trajectory, [1], -1.0))])
    fresh.update([group(told(trajectory, [1], -1.0))])
    assert forgetful.predict(episodes[2]) == pytest.approx(fresh.predict(episodes[2]), abs=1e-6)


def test_nothing_is_predicted_of_episodes_that_were_learned_from(trajectory: Make, group: MakeGroup) -> None:
    estimator = Contributions(32)
    fold = EarlierSteps(estimator)
    good = told(trajectory, [1, 2], 1.0)
    fold.update([group(good, told(trajectory, [2, 3], 0.0))])
    assert estimator.predict(good) == [0, 0]
    fold.update([group(told(trajectory, [2], -1.0))])
    alone = Contributions(32)
    alone.update([group(good, told(trajectory, [2, 3], 0.0))])
    assert estimator.predict(good) == alone.predict(good) != [0, 0]


def test_nothing_seen_is_nothing_contributed(trajectory: Make, group: MakeGroup) -> None:
    estimator = Contributions(16)
    estimator.update([])
    assert estimator.predict(told(trajectory, [1, 2], 1.0)) == [0, 0]
    fused = progress_rewards([group(told(trajectory, [1, 2], 1.0))], [[0.0, 0.0]], beta=0.0)
    assert [turn.reward for turn in fused[0].trajectories[0].turns] == [0.5, 0.5]


def test_an_episode_without_turns_contributes_nothing(learned: Contributions, trajectory: Make) -> None:
    empty = replace(trajectory([1.0]), turns=(), outcome=Score(value=0.5, is_success=False))
    assert learned.predict(empty) == []
    assert learned.error(empty) == 0.5


def test_an_episode_is_described_once_until_it_is_learned_from(
    trajectory: Make, group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[int] = []

    def counted(turns: Sequence[Turn]) -> object:
        described.append(len(turns))
        return describe_turns(turns)

    monkeypatch.setattr("quintain.credit.decomposition.describe_turns", counted)
    estimator = Contributions(32, most=2)
    fold = EarlierSteps(estimator)
    good, bad, third = (told(trajectory, words, 1.0) for words in ([1, 2], [3], [1, 2, 3]))
    for _ in range(2):
        fold.update([group(good, bad)])
        assert estimator.predict(good) is not None and estimator.error(bad) >= 0
        paid = replace(good, outcome=Score(value=0.0, is_success=False))
        assert estimator.predict(paid) == estimator.predict(good)
    fold.update([])
    assert described == [2, 1, 2, 1]
    for episode in (good, bad, third, good):
        estimator.predict(episode)
    assert described[4:] == [2, 1, 3, 2], "no more than `most` are kept"


def test_contributions_sum_to_the_outcome_and_stand_at_their_turn(
    learned: Contributions, trajectory: Make, group: MakeGroup
) -> None:
    episode = told(trajectory, [3, 1, 3, 3, 2], 1.0)
    (fused,) = progress_rewards([group(episode)], [learned.predict(episode)], beta=0.0)
    rewards = [turn.reward for turn in fused.trajectories[0].turns]
    assert sum(rewards) == pytest.approx(1.0)
    assert int(np.argmax(rewards)) == 1
    assert rewards[-1] == min(rewards) != 0


def test_step_values_by_hand(trajectory: Make, group: MakeGroup) -> None:
    groups = [group(trajectory([0, 1], tokens=[2, 1]), trajectory([0]))]
    credit = step_value(groups, [[0.5, 0.8], [0.5]])
    flat = [[array.tolist() for array in turns] for turns in credit.advantages]
    assert flat[0] == [pytest.approx([0.3, 0.3]), pytest.approx([0.2])]
    assert flat[1] == [[-0.5, -0.5]]
    cut = step_value(groups, [[0.5, 0.8], [0.5]], final=[0.0, 0.25], discount=0.5)
    assert float(cut.advantages[1][0][0]) == pytest.approx(0.5 * 0.25 - 0.5)
    assert float(cut.advantages[0][0][0]) == pytest.approx(0.4 - 0.5)


def test_step_values_are_turn_estimates_without_a_trace(trajectory: Make, group: MakeGroup) -> None:
    groups = [group(trajectory([0.5, 0, 1]))]
    values = [0.1, 0.7, 0.4]
    critic = Critic(values=[[np.full(2, v) for v in values]])
    expected = gae_turns(groups, critic, gae_lambda=0.0)
    found = step_value(groups, [values])
    for mine, theirs in zip(found.advantages[0], expected.advantages[0], strict=True):
        assert mine.tolist() == pytest.approx(theirs.tolist())


def test_returns_from_a_turn_and_missing_values(trajectory: Make, group: MakeGroup) -> None:
    episode = trajectory([1, 2, 4])
    assert (return_from(episode, 0), return_from(episode, 2), return_from(episode, 3)) == (7, 4, 0)
    assert return_from(episode, 0, 0.5) == 3
    with pytest.raises(
        DataError, match=r"state values: got \[2\] by trajectory; give one to each turn, \[3\]"
    ):
        step_value([group(episode)], [[0.0, 0.0]])

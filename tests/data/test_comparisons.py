"""Rankings: noise of labellers, refusals, and where scores are read."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from quintain.data.comparisons import (
    Comparisons,
    Labeller,
    as_comparisons,
    check_comparisons,
    comparison_samples,
    label_groups,
    score_samples,
)
from quintain.data.pack import micro_batches
from quintain.errors import DataError, InvariantError, UsageError
from quintain.types import Comparison, Failure, Group, Pair, Trajectory

Make = Callable[..., Trajectory]
Episodes = Callable[..., list[Trajectory]]
GroupOf = Callable[..., Group]


def test_without_noise_a_labeller_ranks_by_reward_and_equal_rewards_tie() -> None:
    assert Labeller().rank((0.5, 2.0, 0.5, 1.0), 0) == (0.0, 3.0, 0.0, 2.0)


def test_a_labeller_prefers_as_often_as_bradley_and_terry_say_also_within_a_ranking_of_three() -> None:
    labeller = Labeller(temperature=0.5)
    ranks = [labeller.rank((1.0, 0.4, 0.0), n) for n in range(4000)]
    for one, other, gap in ((0, 1, 0.6), (0, 2, 1.0), (1, 2, 0.4)):
        share = sum(r[one] > r[other] for r in ranks) / len(ranks)
        assert share == pytest.approx(1 / (1 + exp(-gap / 0.5)), abs=0.025)
    assert labeller.rank((1.0, 0.0), 7) == labeller.rank((1.0, 0.0), 7)


def test_a_labeller_who_errs_answers_by_chance_that_often() -> None:
    wrong = [Labeller(error_rate=0.2).rank((1.0, 0.0), n) == (0.0, 1.0) for n in range(4000)]
    assert sum(wrong) / len(wrong) == pytest.approx(0.1, abs=0.015)


def test_answers_that_look_alike_tie_and_only_two_can() -> None:
    labeller = Labeller(tie_band=0.2)
    assert labeller.rank((1.0, 0.9), 0) == (0.0, 0.0)
    assert labeller.rank((1.0, 0.7), 0) == (1.0, 0.0)
    with pytest.raises(UsageError, match=r"tie_band of a labeller: got 0\.2 for 3 answers"):
        labeller.rank((1.0, 0.9, 0.8), 0)


def test_a_labeller_calls_good_what_is_above_a_bar() -> None:
    assert [Labeller().approves(reward, 0.5, 0) for reward in (1.0, 0.5, 0.2)] == [True, False, False]
    right = [Labeller(temperature=0.5).approves(1.0, 0.4, n) for n in range(4000)]
    assert sum(right) / len(right) == pytest.approx(1 / (1 + exp(-0.6 / 0.5)), abs=0.025)


@pytest.mark.parametrize("noise", [{"temperature": -1.0}, {"error_rate": 1.5}, {"tie_band": -0.1}])
def test_there_is_no_such_noise(noise: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="of a labeller: got"):
        Labeller(**noise)


def test_episodes_of_a_group_are_ranked_once_each_in_parts_of_one_size(
    episodes: Episodes, group_of: GroupOf
) -> None:
    made = episodes([0.0, 1.0, 0.5, 0.25, 0.75])
    twin = replace(made[0], index=5)
    found = label_groups([group_of(*made, twin)], Labeller(), size=2)
    assert [tuple(a.index for a in each.answers) for each in found] == [(0, 1), (2, 3)]
    assert [each.ranks for each in found] == [(0.0, 1.0), (1.0, 0.0)]
    assert found.metrics == {"data/comparisons": 2.0, "data/ties": 0.0}
    whole = label_groups([group_of(*made)], Labeller(), size=5)
    assert whole[0].ranks == (0.0, 4.0, 2.0, 1.0, 3.0) and len(whole[0:1]) == len(whole) == 1
    with pytest.raises(UsageError, match="answers of a comparison: got 1"):
        label_groups([group_of(*made)], Labeller(), size=1)
    judged = label_groups([group_of(*made)], Labeller(), size=5, bar=0.5)
    assert [each.ranks for each in judged] == [(0.0, 1.0, 0.0, 0.0, 1.0)]


def test_what_cannot_be_learned_from_is_refused_and_counted(trajectory: Make, episodes: Episodes) -> None:
    one, other, third = episodes([1.0, 0.0, 0.5])
    failed = replace(other, outcome=Failure(owner="environment", kind="crash", message="it broke"))
    found = check_comparisons(
        [
            Comparison(answers=(one, other), ranks=(1, 0)),
            Comparison(answers=(other, one), ranks=(1, 0)),
            Comparison(answers=(one, third), ranks=(0, 0)),
            Comparison(answers=(one, failed), ranks=(1, 0)),
            Comparison(answers=(one, replace(one, index=3)), ranks=(1, 0)),
            Comparison(answers=(one, trajectory([((1,), (4,))], task="u")), ranks=(1, 0)),
            Comparison(answers=(one, trajectory([((1,), ())])), ranks=(1, 0)),
        ]
    )
    assert [each.ranks for each in found] == [(0, 0)]
    assert found.refused == {
        "other_task": 1, "failure": 1, "one_sided": 1, "identical": 1, "contradicting": 2,
    }  # fmt: skip
    assert found.metrics["data/ties"] == 1.0
    assert str(found).startswith("1 comparisons; 1 refused, because its answers are of different tasks; ")


def test_preferences_are_comparisons_of_two(episodes: Episodes) -> None:
    one, other = episodes([1.0, 0.0])
    (found,) = as_comparisons([Pair(chosen=one, rejected=other)])
    assert found == Comparison(answers=(one, other), ranks=(1.0, 0.0))


def test_a_score_is_read_after_the_last_sampled_token(trajectory: Make) -> None:
    short, long = trajectory([((1, 5), (6, 2))]), trajectory([((1,), (3, 2)), ((7, 8), (9, 2))])
    one, other = score_samples([short, long])
    assert one.token_ids.tolist() == [1, 5, 6, 2, 0]
    assert np.flatnonzero(one.loss_weight).tolist() == [4] and one.turn_id.tolist() == [-1, -1, -1, -1, 0]
    assert np.flatnonzero(other.loss_weight).tolist() == [7] and other.turn_id[7] == 1
    assert score_samples([]) == []
    (full,) = score_samples([short], max_length=4)
    assert full.token_ids.tolist() == [1, 5, 6, 2] and np.flatnonzero(full.loss_weight).tolist() == [3]


def test_by_turn_each_turn_is_scored_where_the_next_one_begins(trajectory: Make) -> None:
    (found,) = score_samples([trajectory([((1,), (3, 2)), ((7, 8), (9, 2))])], by="turn")
    assert np.flatnonzero(found.loss_weight).tolist() == [3, 7]
    assert found.turn_id[[3, 7]].tolist() == [0, 1]


def test_of_rewritten_history_the_newest_stream_is_scored(trajectory: Make) -> None:
    parted = trajectory([((1,), (3, 2)), ((7, 8), (9, 2))], segments=[1])
    (found,) = score_samples([parted])
    assert found.token_ids.tolist() == [7, 8, 9, 2, 0]
    assert [len(each.token_ids) for each in score_samples([parted], by="turn")] == [4, 5]


def test_an_episode_without_a_sampled_token_has_no_score(trajectory: Make) -> None:
    with pytest.raises(InvariantError, match="got one in which nothing was sampled"):
        score_samples([trajectory([((1,), (2,))]), trajectory([((1,), ())])])


def test_answers_of_a_comparison_stay_in_one_batch(episodes: Episodes) -> None:
    answers = tuple(episodes([1.0, 0.0, 0.5], lengths=[1, 2, 1]))
    given = Comparisons(
        (
            Comparison(answers=answers, ranks=(2.0, 0.0, 1.0)),
            Comparison(answers=answers[:2], ranks=(1.0, 0.0)),
        )
    )
    samples = comparison_samples(given)
    assert [(s.pair, s.trajectory, s.rank) for s in samples] == [
        (0, 0, 2.0), (0, 1, 0.0), (0, 2, 1.0), (1, 3, 1.0), (1, 4, 0.0),
    ]  # fmt: skip
    batches = micro_batches(samples, max_tokens=15)
    assert [Counter(batch.extra.pair.tolist()) for batch in batches] == [{0: 3}, {1: 2}]
    assert batches[0].extra.num_pairs == 2 and batches[0].extra.rank is not None
    assert batches[0].extra.rank.tolist() == [2.0, 0.0, 1.0]
    with pytest.raises(DataError, match="raise max_tokens"):
        micro_batches(samples, max_tokens=8)

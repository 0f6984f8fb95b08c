"""The tabular experiments of the family: the direction that is claimed, and null worlds in which arms are equal."""

import numpy as np
import pytest

from quintain.credit.group import group_relative
from quintain.credit.turn_group import turn_group_relative
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.rl.loop import Config, method
from quintain.types import flatten_scored
from quintain_evidence.experiments.rl import (
    gigpo,
    grpo,
    grpo_tcr,
    loop,
    mt_grpo,
    policy_gradient,
    ppo,
    reinforce_plus_plus,
)
from quintain_evidence.experiments.rl.clipping import dropped_at_random, trained, unclipped
from quintain_evidence.experiments.rl.grpo import relabelled
from quintain_evidence.experiments.rl.reinforce_plus_plus import by_other_deviations
from quintain_evidence.labs.tables import a16, fitted_table, s3

SMALL = {"seeds": 1, "batches": 3, "episodes": 64, "rate": 6}


@pytest.mark.parametrize("experiment", [loop, ppo, grpo_tcr])
def test_with_one_epoch_the_arms_are_the_same_bit_by_bit(experiment: object) -> None:
    measure = {loop: loop.measure, ppo: ppo.measure, grpo_tcr: grpo_tcr.measure}[experiment]  # type: ignore[index]
    (row,) = measure(SMALL, 3)
    assert row["null_method"] == row["null_control"]
    assert row["extra.clipped"] > 0.02 and (experiment is grpo_tcr or row["method"] != row["control"])
    assert measure(SMALL, 3) == [row]


@pytest.mark.slow
def test_states_carry_credit_and_unique_states_carry_none() -> None:
    rows = gigpo.measure({"seeds": 2}, 3)
    assert np.mean([row["method"] - row["control"] for row in rows]) > 0.02
    assert all(row["null_method"] == row["null_control"] == 0.0 for row in rows)
    assert {"extra.dose4", "extra.dose8", "extra.dose32", "extra.cosine"} <= set(rows[0])
    assert all(row["extra.grpo"] < row["extra.whole"] for row in rows)
    assert rows[0]["extra.start"] == pytest.approx(0.55, abs=0.002)


@pytest.mark.slow
def test_groups_matter_where_tasks_differ_and_not_where_they_are_one() -> None:
    rows = grpo.measure({"seeds": 6}, 3)
    gain = np.mean([row["method"] - row["control"] for row in rows])
    null = np.mean([row["null_method"] - row["null_control"] for row in rows])
    assert gain > 0.02 > 3 * abs(null)


def test_relabelling_deals_every_episode_once() -> None:
    groups = fitted_table(s3(0, num_tasks=4), 0).sample(size=4, seed=0)
    dealt = relabelled(groups, 1)
    assert sorted(t.seed for t in flatten_scored(dealt)) == sorted(t.seed for t in flatten_scored(groups))
    assert [len(group.trajectories) for group in dealt] == [4] * 4
    assert group_relative(dealt).metrics["credit/groups"] == 4
    assert dealt != groups


@pytest.mark.slow
def test_deviations_matter_where_tasks_are_not_as_hard() -> None:
    rows = reinforce_plus_plus.measure({"seeds": 2}, 3)
    gains = [row["method"] - row["control"] for row in rows]
    nulls = [row["null_method"] - row["null_control"] for row in rows]
    assert min(gains) > 0.01 and max(map(abs, nulls)) < 0.01
    assert np.mean([row["method"] - row["extra.permuted"] for row in rows]) > 0.01


def test_deviations_go_to_other_groups() -> None:
    groups = fitted_table(s3(0, num_tasks=6), 0, until=[0.2, 0.5] * 3).sample(size=8, seed=0)
    plain, other = group_relative(groups, std="none"), by_other_deviations(groups, 0)
    ratios = {
        t.group: round(float(a[0][0] / b[0][0]), 4)
        for t, a, b in zip(plain.trajectories, plain.advantages, other.advantages, strict=True)
        if b[0][0]
    }
    spread = {g.trajectories[0].group: round(float(np.std(g.returns, ddof=1)), 4) for g in groups}
    kept = {name: spread[name] for name in ratios}
    assert sorted(ratios.values()) == pytest.approx(sorted(kept.values()), abs=1e-3)
    assert list(ratios.values()) != list(kept.values())
    alone = by_other_deviations(groups[:1], 0).advantages
    assert alone[0][0][0] == group_relative(groups[:1], std="none").advantages[0][0][0]


@pytest.mark.slow
def test_estimates_are_unbiased_and_a_wrong_baseline_is_found_out() -> None:
    (row,) = policy_gradient.measure({"estimates": 200, "directions": 30}, 3)
    assert row["violations"] == 0 and row["extra.z"] < 3.9 < row["extra.control_z"]
    assert row["trials"] == row["control_trials"] == 30
    assert row["extra.null_violations"] == 0 and row["extra.null_z"] < 3.9


def test_as_many_tokens_are_dropped_as_are_clipped() -> None:
    start, loop_method = a16(0), method(Config())
    options = {**SMALL, "epochs": 2}
    clip = trained(start, loop_method, options, 1, num_batches=1)
    drop = trained(start, loop_method, options, 1, num_batches=1, loss=dropped_at_random(unclipped(), 0))
    free = trained(start, loop_method, options, 1, num_batches=1, loss=unclipped())
    assert drop.objective == free.objective, "without a clip nothing is dropped"
    assert clip.steps[1].metrics["policy/clip_fraction"] > 0


SEARCHES = {"searches": 1.2, "reads": 2.0, "guesses": 0.5}


def test_what_a_search_earns_is_noise_at_the_answer() -> None:
    rows = mt_grpo.measure({**SEARCHES, "seeds": 3}, 3)
    assert min(row["method"] - row["control"] for row in rows) > 0.05
    assert all(row["null_method"] == row["null_control"] == row["method"] for row in rows)
    assert all(row["extra.over_summed"] > 0 for row in rows)


def test_what_a_search_earns_moves_to_the_answer() -> None:
    groups = mt_grpo.searcher(3, SEARCHES).sample(size=8, seed=0)
    both, plain = turn_group_relative(groups), turn_group_relative(groups, weight=0.0)
    moved = mt_grpo.misplaced(groups, Estimates())
    for own, outcome, other in zip(both.advantages, plain.advantages, moved.advantages, strict=True):
        assert other[0] == pytest.approx(outcome[0]) and own[1] == pytest.approx(outcome[1])
        assert other[1] - outcome[1] == pytest.approx(own[0] - outcome[0])
    free = [mt_grpo.without_hits(group) for group in groups]
    assert {turn.reward for t in flatten_scored(free) for turn in t.turns[:1]} == {0.0}
    assert all(t.outcome.value == t.turns[1].reward for t in flatten_scored(free))  # type: ignore[union-attr] # pyright: ignore

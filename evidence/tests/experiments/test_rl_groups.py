"""Experiments about groups, filters, critics and pay on tables: the direction that is claimed, and null worlds."""

import json

import numpy as np
import pytest

from quintain.methods.rl.scaling_inter import Config
from quintain.types import Credit, Score, flatten_scored
from quintain_evidence.experiments.rl import (
    lite_ppo,
    openmanus,
    pag,
    rlsp,
    scaling_inter,
    spa_rl,
    starpo,
    toolrl,
    ui_tars2,
)
from quintain_evidence.experiments.rl.pag import Asked, drawn, mislabelled, whole
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import assign, per_turn, states_of

Rows = list[dict[str, float]]


def effects(rows: object, first: str = "method", second: str = "control") -> list[float]:
    found: Rows = json.loads(json.dumps(rows))
    return [row[first] - row[second] for row in found if first in row]


def nulls(rows: object) -> list[float]:
    return effects(rows, "null_method", "null_control")


@pytest.mark.slow
def test_jitter_blows_groups_up_that_agree_and_without_it_nothing_is_lost() -> None:
    rows = lite_ppo.measure({"seeds": 6}, 3)
    assert np.mean(effects(rows)) > 0.02 > abs(np.mean(nulls(rows)))
    assert rows[0]["extra.alike"] > 0.5


def test_a_judge_errs_by_a_little_and_solved_stays_solved() -> None:
    groups = fitted_table(s3(0, num_tasks=2), 0).sample(size=4, seed=0)
    told = lite_ppo.jittered(groups, 1e-3, 1)
    gaps = [
        abs(a.outcome.value - b.outcome.value)
        for a, b in zip(flatten_scored(told), flatten_scored(groups), strict=True)
        if isinstance(a.outcome, Score) and isinstance(b.outcome, Score)
    ]
    assert 0 < max(gaps) < 0.01
    assert [t.is_success for t in flatten_scored(told)] == [t.is_success for t in flatten_scored(groups)]


def test_wide_groups_tell_more_than_as_many_at_random() -> None:
    rows = starpo.measure({"seeds": 2, "null_size": 8}, 3)
    assert min(effects(rows)) > 0
    assert all(0.1 < row["extra.tokens"] < 0.5 for row in rows)


def test_a_critic_that_knows_explains_returns() -> None:
    start = starpo.knowing(fitted_table(s3(0), 0))
    method = starpo.starpo.method(starpo.starpo.Config(keep=1.0, turn_discount=1.0))
    credit = assign(start, method, start.sample(size=8, seed=0))
    assert credit.metrics["value/explained_variance"] > 0.1


@pytest.mark.slow
def test_groups_are_sampled_until_they_differ_and_where_all_do_once() -> None:
    rows = openmanus.measure({"seeds": 4}, 3)
    assert np.mean(effects(rows)) > 0.03
    assert nulls(rows) == [0.0] * 4
    assert all(row["extra.mixed"] == 1.0 for row in rows)
    assert all(row["extra.null_drawn"] == 1.0 < row["extra.drawn"] for row in rows)


@pytest.mark.slow
def test_contributions_belong_where_they_are_placed() -> None:
    rows = spa_rl.measure({"seeds": 2, "earlier": 3}, 3)
    assert np.mean(effects(rows)) > 0.15 > 2 * abs(np.mean(nulls(rows)))
    assert rows[0]["extra.rank"] > max(0.4, rows[0]["extra.null_rank"])
    assert rows[0]["extra.grounded"] < rows[0]["method"] < rows[0]["extra.ppo"]


def test_a_critic_that_learned_first_is_ahead_of_one_that_learned_others_outcomes() -> None:
    rows = ui_tars2.measure({"seeds": 2, "past": 4, "critic_steps": 2, "rate": 0.1}, 3)
    assert min(effects(rows)) > 0 == max(map(abs, nulls(rows)))
    assert rows[0]["extra.explained"] > rows[0]["extra.dealt"]


def test_points_for_fields_tell_calls_apart_that_are_all_wrong() -> None:
    rows = toolrl.measure({"seeds": 3}, 3)
    assert min(effects(rows)) > 0.1
    assert nulls(rows) == [0.0] * 3
    assert rows[0]["extra.differ"] > 0.6 > 0.2 > rows[0]["extra.differ_exact"]


def test_a_writer_is_exact_as_often_as_all_fields_are_right() -> None:
    wanted = np.zeros((2, 4), np.int64)
    start = toolrl.writer(wanted, 5, 0, knows=1.0)
    right = start.probabilities()[:8, 0].reshape(2, 4).prod(1).mean()
    assert start.objective("success") == pytest.approx(float(right))
    assert toolrl.call([0, 1, 2, 3]).tool_calls[0].arguments == {"a": 1, "b": 2, "c": 3}


def test_stages_are_turned_round_and_both_orders_learn() -> None:
    (row,) = scaling_inter.measure({"seeds": 1, "stage": 2}, 3)
    assert row["method"] > row["extra.start"] < 0.1
    config = Config(turns=scaling_inter.TURNS, stage_steps=2)
    forth, back = scaling_inter.growing(config), scaling_inter.shrinking(config, 6)
    assert [forth(k) for k in range(1, 7)] == [back(k) for k in range(6, 0, -1)] == [4, 4, 10, 10, 24, 24]


def test_a_climber_with_skill_comes_up() -> None:
    sure = scaling_inter.climber(range(12), 0, skill=20.0)
    assert sure.objective() == pytest.approx(1.0, abs=1e-6)
    assert scaling_inter.far_success(scaling_inter.climber(range(12), 0, skill=0.0)) < 0.05


@pytest.mark.slow
def test_the_quieter_role_is_heard() -> None:
    (row,) = pag.measure({"seeds": 1, "batches": 4}, 3)
    assert row["method"] - row["control"] > 0.05 > abs(row["null_method"] - row["null_control"])
    assert row["extra.selective"] > 0


def seen_last_answers(asked: Asked) -> float:
    groups = asked.told(asked.start.sample(size=150, seed=0))
    last = [[u for u in t.turns if u.is_answer][-1].reward for t in flatten_scored(groups)]
    return float(np.mean(last))


def test_what_is_computed_of_selective_revision_is_what_happens() -> None:
    asked = drawn(3)
    assert asked.selective() == pytest.approx(seen_last_answers(asked), abs=0.04)


def test_roles_are_dealt_to_other_turns_and_verdicts_are_loud() -> None:
    asked = drawn(0)
    groups = asked.told(asked.start.sample(size=8, seed=0))
    right, wrong = (assign(asked.start, method, groups) for method in (whole(10.0), mislabelled(10.0, 1)))
    role = [state % 4 in (pag.RIGHT, pag.WRONG) for t in flatten_scored(groups) for state in states_of(t)]

    def size_of_answers(credit: Credit) -> float:
        sizes = np.abs(per_turn(credit))
        return float(np.mean([size for size, is_verdict in zip(sizes, role, strict=True) if not is_verdict]))

    assert size_of_answers(right) > 3 * size_of_answers(wrong)


def test_search_terms_go_to_other_episodes_and_their_sum_stays() -> None:
    start = rlsp.thinker(rlsp.scratch(0.3, 0.9), 0, thinks=0.5)
    groups = rlsp.thoughtful(start.sample(size=16, seed=0))
    method = rlsp.rlsp.method(rlsp.rlsp.Config(base=0.8))
    paid, other = rlsp.same(method, groups), rlsp.moved(1)(method, groups)
    values = [
        [t.outcome.value for t in flatten_scored(g) if isinstance(t.outcome, Score)] for g in (paid, other)
    ]
    assert sum(values[0]) == pytest.approx(sum(values[1])) and values[0] != values[1]
    assert values[1] == pytest.approx([sum(turn.reward for turn in t.turns) for t in flatten_scored(other)])
    longest = max(flatten_scored(groups), key=lambda t: len(t.turns))
    assert [turn.is_internal for turn in longest.turns] == [True] * (len(longest.turns) - 1) + [False]


def test_a_move_is_a_phrase_to_the_search_term_alone() -> None:
    start = rlsp.thinker(rlsp.scratch(0.3, 0.9), 0, thinks=0.5)
    sampled = start.sample(size=16, seed=0)
    method = rlsp.rlsp.method(rlsp.rlsp.Config())
    paid = rlsp.shorten(rlsp.same(method, rlsp.thoughtful(sampled)), sampled)
    for before, after in zip(flatten_scored(sampled), flatten_scored(paid), strict=True):
        assert [turn.completion for turn in before.turns] == [turn.completion for turn in after.turns]
        told = after.turns[-1].reward_terms["search"] / 0.2
        assert told == pytest.approx(1 - 0.98 ** (11 * len(after.turns)))


def test_scratch_work_helps_where_it_does_and_is_found() -> None:
    (row,) = rlsp.measure({"seeds": 1, "batches": 2, "episodes": 16}, 3)
    assert row["null_method"] == pytest.approx(0.3, abs=0.02)
    assert row["extra.scratch_start"] < 0.02
    start = rlsp.thinker(rlsp.scratch(0.3, 0.9), 0, thinks=0.5)
    seen = [len(t.turns) for t in flatten_scored(start.sample(size=2000, seed=1))]
    assert 0 < rlsp.reached(start) < np.mean([length > rlsp.HELPFUL for length in seen]) + 0.02

"""Experiments over what is seen and over words that spell actions: directions claimed, and what controls keep."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from quintain.environments.catalog import find
from quintain.methods.rl import greedy as method
from quintain.rewards.pointing import Target
from quintain.types import Group, Score, Task
from quintain_evidence.experiments.rl import (
    act_more,
    glam,
    greedy,
    metaspatial,
    otc,
    swirl,
    twosome,
    ui_r1,
)
from quintain_evidence.labs.observed import play_games
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy


def test_a_bonus_elsewhere_keeps_turns_and_sums() -> None:
    start = greedy.player(3, 6, 1, stays=2.0)
    tasks = [Task(id=str(k), environment="bandit", seed=k) for k in range(4)]

    def make(task: Task) -> greedy.Bandit:
        return greedy.Bandit(greedy.draw_arms(3, 6, 0.8, greedy.Random(task.seed)))

    groups = play_games(start, make, tasks, size=1, seed=0)
    reward = method.method(method.Config()).reward
    paid, moved = reward(groups), greedy.elsewhere(reward, 0)(groups)

    def bonuses(given: list[Group]) -> list[tuple[float, ...]]:
        return [tuple(u.reward_terms["untried"] for u in g.trajectories[0].turns) for g in given]

    own, other = bonuses(list(paid)), bonuses(list(moved))
    assert sorted(own) == sorted(other)
    for before, after, old, new in zip(paid, moved, own, other, strict=True):
        assert isinstance(before.trajectories[0].outcome, Score)
        assert isinstance(after.trajectories[0].outcome, Score)
        gain = after.trajectories[0].outcome.value - before.trajectories[0].outcome.value
        assert gain == pytest.approx(sum(new) - sum(old))
    assert greedy.regret(groups, 3, 6, 0.8) > 0


def test_a_greedy_player_stays_and_a_curious_one_tries_all() -> None:
    (row,) = greedy.measure(
        {"seeds": 1, "batches": 6, "episodes": 16, "pulls": 10, "held_out": 32, "rate": 100.0}, 3
    )
    assert row["null_method"] == row["null_control"] == row["extra.curious"] == 1.0
    assert row["method"] > row["extra.start"]


@pytest.mark.slow
def test_the_own_memory_teaches_when_to_search() -> None:
    options = {"seeds": 1, "batches": 12, "rate": 10.0, "tasks": 12, "tasks_per_batch": 12, "held_out": 64}
    (row,) = otc.measure(options, 3)
    assert row["method"] < row["control"] - 0.1
    assert row["null_method"] == pytest.approx(row["null_control"], abs=0.05)


def test_a_permuted_memory_is_put_back() -> None:
    found = otc.confused(0)
    tasks = otc.tasks("t", 0, 4)
    groups = play_games(otc.searcher(0), partial(otc.Question, known=1.0, guessed=0.0), tasks, size=6, seed=0)
    found.state.update(groups)
    before = dict(otc.memory(found).known)
    found.reward(groups)
    assert otc.memory(found).known == before and len(before) > 1


@pytest.mark.slow
def test_information_teaches_to_read_on() -> None:
    options = {"seeds": 1, "batches": 8, "rate": 10.0, "held_out": 48}
    (row,) = act_more.measure(options, 3)
    assert row["method"] < row["control"] - 0.1
    assert row["null_method"] == row["null_control"]


@pytest.mark.slow
def test_steps_of_failures_are_kept_by_the_process_alone() -> None:
    start = fitted_table(s3(3, distances=swirl.DISTANCES), 3, until=0.5)
    taught = swirl.lessons(start, 0, mistakes=0.5)
    kinds = Counter(tuple(sorted(context.kept)) for context in taught)
    assert kinds["all", "process"] > 0 < kinds["all", "outcome"]
    perfect = swirl.lessons(start, 0, mistakes=0.0)
    assert all({"process", "outcome", "both", "all"} == context.kept for context in perfect)
    rows = swirl.measure({"seeds": 2}, 3)
    assert all(row["null_method"] == row["null_control"] for row in rows)
    assert rows[0]["extra.far_process"] > rows[0]["extra.far_outcome"]


def test_scores_of_other_contexts_are_the_same_scores() -> None:
    start = fitted_table(s3(3, distances=swirl.DISTANCES), 3, until=0.5)
    groups = swirl.judged(start, swirl.lessons(start, 0, mistakes=0.5)[:6], 4, 0)
    other = swirl.with_other_scores(groups, 0)
    assert sorted(sorted(g.returns) for g in groups) == sorted(sorted(g.returns) for g in other)
    assert all(0 <= value <= 1 for g in groups for value in g.returns)


def test_collisions_of_others_keep_the_sum_of_a_group() -> None:
    room = find("room?width=4&depth=4&things=2&names=2&attempts=1")()
    assert isinstance(room, metaspatial.BoxRoom)
    task = room.task("train", 5)
    start = metaspatial.beginner(room, [task], 0)
    share, formed = metaspatial.ratios(room, [task], start)
    assert 0.1 < share < 0.95 and formed > 0.7
    even = TablePolicy(start.world, torch.zeros_like(start.theta))
    (group,) = play_games(
        even, lambda t: metaspatial.Attempt(room, t, start.world.actions, 0), [task], size=24, seed=0
    )
    other = metaspatial.exchanged(group, 0)
    assert sum(group.returns) == pytest.approx(sum(other.returns)) and group.returns != other.returns
    alone = replace(group, trajectories=group.trajectories[:1])
    assert metaspatial.exchanged(alone, 0) == alone
    (free,) = metaspatial.unpaid([group])
    cost = [t.turns[0].reward_terms.get("collision", 0.0) for t in group.trajectories]
    assert min(cost) < 0
    assert free.returns == pytest.approx([a - b for a, b in zip(group.returns, cost, strict=True)])
    assert free.returns == pytest.approx([t.turns[0].reward for t in free.trajectories])


def test_a_box_shrinks_to_its_middle_and_is_hit_as_often_as_the_table_says() -> None:
    target = Target(kind="click", box=(2.0, 2.0, 6.0, 4.0))
    assert ui_r1.shrunk(target, 0.0).box == (4.0, 3.0, 4.0, 3.0)
    assert ui_r1.shrunk(target, 1.0).box == target.box
    tasks = [Task(id="a", environment="screen", seed=0)]
    sure = ui_r1.pointer(tasks, [target], 0, known=1.0)
    unsure = ui_r1.pointer(tasks, [target], 0, known=0.0)
    assert ui_r1.hits(sure, [target]) > 0.8 > 0.2 > ui_r1.hits(unsure, [target])
    paid = ui_r1.paid(ui_r1.played(sure, tasks, 8, 0), {"a": target})
    assert set(np.round(paid[0].returns, 3)) <= {0.0, 0.333, 0.667, 1.0}


def test_the_own_box_teaches_to_point() -> None:
    (row,) = ui_r1.measure({"seeds": 1, "rate": 200.0, "batches": 4, "pool": 6, "chosen": 3}, 3)
    assert row["null_method"] == row["null_control"]
    assert row["method"] == row["extra.dose_box"] > row["control"]


SMALL = {"seeds": 1, "rate": 0.2, "batches": 4, "tasks": 2, "distractors": [3, 6, 12]}


def test_without_other_words_drawing_and_writing_are_one_policy() -> None:
    (row,) = glam.measure(SMALL, 3)
    assert row["null_method"] == pytest.approx(row["null_control"], abs=1e-6)
    assert row["method"] > row["control"]


def test_without_words_that_follow_lengths_do_nothing() -> None:
    (row,) = twosome.measure(SMALL, 3)
    assert row["null_method"] == row["null_control"]
    assert row["extra.dose0"] == 0.0 and row["extra.start_word"] != row["extra.start_sum"]


def test_permuted_lengths_are_the_same_lengths() -> None:
    spelling = twosome.spelled(s3(3, num_tasks=3), pad=3)
    divide = twosome.arm(spelling, "permuted", 0)
    for task, first in enumerate(spelling.world.start.tolist()):
        own = [1.0 + n for n in spelling.num_pads[first]]
        found = [divide(first, action) for action in range(4)]
        assert sorted(own) == sorted(found), task


def test_rows_of_a_start_know_what_follows() -> None:
    spelling = twosome.spelled(s3(3, num_tasks=3), pad=2)
    start = twosome.beginner(spelling, 0, rare=0.25, divide=lambda _s, _a: 1.0)
    odds = torch.softmax(start.theta.detach(), -1)
    assert float(odds[1, 4]) == pytest.approx(0.25)
    assert float(odds[0, 4]) < 1e-4

"""Experiments on tools: what the moves of the table are in the world, and what the controls keep."""

import pytest

from quintain.rewards.efficiency import num_calls
from quintain_evidence.experiments.toolrl import retool, torl
from quintain_evidence.experiments.toolrl.calculating import (
    ANSWER,
    COMPUTE,
    OTHER,
    THINK,
    Setting,
    Sum,
    read_problem,
    success,
    tasks,
)


def test_a_problem_is_read_as_it_is_written() -> None:
    assert read_problem("Compute: 3, add 4, multiply 5.") == (3, [("add", 4), ("multiply", 5)])
    assert read_problem("Compute: 7.") == (7, [])


def test_moves_point_at_numbers_and_what_is_told_decides() -> None:
    setting = Setting(steps=(2,), thinks=0.5)
    drawn = tasks("train", 1, 8)
    for task in drawn:
        game = Sum(setting, task)
        assert game.row() == 4
        calls = [game.act(column, 0.0).calls for column in (COMPUTE, THINK)]
        assert game.row() == 0 and [len(made) for made in calls] == [1, 0]
        assert game.act(ANSWER, 0.0).is_success
    game = Sum(setting, drawn[0])
    game.act(THINK, 0.9)
    game.act(COMPUTE, 0.0)
    assert not game.act(ANSWER, 0.0).is_success, "what was done in the head came out wrong"
    failing = Sum(Setting(steps=(2,), failures=1.0), drawn[0])
    assert failing.act(OTHER, 0.0).calls[0].name != failing.act(COMPUTE, 0.0).calls[0].name
    assert failing.row() == 5, "nothing is done, and the call has failed"


def test_results_of_another_task_cost_as_much_and_tell_nothing() -> None:
    drawn = tasks("eval", 2, 64)
    found: dict[str, tuple[float, int]] = {}
    for results in ("told", "permuted"):
        setting = Setting(steps=(2,), results=results)
        policy = setting.table(0)
        policy.theta.data[2:, COMPUTE] += 50
        policy.theta.data[:2, ANSWER] += 50
        groups = setting.play(policy, drawn, size=1, seed=0)
        found[results] = success(groups), sum(num_calls(t) for g in groups for t in g.trajectories)
    assert found["told"] == (1.0, 128)
    assert found["permuted"][0] < 0.2 and found["permuted"][1] == 128


@pytest.mark.slow
def test_rl_gains_by_what_tools_tell() -> None:
    setting = {"seeds": 1, "batches": 6, "rate": 0.3, "held_out": 64}
    (row,) = torl.measure(setting, 3)
    assert row["method"] > 0.3 > row["control"]
    assert row["null_method"] == row["null_control"]
    assert row["extra.cap0"] < row["extra.cap1"] < row["extra.cap2"]
    assert row["extra.head"] < row["method"]


def test_traces_are_the_moves_that_their_authors_made() -> None:
    lab = retool.Lab({"held_out": 64}, 5, steps=2)
    assert 0 < len(lab.kept) < len(lab.pool), "some slip"
    number, plan = next(iter(lab.kept.items()))
    assert [column for _, column in lab.shown(number, plan)[1]] == [COMPUTE, COMPUTE, ANSWER]
    other = next(plan for k, plan in lab.kept.items() if plan[0] != lab.kept[number][0] and k != number)
    episode, moves = lab.shown(number, [*other[:-1], plan[-1]])
    assert moves[0] == (4, OTHER) and episode.is_success, "the form and the answer stay"


@pytest.mark.slow
def test_code_gains_over_the_words_it_was_rewritten_from() -> None:
    (row,) = retool.measure({"seeds": 1, "batches": 8, "rate": 0.1, "held_out": 64}, 998)
    assert row["method"] > row["control"] and row["extra.untaught"] == 0.0

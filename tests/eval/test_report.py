"""What an evaluation says besides a rate: clusters, pass@k, outcomes, cost, abilities, and each task."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.build import make_episode, make_turn

from quintain.errors import DataError, UsageError
from quintain.eval.compare import check_shared, compare, difference_over_clusters
from quintain.eval.outcomes import KINDS, count_outcomes, outcome_of
from quintain.eval.report import cluster_of, evaluate_clustered, make_report, rate_rounds
from quintain.eval.statistics import clustered_mean, wilson
from quintain.types import Action, Failure, Outcome, Score, Task, ToolCall, Trajectory

BROKEN = Failure(owner="tool", kind="timeout", message="late")


def played(name: str, is_success: bool, *, index: int = 0, turn: Any = None, **task: Any) -> Trajectory:
    made = make_turn((2, 3), prompt=(1, 4, 5)) if turn is None else turn
    outcome = Score(value=float(is_success), is_success=is_success)
    return make_episode(
        made,
        task=Task(id=name, environment="w", seed=0, split="eval", **task),
        outcome=outcome,
        index=index,
        seconds=2.0,
    )


def tried(results: str) -> list[Trajectory]:
    """Return the episodes of one task per word: 1 solved, 0 not."""
    return [
        played(f"t{place}", letter == "1", index=index)
        for place, word in enumerate(results.split())
        for index, letter in enumerate(word)
    ]


def test_the_clustered_error_is_that_of_sums_of_deviations() -> None:
    found = clustered_mean([1, 1, 0, 0], ["a", "a", "b", "b"])
    assert (found.mean, found.num_clusters) == (0.5, 2) and found.error == pytest.approx(0.3536, abs=1e-4)
    alone = clustered_mean([1.0, 0.0, 1.0, 1.0], list("abcd"))
    assert alone.error == pytest.approx(np.std([1, 0, 1, 1]) / 2), "clusters of one: the usual error, by n"
    assert clustered_mean([1, 0, 1, 0], list("aabb")).error == 0, "each cluster says the same"
    for values, names in (([1.0], ["a"]), ([1.0, 0.0], ["a", "a"]), ([1.0, 0.0], ["a"])):
        with pytest.raises(DataError, match="two at least"):
            clustered_mean(values, names)


@pytest.mark.slow
def test_clustered_intervals_cover_as_often_as_they_say() -> None:
    rng, hits, naive, num = np.random.default_rng(1), 0, 0, 400
    clusters = np.repeat([str(n) for n in range(40)], 10).tolist()
    for _ in range(num):
        # Rates of clusters from a Beta with an intra-cluster correlation of .3 around .5.
        rates = np.repeat(rng.beta(0.5 * 7 / 3, 0.5 * 7 / 3, size=40), 10)
        values = (rng.random(400) < rates).astype(float).tolist()
        found = clustered_mean(values, clusters)
        hits += found.low <= 0.5 <= found.high
        low, high = wilson(int(sum(values)), 400)
        naive += low <= 0.5 <= high
    assert 0.93 <= hits / num <= 0.97 and naive / num < 0.8


@pytest.mark.parametrize(
    ("kind", "outcome", "turns"),
    [
        ("done", Score(value=1.0, is_success=True), [make_turn()]),
        ("illegal", Score(value=1.0, is_success=True), [make_turn(reward_terms={"refused": 1.0}), make_turn()]),
        ("illegal", Score(value=0.0, is_success=False), [make_turn(reward_terms={"illegal": 2.0})]),
        ("not_done", Score(value=0.0, is_success=False), [make_turn(reward_terms={"illegal": 0.0})]),
        ("not_done", Score(value=0.0, is_success=False), []),
        ("unreadable", Score(value=0.0, is_success=False), [make_turn(action=Action(error="no JSON"))]),
        ("done", Score(value=1.0, is_success=True), [make_turn(action=Action(error="no JSON"))]),
        ("not_done", Score(value=0.0, is_success=False),
         [make_turn(), make_turn(seat="agent/plan", action=Action(error="no plan"))]),
        ("broken", BROKEN, [make_turn(reward_terms={"refused": 1.0})]),
    ],
)  # fmt: skip
def test_an_episode_comes_to_one_of_five(kind: str, outcome: Outcome, turns: list[Any]) -> None:
    episode = make_episode(*turns, outcome=outcome)
    assert outcome_of(episode) == kind
    assert count_outcomes([episode]) == {each: int(each == kind) for each in KINDS}


def test_trials_give_pass_rates_and_an_interval_over_tasks() -> None:
    found = make_report(tried("1111 1100 0000 1000"), trials=4)
    assert list(found.pass_at) == list(found.pass_hat) == [1, 2, 3, 4]
    assert found.pass_at[1] == found.pass_hat[1] == found.evaluation.success == 7 / 16
    assert found.pass_at[4] == 0.75 and found.pass_hat[4] == 0.25
    assert found.pass_hat[2] == pytest.approx((1 + 1 / 6 + 0 + 0) / 4)
    assert (found.clusters, found.num_clusters) == ("task", 4)
    assert found.error == pytest.approx(clustered_mean([4, 2, 0, 1], list("abcd")).error / 4)
    low, high = wilson(7, 16)
    assert found.evaluation.low < low and found.evaluation.high > high, "episodes of a task are no new tasks"
    once = make_report(tried("1 0 1"))
    assert (once.clusters, once.num_clusters, once.error) == ("", 0, None)
    assert (once.evaluation.low, once.evaluation.high) == wilson(2, 3)


def test_a_rate_without_spread_has_the_interval_of_its_clusters() -> None:
    found = evaluate_clustered(tried("11 11 11"), "task")
    assert (found.low, found.high) == wilson(3, 3)
    nothing = evaluate_clustered(tried("00 00 00"), "task")
    assert (nothing.low, nothing.high) == wilson(0, 3)
    with pytest.raises(DataError, match="needs two clusters or more: got 1 of 2;"):
        evaluate_clustered(tried("11"), "task")


def test_a_task_that_only_broke_is_in_no_rate_of_a_round() -> None:
    late = replace(played("c", False), outcome=BROKEN)
    first, second = [played("a", True), played("b", False), late], [played("b", True), late]
    assert rate_rounds([*first, *second]) == {1: 0.5, 2: 1.0}


def test_clusters_are_what_tasks_say() -> None:
    task = Task(id="t", environment="w", seed=0, data={"request": 7})
    assert [cluster_of(task, key) for key in ("task", "environment", "request")] == ["t", "w", "7"]
    with pytest.raises(UsageError, match=r"cluster 'x': got t, .* choose one of task, environment, request"):
        cluster_of(task, "x")


def test_a_comparison_over_clusters_is_wider_and_flips_whole_ones() -> None:
    def arm(solved: str) -> list[Trajectory]:
        return [played(f"t{n}", letter == "1", data={"request": n // 4}) for n, letter in enumerate(solved)]

    runs = {"a": arm("0" * 16), "b": arm("1111" * 2 + "0000" * 2)}
    (_, plain), (_, clustered) = compare(runs).rows, compare(runs, cluster="request").rows
    assert plain.difference is not None and clustered.difference is not None
    assert plain.difference.mean == clustered.difference.mean == 0.5
    assert clustered.difference.high - clustered.difference.low > plain.difference.high - plain.difference.low
    assert plain.p_value == 2 / 256 and clustered.p_value == 0.5, "two of four clusters moved"


def test_a_difference_over_clusters_is_within_what_a_rate_can_change() -> None:
    found = difference_over_clusters([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], list("aabbcc"))
    assert found.mean == pytest.approx(5 / 6) and found.high == 1.0 and found.low < found.mean
    assert difference_over_clusters([-1.0, 0.0, -1.0, -1.0], list("aabb")).low == -1.0
    lost = difference_over_clusters([-1.0] * 6, list("aabbcc"))
    assert (lost.low, lost.high) == (-1.0, pytest.approx(1 - 2 * wilson(3, 3)[0]))
    won = difference_over_clusters([1.0] * 6, list("aabbcc"))
    assert (won.low, won.high) == (-lost.high, 1.0)
    (_, row) = compare(
        {"a": [played("t1", True), played("t2", True)], "b": [played("t1", False), played("t2", False)]},
        cluster="task",
    ).rows
    assert row.difference is not None and row.difference.low == -1.0 and row.difference.high > -0.5


def test_what_shares_one_cluster_only_is_not_compared_and_is_refused_beforehand() -> None:
    ours = [played(f"t{n}", n > 0, data={"request": n}) for n in range(3)]
    theirs = [played("t0", True, data={"request": 0}), played("u1", True, data={"request": 1})]
    found = compare({"a": ours, "b": theirs}, cluster="request")
    assert found.rows[1].difference is None and "two clusters or more" in found.notes[0]
    tasks = {"a": [t.task for t in ours], "b": [t.task for t in theirs]}
    with pytest.raises(DataError, match=r"comparing b with a: got tasks in common of one request only \(0\)"):
        check_shared(tasks, "request")
    check_shared({"a": tasks["a"], "c": tasks["a"], "d": tasks["b"][1:]}, "request")


def test_costs_abilities_and_tasks_are_told() -> None:
    calls = make_turn((2, 3), prompt=(1,), action=Action(tool_calls=(ToolCall(name="f"), ToolCall(name="g"))))
    first = played("a", True, turn=calls, tags=frozenset({"planning", "text"}))
    broken = replace(played("a", False, index=1, tags=frozenset({"planning", "text"})), outcome=BROKEN)
    second = played("b", False, tags=frozenset({"planning", "memory"}))
    found = make_report([first, broken, second])
    cost = found.cost
    assert (cost.model_calls, cost.tool_calls, cost.prompt_tokens, cost.sampled_tokens) == (3, 2, 7, 6)
    assert cost.seconds == 6.0
    assert {name: (rate.success, rate.num) for name, rate in found.abilities.items()} == {
        "planning": (0.5, 2),
        "memory": (0.0, 1),
    }
    assert make_report([first]).abilities == {}, "all ask for the same"
    assert [(task.id, task.success, task.abilities) for task in found.tasks] == [
        ("a", 1.0, ("planning",)),
        ("b", 0.0, ("planning", "memory")),
    ]
    row = found.as_json()
    assert (row["num"], row["num_failed"], row["success"]) == (2, 1, 0.5)
    episodes = row["tasks"][0]["episodes"]
    assert episodes[0]["outcome"] == "done" and episodes[0]["return"] == 1.0
    assert episodes[1]["outcome"] == "broken" and episodes[1]["failure"] == "tool/timeout: late"
    lost = make_report([replace(first, outcome=BROKEN), second])
    assert lost.tasks[0].success is None


def test_the_environment_of_a_mixture_that_is_solved_least_comes_first() -> None:
    def of(name: str, *solved: bool) -> list[Trajectory]:
        tasks = [Task(id=f"{name}{i}", environment=name, seed=i) for i in range(len(solved))]
        return [replace(played(t.id, won), task=t) for t, won in zip(tasks, solved, strict=True)]

    easy, hard = of("easy", True, True, False, True), of("hard", True, False)
    found = make_report([*easy, *hard]).environments
    assert [(name, rate.success, rate.num) for name, rate in found.items()] == [
        ("hard", 0.5, 2),
        ("easy", 0.75, 4),
    ]
    assert make_report(easy).environments == {}

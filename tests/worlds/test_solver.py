"""Chains and graphs of thoughts: what a solver is asked, what its answers change, and what is paid for them."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Literal

import pytest

from quintain.environments.check import check
from quintain.environments.protocol import advance, begin
from quintain.errors import DataError, UsageError
from quintain.types import Action, StepResult
from quintain.worlds.solver.chain import Chain, error_rate, read_ratings
from quintain.worlds.solver.game import Solver
from quintain.worlds.solver.problem import Problem
from quintain.worlds.solver.thoughts import (
    Sorting,
    Thought,
    find_answers,
    list_moves,
    read_graph,
    write_graph,
)

EASY = Chain(start=7, ops=(("+", 5), ("-", 3)), is_hard=False, value=7)
RATED = "3 3 3 1 1 3 3"


def do(problem: Chain, *actions: tuple[str, tuple[str, ...]]) -> Chain:
    for action, said in actions:
        assert problem.ask(action, said[:-1]) and not problem.ask(action, said), (
            "as many answers as questions"
        )
        problem = problem.apply(action, said)
    return problem


def play(world: Solver, index: int = 0, split: str = "train") -> list[StepResult]:
    """Let the expert play a task."""
    begin(world, world.task("eval" if split == "eval" else "train", index))
    results = list[StepResult]()
    while not results or not (results[-1].is_over or len(results) >= world.max_turns):
        results.append(advance(world, world.expert_action()))
    return results


@pytest.mark.parametrize(
    "spec",
    [
        "solver",
        "solver?kind=sort",
        "solver?by=model",
        "solver?kind=sort&by=model",
        "solver?kind=sort&free=true",
    ],
)
def test_it_keeps_the_protocol(spec: str) -> None:
    report = check(spec, episodes=3)
    assert report.has_passed, "\n".join(report.lines())


def test_steps_lead_to_the_result_and_a_wrong_one_stays_until_it_is_refined() -> None:
    right = do(EASY, ("step", ("12", RATED)), ("step", ("so 9.", RATED)))
    assert right.is_right and right.process == 1.0 and right.calls == 2 and right.used == 2
    wrong = do(EASY, ("step", ("13", RATED)), ("step", ("10", RATED)))
    assert not wrong.is_right and wrong.process == 0.25
    assert do(wrong, ("refine", ("9", RATED))).is_right
    assert do(EASY, ("step", ("who knows", RATED))).value == 7, "no number: the value stays"


def test_a_debate_asks_who_is_right_where_two_differ() -> None:
    assert do(EASY, ("debate", ("12", "12", RATED))).calls == 2
    argued = do(EASY, ("debate", ("12", "13", "12", RATED)))
    assert argued.calls == 3 and argued.value == 12
    assert "One says 12, the other 13" in EASY.ask("debate", ("12", "13"))


def test_what_cannot_be_done_yet_is_not_listed() -> None:
    assert EASY.legal() == ("step", "decompose", "debate")
    planned = do(EASY, ("decompose", ("first +5; then -3", RATED)))
    assert planned.legal() == ("step", "debate") and "Plan: first +5" in planned.describe()
    assert do(planned, ("step", ("12", RATED))).legal() == ("step", "debate", "refine", "stop")
    assert replace(EASY, used=8).legal() == ("stop",)


def test_the_solver_rates_what_came_of_the_block() -> None:
    exact = replace(EASY, noise=0.0)
    assert exact.answer("step", ("12",), Random(0)) == "3 3 3 2 1 2 1"
    assert exact.answer("step", ("13",), Random(0)) == "1 3 1 2 1 2 1"
    assert replace(exact, is_hard=True).answer("begin", (), Random(0)) == "3 1 3 3 3 1 1"
    assert read_ratings("3, 9 and 1") == (3, 2, 1, 2, 2, 2, 2)


def test_a_script_errs_as_often_as_it_says() -> None:
    hard = replace(EASY, is_hard=True)
    for problem, rate in (
        (EASY, 0.15),
        (hard, 0.5),
        (replace(hard, plan="so"), 0.15),
        (replace(hard, errors=2.0), 0.9),
    ):
        assert error_rate(is_hard=problem.is_hard, is_split=bool(problem.plan), errors=problem.errors) == rate
        found = fmean(problem.answer("step", (), Random(seed)) != "12" for seed in range(400))
        assert found == pytest.approx(rate, abs=0.07)


def test_rewards_sum_to_success_less_calls() -> None:
    for index in range(6):
        results = play(world := Solver(cost=0.01), index)
        total = sum(each.reward for each in results)
        assert total == pytest.approx(float(results[-1].is_success is True) - 0.01 * world.problem.calls)


def test_a_solver_that_errs_not_is_right_whatever_is_done() -> None:
    world = Solver(kind="sort", errors=0.0)
    for index in range(20):
        begin(world, world.task("train", index))
        rng = Random(index)
        while True:
            legal = [each for each in world.legal_actions() if not each.startswith("refine")]
            if (result := advance(world, Action(text=rng.choice(legal)))).is_over:
                break
            if world.problem.calls == 12 and not find_answers(graph_of(world.problem), 0):
                break
        assert result.is_success or not find_answers(graph_of(world.problem), 0)


def graph_of(problem: Problem) -> tuple[Thought, ...]:
    assert isinstance(problem, Sorting)
    return problem.graph


GRAPH = (
    Thought(kind="problem", of=None, content=(4, 2, 3, 1)),
    Thought(kind="problem", of=0, content=(4, 2)),
    Thought(kind="problem", of=0, content=(3, 1)),
    Thought(kind="answer", of=1, content=(2, 4), score=0.71),
    Thought(kind="answer", of=1, content=(4, 2), score=0.44, is_dropped=True),
)


def test_a_graph_is_written_and_read_back() -> None:
    text = write_graph(GRAPH)
    assert text.splitlines()[0] == "0 problem of -: 4 2 3 1"
    assert text.splitlines()[4] == "4 answer of 1 (score 0.44, dropped): 4 2"
    assert read_graph(text) == GRAPH
    for bad in ("0 problem of 0: 1", "1 problem of -: 1", "0 idea of -: 1", "0 problem of -: x"):
        with pytest.raises(DataError, match="graph of thoughts: got '"):
            read_graph(bad)


def test_each_transformation_has_what_must_hold_before_it() -> None:
    assert list_moves(GRAPH[:1]) == ["solve 0", "split 0"]
    assert list_moves(GRAPH) == ["solve 0", "solve 1", "solve 2", "refine 3"], (
        "halves are too short to be split"
    )
    solved = (*GRAPH, Thought(kind="answer", of=2, content=(1, 3), score=0.5))
    assert list_moves(solved) == ["solve 0", "merge 0", "solve 1", "solve 2", "refine 3", "refine 5"]
    again = (*solved, Thought(kind="answer", of=2, content=(3, 1), score=0.6))
    assert "keep 2" in list_moves(again) and find_answers(again, 2) == [6, 5]
    whole = (*again, Thought(kind="answer", of=0, content=(1, 2, 3, 4), score=0.9))
    assert list_moves(whole)[-1] == "stop"


def test_what_is_done_to_a_graph_costs_a_call_but_keeping() -> None:
    start = Sorting(graph=GRAPH[:1], most=9, slope="flat")
    split = start.apply("split 0", ("4 2; 3 1",))
    assert [t.content for t in split.graph] == [(4, 2, 3, 1), (4, 2), (3, 1)] and split.calls == 1
    assert start.apply("split 0", ("4 2; 3 3",)).graph == start.graph, "other numbers are no halves"
    twice = split.apply("solve 1", ("2 4",)).apply("solve 1", ("4 2",)).apply("solve 2", ("1 3",))
    kept = twice.apply("keep 1", ())
    assert kept.calls == twice.calls == 4 and sum(t.is_dropped for t in kept.graph) == 1
    best = kept.graph[find_answers(kept.graph, 1)[0]].content
    assert kept.ask("merge 0", ()).endswith(f": {' '.join(map(str, best))}; 1 3")
    merged = kept.apply("merge 0", ("1 2 3 4",))
    assert merged.is_right and not merged.apply("refine 6", ("1 2 4 3",)).is_right


def test_a_program_splits_and_merges_at_no_call() -> None:
    start = Sorting(graph=GRAPH[:1], most=2, slope="flat", noise=0.5, is_free=True)
    assert start.ask("split 0", ()) == "" and start.ask("merge 0", ()) == ""
    split = start.apply("split 0", ())
    assert [t.content for t in split.graph] == [(4, 2, 3, 1), (4, 2), (3, 1)] and split.calls == 0
    solved = split.apply("solve 1", ("2 4",)).apply("solve 2", ("3 1",))
    assert solved.calls == 2 and solved.legal() == ("merge 0", "stop"), (
        "no call is left but for what costs none"
    )
    merged = solved.apply("merge 0", ())
    assert merged.graph[-1].content == (2, 3, 1, 4), "what was not sorted is not mended"
    again = merged.apply("merge 0", ())
    assert again.graph[-1].score == merged.graph[-1].score, "the same score, or merging would buy opinions"
    both = replace(start, most=9).apply("solve 0", ("1 2 3 4",)).apply("solve 0", ("1 2 3 4",))
    assert both.graph[-1].score != both.graph[-2].score, "each call has its own"


def test_slopes_say_how_errors_rise_with_length() -> None:
    def rates(slope: Literal["mixed", "flat", "steep", "even"], seed: int) -> tuple[float, float]:
        made = Sorting.draw(
            Random(seed), size=16, most=9, errors=0.5, noise=0.5, slope=slope, is_free=False, seed=seed
        )
        return made.rate_of_size(16), made.rate_of_size(4)

    assert rates("flat", 0) == pytest.approx((0.06, 0.015)) and rates("even", 0) == pytest.approx(
        (0.15, 0.15)
    )
    assert rates("steep", 0) == pytest.approx((0.485, 0.075))
    assert {rates("mixed", seed) for seed in range(20)} == {rates("flat", 0), rates("steep", 0)}
    won = [
        play(Solver(kind="sort", size=32, slope="steep", free=True), index)[-1].is_success
        for index in range(10)
    ]
    assert fmean(map(bool, won)) > 0.3


def test_a_score_tells_right_from_wrong_four_times_in_five() -> None:
    scores: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(300):
        for answer in ("1 2 3 4", "1 2 4 3"):
            made = Sorting(graph=GRAPH[:1], most=9, slope="flat", noise=0.5, seed=seed).apply(
                "solve 0", (answer,)
            )
            scores[made.is_right].append(made.graph[1].score or 0.0)
    wins = [float(a > b) + (a == b) / 2 for a in scores[True] for b in scores[False]]
    assert fmean(wins) == pytest.approx(0.8, abs=0.05)


def test_without_calls_nothing_is_left_but_what_asks_nobody() -> None:
    some = Sorting(graph=GRAPH, most=2, slope="flat", calls=2)
    assert some.legal() == ("stop",)
    solved = replace(some, graph=(*GRAPH[:1], Thought(kind="answer", of=0, content=(1, 2), score=0.1)))
    assert solved.legal() == ("stop",) and not solved.is_right


def test_the_solver_is_a_seat_that_is_asked_in_words() -> None:
    world = Solver(by="model", noise=0.0)
    first = begin(world, world.task("train", 0))
    assert (
        world.seats() == ("policy", "solver")
        and world.seat() == "solver"
        and "Rate from 1 to 3" in str(first)
    )
    shown = advance(world, Action(text="3 3 3 3 1 1 1"))
    assert world.seat() == "policy" and "Scores: 3 3 3 3 1 1 1\nBlocks: step, " in str(shown.observation)
    asked = advance(world, Action(text="step"))
    assert world.seat() == "solver" and asked.reward == 0 and "Next: " in str(asked.observation)
    chain = world.problem
    assert isinstance(chain, Chain)
    sign, number = chain.ops[0]
    result = chain.start + number * (1 if sign == "+" else -1)
    advance(world, Action(text=f"It is {result}"))
    paid = advance(world, Action(text="3 3 3 3 1 1 1"))
    assert (
        dict(paid.reward_terms) == {"process": 1 / len(chain.ops), "calls": -0.02}
        and world.seat() == "policy"
    )


def test_what_is_not_listed_changes_nothing() -> None:
    world = Solver()
    begin(world, world.task("train", 0))
    before = world.state_key()
    result = advance(world, Action(text="stop"))
    assert (
        not result.is_valid
        and "'stop' cannot be done" in str(result.observation)
        and world.state_key() == before
    )


def test_no_list_is_of_both_splits_and_the_expert_mostly_wins() -> None:
    world = Solver(kind="sort", size=4)
    seen: dict[str, set[object]] = {}
    for split in ("train", "eval"):
        for index in range(30):
            begin(world, world.task("eval" if split == "eval" else "train", index))
            seen.setdefault(split, set()).add(graph_of(world.problem)[0].content)
    assert not seen["train"] & seen["eval"]
    won = [play(Solver(kind="sort"), index)[-1].is_success for index in range(20)]
    assert fmean(map(bool, won)) > 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 9}, "solver: got size=9"),
        ({"kind": "sort", "calls": 0}, "calls=0"),
        ({"errors": -1.0}, "errors=-1.0"),
        ({"cost": 0.5}, "solver: got cost=0.5; give one with which 36 calls"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Solver(**options)  # pyright: ignore[reportArgumentType]


def test_scores_differ_from_one_block_to_the_next() -> None:
    world = Solver(noise=1.0)
    begin(world, world.task("train", 1))
    shown = list[tuple[int, ...]]()
    for _ in range(4):
        advance(world, Action(text="step"))
        assert isinstance(world.problem, Chain)
        shown.append(world.problem.scores)
    assert any(a != b for a, b in pairwise(shown))

"""Schedules over graphs of thoughts: what a step does at a level, what reads scores and what does not."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.agents.conftest import Talk

from quintain.agents.catalog import check, engine_needs
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.scored import Scored
from quintain.errors import UsageError
from quintain.search.thoughts import (
    Schedule,
    Scheduled,
    change_level,
    find_graph,
    find_weakest,
    list_level_moves,
)
from quintain.text.chat import Chat
from quintain.types import Task
from quintain.worlds.solver.thoughts import Sorting, Thought, write_graph

LIST = Sorting.draw(
    Random(1), size=8, most=9, errors=0.0, noise=0.0, slope="flat", is_free=True, seed=1
)  # fmt: skip
PAIRS = (
    Thought(kind="problem", of=None, content=(4, 2, 3, 1)),
    Thought(kind="problem", of=0, content=(4, 2)),
    Thought(kind="problem", of=0, content=(3, 1)),
    Thought(kind="answer", of=1, content=(2, 4), score=0.71),
    Thought(kind="answer", of=1, content=(4, 2), score=0.44),
)


def run(problem: Sorting, schedule: Schedule) -> tuple[list[str], Sorting]:
    """Return the moves of `schedule`, and what came of them."""
    moves: list[str] = []
    while (move := schedule.choose(problem.graph, problem.legal())) != "stop":
        moves.append(move)
        said = [problem.answer(move, (), Random(0))] if problem.ask(move, ()) else []
        problem = problem.apply(move, said)
    return moves, problem


def test_a_static_schedule_goes_down_and_up_by_levels_whatever_the_scores_are() -> None:
    expected = ["split 0", "solve 1", "solve 2", "merge 0"]
    for noise in (0.0, 8.0):
        moves, after = run(replace(LIST, noise=noise), Schedule(("split", "solve", "merge")))
        assert moves == expected and after.is_right and after.calls == 2
    moves, _ = run(LIST, Schedule(("split", "split", "solve", "merge", "merge")))
    assert moves == ["split 0", "split 1", "split 2", *(f"solve {k}" for k in (3, 4, 5, 6)), "merge 1", "merge 2",
                     "merge 0"]  # fmt: skip


def test_again_asks_for_the_problem_whose_best_answer_has_the_lowest_score() -> None:
    assert find_weakest(PAIRS, (1, 2)) == 2, "what has no answer comes first"
    solved = (*PAIRS, Thought(kind="answer", of=2, content=(1, 3), score=0.6))
    assert find_weakest(solved, (1, 2)) == 2, "of problem 1 the better answer counts"
    better = (*solved, Thought(kind="answer", of=2, content=(3, 1), score=0.9))
    assert find_weakest(better, (1, 2)) == 1
    assert find_weakest(better, (1, 2), lambda _, number: -float(number)) == 2, (
        "others' scores, another choice"
    )
    assert list_level_moves(better, (1, 2), "again") == ["solve 1"]
    assert list_level_moves(better, (1, 2), "refine") == ["refine 3", "refine 6"]
    assert list_level_moves(better, (1, 2), "merge") == ["merge 0"] and not list_level_moves(
        better, (0,), "merge"
    )


def test_levels_follow_what_was_split_and_merged() -> None:
    assert change_level(PAIRS, (0,), "split") == (1, 2) and change_level(PAIRS, (1, 2), "merge") == (0,)
    assert change_level(PAIRS[:1], (0,), "split") == (0,), "what was not split stays"
    assert change_level(PAIRS, (0,), "merge") == (0,) and change_level(PAIRS, (1, 2), "solve") == (1, 2)


def test_what_may_not_be_done_is_left_out_and_without_an_answer_calls_are_spent() -> None:
    moves, after = run(replace(LIST, most=2), Schedule(("split", "solve", "again", "merge")))
    assert moves == ["split 0", "solve 1", "solve 2", "merge 0"] and after.is_right, (
        "no call is left for again"
    )
    moves, _ = run(replace(LIST, most=3), Schedule(("split", "merge")))
    assert moves == ["split 0", "solve 0"], (
        "after the last step: the first that may be done, until it can stop"
    )


@pytest.fixture(scope="module")
def chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def test_a_model_is_made_to_say_what_the_schedule_says(chat: Chat) -> None:
    brief = Brief(task=Task(id="t", environment="t", seed=0), instructions="Go.", tools=(), legal_actions=())
    for inner in (PlainText(chat), Scored(chat)):
        talk = Talk(chat, Scheduled(inner, "split,solve,merge").open(brief))
        problem, moves = LIST, list[str]()
        for _ in range(5):
            sampling = talk.session.observe(problem.describe(), problem.legal()).sampling
            constraint = sampling.constraint
            assert constraint is not None and sampling.candidates is None
            moves.append(chat.words(json.loads(constraint.text)))
            talk.says(moves[-1])
            if moves[-1] != "stop":
                said = [problem.answer(moves[-1], (), Random(0))] if problem.ask(moves[-1], ()) else []
                problem = problem.apply(moves[-1], said)
        assert moves == ["split 0", "solve 1", "solve 2", "merge 0", "stop"] and talk.action.text == "stop"
        assert talk.session.observe("Sort these numbers: 3 1").sampling.constraint is None, (
            "the solver's own turn"
        )
    assert find_graph(f"That is wrong.\n{write_graph(PAIRS)}\nCalls left: 2.") == PAIRS
    assert find_graph("nothing to see") is None


@pytest.mark.parametrize("steps", ["split,sole", "", "solve,,merge"])
def test_a_step_that_is_none_is_refused(steps: str, chat: Chat) -> None:
    with pytest.raises(UsageError, match=r"scheduled: got the step '(sole|)'; "):
        Scheduled(PlainText(chat), steps)


def test_the_catalogue_knows_it() -> None:
    assert [layer.name for layer in check("scheduled?steps=solve+voted+text")] == [
        "scheduled",
        "voted",
        "text",
    ]
    assert engine_needs("scheduled+text") == {"tokens"}

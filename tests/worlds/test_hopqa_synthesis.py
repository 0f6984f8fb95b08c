"""Questions that were made harder: one answer by the graph, harder without search, solved by who searches."""

from random import Random

import pytest

from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.worlds.hopqa.facts import Fact, Question, QuestionShape, draw_question, read_facts
from quintain.worlds.hopqa.game import HopQA
from quintain.worlds.hopqa.synthesis import (
    GENERATIONS,
    Hop,
    answers,
    evolve,
    measure_closed_book,
    phrase,
    problem,
    word_question,
)

SHAPE = QuestionShape(1, 1, 40, 0.0, False, False)


SEAT, OWNER = Fact("Orbit", "seat", "Rome"), Fact("Orbit", "owner", "Delta")


FOUNDER, MAYOR = Fact("Ben", "employer", "Orbit"), Fact("Rome", "mayor", "Anna")


def test_nothing_else_answers_any_of_500_questions_and_they_are_harder() -> None:
    wrong = easier = rounds = 0
    for number in range(500):
        rng = Random(number)
        made = evolve(draw_question(SHAPE, rng), 2, rng)
        question = made.question
        if not made.rounds:
            assert question.asked == ""
            continue
        told = dict(read_facts(question.paragraphs))
        way = [
            Hop(fact, place)
            if fact in told
            else Hop(Fact(fact.answer, fact.relation, fact.subject), place, True)
            for fact, place in zip(question.chain, question.sources, strict=True)
        ]
        assert all(told[hop.fact] == hop.source for hop in way) and len(way) == 1 + len(made.rounds)
        wrong += answers(way, list(told)) != {question.gold} or question.gold in question.words()
        easier += any(b >= a for a, b in zip(made.closed_book, made.closed_book[1:], strict=False))
        rounds += len(made.rounds)
        assert question.words() == f"What is {phrase(way)}?"
    assert wrong == easier == 0 and rounds > 300


def test_how_ways_are_said() -> None:
    way = (Hop(OWNER, 0, is_backward=True), Hop(SEAT, 1), Hop(MAYOR, 2))
    assert phrase(way) == "the mayor of the seat of the company whose owner is Delta"
    question = Question(
        chain=(SEAT,),
        paragraphs=("a", "b", "c"),
        titles=("", "", ""),
        sources=(1,),
        is_closed=True,
        told=(1,),
    )
    made = word_question(question, way)
    assert made.chain == (Fact("Delta", "owner", "Orbit"), SEAT, MAYOR) and made.gold == "Anna"
    assert made.told == (0, 1, 2) and made.sources == (0, 1, 2)


def test_what_is_thrown_away() -> None:
    facts = [SEAT, OWNER, FOUNDER, MAYOR]
    good = (Hop(OWNER, 0, is_backward=True), Hop(SEAT, 1))
    assert problem(good, facts, 2.0) == ""
    assert problem(good, [*facts, Fact("Apex", "owner", "Delta")], 2.0) == "unique"
    assert problem(good, [*facts, Fact("Delta", "owner", "Nova")], 2.0) == "findable"
    assert problem((Hop(FOUNDER, 0), Hop(FOUNDER, 0, is_backward=True)), facts, 2.0) == "valid"
    assert problem(good, facts, measure_closed_book(good)) == "harder"
    assert answers(good, [*facts, Fact("Apex", "owner", "Delta"), Fact("Apex", "seat", "Oslo")]) == {
        "Rome",
        "Oslo",
    }


def test_a_fact_more_is_known_by_fewer() -> None:
    ways = [
        tuple(Hop(Fact(str(k), "seat", str(n)), 0) for n in range(num)) for k in range(50) for num in (1, 3)
    ]
    single, triple = (sum(measure_closed_book(way) for way in ways[start::2]) / 50 for start in (0, 1))
    assert single == pytest.approx(0.7, abs=0.07) and triple == pytest.approx(0.343, abs=0.1)
    assert measure_closed_book(ways[0]) * GENERATIONS == round(measure_closed_book(ways[0]) * GENERATIONS)


def test_it_ends_where_nobody_answers_or_nothing_fits() -> None:
    lonely = Question(
        chain=(SEAT,), paragraphs=(SEAT.words(),), titles=("Orbit",), sources=(0,), is_closed=False, told=()
    )
    made = evolve(lonely, 2, Random(0))
    assert made.question is lonely and made.rounds == () and sum(made.rejected.values()) == 4
    hard = [evolve(draw_question(SHAPE, Random(k)), 3, Random(k)) for k in range(150)]
    ended = [made for made in hard if made.closed_book[-1] == 0]
    assert ended and all(len(made.rounds) <= 3 and made.closed_book.count(0) == 1 for made in ended)


def test_who_searches_solves_them() -> None:
    world = HopQA(hops=1, closed=0.0, distractors=40, evolved=2)
    assert world.max_turns == 8
    backward = 0
    for index in range(40):
        backward += "whose" in str(begin(world, world.task("eval", index)))
        played = [advance(world, world.expert_action())]
        while not played[-1].is_terminated and len(played) < world.max_turns:
            played.append(advance(world, world.expert_action()))
        assert played[-1].is_success
    assert backward > 5
    with pytest.raises(UsageError, match="evolved=4"):
        HopQA(evolved=4)

import re
from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult, ToolError
from quintain.worlds.stream.game import State, Stream
from quintain.worlds.stream.text import Book, Question

BOOK = Book(
    known="",
    pages=("red = 4. blue = 7.", "green = 1.", "pink = red. gold = 2."),
    questions=(
        Question(text="pink + blue?", answer=11, pages=(1, 3)),
        Question(text="green?", answer=1, pages=(2,)),
    ),
)


def reader(book: Book = BOOK, **options: Any) -> Stream:
    given: dict[str, Any] = {"terms": 2, "questions": 2, **options}
    world = Stream(**given)
    world.restore(State(book=book))
    return world


def act(world: Stream, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_a_book_by_value() -> None:
    world = reader()
    results = act(world, "read", "READ", "read", "answer 11", "Answer 1.")
    assert [result.observation for result in results] == [
        "Page 1: red = 4. blue = 7. pink + blue? green?",
        "Page 2: green = 1. pink + blue? green?",
        "Page 3: pink = red. gold = 2. pink + blue? green?",
        "Next: green?",
        "Thank you.",
    ]
    assert [result.reward for result in results] == [-0.02, -0.02, -0.02, 0.5, 0.5]
    assert [result.is_success for result in results] == [False] * 4 + [True] and results[-1].is_terminated


def test_an_episode_of_a_task_by_value() -> None:
    world = Stream(reminder=False, pages=2)
    episode = play(world, world.task("train", 3), expert)
    assert episode.observations == GOLDEN
    assert episode.rewards == (-0.02,) * (len(GOLDEN) - 2) + (1.0,)


GOLDEN = ("2 pages. black?", "Page 1: black = 7. gray = 6. lemon = 8.", "Thank you.")


def test_one_wrong_answer_is_no_success_but_the_others_count() -> None:
    results = act(reader(), "answer 12", "answer 1")
    assert [result.reward for result in results] == [0, 0.5] and results[-1].is_success is False
    assert dict(results[0].reward_terms) == {"answer": 0.0}


def test_dense_rewards_pay_needed_pages_and_add_up_to_one_less_costs() -> None:
    results = act(reader(dense=True, cost=0.0), "read", "read", "read", "answer 11", "answer 1")
    assert [result.reward for result in results] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 0.25, 0.25])
    assert dict(results[0].reward_terms) == {"reading": 0.0, "found": pytest.approx(1 / 6)}


def test_reading_on_is_a_waste_and_says_so() -> None:
    book = Book(
        known="red = 4.",
        pages=("blue = 1.", "blue = 1."),
        questions=(Question(text="red?", answer=4, pages=()),),
    )
    world = reader(book, terms=1, questions=1, dense=True)
    assert not world.needs_reading() and world.expert_action() == Action(text="answer 4")
    assert dict(act(world, "read")[0].reward_terms) == {"needless_reading": -0.02}
    assert act(world, "answer 4")[0].reward == 1.0, "there was nothing to find"
    open_book = reader()
    assert open_book.needs_reading()
    assert [dict(result.reward_terms) for result in act(open_book, "read", "answer 11", "read", "read")] == [
        {"reading": -0.02},
        {"answer": 0.5},
        {"reading": -0.02},
        {"needless_reading": -0.02},
    ]


@pytest.mark.parametrize("text", ["", "answer", "answer four", "answer 4 or 5", "turn", "read page 2"])
def test_other_words_change_nothing(text: str) -> None:
    world = reader()
    key = world.state_key()
    (result,) = act(world, text)
    assert result.observation == "Error: write `read` or `answer` and a number" and not result.is_valid
    assert world.state_key() == key
    unread = advance(world, Action(text="read", error="unreadable"))
    assert unread.observation == "Error: unreadable" and world.state_key() == key


def test_there_is_no_page_after_the_last() -> None:
    world = reader()
    assert world.legal_actions()[:2] == ("read", "answer 0") and len(world.legal_actions()) == 20
    act(world, "read", "read", "read")
    assert world.legal_actions()[0] == "answer 0"
    (result,) = act(world, "read")
    assert (
        result.observation == "Error: there are no more pages" and not result.is_valid and result.reward == 0
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 50),
        ({"questions": 3, "terms": 2, "hops": 2, "pages": 6, "facts": 6, "corrections": 0.5}, 20),
        ({"cut": True, "filler": 3, "hops": 3, "closed_book": 0.0}, 20),
        ({"tool_failures": 0.2, "dense": True, "corrections": 1.0, "facts": 5}, 20),
        ({"closed_book": 1.0, "questions": 2}, 20),
    ],
)
def test_the_expert_wins(options: dict[str, Any], count: int) -> None:
    world = Stream(**options)
    for index in range(count):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and all(end[3] for end in episode.ends)


def solve(pages: list[str], text: str) -> int:
    """Answer question `text` from the words of `pages` alone."""
    facts = dict(re.findall(r"(\w+) = (\w+)(?: \(new\))?\.", " ".join(pages)))
    total = 0
    for key in text.removesuffix("?").split(" + "):
        while not key.isdigit():
            key = facts[key]
        total += int(key)
    return total


@pytest.mark.parametrize("cut", [False, True])
def test_the_answers_follow_from_the_text(cut: bool) -> None:
    world = Stream(questions=2, terms=2, hops=2, facts=8, corrections=0.5, filler=2, closed_book=0.3, cut=cut)
    for index in range(25):
        begin(world, world.task("train", index))
        book = world.snapshot().book
        for question in book.questions:
            assert solve([book.known, *book.pages], question.text) == question.answer
            assert all(1 <= page <= 4 for page in question.pages) and bool(question.pages) != bool(book.known)


def test_the_needed_pages_are_enough_and_none_is_too_much() -> None:
    world = Stream(hops=2, terms=2, closed_book=0.0)
    for index in range(25):
        begin(world, world.task("train", index))
        book = world.snapshot().book
        (question,) = book.questions
        needed = [book.pages[page - 1] for page in question.pages]
        assert solve(needed, question.text) == question.answer
        for left_out in range(len(needed)):
            with pytest.raises(KeyError):
                solve(needed[:left_out] + needed[left_out + 1 :], question.text)


def test_longer_books_ask_the_same_of_a_reader() -> None:
    short, long = Stream(pages=3, closed_book=0.0), Stream(pages=12, filler=5, closed_book=0.0)
    lengths = [len(play(world, world.task("train", 0), expert).observations) for world in (short, long)]
    assert max(lengths) <= 14 and long.return_range == (-0.24, 1.0) and long.max_turns == 26


def test_nothing_is_paid_for_nothing_and_chance_is_low() -> None:
    world = Stream(dense=True)
    tasks = [world.task("eval", index) for index in range(40)]
    assert all(play(world, task, noop).total == 0 for task in tasks)
    assert sum(play(world, task, random_policy(7)).is_success for task in tasks) < 14
    wins = [sum(play(world, task, noisy_policy(rate, 1)).is_success for task in tasks) for rate in (0, 0.5)]
    assert wins[0] == 40 > wins[1]


def test_pages_fail_to_open_on_demand() -> None:
    world = reader(tool_failures=0.8)
    results = [act(world, "read")[0] for _ in range(60)]
    failed = [result for result in results if "did not open" in str(result.observation)]
    assert failed and all(result.is_valid and result.reward == 0 for result in failed)
    assert failed[0].tool_errors == (ToolError(tool="read", cause="tool_error"),)
    assert world.snapshot().page == 3


def test_snapshots_continue_alike_elsewhere() -> None:
    world, other = Stream(pages=6, tool_failures=0.3), Stream(pages=6, tool_failures=0.3)
    for index in range(15):
        begin(world, world.task("train", index))
        act(world, "read")
        begin(other, world.task("eval", index))
        other.restore(world.snapshot())
        assert world.state_key() == other.state_key() and world.privileged() == other.privileged()
        for text in ("read", "read", "answer 3"):
            assert act(world, text) == act(other, text)


def test_thousands_of_tasks_and_no_content_in_both_splits() -> None:
    world = Stream()
    seen: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split in ("train", "eval"):
        for index in range(80):
            begin(world, world.task(split, index))
            seen[split].add(repr(world.snapshot().book))
    assert len(seen["train"]) == len(seen["eval"]) == 80 and not seen["train"] & seen["eval"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pages": 0}, "at least 1 of each"),
        ({"values": 1, "corrections": 0.5}, "2 values"),
        ({"closed_book": 1.5}, "shares from 0 to 1"),
        ({"questions": 5, "terms": 3}, "write more pages"),
        ({"questions": 5, "terms": 3, "pages": 30}, "at least two more keys"),
        ({"keys": 41}, "at most 40"),
        ({"cost": 0.3}, "cost less"),
        ({"tool_failures": 1.0}, "some must open"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Stream(**options)


@pytest.mark.parametrize("options", [{}, {"terms": 2, "hops": 2, "corrections": 0.3, "keys": 24, "facts": 6}])
def test_decoys_make_open_questions_look_like_closed_ones(options: dict[str, Any]) -> None:
    plain, decoyed = Stream(closed_book=0.5, **options), Stream(closed_book=0.5, decoys=1, **options)
    told: dict[tuple[bool, bool], set[int]] = {}
    for index in range(60):
        for world in (plain, decoyed):
            first = str(begin(world, world.task("train", index)))
            book = world.snapshot().book
            is_closed = not book.questions[0].pages
            told.setdefault((world is decoyed, is_closed), set()).add(first.count("="))
            asked = book.questions[0].text.rstrip("?").split(" + ")
            assert is_closed == any(f"{key} =" in book.known for key in asked)
    (num,) = told[True, True]
    assert told == {(True, True): {num}, (True, False): {num}, (False, True): {num}, (False, False): {0}}
    with pytest.raises(UsageError, match="decoys=9"):
        Stream(decoys=9, pages=1)

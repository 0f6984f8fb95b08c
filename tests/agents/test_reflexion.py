"""Lessons are a value: what an attempt is told, at most three of them, and only those of its task."""

from collections.abc import Callable

import pytest
from tests.agents.conftest import Talk
from tests.build import make_episode, make_turn

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.reflexion import (
    MAX_TRANSCRIPT,
    Lessons,
    Reflexion,
    attempt_text,
    count_repeats,
    find_failed_calls,
)
from quintain.text.chat import Chat
from quintain.types import Action, Task, ToolCall, ToolError

Briefs = Callable[..., Brief]


def task_of(name: str) -> Task:
    return Task(id=name, environment="t", seed=0)


def test_the_newest_lessons_are_kept_by_task() -> None:
    lessons = Lessons()
    for text in ("one", "two", " three\n lines ", "  ", "four"):
        lessons = lessons.add(task_of("a"), text)
    assert lessons.of("a") == ("two", "three lines", "four")
    assert lessons.of("b") == Lessons().of("a") == ()
    assert lessons.add(task_of("b"), "x", max_lessons=1).of("a") == lessons.of("a")


def test_golden_prompt_with_lessons(small_chat: Chat, brief_of: Briefs) -> None:
    lessons = Lessons().add(task_of("t/train/0"), "Go right.").add(task_of("t/train/0"), "Not left.")
    talk = Talk(small_chat, Reflexion(PlainText(small_chat), lessons).open(brief_of()))
    assert talk.sees("A wall.") == (
        "<|system|>Go.\n\nWhat you learned from failed attempts:\n- Go right.\n- Not left.<|user|>A wall.<|assistant|>"
    )
    other = Talk(
        small_chat, Reflexion(PlainText(small_chat), lessons.add(task_of("u"), "x")).open(brief_of())
    )
    assert "- x" not in other.sees("A wall.")
    plain = Talk(small_chat, Reflexion(PlainText(small_chat)).open(brief_of()))
    assert plain.sees("A wall.") == "<|system|>Go.<|user|>A wall.<|assistant|>"


def test_the_last_attempt_stands_in_the_prompt_behind_lessons(small_chat: Chat, brief_of: Briefs) -> None:
    failed = make_episode(
        make_turn(shows="A wall.", text="left"), task=task_of("t/train/0"), final_observation="Ouch."
    )
    agent = Reflexion(PlainText(small_chat), Lessons(), {"t/train/0": failed})
    told = "Your last attempt, which failed:\nObservation: A wall.\nAction: left\nObservation: Ouch."
    assert Talk(small_chat, agent.open(brief_of())).sees("A wall.") == (
        f"<|system|>Go.\n\n{told}<|user|>A wall.<|assistant|>"
    )
    both = Reflexion(PlainText(small_chat), Lessons().add(task_of("t/train/0"), "Go right."), agent.attempts)
    seen = Talk(small_chat, both.open(brief_of())).sees("A wall.")
    assert seen.index("- Go right.") < seen.index(told)
    assert Talk(small_chat, Reflexion(PlainText(small_chat), Lessons(), {"u": failed}).open(brief_of())).sees(
        "A wall."
    ) == ("<|system|>Go.<|user|>A wall.<|assistant|>")


def test_of_a_long_attempt_the_end_is_shown() -> None:
    turns = [make_turn(shows=f"room {n}", text="go") for n in range(900)]
    shown = attempt_text(make_episode(*turns, final_observation="the end"))
    assert shown.endswith("Action: go\nObservation: the end") and "room 0\n" not in shown
    assert MAX_TRANSCRIPT - 30 < len(shown.partition("\n")[2]) <= MAX_TRANSCRIPT


@pytest.mark.parametrize(
    ("moves", "reply", "count"),
    [
        ("", "wall", 0),
        ("left:wall", "wall", 1),
        ("left:hall left:wall left:wall left:wall", "wall", 3),
        ("left:wall left:wall left:door", "door", 1),
        ("left:wall right:wall left:wall", "wall", 1),
        ("left:wall right:wall right:wall", "wall", 2),
    ],
)
def test_an_action_is_repeated_where_its_reply_is_the_same(moves: str, reply: str, count: int) -> None:
    # Each is ACTION:REPLY; the reply stands in the turn after, of the last one in what is given.
    pairs = [move.split(":") for move in moves.split()]
    shown = ["start", *(said for _, said in pairs)]
    turns = [make_turn(shows=seen, text=action) for seen, (action, _) in zip(shown, pairs, strict=False)]
    assert count_repeats(turns, reply) == count
    thoughts = [part for turn in turns for part in (make_turn(shows="x", text="hm", seat="agent/plan"), turn)]
    assert count_repeats(thoughts, reply) == count


def test_calls_are_told_apart_by_their_arguments() -> None:
    def call(number: int) -> Action:
        return Action(tool_calls=(ToolCall(name="guess", arguments={"number": number}, id=f"c{number}"),))

    turns = [make_turn(shows="no", action=call(number)) for number in (1, 2, 2)]
    assert count_repeats(turns, "no") == 2


def test_wrong_calls_are_remembered_with_their_errors(small_chat: Chat, brief_of: Briefs) -> None:
    wrong = Action(tool_calls=(ToolCall(name="guess", arguments={"unit": "kg"}),))
    mistake = (ToolError(tool="guess", cause="invalid_call"),)
    broken = (ToolError(tool="guess", cause="tool_error"),)
    turns = [
        make_turn(shows="Guess.", action=wrong, tool_errors=mistake),
        make_turn(shows="Error: guess(unit): unknown", action=wrong, tool_errors=mistake),
        make_turn(shows="Error: guess(unit): unknown", action=Action(text="x"), tool_errors=broken),
    ]
    found = find_failed_calls(make_episode(*turns, final_observation="broken"))
    assert found == ('guess[{"unit": "kg"}]: Error: guess(unit): unknown',), (
        "each once, and no tool's failure"
    )
    calls = Lessons().add(task_of("t/train/0"), found[0])
    agent = Reflexion(PlainText(small_chat), Lessons(), {}, calls)
    assert Talk(small_chat, agent.open(brief_of())).sees("A wall.") == (
        f"<|system|>Go.\n\nCalls that failed before, and why:\n- {found[0]}<|user|>A wall.<|assistant|>"
    )

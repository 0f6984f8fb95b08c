"""Lessons are a value: what an attempt is told, at most three of them, and only those of its task."""

from collections.abc import Callable

from tests.agents.conftest import Talk

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.reflexion import Lessons, Reflexion
from quintain.text.chat import Chat
from quintain.types import Task

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

"""A thought stands where the answer has its place for it, and the action behind it stays."""

from dataclasses import replace

import pytest

from quintain.data.thoughts import split, whole_text, with_thought
from quintain.types import Message, as_content


@pytest.mark.parametrize(
    ("text", "has_calls", "made"),
    [
        ("", True, "It is far."),
        ("Action: go on", False, "Thought: It is far.\nAction: go on"),
        ("<search>Rome</search>", False, "<think>It is far.</think><search>Rome</search>"),
        ("Rome.", False, "<think>\nIt is far.\n</think>\n\nRome."),
    ],
)
def test_a_thought_is_found_again_and_the_action_is_what_it_was(
    text: str, has_calls: bool, made: str
) -> None:
    assert with_thought("It is far.", text, has_calls=has_calls) == made
    assert split(made, has_calls=has_calls) == ("It is far.", text)
    assert split(text, has_calls=has_calls) == ("", text)


@pytest.mark.parametrize(
    ("thought", "text", "has_calls"),
    [
        ("Then\nAction: stay", "Action: go on", False),
        ("a </think> b", "Rome.", False),
        ("a </think> b", "<search>Rome</search>", False),
        ('<tool_call>{"name": "x"}</tool_call>', "", True),
    ],
)
def test_a_thought_that_would_change_the_action_is_refused(thought: str, text: str, has_calls: bool) -> None:
    assert with_thought(thought, text, has_calls=has_calls) is None


def test_a_thought_of_react_has_no_heading() -> None:
    assert split("Thought: a\nb\nAction: go", has_calls=False) == ("a\nb", "Action: go")
    assert split("Why not.\nAction: go", has_calls=False) == ("Why not.", "Action: go")
    assert split("<think>\nx\n</think>\n\ny", has_calls=True) == ("x", "y")


def test_reasoning_stands_in_front_of_what_is_said() -> None:
    message = Message(role="assistant", content=as_content("y"))
    assert whole_text(message) == "y"
    assert whole_text(replace(message, reasoning="x")) == "<think>\nx\n</think>\n\ny"

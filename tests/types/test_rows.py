"""Nouns as JSON data by their type hints: what is left out, and what is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from quintain.types import (
    NOTHING,
    Action,
    Completion,
    Failure,
    Image,
    Observation,
    Outcome,
    Score,
    StepResult,
    Stop,
    Task,
    Text,
    ToolCall,
    ToolError,
)
from quintain.types.rows import from_row, plain, to_row


def sent(value: object, kind: Any = None) -> Any:
    return from_row(
        kind or type(value),
        json.loads(json.dumps(to_row(value, kind), default=plain)),
    )


def test_defaults_are_left_out_and_a_noun_of_one_text_is_that_text() -> None:
    assert to_row(StepResult(observation="up")) == {"observation": "up", "reward": 0.0}
    assert to_row(Action(text="go", tool_calls=(ToolCall(name="a"),))) == {
        "text": "go",
        "tool_calls": [{"name": "a"}],
    }
    assert to_row(Text(text="a")) == "a"
    assert to_row(Image(data=b"\x00", media_type="image/png")) == {"data": "AA==", "media_type": "image/png"}
    assert to_row(Task(id="t", environment="e", seed=1, tags=frozenset({"b", "a"})))["tags"] == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Text(text=""), None),
        ("a", Observation),
        ((Text(text="a"), Image(data=b"\x00\xff", media_type="m")), Observation),
        (Score(value=-0.0, is_success=False), Outcome),
        (Failure(owner="tool", kind="k", message="\ud800"), Outcome),
        (
            Completion(
                token_ids=(1, 2),
                logprobs=(-0.5, float("-inf")),
                stop="length",
                version_spans=((0, 1), (1, 2)),
            ),
            None,
        ),
        (StepResult(observation=(), rewards={"a": 1.0, "b": -1.0}, is_success=False, is_valid=False), None),
        (ToolError(tool="t", cause="timeout"), None),
        (Stop.TIMEOUT, None),
    ],
)
def test_what_is_read_is_what_was_written(value: Any, kind: Any) -> None:
    back = sent(value, kind)
    assert back == value and repr(back) == repr(value)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (Action, {"text": 3}),
        (Action, {"text": "a", "new": 1}),
        (Action, {"error": 3}),
        (Action, []),
        (Action, {"tool_calls": {"name": "a"}}),
        (Action, {"tool_calls": [{"arguments": {}}]}),
        (Action, {"tool_calls": [{"name": "a", "arguments": []}]}),
        (Text, {"text": "a"}),
        (Image, {"data": "!", "media_type": "m"}),
        (Outcome, {"value": 1.0}),
        (Outcome, {"value": 1.0, "is_success": True, "owner": "tool"}),
        (Outcome, "won"),
        (Score, {"value": "1", "is_success": True}),
        (Score, {"value": 1.0, "is_success": 2}),
        (ToolError, {"tool": "a", "cause": "none"}),
        (Stop, "late"),
        (Task, {"id": "a", "environment": "e", "seed": 1.5}),
        (Task, {"id": "a", "environment": "e", "seed": 1, "tags": "ab"}),
        (Task, {"id": "a", "environment": "e", "seed": 1, "tags": [1]}),
        (StepResult, {"observation": "a", "rewards": {"a": "1"}}),
        (Completion, {"token_ids": [1.5], "logprobs": [], "stop": "stop"}),
        (Completion, {"token_ids": 3, "logprobs": [], "stop": "stop"}),
        (Completion, {"token_ids": [], "logprobs": ["x"], "stop": "stop"}),
        (Completion, {"token_ids": [], "logprobs": [], "stop": "stop", "version_spans": [[1, 2, 3]]}),
    ],
)
def test_what_is_no_noun_is_refused(kind: Any, row: object) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_row(kind, row)


@dataclass(frozen=True, kw_only=True)
class Newer:
    """A noun with fields of every kind that no noun had before."""

    number: int
    texts: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    outcome: Outcome | None = None
    any: Any = None
    levels: Mapping[str, int] = NOTHING
    marks: frozenset[int] = frozenset()
    scratch: list[int] = field(default_factory=list[int], init=False, compare=False)


def test_a_new_field_needs_no_line() -> None:
    value = Newer(
        number=1,
        texts=("a", "b"),
        ids=(1, 2),
        calls=(ToolCall(name="x", arguments={"n": 1}),),
        outcome=Score(value=1.0, is_success=True),
        any=[1, {"a": None}],
        levels={"a": 1},
        marks=frozenset({3, 1}),
    )
    assert sent(value) == value
    assert sent(Newer(number=2)) == Newer(number=2)
    assert from_row(Newer, {"number": 3}) == Newer(number=3)


def test_a_type_without_a_form_is_an_error_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="which has no JSON form"):
        from_row(complex, 1)

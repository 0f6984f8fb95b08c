import copy
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.calls import count_calls

from quintain.environments.tools import ToolFault, call_tool, tool, tool_specs
from quintain.errors import UsageError
from quintain.types import ToolCall


class Point(BaseModel):
    x: int
    y: int = 0


class Desk:
    """A desk with tools of many shapes."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @tool
    def guess(self, number: int) -> str:
        """Guess the hidden
        number.

        More words that the model does not get.
        """
        self.seen.append(number)
        return f"guessed {number}"

    @tool
    def search(
        self,
        query: str,
        limit: int = 3,
        kind: Literal["web", "mail"] = "web",
        tags: list[str] | None = None,
        rating: float = 0.5,
    ) -> str:
        """Search.

        Args:
            query: what to look for,
                in words
            limit (int): how many: at most
            kind: where

        Returns:
            rating: not a parameter's description
        """
        self.seen.append((query, limit, kind, tags, rating))
        return "found"

    @tool
    def go(self, point: Point, *, schema: Annotated[int, Field(ge=1)] = 1) -> str:
        """Go somewhere."""
        self.seen.append((point, schema))
        return "there"

    @tool
    def divide(self, by: int) -> str:
        """Divide."""
        return str(1 // by)

    @tool
    def count(self) -> str:
        """Count."""
        return 3  # type: ignore[return-value]


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def test_schema_of_signature_and_docstring() -> None:
    by_name = {spec.name: spec for spec in tool_specs(Desk)}
    assert list(by_name) == ["guess", "search", "go", "divide", "count"]
    assert by_name["guess"].description == "Guess the hidden number."
    assert by_name["guess"].parameters == {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    }
    assert by_name["search"].parameters["properties"] == {
        "query": {"type": "string", "description": "what to look for, in words"},
        "limit": {"type": "integer", "description": "how many: at most", "default": 3},
        "kind": {"type": "string", "enum": ["web", "mail"], "description": "where", "default": "web"},
        "tags": {
            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
            "default": None,
        },
        "rating": {"type": "number", "default": 0.5},
    }
    assert by_name["search"].parameters["required"] == ["query"]
    assert by_name["count"].parameters["properties"] == {}


def test_specs_are_read_once_and_inherited() -> None:
    class Wide(Desk):
        @tool
        def guess(self, number: int) -> str:
            """Guess better."""
            return "better"

        @tool
        def extra(self) -> str:
            """Do more."""
            return "more"

    class Narrow(Desk):
        divide = None  # type: ignore[assignment]

    assert tool_specs(Desk) is not None and tool_specs(Desk) == tool_specs(Desk)
    assert [spec.name for spec in tool_specs(Wide)] == ["guess", "search", "go", "divide", "count", "extra"]
    assert tool_specs(Wide)[0].description == "Guess better."
    assert "divide" not in [spec.name for spec in tool_specs(Narrow)]


def test_calls_pass_validated_arguments_and_keep_defaults() -> None:
    desk = Desk()
    assert call_tool(desk, call("guess", number=16)).text == "guessed 16"
    assert not call_tool(desk, call("guess", number=16)).is_error
    call_tool(desk, call("search", query="q", tags=["a"], rating=1))
    call_tool(desk, call("go", point={"x": 1}))
    assert desk.seen[2:] == [("q", 3, "web", ["a"], 1.0), (Point(x=1), 1)]


@pytest.mark.parametrize(
    ("name", "arguments", "text", "kind"),
    [
        ("gues", {}, "Error: no tool is called \"gues\"; did you mean 'guess'?", "unknown_tool"),
        ("guess", {}, "Error: guess(number): missing", "missing"),
        ("guess", {"number": "16"}, 'Error: guess(number): expected integer, got "16"', "mistyped"),
        ("guess", {"number": "true"}, 'Error: guess(number): expected integer, got "true"', "mistyped"),
        ("guess", {"number": 1.5}, "Error: guess(number): expected integer, got 1.5", "mistyped"),
        ("guess", {"number": 1.0}, "Error: guess(number): expected integer, got 1.0", "mistyped"),
        ("guess", {"number": True}, "Error: guess(number): expected integer, got true", "mistyped"),
        ("guess", {"number": None}, "Error: guess(number): expected integer, got null", "mistyped"),
        (
            "guess",
            {"number": 1, "numbr": 2},
            "Error: guess(numbr): unknown argument; did you mean 'number'?",
            "extra",
        ),
        (
            "guess",
            {"numbеr": 2},  # noqa: RUF001 its e is another alphabet's
            "Error: guess(number): missing; guess(numbеr): unknown argument; did you mean 'number'?",  # noqa: RUF001
            "misnamed",
        ),
        ("count", {"x": 2}, "Error: count(x): unknown argument; it takes no arguments", "extra"),
        (
            "search",
            {"query": "q", "kind": "fax"},
            "Error: search(kind): expected 'web' or 'mail', got \"fax\"",
            "mistyped",
        ),
        ("go", {"point": {"y": 1}}, "Error: go(point.x): missing", "missing"),
        (
            "search",
            {"query": "q", "rating": float("nan")},
            "Error: search(rating): expected a finite number, got NaN",
            "mistyped",
        ),
    ],
)
def test_mistakes_come_back_as_text_before_anything_is_done(
    name: str, arguments: dict[str, Any], text: str, kind: str
) -> None:
    desk = Desk()
    reply = call_tool(desk, call(name, **arguments))
    assert (reply.text, reply.is_error) == (text, True)
    assert reply.kind == kind and desk.seen == []


def test_long_values_are_cut() -> None:
    reply = call_tool(Desk(), call("guess", number="x" * 10_000))
    assert len(reply.text) < 120


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(["guess", "search", "go"]) | st.text(),
    arguments=st.dictionaries(
        st.sampled_from(["number", "query", "limit", "point", "schema"]) | st.text(), JSON, max_size=4
    ),
)
def test_no_call_of_the_policy_raises(name: str, arguments: dict[str, Any]) -> None:
    reply = call_tool(Desk(), ToolCall(name=name, arguments=arguments))
    assert reply.text.startswith("Error: ") == reply.is_error


def test_values_no_json_can_hold_are_mistakes_too() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (10**5000, {1}, deep, "\ud800"):
        assert call_tool(Desk(), call("guess", number=value)).is_error


def test_a_tool_that_raises_or_returns_no_text_is_the_tools_fault() -> None:
    with pytest.raises(ToolFault, match="tool divide raised ZeroDivisionError") as raised:
        call_tool(Desk(), call("divide", by=0))
    fault = raised.value
    assert (fault.tool_name, fault.owner) == ("divide", "tool")
    assert isinstance(fault.__cause__, ZeroDivisionError)
    with pytest.raises(ToolFault, match="tool count must return text: got int"):
        call_tool(Desk(), call("count"))
    twin = copy.deepcopy(fault)
    assert (str(twin), twin.tool_name) == (str(fault), "divide")


def test_tools_that_cannot_be_described_are_refused() -> None:
    class Untyped:
        @tool
        def act(self, what) -> str:  # type: ignore[no-untyped-def] # pyright: ignore
            """Act."""
            return "done"

    class Open:
        @tool
        def act(self, *what: int) -> str:
            """Act."""
            return "done"

    class Odd:
        @tool
        def act(self, what: Desk) -> str:
            """Act."""
            return "done"

    class Later:
        @tool
        async def act(self) -> str:
            """Act."""
            return "done"

    for owner, said in ((Untyped, "what"), (Open, "what"), (Odd, "JSON schema"), (Later, "async")):
        with pytest.raises(UsageError, match=said):
            tool_specs(owner)


def test_a_call_is_little_work() -> None:
    desk, request = Desk(), call("guess", number=16)
    call_tool(desk, request)
    assert count_calls(lambda: call_tool(desk, request)) < 40

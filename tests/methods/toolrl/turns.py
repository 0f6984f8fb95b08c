"""Turns that called a tool, as the tests of this family take them."""

from collections.abc import Sequence

from quintain.benchmarks.formulas import episodes
from quintain.types import Action, Text, ToolCall, ToolCause, ToolError, Turn


def adding(a: int, b: int) -> ToolCall:
    return ToolCall(name="add", arguments={"a": a, "b": b})


def turn_of(
    observation: str, action: Action, *, is_valid: bool = True, causes: Sequence[ToolCause] = ()
) -> Turn:
    errors = tuple(ToolError(tool="add", cause=cause) for cause in causes)
    seen = (Text(text=observation),)
    return episodes.turn_of(action=action, observation=seen, is_valid=is_valid, tool_errors=errors)

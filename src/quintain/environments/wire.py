"""What goes between an environment and us where it runs in another process: nouns as JSON data, and back.

The one rule: what is read equals what was written; a picture travels as base64.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

from quintain.store.codec import plain
from quintain.types import (
    NOTHING,
    Action,
    Image,
    Observation,
    StepResult,
    Text,
    ToolCall,
    ToolError,
    ToolSpec,
)

Row = dict[str, Any]
OURS = "quintain"
"""The key under which our clients find what foreign ones do not need."""


def observation_row(observation: Observation) -> str | list[Any]:
    """Return a text as itself, content parts as a list: a text, or the type and base64 data of a picture."""
    if isinstance(observation, str):
        return observation
    return [
        part.text if isinstance(part, Text) else [part.media_type, base64.b64encode(part.data).decode()]
        for part in observation
    ]


def read_observation(row: str | Sequence[Any]) -> Observation:
    """Return the observation that `row` holds."""
    if isinstance(row, str):
        return row
    return tuple(
        Text(text=part)
        if isinstance(part, str)
        else Image(media_type=part[0], data=base64.b64decode(part[1]))
        for part in row
    )


def action_row(action: Action) -> Row:
    """Return `action` as JSON data."""
    calls = [[call.name, dict(call.arguments)] for call in action.tool_calls]
    return {"text": action.text, "calls": calls, "error": action.error}


def read_action(row: Mapping[str, Any]) -> Action:
    """Return the action that `row` holds."""
    calls = tuple(ToolCall(name=name, arguments=given) for name, given in row["calls"])
    return Action(text=row["text"], tool_calls=calls, error=row["error"])


def result_row(result: StepResult) -> Row:
    """Return `result`, which was checked, as JSON data."""
    return {
        "observation": observation_row(result.observation),
        "reward": result.reward,
        "ends": [result.is_terminated, result.is_truncated, result.is_success, result.is_valid],
        "terms": dict(result.reward_terms),
        "tool_errors": [[error.tool, error.cause] for error in result.tool_errors],
    }


def read_result(row: Mapping[str, Any]) -> StepResult:
    """Return the result that `row` holds."""
    is_terminated, is_truncated, is_success, is_valid = row["ends"]
    return StepResult(
        observation=read_observation(row["observation"]),
        reward=row["reward"],
        is_terminated=is_terminated,
        is_truncated=is_truncated,
        is_success=is_success,
        is_valid=is_valid,
        reward_terms=row["terms"] or NOTHING,
        tool_errors=tuple(ToolError(tool=tool, cause=cause) for tool, cause in row["tool_errors"]),
    )


def tool_row(spec: ToolSpec) -> Row:
    """Return `spec` as JSON data."""
    return {"name": spec.name, "description": spec.description, "parameters": _plain(spec.parameters)}


def read_tool(row: Mapping[str, Any]) -> ToolSpec:
    """Return the tool that `row` holds."""
    return ToolSpec(name=row["name"], description=row["description"], parameters=row["parameters"])


def _plain(value: object) -> object:
    """Return mappings and sequences in `value` as dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    return value if value is None or isinstance(value, (str, bool, int, float)) else plain(value)

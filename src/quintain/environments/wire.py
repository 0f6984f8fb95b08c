"""What goes between an environment and us where it runs in another process: nouns as JSON data, and back.

What is read equals what was written; a picture travels as base64.
"""

import json
from collections.abc import Mapping
from typing import Any

from quintain.types import Action, Observation, StepResult, Task, ToolSpec
from quintain.types.rows import from_row, plain, to_row

Row = dict[str, Any]
OURS = "quintain"
"""The key under which our clients find what foreign ones do not need."""


def observation_row(observation: Observation) -> str | list[Any]:
    """Return a text as itself, content parts as a list: a text, or the type and base64 data of a picture."""
    return to_row(observation, Observation)


def read_observation(row: object) -> Observation:
    """Return the observation that `row` holds."""
    found: Observation = from_row(Observation, row)  # pyright: ignore[reportArgumentType]
    return found


def action_row(action: Action) -> Row:
    """Return `action` as JSON data."""
    return _plain(to_row(action))


def read_action(row: Mapping[str, Any]) -> Action:
    """Return the action that `row` holds."""
    return from_row(Action, row)


def result_row(result: StepResult) -> Row:
    """Return `result`, which was checked, as JSON data."""
    return _plain(to_row(result))


def read_result(row: Mapping[str, Any]) -> StepResult:
    """Return the result that `row` holds."""
    return from_row(StepResult, row)


def tool_row(spec: ToolSpec) -> Row:
    """Return `spec` as JSON data."""
    return _plain(to_row(spec))


def read_tool(row: Mapping[str, Any]) -> ToolSpec:
    """Return the tool that `row` holds."""
    return from_row(ToolSpec, row)


def task_row(task: Task) -> Row:
    """Return `task` as JSON data."""
    return _plain(to_row(task))


def read_task(row: Mapping[str, Any]) -> Task:
    """Return the task that `row` holds."""
    return from_row(Task, row)


def _plain(row: Row) -> Row:
    """Return `row` with the mappings and numbers in it as `json` knows them; TypeError for what has no JSON form."""
    return json.loads(json.dumps(row, default=plain))

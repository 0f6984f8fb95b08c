"""What crosses to another process is what was there: every field of every noun."""

import json
from typing import Any

import pytest

from quintain.environments.wire import (
    action_row,
    observation_row,
    read_action,
    read_observation,
    read_result,
    read_tool,
    result_row,
    tool_row,
)
from quintain.types import Action, Image, Nothing, StepResult, Text, ToolCall, ToolError, ToolSpec


def sent(row: Any) -> Any:
    return json.loads(json.dumps(row))


@pytest.mark.parametrize(
    "observation", ["é", "", (Text(text="a"), Image(data=b"\0\xff", media_type="image/png")), ()]
)
def test_observations(observation: Any) -> None:
    assert read_observation(sent(observation_row(observation))) == observation


@pytest.mark.parametrize(
    "action",
    [
        Action(),
        Action(text="left"),
        Action(error="cannot be read"),
        Action(
            text="x", tool_calls=(ToolCall(name="a", arguments={"n": [1, None]}), ToolCall(name="\ud800"))
        ),
    ],
)
def test_actions(action: Action) -> None:
    assert read_action(sent(action_row(action))) == action


@pytest.mark.parametrize(
    "result",
    [
        StepResult(observation="a"),
        StepResult(
            observation=(Text(text="a"),),
            reward=0.1,
            is_terminated=True,
            is_truncated=True,
            is_success=False,
            is_valid=False,
            reward_terms={"speed": 0.25},
            tool_errors=(ToolError(tool="a", cause="timeout"),),
        ),
    ],
)
def test_results(result: StepResult) -> None:
    assert read_result(sent(result_row(result))) == result


def test_tools() -> None:
    spec = ToolSpec(
        name="a", description="A.", parameters={"type": "object", "properties": {"n": {"enum": [1, "é"]}}}
    )
    assert read_tool(sent(tool_row(spec))) == spec
    strange = ToolSpec(name="a", description="A.", parameters={"enum": (1, 2), "properties": Nothing()})
    assert sent(tool_row(strange))["parameters"] == {"enum": [1, 2], "properties": {}}
    with pytest.raises(TypeError, match="a value of type object"):
        tool_row(ToolSpec(name="a", description="", parameters={"default": object()}))

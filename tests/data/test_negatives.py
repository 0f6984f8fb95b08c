"""What the policy got wrong is exported with what mended it; what tools got wrong is not."""

import json
from dataclasses import replace

from quintain.data.negatives import negatives, write_negatives
from quintain.types import (
    Action,
    Completion,
    Score,
    Stop,
    Task,
    Text,
    ToolError,
    Trajectory,
    Turn,
)


def turn(number: int, error: str | None = None, tool_errors: tuple[ToolError, ...] = ()) -> Turn:
    return Turn(
        observation=(Text(text=f"seen {number}"),),
        prompt_ids=(1,),
        completion=Completion(token_ids=(number,), logprobs=(-1.0,), stop="stop"),
        action=Action(text=str(number), error=error),
        is_valid=error is None and all(e.cause != "invalid_call" for e in tool_errors),
        tool_errors=tool_errors,
    )


def wrong(tool: str) -> ToolError:
    return ToolError(tool=tool, cause="invalid_call")


EPISODE = Trajectory(
    task=Task(id="t/train/0", environment="t", seed=0),
    turns=(
        turn(0, error="not JSON"),
        turn(1, tool_errors=(wrong("unknown"),)),
        turn(2, tool_errors=(ToolError(tool="search", cause="timeout"),)),
        turn(3, tool_errors=(wrong("unknown"), wrong("guess"))),
    ),
    outcome=Score(value=0.0, is_success=False),
    stop=Stop.MAX_TURNS,
    seed=1,
    group="g",
    index=0,
)


def decode(ids: object) -> str:
    return f"said {ids}"


def test_mistakes_of_the_policy_and_what_mended_them() -> None:
    found = negatives([EPISODE, replace(EPISODE, turns=(turn(5),))])
    assert [(n.turn, n.kind, n.mended) for n in found] == [
        (0, "unreadable", None),
        (1, "unknown_tool", 2),
        (3, "invalid_arguments", None),
    ]


def test_negatives_as_lines() -> None:
    found = negatives([EPISODE])
    lines = [json.loads(line) for line in write_negatives(found, decode, system="Go.")]
    assert [line["messages"][-1] for line in lines] == [
        {"role": "user", "content": f"seen {number}"} for number in (0, 1, 3)
    ]
    assert lines[0]["messages"][0] == {"role": "system", "content": "Go."}
    assert lines[1] == {
        "messages": lines[1]["messages"],
        "rejected": "said (1,)",
        "chosen": "said (2,)",
        "kind": "unknown_tool",
        "task": "t/train/0",
    }
    (bare, *_) = write_negatives(found, decode)
    assert json.loads(bare)["messages"] == [{"role": "user", "content": "seen 0"}]
    assert json.loads(bare)["chosen"] is None

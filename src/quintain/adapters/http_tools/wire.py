"""What tools and graders behind HTTP endpoints are sent, and what they answer: our own form, or OpenAI's.

OpenAI's is that of its reinforcement fine-tuning with tools: a tool is sent a function call of the Responses API and
answers with a ``function_call_output``; a grader is sent ``sample``, ``item`` and ``trace_id``, and answers with a
score. So endpoints that were written for it serve here as they are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from quintain.adapters.remote.tools import FinishedCall, Reply, Row
from quintain.types import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is to be graded: the answer, and all that led to it."""

    rollout_id: str
    task_id: str
    row: Row
    """the task, without its solution"""
    answer: str
    calls: Sequence[FinishedCall]
    messages: Sequence[Row]
    """everything that was said, as OpenAI messages; the answer is the last"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How endpoints are talked to."""

    rollout_prefix: str
    call: Callable[[str, str, ToolCall], Row]
    """(rollout id, call id, call) → body"""
    read: Callable[[str, Any], Reply]
    """(call id, answer) → reply; raises `ValueError`, `LookupError` or `TypeError` for what is none"""
    ending: Callable[[Ending], Row]
    """what the grader is sent"""


def own_call(rollout_id: str, call_id: str, call: ToolCall) -> Row:
    """Return a call as we write it."""
    return {
        "rollout_id": rollout_id,
        "call_id": call_id,
        "tool": call.name,
        "arguments": dict(call.arguments),
    }


def openai_call(rollout_id: str, call_id: str, call: ToolCall) -> Row:
    """Return a call as an item of OpenAI's Responses API, with the id of its rollout."""
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": call.name,
        "arguments": json.dumps(dict(call.arguments)),
        "trace_id": rollout_id,
    }


def own_reply(_: str, answer: Any) -> Reply:
    """Return the reply in an endpoint's answer: ``{"output": "5"}``, or ``{"error": "no such item"}``."""
    found = as_object(answer)
    error = found.get("error")
    if isinstance(error, str):
        return Reply(text=error, is_error=True)
    return Reply(text=output_of(found))


def openai_reply(call_id: str, answer: Any) -> Reply:
    """Return the reply in ``{"type": "function_call_output", "call_id": "…", "output": "5"}``."""
    found = as_object(answer)
    if found.get("type", "function_call_output") != "function_call_output":
        raise ValueError(f"the type must be function_call_output, not {found['type']!r:.40}")
    if found.get("call_id", call_id) != call_id:
        raise ValueError(f"the answer is to the call {found['call_id']!r:.60}, which was not asked")
    return Reply(text=output_of(found))


def own_ending(end: Ending) -> Row:
    """Return what is to be graded as we write it."""
    calls = [
        {
            "tool": call.name,
            "arguments": dict(call.arguments),
            "output": call.reply.text,
            "is_error": call.reply.is_error,
        }
        for call in end.calls
    ]
    return {
        "rollout_id": end.rollout_id,
        "task_id": end.task_id,
        "task": end.row,
        "answer": end.answer,
        "calls": calls,
        "messages": list(end.messages),
    }


def openai_ending(end: Ending) -> Row:
    """Return what is to be graded as OpenAI's endpoint graders read it."""
    tools = [call for message in end.messages for call in message.get("tool_calls", ())]
    choice = {"index": 0, "message": {"role": "assistant", "content": end.answer}, "finish_reason": "stop"}
    sample = {
        "choices": [choice],
        "output_text": end.answer,
        "output_tools": tools,
        "messages": list(end.messages),
    }
    return {"sample": sample, "item": end.row, "trace_id": end.rollout_id}


def as_object(answer: Any) -> dict[str, object]:
    """Return `answer` if it is an object; else raise `TypeError`."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"the answer must be an object, not {type(answer).__name__}")
    return dict(cast("Mapping[str, object]", answer))


def output_of(found: Row) -> str:
    """Return the text in `found`."""
    output = found["output"]
    if not isinstance(output, str):
        raise TypeError(f"output must be a text, not {type(output).__name__}")
    return output


WIRES: Mapping[str, Wire] = {
    "quintain": Wire(rollout_prefix="", call=own_call, read=own_reply, ending=own_ending),
    "openai": Wire(rollout_prefix="trace_", call=openai_call, read=openai_reply, ending=openai_ending),
}
"""Forms by name."""

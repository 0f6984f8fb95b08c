"""Trajectories as chat messages, one JSON object per line.

An object is ``{"messages": [{"role", "content", "tool_calls"?, "weight"?}, …], "tools"?, "task", "reward",
"is_success"}``; tool calls and tools are as OpenAI writes them, with arguments as a JSON string. `data.records` reads
it back.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.data.seats import by_seat
from quintain.types import UNKNOWN_TOOL, Score, ToolCall, ToolSpec, Trajectory, Turn, as_text

MARKUP = re.compile(
    r"<tool_call>.*?(?:</tool_call>|\Z)|<function=.*?(?:</function>|\Z)|(?:\[TOOL_CALLS\]|<\|python_tag\|>).*",
    re.DOTALL,
)
"""How the templates of open models write tool calls: Hermes and Qwen, Llama's function tags, Mistral, Llama."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an agent is told before an episode begins: ``Told(system="Be brief.", tools=(tool,))``."""

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()


UNTOLD = Told()


def to_record(
    trajectory: Trajectory,
    decode: Callable[[Sequence[int]], str],
    *,
    told: Told = UNTOLD,
    is_compared: bool = False,
) -> dict[str, Any]:
    """Return `trajectory` as a JSON object; `decode` turns sampled ids into text, without special tokens.

    An assistant message is what was sampled, as text. Calls that were written in a tool markup stand in
    `tool_calls` and no longer in the text, so that a chat template writes them once, and the observation after
    them is a tool message; calls written in words (ReAct, code) stay words, and the observation a user message.
    What could not be carried out, because it could not be read or calls a tool that does not exist, has weight 0: it
    is there for what comes after it. Of an episode that `is_compared` with another it has weight 1 and stands as it was
    sampled, for it may be what the other is preferred for. A failure has no reward.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": told.system}] if told.system else []
    role = "user"
    for turn in trajectory.turns:
        messages.append({"role": role, "content": as_text(turn.observation)})
        text, calls = answer_of(turn, decode)
        said: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            said["tool_calls"] = [write_call(call) for call in calls]
        if was_unusable(turn) and is_compared:
            said = {"role": "assistant", "content": decode(turn.completion.token_ids), "weight": 1}
        elif was_unusable(turn):
            said["weight"] = 0
        messages.append(said)
        role = "tool" if calls else "user"
    record: dict[str, Any] = {"messages": messages}
    if told.tools:
        record["tools"] = [write_tool(tool) for tool in told.tools]
    record["task"] = trajectory.task.id
    if isinstance(trajectory.outcome, Score):
        record |= {"reward": trajectory.outcome.value, "is_success": trajectory.outcome.is_success}
    return record


def answer_of(turn: Turn, decode: Callable[[Sequence[int]], str]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return what was sampled in `turn` as text, and the calls in it, where a tool markup writes them.

    Such calls stand in the text no longer.
    """
    text = decode(turn.completion.token_ids)
    beside = MARKUP.sub("", text).strip()
    has_calls = bool(turn.action.tool_calls) and beside != text.strip()
    return (beside, turn.action.tool_calls) if has_calls else (text, ())


def write_messages(
    trajectories: Iterable[Trajectory],
    decode: Callable[[Sequence[int]], str],
    *,
    told: Callable[[Trajectory], Told] = lambda _: UNTOLD,
) -> Iterator[str]:
    """Yield one line of JSON, ending in a newline, for each of `trajectories`; one for each seat where several act."""
    for trajectory in trajectories:
        for part in by_seat(trajectory):
            yield json.dumps(to_record(part, decode, told=told(part)), ensure_ascii=False) + "\n"


def was_unusable(turn: Turn) -> bool:
    """Whether the action of `turn` could not be read, or called a tool that does not exist."""
    return turn.action.error is not None or any(error.tool == UNKNOWN_TOOL for error in turn.tool_errors)


def write_call(call: ToolCall) -> dict[str, Any]:
    """Return `call` as OpenAI writes it."""
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
    return {"type": "function", "function": function}


def write_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return the schema of `tool` as OpenAI writes it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}

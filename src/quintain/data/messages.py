"""Trajectories as chat messages, one JSON object per line.

An object is ``{"messages": [{"role", "content", "reasoning_content"?, "tool_calls"?, "tool_call_id"?, "weight"?}, …],
"tools"?, "task", "reward", "is_success"}``; tool calls and tools are as OpenAI writes them, with arguments as a JSON
string and an id for each call, which its result names. `data.records` reads it back.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, cast

from quintain.data.seats import by_seat
from quintain.data.used import find_unused
from quintain.types import (
    UNKNOWN_TOOL,
    CallResult,
    Message,
    Observation,
    Score,
    Text,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    as_content,
    as_text,
)
from quintain.types.forest import find_parents

MARKUP = re.compile(
    r"<tool_call>.*?(?:</tool_call>|\Z)|<function=.*?(?:</function>|\Z)|(?:\[TOOL_CALLS\]|<\|python_tag\|>).*",
    re.DOTALL,
)
"""How the templates of open models write tool calls: Hermes and Qwen, Llama's function tags, Mistral, Llama."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningPrompt:
    """What an agent is told before an episode begins: ``OpeningPrompt(system="Be brief.", tools=(tool,))``."""

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()


UNTOLD = OpeningPrompt()
NOT_SCORED = "not_scored"
"""Kind of the failure that stands for the outcome of traffic which nobody scored."""
CONVERSATION, FIELDS = "conversation", "fields"
"""What the data of a task holds of the conversation of a file that its episode was made of: messages, tools and places
of the answers that are trained; and what stood beside them."""


def to_record(
    trajectory: Trajectory,
    decode: Callable[[Sequence[int]], str],
    *,
    told: OpeningPrompt = UNTOLD,
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
    has_own = bool(trajectory.turns) and "given" in trajectory.turns[0].facts
    messages = (
        [Message(role="system", content=as_content(told.system))] if told.system and not has_own else []
    )
    weights: dict[int, int] = {}
    calls: tuple[ToolCall, ...] = ()
    for number, turn in enumerate(trajectory.turns):
        given = messages_before(turn, calls, is_first=not number)
        weights |= {len(messages) + at: 0 for at, each in enumerate(given) if each.role == "assistant"}
        messages += given
        text, calls = answer_of(turn, decode)
        if was_unusable(turn):
            weights[len(messages)] = int(is_compared)
        if was_unusable(turn) and is_compared:
            text, calls = decode(turn.completion.token_ids), ()
        messages.append(Message(role="assistant", content=as_content(text), tool_calls=calls))
    rows = message_rows(messages)
    for place, weight in weights.items():
        rows[place]["weight"] = weight
    record: dict[str, Any] = {"messages": rows}
    if told.tools:
        record["tools"] = [write_tool(tool) for tool in told.tools]
    record["task"] = trajectory.task.id
    if isinstance(trajectory.outcome, Score):
        record |= {"reward": trajectory.outcome.value, "is_success": trajectory.outcome.is_success}
    return record


def conversation_data(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    tags: Sequence[bool | None],
    answers: Sequence[int],
) -> dict[str, Any]:
    """Return what the data of a task holds of a conversation, whose turns are the `answers` at these places.

    `tags` say of each message whether it is trained.
    """
    rows = message_rows(messages)
    for row, tag in zip(rows, tags, strict=True):
        if tag is not None and row["role"] == "assistant":
            row["weight"] = int(tag)
    listed = {"tools": [write_tool(tool) for tool in tools]} if tools else {}
    return {CONVERSATION: {"messages": rows, **listed, "answers": list(answers)}}


def find_conversation(trajectory: Trajectory) -> tuple[dict[str, Any], list[int]] | None:
    """Return the conversation that an episode was made of, as it stood in a file, and the places of its turns.

    None of an episode that was played, or was cut or put together since.
    """
    kept = trajectory.task.data.get(CONVERSATION)
    if not isinstance(kept, Mapping):
        return None
    own = dict(cast("Mapping[str, Any]", kept))
    answers = [int(place) for place in own.pop("answers")]
    if len(answers) != len(trajectory.turns):
        return None
    return {**own, **trajectory.task.data.get(FIELDS, {})}, answers


def messages_before(turn: Turn, calls: Sequence[ToolCall], *, is_first: bool) -> list[Message]:
    """Return what an agent was shown before `turn`, after `calls`: as a recording endpoint got it, or as observed.

    A client may repeat its whole chat; of that only what follows the last answer is new, but for the first turn.
    """
    rows = turn.facts.get("given")
    if rows is None:
        return observation_messages(turn.observation, calls)
    begin = (
        0
        if is_first
        else max((at + 1 for at, row in enumerate(rows) if row["role"] == "assistant"), default=0)
    )
    return [
        Message(
            role="user" if row["role"] == "tool" and not calls else row["role"],
            content=as_content(str(row["content"])),
            reasoning=str(row.get("reasoning_content", "")),
            tool_call_id=str(row.get("tool_call_id", ""))
            if row["role"] == "tool" and any(c.id for c in calls)
            else "",
        )
        for row in rows[begin:]
    ]


def paths_of(trajectory: Trajectory) -> Iterator[tuple[Trajectory, set[int]]]:
    """Yield each way through the recorded calls of an episode, and which of its turns are not to be trained.

    These are calls that were not used (`data.used`), and those that an earlier way has, too. An episode that was played
    is one way.
    """
    turns = trajectory.turns
    if not any(turn.facts for turn in turns):
        yield trajectory, set()
        return
    parents = [parent for parent, _ in find_parents(turns)]
    seen = set(find_unused(turns))
    for leaf in sorted(set(range(len(turns))) - set(parents)):
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.insert(0, at)
            at = parents[at]
        made = replace(trajectory, turns=tuple(turns[number] for number in path))
        yield made, {place for place, number in enumerate(path) if number in seen}
        seen |= set(path)


def observation_messages(observation: Observation, calls: Sequence[ToolCall]) -> list[Message]:
    """Return what an agent was shown after `calls` as messages: of several results one for each, of its own call.

    Without `calls` it is the user's.
    """
    if not calls:
        return [Message(role="user", content=as_content(as_text(observation)))]
    if isinstance(observation, str) or not any(isinstance(part, CallResult) for part in observation):
        return [Message(role="tool", content=as_content(as_text(observation)))]
    found: list[Message] = []
    for part in observation:
        if isinstance(part, CallResult):
            name = calls[part.call].name if part.call < len(calls) else ""
            found.append(Message(role="tool", content=as_content(part.text), name=name))
        elif isinstance(part, Text) and found:
            whole = as_text(found[-1].content) + part.text
            found[-1] = replace(found[-1], content=as_content(whole))
        elif isinstance(part, Text):
            found.append(Message(role="tool", content=as_content(part.text)))
    return found


def message_rows(messages: Sequence[Message], *, makes_ids: bool = True) -> list[dict[str, Any]]:
    """Return `messages`, whose results are in the order of their calls, as OpenAI writes them.

    A call without an id gets one by the number of its answer and its own, ``call_0_1``, and its result has that, too,
    unless it `makes_ids` not. One result for several calls has none.
    """
    rows: list[dict[str, Any]] = []
    ids: list[str] = []
    number = 0
    for at, message in enumerate(messages):
        row: dict[str, Any] = {"role": message.role, "content": as_text(message.content)}
        if message.reasoning:
            row["reasoning_content"] = message.reasoning
        if message.role == "assistant":
            made = [f"call_{number}_{place}" * makes_ids for place in range(len(message.tool_calls))]
            ids = [call.id or id for call, id in zip(message.tool_calls, made, strict=True)]
            number += 1
            if ids:
                row["tool_calls"] = [
                    ({"id": id} if id else {}) | write_call(call)
                    for id, call in zip(ids, message.tool_calls, strict=True)
                ]
            results = sum(1 for _ in takewhile(lambda each: each.role == "tool", messages[at + 1 :]))
            if results == 1 < len(ids) and not messages[at + 1].tool_call_id:
                ids = []
        elif message.role == "tool":
            id = message.tool_call_id or (ids[0] if ids else "")
            ids = [each for each in ids if each != id] if id else ids[1:]
            row |= {"tool_call_id": id} if id else {}
        if message.name and message.role != "tool":
            row["name"] = message.name
        rows.append(row)
    return rows


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
    told: Callable[[Trajectory], OpeningPrompt] = lambda _: UNTOLD,
) -> Iterator[str]:
    """Yield one line of JSON, ending in a newline, for each of `trajectories`; one for each seat where several act.

    What was learned from a file comes out as it stood there, of recorded traffic every way through its calls.
    """
    for trajectory in trajectories:
        for part in by_seat(trajectory):
            if (found := find_conversation(part)) is not None:
                yield json.dumps(found[0], ensure_ascii=False) + "\n"
                continue
            for path, untrained in paths_of(part):
                record = to_record(path, decode, told=told(part))
                answers = [row for row in record["messages"] if row["role"] == "assistant"][
                    -len(path.turns) :
                ]
                for place in untrained:
                    answers[place]["weight"] = 0
                yield json.dumps(record, ensure_ascii=False) + "\n"


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

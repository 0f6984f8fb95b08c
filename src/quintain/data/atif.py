"""The Agent Trajectory Interchange Format (ATIF, version 1), which agent harnesses write and read.

A trajectory is a list of steps by system, user and agent; a step of the agent has its calls of tools, what came of
them, and in `metrics` the token ids and log-probs of the call. Read are versions 1.0 and up; another first number is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from quintain.data.messages import (
    UNTOLD,
    OpeningPrompt,
    answer_of,
    find_conversation,
    observation_messages,
    was_unusable,
    write_tool,
)
from quintain.errors import DataError
from quintain.types import Score, ToolCall, Trajectory, Turn, as_text
from quintain.types.forest import find_parents

Row = dict[str, Any]
VERSION = "ATIF-v1.5"
FAMILY = "ATIF-v1."
ROLES: Mapping[str, str] = {"system": "system", "user": "user"}


def is_atif(value: Mapping[str, Any]) -> bool:
    """Whether `value` says that it is a trajectory of this format."""
    return str(value.get("schema_version", "")).startswith("ATIF-")


def to_atif(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, told: OpeningPrompt = UNTOLD
) -> Row:
    """Return `trajectory` as a JSON object; `decode` turns sampled ids into text, without special tokens.

    Calls are those that a tool markup writes, as in `data.messages`; what could not be carried out has ``weight`` 0 in
    ``extra``. What an agent was `told` begins it, unless its first call says what it was given. What belongs to the
    forest stands in ``extra`` of each step of the agent: the call that it goes on from, and what a recording endpoint
    saw of it. A failure has no reward.
    """
    found = find_conversation(trajectory)
    steps, tools = (
        _write_played(trajectory, decode, told)
        if found is None
        else _write_conversation(trajectory, decode, *found)
    )
    sampled = trajectory.num_sampled
    extra: Row = {"task": trajectory.task.id, "group": trajectory.group, "index": trajectory.index}
    if isinstance(trajectory.outcome, Score):
        extra |= {"reward": trajectory.outcome.value, "is_success": trajectory.outcome.is_success}
    else:
        failure = trajectory.outcome
        extra["failure"] = {"owner": failure.owner, "kind": failure.kind, "message": failure.message}
    return {
        "schema_version": VERSION,
        "session_id": trajectory.id or f"{trajectory.group}/{trajectory.index}",
        "agent": {"name": "quintain", "version": "0", **({"tool_definitions": tools} if tools else {})},
        "steps": steps,
        "final_metrics": {"total_completion_tokens": sampled, "total_steps": len(steps)},
        "extra": extra,
    }


def _write_played(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], told: OpeningPrompt
) -> tuple[list[Row], list[Row]]:
    """Return the steps of an episode that was played, and its tools."""
    steps: list[Row] = []
    if told.system and not (trajectory.turns and "given" in trajectory.turns[0].facts):
        steps.append({"step_id": 1, "source": "system", "message": told.system})
    parents = [parent for parent, _ in find_parents(trajectory.turns)]
    whole: list[tuple[int, ...]] = []
    for turn, parent in zip(trajectory.turns, parents, strict=True):
        before = () if turn.starts_segment or parent is None else whole[parent]
        prompt = (*before, *turn.prompt_ids)
        whole.append((*prompt, *turn.completion.token_ids))
        given = _messages_before(turn, steps)
        num_results = sum(role == "tool" for role, _ in given)
        for role, text in given:
            if role == "tool":
                _add_result(steps[-1], text, is_for_all=num_results == 1)
            else:
                steps.append({"step_id": len(steps) + 1, "source": role, "message": text})
        steps.append(_agent_step(turn, len(steps) + 1, prompt, parent, decode))
    return steps, [write_tool(tool) for tool in told.tools]


def _write_conversation(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], conversation: Row, answers: Sequence[int]
) -> tuple[list[Row], list[Row]]:
    """Return the steps of an episode that was made of a `conversation`, whose turns are `answers`, and its tools."""
    parents = [parent for parent, _ in find_parents(trajectory.turns)]
    numbers = {place: number for number, place in enumerate(answers)}
    whole: list[tuple[int, ...]] = []
    steps: list[Row] = []
    for place, message in enumerate(conversation["messages"]):
        number, role, text = len(steps) + 1, message["role"], message["content"]
        if role == "tool" and steps and steps[-1].get("tool_calls"):
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            source = message.get("tool_call_id")
            results.append(({"source_call_id": source} if source else {}) | {"content": text})
            continue
        if role != "assistant":
            steps.append({"step_id": number, "source": "user" if role == "tool" else role, "message": text})
            continue
        step: Row = {"step_id": number, "source": "agent", "message": text}
        if place in numbers:
            turn, parent = trajectory.turns[numbers[place]], parents[numbers[place]]
            before = () if turn.starts_segment or parent is None else whole[parent]
            prompt = (*before, *turn.prompt_ids)
            whole.append((*prompt, *turn.completion.token_ids))
            made = _agent_step(turn, number, prompt, parent, decode)
            step |= {"metrics": made["metrics"], "extra": made["extra"]}
        if "weight" in message or place not in numbers:
            step["extra"] = {**step.get("extra", {}), "weight": message.get("weight", 0)}
        if "reasoning_content" in message:
            step["reasoning_content"] = message["reasoning_content"]
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [
                {
                    "tool_call_id": call["id"],
                    "function_name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"]),
                }
                for call in calls
            ]
        steps.append(step)
    return steps, list(conversation.get("tools", ()))


def as_messages(value: Mapping[str, Any], place: str) -> Row:
    """Return the trajectory `value` of this format as an object with OpenAI messages.

    Raises:
        DataError: it is of a version that is not known, or a step cannot be read.
    """
    version = value.get("schema_version")
    if not str(version).startswith(FAMILY):
        raise DataError(f"{place}: got {version!r:.40}; give {FAMILY}0 or a later {FAMILY}x")
    messages: list[Row] = []
    steps = value.get("steps")
    for step in cast("list[object]", steps) if isinstance(steps, list) else [steps]:
        if not isinstance(step, dict):
            raise DataError(f"{place}: got steps of type {type(step).__name__}; give a list of objects")
        messages += _messages_of(cast(Row, step), place)
    rest = {key: cell for key, cell in value.items() if key not in ("schema_version", "steps")}
    extra = rest.get("extra")
    agent = rest.get("agent")
    tools = cast(Row, agent).get("tool_definitions") if isinstance(agent, dict) else None
    own = cast(Row, extra) if isinstance(extra, dict) else {}
    return {**own, **rest, "messages": messages} | ({"tools": tools} if tools else {})


def _messages_before(turn: Turn, steps: Sequence[Row]) -> list[tuple[str, str]]:
    """Return role and text of each message that `turn` was given, without answers that its chat repeats."""
    after_call = bool(steps) and bool(steps[-1].get("tool_calls"))
    given = turn.facts.get("given")
    if given is None:
        calls = (
            [ToolCall(name=call["function_name"]) for call in steps[-1]["tool_calls"]] if after_call else []
        )
        return [(each.role, as_text(each.content)) for each in observation_messages(turn.observation, calls)]
    found = [(str(row["role"]), str(row["content"])) for row in given if row["role"] != "assistant"]
    return [("user" if role == "tool" and not after_call else role, text) for role, text in found]


def _add_result(step: Row, text: str, *, is_for_all: bool) -> None:
    """Add what came of a call of `step` to it: of the first that has none yet, or of all its calls at once."""
    calls = cast("list[Row]", step["tool_calls"])
    results = cast("list[Row]", step.setdefault("observation", {"results": []})["results"])
    is_one = not (is_for_all and len(calls) > 1) and len(results) < len(calls)
    results.append(
        ({"source_call_id": calls[len(results)]["tool_call_id"]} if is_one else {}) | {"content": text}
    )


def _agent_step(
    turn: Turn,
    number: int,
    prompt: tuple[int, ...],
    parent: int | None,
    decode: Callable[[Sequence[int]], str],
) -> Row:
    """Return the step that the answer of `turn` is."""
    completion = turn.completion
    text, written = answer_of(turn, decode)
    calls = [
        {
            "tool_call_id": call.id or f"call_{number}_{place}",
            "function_name": call.name,
            "arguments": dict(call.arguments),
        }
        for place, call in enumerate(written)
    ]
    metrics = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(completion.token_ids),
        "prompt_token_ids": list(prompt),
        "completion_token_ids": list(completion.token_ids),
        "logprobs": list(completion.logprobs),
    }
    extra: Row = {"policy": completion.policy, "policy_version": completion.policy_version, "parent": parent}
    if was_unusable(turn):
        extra["weight"] = 0
    step: Row = {
        "step_id": number,
        "source": "agent",
        "message": text,
        "metrics": metrics,
        "extra": extra | ({"facts": dict(turn.facts)} if turn.facts else {}),
    }
    return step | ({"tool_calls": calls} if calls else {})


def _messages_of(step: Row, place: str) -> list[Row]:
    """Return the messages that `step` is."""
    source, text = str(step.get("source")), step.get("message", "")
    if source in ROLES:
        return [{"role": ROLES[source], "content": text}]
    if source != "agent":
        raise DataError(f"{place}: got a step of {source!r:.40}; give system, user or agent")
    said: Row = {"role": "assistant", "content": text}
    if thoughts := step.get("reasoning_content"):
        said["reasoning_content"] = thoughts
    extra = step.get("extra")
    if step.get("is_copied_context"):
        said["weight"] = 0
    elif isinstance(extra, dict) and "weight" in extra:
        said["weight"] = cast(Row, extra)["weight"]
    try:
        if calls := step.get("tool_calls"):
            said["tool_calls"] = [
                {
                    "id": call["tool_call_id"],
                    "type": "function",
                    "function": {"name": call["function_name"], "arguments": call["arguments"]},
                }
                for call in calls
            ]
        results = (step.get("observation") or {}).get("results") or ()
        return [said, *(_result(result, has_calls=bool(calls)) for result in results)]
    except (LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{place}: got a step {step.get('step_id')!r:.20} that cannot be read ({type(error).__name__}: {error}); "
            "write tool_calls and observation as ATIF does"
        ) from error


def _result(result: Row, *, has_calls: bool) -> Row:
    """Return what a step of the agent came to as a message."""
    message = {"role": "tool" if has_calls else "user", "content": result.get("content") or ""}
    source = result.get("source_call_id")
    return message | ({"tool_call_id": source} if has_calls and source else {})

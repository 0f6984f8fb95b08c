"""Rollouts as verifiers saves them: ``results.jsonl`` (0.1), read and written, and ``traces.jsonl`` (0.4), read.

A row of ``results.jsonl`` is a rollout: ``prompt`` and ``completion`` as messages whose calls of tools are JSON texts,
``reward``, ``info``, ``tool_defs``, and in ``trajectory`` the tokens of each call. A line of ``traces.jsonl`` is an
episode with a graph of messages for each agent; every path from a root to a leaf is a conversation, and an answer that
stands on several is trained on the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from quintain.data.masks import MASKS, mask_message
from quintain.data.messages import OpeningPrompt, find_conversation, to_record
from quintain.errors import DataError
from quintain.types import Score, Trajectory
from quintain.types.forest import find_parents

Row = dict[str, Any]
NEWEST_TRACE = 1
"""Newest version of a trace that is known."""
NO_ANSWER: Mapping[str, Any] = {"role": "assistant", "content": "(no answer)", "train": False}
"""What stands for the answer of a rollout that broke before there was one."""


def is_rollout(value: Mapping[str, Any]) -> bool:
    """Whether `value` is a row of ``results.jsonl``."""
    return {"example_id", "prompt", "completion", "reward"} <= value.keys()


def is_trace(value: Mapping[str, Any]) -> bool:
    """Whether `value` is a line of ``traces.jsonl``, or one trace of it."""
    return ("traces" in value and "task" in value) or {"nodes", "agent", "task"} <= value.keys()


def to_rollout(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, told: OpeningPrompt, example: int
) -> Row:
    """Return the scored `trajectory` of one seat as a row of ``results.jsonl``; `example` numbers its task.

    The messages are those of `data.messages.to_record`, weights included. `decode` turns sampled ids into text.
    """
    assert isinstance(trajectory.outcome, Score), "a failure has no reward"
    record = to_record(trajectory, decode, told=told)
    places = [place for place, each in enumerate(record["messages"]) if each["role"] == "assistant"]
    record, answers = find_conversation(trajectory) or (record, places)
    messages = _with_texts(record["messages"])
    first = next((place for place, each in enumerate(messages) if each["role"] == "assistant"), len(messages))
    steps = _steps(trajectory, messages, answers)
    outcome, task = trajectory.outcome, trajectory.task
    longest = max((len(step["tokens"]["prompt_ids"]) for step in steps), default=0)
    return {
        "example_id": example,
        "prompt": messages[:first],
        "completion": messages[first:],
        "info": {
            "task": task.id,
            "environment": task.environment,
            "split": task.split,
            "seed": task.seed,
            "group": trajectory.group,
            "index": trajectory.index,
        },
        "task": task.id,
        "reward": outcome.value,
        "is_success": outcome.is_success,
        "error": None,
        "timing": {"generation": {"start": 0.0, "end": trajectory.seconds}},
        "is_completed": True,
        "is_truncated": trajectory.stop.is_truncation,
        "stop_condition": trajectory.stop.value,
        "metrics": {"success": float(outcome.is_success)},
        "tool_defs": [dict(tool["function"]) for tool in record.get("tools", ())],
        "token_usage": {"input_tokens": float(longest), "output_tokens": float(trajectory.num_sampled)},
        "trajectory": steps,
    }


def as_conversations(value: Mapping[str, Any], place: str) -> list[Row]:
    """Return the conversations that `value` holds, each with ``messages``.

    What ended in an error, and what is of an agent that is not to be trained, is there with answers that are not
    trained, so that it is counted.

    Raises:
        DataError: it is of a version that is not known, or cannot be read.
    """
    try:
        if is_rollout(value):
            return [_rollout_record(value)]
        traces = [value] if "nodes" in value else cast("list[Mapping[str, Any]]", value["traces"])
        return [record for trace in traces for record in _trace_records(trace, place)]
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{place}: got a rollout of verifiers that cannot be read ({type(error).__name__}: {error}); save it again "
            "with verifiers 0.1 (results.jsonl) or 0.4 (traces.jsonl)"
        ) from error


def _steps(trajectory: Trajectory, messages: Sequence[Row], answers: Sequence[int]) -> list[Row]:
    """Return the calls of the model, each with its tokens."""
    steps: list[Row] = []
    whole: list[tuple[int, ...]] = []
    parents = [parent for parent, _ in find_parents(trajectory.turns)]
    for turn, parent, at in zip(trajectory.turns, parents, answers, strict=True):
        before = () if turn.starts_segment or parent is None else whole[parent]
        prompt, completion = (*before, *turn.prompt_ids), turn.completion
        whole.append((*prompt, *completion.token_ids))
        steps.append(
            {
                "prompt": list(messages[:at]),
                "completion": [messages[at]],
                "response": None,
                "tokens": {
                    "prompt_ids": list(prompt),
                    "prompt_mask": [0] * len(prompt),
                    "completion_ids": list(completion.token_ids),
                    "completion_mask": [1] * len(completion.token_ids),
                    "completion_logprobs": list(completion.logprobs),
                    "overlong_prompt": False,
                    "is_truncated": completion.stop == "length",
                    "routed_experts": None,
                },
                "reward": turn.reward,
                "advantage": None,
                "is_truncated": completion.stop == "length",
                "trajectory_id": trajectory.id or f"{trajectory.group}/{trajectory.index}",
                "extras": {"policy": completion.policy, "policy_version": completion.policy_version},
            }
        )
    return steps


def _with_texts(messages: Sequence[Row]) -> list[Row]:
    """Return `messages` with calls as JSON texts, and every result with the id of a call, which may be empty."""
    found: list[Row] = []
    for message in messages:
        row = dict(message)
        if row["role"] == "tool":
            row.setdefault("tool_call_id", "")
        if calls := row.pop("tool_calls", []):
            row["tool_calls"] = [json.dumps({"id": call["id"], **call["function"]}) for call in calls]
        found.append(row)
    return found


def _rollout_record(value: Mapping[str, Any]) -> Row:
    """Return the conversation of a row of ``results.jsonl``."""
    rest = {key: cell for key, cell in value.items() if key not in ("prompt", "completion", "trajectory")}
    prompt = [mask_message(each) for each in _entries(value["prompt"], "user")]
    said = _entries(value["completion"], "assistant")
    has_broken = value.get("error") is not None
    if has_broken:
        said = [mask_message(each) for each in said]
        said = said if any(each["role"] == "assistant" for each in said) else [*said, dict(NO_ANSWER)]
    tools = rest.pop("tool_defs", None) or rest.pop("oai_tools", None)
    solved = not has_broken and float(value["reward"] or 0.0) > 0
    rest.setdefault("is_success", solved)
    rest["messages"] = [_plain_tag(each) for each in (*prompt, *said)]
    return rest | ({"tools": tools} if tools else {})


def _plain_tag(entry: Row) -> Row:
    """Return `entry` without a tag where it is none of the assistant."""
    if entry["role"] == "assistant":
        return entry
    return {key: cell for key, cell in entry.items() if key not in MASKS}


def _entries(value: Any, role: str) -> list[Row]:
    """Return messages, or a text as one of `role`, with calls of tools as objects."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_with_objects(each) for each in value]


def _with_objects(message: Mapping[str, Any]) -> Row:
    """Return `message` with calls of tools as objects."""
    found = dict(message)
    if found.get("tool_calls"):
        found["tool_calls"] = [
            json.loads(call) if isinstance(call, str) else call for call in found["tool_calls"]
        ]
    else:
        found.pop("tool_calls", None)
    return found


def _trace_records(trace: Mapping[str, Any], place: str) -> list[Row]:
    """Return the conversations of one agent: a path to each leaf of its graph."""
    version = trace.get("version", NEWEST_TRACE)
    if not isinstance(version, int) or version > NEWEST_TRACE:
        raise DataError(
            f"{place}: got a trace of version {version!r:.20}; give version {NEWEST_TRACE} or older"
        )
    nodes: Sequence[Mapping[str, Any]] = trace["nodes"]
    parents = {node.get("parent") for node in nodes}
    is_trained = bool(trace["agent"].get("trainable", True)) and not trace.get("errors")
    rewards = [reward for reward in (trace.get("rewards") or {}).values() if reward is not None]
    score = sum(float(each["score"]) * float(each.get("weight", 1.0)) for each in rewards)
    fields: Row = {"id": trace.get("id"), "task": _task_name(trace["task"])}
    if rewards:
        fields |= {"reward": score, "is_success": score > 0 and is_trained}
    told: set[int] = set()
    found: list[Row] = []
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        walk: list[int] = []
        at: int | None = leaf
        while at is not None:
            walk.append(at)
            at = nodes[at].get("parent")
            if at is not None and not 0 <= at < walk[-1]:
                raise ValueError(f"node {walk[-1]} with the parent {at}")
        walk.reverse()
        messages: list[Row] = []
        for number in walk:
            message = _with_objects(nodes[number]["message"])
            if message["role"] == "assistant" and (
                not is_trained or not nodes[number].get("sampled") or number in told
            ):
                message = mask_message(message)
            messages.append(message)
        told |= set(walk)
        if not any(message["role"] == "assistant" for message in messages):
            messages.append(dict(NO_ANSWER))
        tools = nodes[walk[0]].get("tools") or trace.get("tools")
        found.append({**fields, "messages": messages} | ({"tools": tools} if tools else {}))
    return found


def _task_name(task: Mapping[str, Any]) -> str:
    """Return what the task of a trace is called."""
    data = task.get("data") or {}
    names = (task.get("key"), data.get("id"), data.get("name"), data.get("idx"), task.get("hash"))
    return str(next((name for name in names if name is not None), ""))

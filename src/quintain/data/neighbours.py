"""Conversations as the readers of TRL, verl, OpenRLHF and ms-swift take them, from records as OpenAI writes them.

TRL's SFTTrainer takes messages whose calls have arguments as objects, and the tools beside them. ms-swift has calls and
results as messages of their own (``tool_call``, ``tool_response``), tools as JSON text, and ``loss`` of each answer.
Those of OpenRLHF and of verl hand no tools to the template, or take them out of a Parquet column that gives every tool
the parameters of all: their rows have tools, calls and results in sentences (`quintain.data.chat_form`). What is not
to be trained can be said to ms-swift alone; elsewhere such a conversation is left out, and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

from quintain.data.chat_form import in_chat
from quintain.data.files import FileValue
from quintain.data.messages import message_rows
from quintain.data.records import read_record

Neighbour = Literal["trl", "verl", "openrlhf", "swift"]
NEIGHBOURS: tuple[Neighbour, ...] = get_args(Neighbour)
Row = dict[str, Any]


def write_for(form: Neighbour, record: Mapping[str, Any]) -> Row | None:
    """Return the conversation `record` (``messages``, ``tools``, ``task``, ``reward``) as a row for `form`.

    None where an answer in it is not to be trained, and `form` cannot say so; or where a call in a text cannot be read.
    """
    messages = cast("list[Row]", record["messages"])
    if form != "swift" and any(message.get("weight") == 0 for message in messages):
        return None
    return WRITERS[form](record)


def to_trl(record: Mapping[str, Any]) -> Row:
    """Return messages whose calls have arguments as objects, and the tools."""
    messages = [
        {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in record["messages"]
    ]
    for message in messages:
        message.pop("weight", None)
    return {"messages": messages} | ({"tools": record["tools"]} if record.get("tools") else {})


def to_swift(record: Mapping[str, Any]) -> Row:
    """Return messages with the roles ``tool_call`` and ``tool_response``; ``loss`` where an answer is not trained."""
    messages: list[Row] = []
    for message in record["messages"]:
        said = {"loss": False} if message.get("weight") == 0 else {}
        calls = message.get("tool_calls") or []
        thought = message.get("reasoning_content")
        text = f"<think>\n{thought}\n</think>\n\n{message['content']}" if thought else message["content"]
        if message["role"] == "tool":
            messages.append({"role": "tool_response", "content": text})
        elif text or not calls:
            messages.append({"role": message["role"], "content": text, **said})
        for call in calls:
            function = _with_object(call)["function"]
            content = json.dumps(function, ensure_ascii=False)
            messages.append({"role": "tool_call", "content": content, **said})
    tools = {"tools": json.dumps(record["tools"], ensure_ascii=False)} if record.get("tools") else {}
    return {"messages": messages, **tools}


def to_openrlhf(record: Mapping[str, Any]) -> Row | None:
    """Return messages in sentences: ``--data.input_key messages --data.multiturn --data.apply_chat_template``."""
    found = in_chat(read_record(record, FileValue(file="", line=1, value=record)))
    if found is None:
        return None
    rows = message_rows(found.messages, makes_ids=False)
    return {"messages": [{"role": row["role"], "content": row["content"]} for row in rows]}


def to_verl(record: Mapping[str, Any]) -> Row | None:
    """Return the same with what verl keeps beside a row: its MultiTurnSFTDataset reads ``messages`` of Parquet."""
    row = to_openrlhf(record)
    extra = {"task": str(record.get("task", "")), "reward": record.get("reward")}
    return None if row is None else {**row, "extra_info": extra}


WRITERS: Mapping[Neighbour, Callable[[Mapping[str, Any]], Row | None]] = {
    "trl": to_trl,
    "verl": to_verl,
    "openrlhf": to_openrlhf,
    "swift": to_swift,
}
"""form → what writes a row of it"""


def _with_object(call: Mapping[str, Any]) -> Row:
    """Return `call`, whose arguments may be JSON text, with them as an object."""
    function = call["function"]
    arguments = function["arguments"]
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {**call, "function": {**function, "arguments": read}}

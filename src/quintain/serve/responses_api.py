"""OpenAI's responses: ``POST …/responses``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quintain.serve.chat_completions import logprob_rows, must_call
from quintain.serve.chat_types import (
    Answer,
    AssistantMessage,
    ChatRequest,
    RequestError,
    Row,
    arguments_text,
    call_in,
    list_in,
    number_in,
    object_in,
    refuse_many,
    refuses_several,
    sampling_in,
    schema_in,
    text_in,
    texts_in,
    tool_in,
)

TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


def read(body: Row) -> ChatRequest:
    """Return the request that `body` is.

    Raises:
        RequestError: it asks for what is not there.
    """
    refuse_many(body)
    for name in ("background", "conversation"):
        if body.get(name):
            raise RequestError(
                400, f"{name}: got {body[name]!r:.40}; send the whole input, or previous_response_id"
            )
    form = object_in(object_in(body.get("text") or {}, "text").get("format") or {}, "text.format")
    if body.get("top_logprobs"):
        raise RequestError(
            400, f"top_logprobs: got {body['top_logprobs']!r:.20}; the sampled token's log-prob is given only"
        )
    spoken: list[AssistantMessage] = []
    if instructions := text_in(body.get("instructions"), "instructions"):
        spoken.append(AssistantMessage(role="system", text=instructions))
    given = body.get("input")
    if isinstance(given, str):
        spoken.append(AssistantMessage(role="user", text=given))
    else:
        spoken += _read_messages([object_in(row, "an item of input") for row in list_in(given, "input")])
    include = list_in(body.get("include"), "include")
    tools = () if body.get("tool_choice") == "none" else _tools(body)
    return ChatRequest(
        messages=tuple(spoken),
        tools=tools,
        must_call=must_call(body.get("tool_choice"), tools),
        schema=schema_in(form, "text.format"),
        max_tokens=number_in(body, "max_output_tokens"),
        model=text_in(body.get("model"), "model"),
        is_streamed=body.get("stream") is True,
        has_logprobs="message.output_text.logprobs" in include,
        has_token_ids=body.get("return_token_ids") is True,
        before=text_in(body.get("previous_response_id"), "previous_response_id").removeprefix("resp_"),
        seals_thoughts=True,
        one_call=refuses_several(body.get("parallel_tool_calls"), "parallel_tool_calls"),
        **sampling_in(body),
    )


def whole(answer: Answer, asked: ChatRequest) -> Row:
    """Return the body that `answer` is."""
    row = _head(answer, asked, "incomplete" if answer.finish == "length" else "completed")
    given, sampled = len(answer.prompt_ids), len(answer.token_ids)
    row |= {
        "output": _items(answer, asked),
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + sampled,
        },
    }
    if answer.finish == "length":
        row["incomplete_details"] = {"reason": "max_output_tokens"}
    if asked.has_token_ids:
        row |= {"token_ids": list(answer.token_ids), "prompt_token_ids": list(answer.prompt_ids)}
    return row


def stream(answer: Answer, asked: ChatRequest) -> Iterator[str]:
    """Yield `answer` as the events of a stream."""
    number = -1

    def event(kind: str, **data: Any) -> str:
        nonlocal number
        number += 1
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number, **data})}\n\n"

    begun = _head(answer, asked, "in_progress") | {"output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for place, item in enumerate(_items(answer, asked)):
        at: Row = {"output_index": place, "item_id": item["id"]}
        if item["type"] == "message":
            yield event(
                "response.output_item.added",
                output_index=place,
                item={**item, "content": [], "status": "in_progress"},
            )
            part = item["content"][0]
            empty = {**part, "text": "", "logprobs": []}
            yield event("response.content_part.added", **at, content_index=0, part=empty)
            yield event("response.output_text.delta", **at, content_index=0, delta=part["text"], logprobs=[])
            yield event(
                "response.output_text.done",
                **at,
                content_index=0,
                text=part["text"],
                logprobs=part["logprobs"],
            )
            yield event("response.content_part.done", **at, content_index=0, part=part)
        elif item["type"] == "function_call":
            yield event(
                "response.output_item.added",
                output_index=place,
                item={**item, "arguments": "", "status": "in_progress"},
            )
            yield event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            yield event(
                "response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"]
            )
        else:
            yield event("response.output_item.added", output_index=place, item=item)
        yield event("response.output_item.done", output_index=place, item=item)
    ended = whole(answer, asked)
    yield event(f"response.{ended['status']}", response=ended)


def error(refused: RequestError) -> Row:
    """Return the body of an error."""
    return {"error": {"message": refused.message, "type": refused.code, "code": refused.code, "param": None}}


def _head(answer: Answer, asked: ChatRequest, status: str) -> Row:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": asked.model or answer.policy,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {"policy": f"{answer.policy}@{answer.version}"},
        "parallel_tool_calls": not asked.one_call,
        "temperature": None,
        "top_p": None,
        "tool_choice": "auto",
        "tools": [],
        "previous_response_id": f"resp_{asked.before}" if asked.before else None,
    }


def _items(answer: Answer, asked: ChatRequest) -> list[Row]:
    spoken = answer.spoken
    items: list[Row] = []
    if spoken.thinking:
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{answer.id}",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": spoken.thinking}],
                "encrypted_content": spoken.opaque,
            }
        )
    if spoken.text or not spoken.calls:
        logprobs = logprob_rows(answer) if asked.has_logprobs else []
        part = {"type": "output_text", "text": spoken.text, "annotations": [], "logprobs": logprobs}
        status = "incomplete" if answer.finish == "length" else "completed"
        items.append(
            {
                "type": "message",
                "id": f"msg_{answer.id}",
                "role": "assistant",
                "status": status,
                "content": [part],
            }
        )
    for place, (name, call) in enumerate(zip(spoken.names, spoken.calls, strict=True)):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{answer.id}{place}",
                "call_id": name,
                "name": call.name,
                "arguments": arguments_text(call),
                "status": "completed",
            }
        )
    return items


def _read_messages(rows: list[Row]) -> Iterator[AssistantMessage]:
    """Yield the messages that items of input are: thoughts, text and calls of one answer are one message."""
    held: list[Row] = []

    def flush() -> Iterator[AssistantMessage]:
        if not held:
            return
        texts = [row for row in held if row.get("type", "message") == "message"]
        calls = [row for row in held if row.get("type") == "function_call"]
        thoughts = [row for row in held if row.get("type") == "reasoning"]
        yield AssistantMessage(
            role="assistant",
            text="".join(texts_in(row.get("content"), "content of a message", TEXTS) for row in texts),
            calls=tuple(call_in(row.get("name"), row.get("arguments")) for row in calls),
            names=tuple(text_in(row.get("call_id"), "call_id") for row in calls),
            thinking="".join(texts_in(row.get("content"), "content of reasoning", TEXTS) for row in thoughts),
            opaque="".join(
                text_in(row.get("encrypted_content") or row.get("id"), "encrypted_content")
                for row in thoughts
            ),
        )
        held.clear()

    for row in rows:
        kind = row.get("type", "message")
        if kind not in ("message", "function_call", "function_call_output", "reasoning"):
            raise RequestError(
                400, f"input: got an item of type {kind!r:.40}; give messages and function calls"
            )
        if kind in ("function_call", "reasoning") or (kind == "message" and row.get("role") == "assistant"):
            # An answer has thoughts, then text, then calls; what comes after calls begins another one.
            rank = ("reasoning", "message", "function_call").index(kind)
            last = held[-1].get("type", "message") if held else "reasoning"
            if rank < ("reasoning", "message", "function_call").index(last):
                yield from flush()
            held.append(row)
            continue
        yield from flush()
        if kind == "function_call_output":
            text = texts_in(row.get("output"), "output of a function call", TEXTS)
            yield AssistantMessage(role="tool", text=text, names=(text_in(row.get("call_id"), "call_id"),))
            continue
        role = {"developer": "system", "system": "system", "user": "user"}.get(str(row.get("role")))
        if role is None:
            raise RequestError(
                400, f"role of a message: got {row.get('role')!r:.40}; give system, user or assistant"
            )
        text = texts_in(row.get("content"), f"content of a {role} message", TEXTS)
        yield AssistantMessage(role="system" if role == "system" else "user", text=text)
    yield from flush()


def _tools(body: Row) -> tuple[Any, ...]:
    rows = [object_in(row, "a tool") for row in list_in(body.get("tools"), "tools")]
    for row in rows:
        if row.get("type") != "function":
            raise RequestError(400, f"tools: got one of type {row.get('type')!r:.40}; give functions")
    return tuple(tool_in(row) for row in rows)

"""Anthropic's messages: ``POST …/messages``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quintain.serve.chat_types import (
    Answer,
    AssistantMessage,
    ChatRequest,
    RequestError,
    Row,
    arguments_text,
    call_in,
    list_in,
    must_call_in,
    number_in,
    object_in,
    refuse_many,
    refuses_several,
    sampling_in,
    schema_in,
    stops_in,
    text_in,
    texts_in,
    tool_in,
)

FINISH = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "text": "stop_sequence"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
"""HTTP status → word for the error; others are ``api_error``."""


def read(body: Row) -> ChatRequest:
    """Return the request that `body` is.

    Raises:
        RequestError: it asks for what is not there.
    """
    refuse_many(body)
    spoken: list[AssistantMessage] = []
    system = texts_in(body.get("system"), "system", ("text",))
    if system:
        spoken.append(AssistantMessage(role="system", text=system))
    for row in list_in(body.get("messages"), "messages"):
        spoken += _read_messages(object_in(row, "a message"))
    chosen = object_in(body.get("tool_choice") or {}, "tool_choice")
    choice = chosen.get("type", "auto")
    if choice not in ("auto", "any", "tool", "none"):
        raise RequestError(400, f"tool_choice: got {choice!r:.60}; give auto, any, tool or none")
    tools = () if choice == "none" else _tools(body)
    form = object_in(body.get("output_config") or {}, "output_config").get("format") or {}
    return ChatRequest(
        messages=tuple(spoken),
        tools=tools,
        must_call=must_call_in("tool_choice", chosen.get("name", "") if choice == "tool" else None, tools)
        if choice in ("any", "tool")
        else (),
        schema=schema_in(object_in(form, "output_config.format"), "output_config.format"),
        max_tokens=number_in(body, "max_tokens"),
        stop=stops_in(body.get("stop_sequences")),
        model=text_in(body.get("model"), "model"),
        is_streamed=body.get("stream") is True,
        has_token_ids=body.get("return_token_ids") is True,
        seals_thoughts=True,
        one_call=refuses_several(
            chosen.get("disable_parallel_tool_use"), "disable_parallel_tool_use", if_true=True
        ),
        **sampling_in(body),
    )


def whole(answer: Answer, asked: ChatRequest) -> Row:
    """Return the body that `answer` is."""
    row = _head(answer, asked) | {
        "content": _blocks(answer),
        "stop_reason": FINISH[answer.finish],
        "stop_sequence": answer.stopped_by or None,
        "usage": {"input_tokens": len(answer.prompt_ids), "output_tokens": len(answer.token_ids)},
    }
    if asked.has_token_ids:
        row |= {"token_ids": list(answer.token_ids), "prompt_token_ids": list(answer.prompt_ids)}
    return row


def stream(answer: Answer, asked: ChatRequest) -> Iterator[str]:
    """Yield `answer` as the events of a stream."""
    usage = {"input_tokens": len(answer.prompt_ids), "output_tokens": 0}
    start = _head(answer, asked) | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", message=start)
    for place, block in enumerate(_blocks(answer)):
        kind = block["type"]
        if kind == "tool_use":
            empty, deltas = (
                {**block, "input": {}},
                [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}],
            )
        elif kind == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            empty, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        yield event("content_block_start", index=place, content_block=empty)
        for delta in deltas:
            yield event("content_block_delta", index=place, delta=delta)
        yield event("content_block_stop", index=place)
    end = {"stop_reason": FINISH[answer.finish], "stop_sequence": answer.stopped_by or None}
    yield event("message_delta", delta=end, usage={"output_tokens": len(answer.token_ids)})
    yield event("message_stop")


def event(kind: str, **data: Any) -> str:
    """Return an event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def error(refused: RequestError) -> Row:
    """Return the body of an error."""
    kind = KINDS.get(refused.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}}


def _head(answer: Answer, asked: ChatRequest) -> Row:
    model = asked.model or answer.policy
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": model}


def _blocks(answer: Answer) -> list[Row]:
    spoken = answer.spoken
    blocks: list[Row] = []
    if spoken.thinking:
        blocks.append({"type": "thinking", "thinking": spoken.thinking, "signature": spoken.opaque})
    if spoken.text:
        blocks.append({"type": "text", "text": spoken.text})
    for name, call in zip(spoken.names, spoken.calls, strict=True):
        row = json.loads(arguments_text(call))
        blocks.append({"type": "tool_use", "id": name, "name": call.name, "input": row})
    return blocks


def _read_messages(row: Row) -> Iterator[AssistantMessage]:
    """Yield the messages that `row` is: results of tools, and what was said besides."""
    role = row.get("role")
    if role not in ("user", "assistant", "system"):
        raise RequestError(400, f"role of a message: got {role!r:.40}; give user or assistant")
    content = row.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list_in(content, "content")
    rows = [object_in(block, "a block of content") for block in blocks]
    if role != "assistant":
        results = [each for each in rows if each.get("type") == "tool_result"]
        for each in results:
            text = texts_in(each.get("content"), "content of a tool_result", ("text",))
            yield AssistantMessage(
                role="tool", text=text, names=(text_in(each.get("tool_use_id"), "tool_use_id"),)
            )
        others = [each for each in rows if each.get("type") != "tool_result"]
        if others or not results:
            text = texts_in(others, f"content of a {role} message", ("text",))
            yield AssistantMessage(role="system" if role == "system" else "user", text=text)
        return
    texts: list[str] = []
    thoughts: list[Row] = []
    calls: list[Row] = []
    for each in rows:
        kind = each.get("type")
        if kind in ("thinking", "redacted_thinking"):
            thoughts.append(each)
        elif kind == "tool_use":
            calls.append(each)
        else:
            texts.append(texts_in([each], "content of an assistant message", ("text",)))
    yield AssistantMessage(
        role="assistant",
        text="".join(texts),
        calls=tuple(call_in(each.get("name"), each.get("input")) for each in calls),
        names=tuple(text_in(each.get("id"), "id of a tool_use") for each in calls),
        thinking="".join(text_in(each.get("thinking"), "thinking") for each in thoughts),
        opaque="".join(text_in(each.get("signature", each.get("data")), "signature") for each in thoughts),
    )


def _tools(body: Row) -> tuple[Any, ...]:
    rows = [object_in(row, "a tool") for row in list_in(body.get("tools"), "tools")]
    for row in rows:
        if row.get("type", "custom") != "custom":
            raise RequestError(400, f"tools: got one of type {row.get('type')!r:.40}; give tools of your own")
    return tuple(tool_in(row, "input_schema") for row in rows)

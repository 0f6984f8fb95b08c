"""OpenAI's chat completions: ``POST …/chat/completions``.

What the model thought stands in ``reasoning_content`` of a message, beside its ``content``, as in most servers of such
models; it is taken back from there, from ``reasoning``, or from ``<think>…</think>`` in front of the content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quintain.serve.chat_types import (
    OPENING,
    THOUGHT,
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
    split_thinking,
    stops_in,
    text_in,
    texts_in,
    tool_in,
)
from quintain.types import ToolSpec

FINISH = {"stop": "stop", "calls": "tool_calls", "length": "length", "text": "stop"}
ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read(body: Row) -> ChatRequest:
    """Return the request that `body` is.

    Raises:
        RequestError: it asks for what is not there.
    """
    refuse_many(body)
    form = object_in(body.get("response_format") or {}, "response_format")
    if body.get("top_logprobs"):
        raise RequestError(
            400, f"top_logprobs: got {body['top_logprobs']!r:.20}; the sampled token's log-prob is given only"
        )
    options = object_in(body.get("stream_options") or {}, "stream_options")
    tools = () if body.get("tool_choice") == "none" else _tools(body)
    return ChatRequest(
        messages=tuple(
            _read_message(object_in(row, "a message")) for row in list_in(body.get("messages"), "messages")
        ),
        tools=tools,
        must_call=must_call(body.get("tool_choice"), tools),
        schema=schema_in(form, "response_format", ["json_schema"]),
        max_tokens=number_in(body, "max_completion_tokens", "max_tokens"),
        stop=stops_in(body.get("stop")),
        model=text_in(body.get("model"), "model"),
        is_streamed=body.get("stream") is True,
        has_logprobs=body.get("logprobs") is True,
        has_token_ids=body.get("return_token_ids") is True,
        has_usage=options.get("include_usage") is True,
        one_call=refuses_several(body.get("parallel_tool_calls"), "parallel_tool_calls"),
        **sampling_in(body),
    )


def whole(answer: Answer, asked: ChatRequest) -> Row:
    """Return the body that `answer` is."""
    message: Row = {"role": "assistant", "content": answer.spoken.text or None, "refusal": None}
    if answer.spoken.thinking:
        message[THOUGHT] = answer.spoken.thinking
    if answer.spoken.calls:
        message["tool_calls"] = _calls(answer)
    choice: Row = {
        "index": 0,
        "message": message,
        "finish_reason": FINISH[answer.finish],
        "logprobs": _logprobs(answer) if asked.has_logprobs else None,
    }
    if asked.has_token_ids:
        choice["token_ids"] = list(answer.token_ids)
    row = _head(answer, asked, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}
    return row | ({"prompt_token_ids": list(answer.prompt_ids)} if asked.has_token_ids else {})


def stream(answer: Answer, asked: ChatRequest) -> Iterator[str]:
    """Yield `answer` as the events of a stream."""
    head = _head(answer, asked, "chat.completion.chunk")

    def chunk(delta: Row, more: Row | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, **(more or {})}
        return f"data: {json.dumps(head | {'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    if answer.spoken.thinking:
        yield chunk({THOUGHT: answer.spoken.thinking})
    logprobs = {"logprobs": _logprobs(answer)} if asked.has_logprobs else {}
    if answer.spoken.text or logprobs:
        yield chunk({"content": answer.spoken.text}, logprobs)
    for place, call in enumerate(_calls(answer)):
        yield chunk({"tool_calls": [{"index": place, **call}]})
    ids = {"token_ids": list(answer.token_ids)} if asked.has_token_ids else {}
    yield chunk({}, {"finish_reason": FINISH[answer.finish], **ids})
    if asked.has_usage:
        yield f"data: {json.dumps(head | {'choices': [], 'usage': _usage(answer)})}\n\n"
    yield "data: [DONE]\n\n"


def error(refused: RequestError) -> Row:
    """Return the body of an error."""
    return {"error": {"message": refused.message, "type": refused.code, "code": refused.code, "param": None}}


def _head(answer: Answer, asked: ChatRequest, kind: str) -> Row:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": answer.created,
        "model": asked.model or answer.policy,
        "system_fingerprint": f"{answer.policy}@{answer.version}",
    }


def _read_message(row: Row) -> AssistantMessage:
    """Return the message that `row` is."""
    role = ROLES.get(str(row.get("role")))
    if role is None:
        raise RequestError(
            400, f"role of a message: got {row.get('role')!r:.40}; give system, user, assistant or tool"
        )
    text = texts_in(row.get("content"), f"content of a {role} message", ("text", "refusal"))
    if role == "tool":
        return AssistantMessage(
            role="tool", text=text, names=(text_in(row.get("tool_call_id"), "tool_call_id"),)
        )
    if role != "assistant":
        return AssistantMessage(role="system" if role == "system" else "user", text=text)
    calls = [object_in(call, "a tool call") for call in list_in(row.get("tool_calls"), "tool_calls")]
    functions = [object_in(call.get("function"), "function of a tool call") for call in calls]
    thought, text = _read_thought(row, text)
    return AssistantMessage(
        role="assistant",
        text=text,
        calls=tuple(call_in(each.get("name"), each.get("arguments")) for each in functions),
        names=tuple(text_in(call.get("id"), "id of a tool call") for call in calls),
        thinking=thought,
    )


def _read_thought(row: Row, text: str) -> tuple[str, str]:
    """Return what was thought before the answer `row` that a client gives back, and its words.

    Raises:
        RequestError: two thoughts that differ are given.
    """
    given = {name: found for name in (THOUGHT, "reasoning") if (found := text_in(row.get(name), name))}
    if len(set(given.values())) > 1:
        raise RequestError(400, f"{THOUGHT}, reasoning: got two that differ; give what was thought once")
    if given:
        return next(iter(given.values())), text
    return split_thinking(text) if text.lstrip().startswith(OPENING) else ("", text)


def _tools(body: Row) -> tuple[Any, ...]:
    rows = [object_in(row, "a tool") for row in list_in(body.get("tools"), "tools")]
    for row in rows:
        if row.get("type") != "function":
            raise RequestError(400, f"tools: got one of type {row.get('type')!r:.40}; give functions")
    return tuple(tool_in(object_in(row.get("function"), "function of a tool")) for row in rows)


def must_call(choice: object, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """Return the tools of which one must be called.

    Raises:
        RequestError: the choice cannot be made here.
    """
    if choice in (None, "auto", "none"):
        return ()
    if choice == "required":
        return must_call_in("tool_choice", None, tools)
    row = choice if isinstance(choice, dict) else {"type": choice}
    if row.get("type") != "function":
        raise RequestError(
            400, f"tool_choice: got {choice!r:.60}; give none, auto, required or the name of a function"
        )
    return must_call_in("tool_choice", object_in(row.get("function", row), "tool_choice").get("name"), tools)


def _calls(answer: Answer) -> list[Row]:
    return [
        {"id": name, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
        for name, call in zip(answer.spoken.names, answer.spoken.calls, strict=True)
    ]


def _logprobs(answer: Answer) -> Row:
    return {"content": logprob_rows(answer), "refusal": None}


def logprob_rows(answer: Answer) -> list[Row]:
    """Return each sampled token with its log-prob."""
    return [
        {"token": piece, "logprob": logprob, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece, logprob in zip(answer.pieces, answer.logprobs, strict=True)
    ]


def _usage(answer: Answer) -> Row:
    given, sampled = len(answer.prompt_ids), len(answer.token_ids)
    return {"prompt_tokens": given, "completion_tokens": sampled, "total_tokens": given + sampled}

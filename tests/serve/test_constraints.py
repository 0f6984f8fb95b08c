"""Answers under a schema and calls that must be made, of a model that would say anything else."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from quintain.serve import chat_completions, messages_api, responses_api
from quintain.serve.chat_types import RequestError

Served = Any
USER: Any = {"role": "user", "content": "Go."}
CHOICE = {
    "type": "object",
    "properties": {"go": {"enum": ["left", "right"]}},
    "required": ["go"],
    "additionalProperties": False,
}
GUESS = {"type": "object", "properties": {"number": {"enum": [3, 4]}}, "required": ["number"]}
LOOK = {"type": "object", "properties": {}}
FUNCTIONS: Any = [
    {"type": "function", "function": {"name": "guess", "parameters": GUESS}},
    {"type": "function", "function": {"name": "look", "parameters": LOOK}},
]
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "choice", "schema": CHOICE}}


@pytest.fixture
def clients(untrained: Served) -> tuple[Any, Any, Any]:
    session, url, key = untrained.open()
    return (
        session,
        openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0),
        anthropic.Anthropic(base_url=url, api_key=key, max_retries=0),
    )


def test_answers_keep_to_their_schema_in_every_dialect(clients: Any) -> None:
    session, ours, theirs = clients
    said = [
        ours.chat.completions.create(model="m", messages=[USER], response_format=FORMAT)
        .choices[0]
        .message.content,
        ours.responses.create(
            model="m",
            input="Go.",
            text={"format": {"type": "json_schema", "name": "choice", "schema": CHOICE}},
        ).output_text,
        theirs.messages.create(
            model="m",
            max_tokens=200,
            messages=[USER],
            output_config={"format": {"type": "json_schema", "schema": CHOICE}},
        )
        .content[0]
        .text,
    ]
    assert [json.loads(text)["go"] in ("left", "right") for text in said] == [True] * 3
    nodes = session.recorder.nodes
    assert [node.completion.stop for node in nodes] == ["stop"] * 3
    # Log-probs are those of the model without the schema, as a learner computes them.
    assert all(sum(node.completion.logprobs) < -10 for node in nodes)


def test_any_object(clients: Any) -> None:
    _, ours, _ = clients
    answer = ours.chat.completions.create(
        model="m", messages=[USER], response_format={"type": "json_object"}, max_tokens=30
    )
    assert answer.choices[0].message.content.startswith("{")


def test_calls_that_must_be_made(clients: Any) -> None:
    session, ours, theirs = clients
    for choice, names in (
        ("required", ("guess", "look")),
        ({"type": "function", "function": {"name": "guess"}}, ("guess",)),
        ({"type": "function", "function": {"name": "look"}}, ("look",)),
    ):
        answer = ours.chat.completions.create(
            model="m", messages=[USER], tools=FUNCTIONS, tool_choice=choice, response_format=FORMAT
        )
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name in names
        allowed = ({"number": 3}, {"number": 4}) if call.function.name == "guess" else ({},)
        assert json.loads(call.function.arguments) in allowed
    flat: Any = [{"type": "function", **row["function"]} for row in FUNCTIONS]
    item = ours.responses.create(
        model="m", input="Go.", tools=flat, tool_choice={"type": "function", "name": "look"}
    ).output[-1]
    assert (item.type, item.name, item.arguments) == ("function_call", "look", "{}")
    tools: Any = [{"name": "guess", "input_schema": GUESS}, {"name": "look", "input_schema": LOOK}]
    for choice in ({"type": "any"}, {"type": "tool", "name": "look"}):
        answer = theirs.messages.create(
            model="m", max_tokens=200, messages=[USER], tools=tools, tool_choice=choice
        )
        assert answer.content[-1].name in ("guess", "look")
    assert answer.content[-1].name == "look"
    assert all(node.error is None for node in session.recorder.nodes)


def test_with_tools_an_answer_is_a_call_or_keeps_to_its_schema(clients: Any) -> None:
    _, ours, _ = clients
    kinds: set[str] = set()
    for n in range(12):
        message = (
            ours.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": f"Go {n}."}],
                tools=FUNCTIONS,
                response_format=FORMAT,
            )
            .choices[0]
            .message
        )
        kinds.add("call" if message.tool_calls else json.loads(message.content)["go"])
    assert kinds & {"left", "right"} and kinds <= {"call", "left", "right"}


Read = Callable[[Any], Any]
CHAT, RESPONSES, MESSAGES = chat_completions.read, responses_api.read, messages_api.read
TOOLS_OF_MESSAGES = [{"name": "look", "input_schema": LOOK}]
WRONG: list[tuple[Read, Any, str]] = [
    (CHAT, {"tool_choice": "required"}, "tool_choice: got a call, and no such tool"),
    (CHAT, {"tool_choice": "sometimes"}, "tool_choice: got 'sometimes'; give none, auto, required or"),
    (CHAT, {"tool_choice": {"type": "allowed_tools"}}, "tool_choice: got {'type': 'allowed_tools'}"),
    (
        CHAT,
        {"tool_choice": {"type": "function", "function": {"name": "run"}}, "tools": FUNCTIONS},
        "tool_choice: got a call of 'run', and no such tool",
    ),
    (
        CHAT,
        {"response_format": {"type": "grammar"}},
        "response_format: got 'grammar'; ask for text, json_object",
    ),
    (CHAT, {"response_format": {"type": "json_schema"}}, "json_schema of response_format: got NoneType"),
    (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "schema of text.format: got NoneType"),
    (RESPONSES, {"tool_choice": "required"}, "tool_choice: got a call, and no such tool"),
    (MESSAGES, {"tool_choice": {"type": "some"}}, "tool_choice: got 'some'; give auto, any, tool or none"),
    (
        MESSAGES,
        {"tool_choice": {"type": "tool"}, "tools": TOOLS_OF_MESSAGES},
        "tool_choice: got a call of '', and no such tool",
    ),
]


@pytest.mark.parametrize(("read", "body", "told"), WRONG)
def test_what_cannot_be_asked_for_is_told_in_a_line(read: Read, body: Any, told: str) -> None:
    with pytest.raises(RequestError) as refused:
        read({"messages": [USER], "input": "Go.", **body})
    assert told in refused.value.message and refused.value.status == 400


def test_what_asks_for_nothing_is_free() -> None:
    for body in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"response_format": {"type": "text"}}):
        asked = chat_completions.read({"messages": [USER], "tools": FUNCTIONS, **body})
        assert (asked.must_call, asked.schema) == ((), None)


def test_an_engine_without_grammars_and_a_schema_that_cannot_be_followed(
    served: Served, untrained: Served
) -> None:
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    cases: Any = (
        (served, {"tools": FUNCTIONS, "tool_choice": "required"}, "the engine keeps to no grammar"),
        (untrained, {"response_format": wrong}, "an answer under a schema: grammar of a completion: got"),
    )
    for endpoint, options, told in cases:
        session, url, key = endpoint.open()
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client,
            pytest.raises(openai.BadRequestError, match=told),
        ):
            client.chat.completions.create(model="m", messages=[USER], **options)
        assert not session.recorder.nodes and session.num_dispatched == 0

"""Four kinds of clients, and models of three families that write words and a call in their own way."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from tests.serve.conftest import Served, serving
from tests.text.families import FAMILIES, Family, as_row, as_tools

from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.text.chat import Chat
from quintain.types import Message, ToolCall, ToolSpec, as_content

PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
LOOK = ToolSpec(name="look", description="Look.", parameters=PARAMETERS)
FUNCTION: Any = {"name": "look", "description": "Look.", "parameters": PARAMETERS}
USER: Any = {"role": "user", "content": "Where?"}
RESULT = "sun"
Seen = tuple[str, str, Any]
"""Words, name and arguments that a client was handed."""


@pytest.fixture(params=[*FAMILIES])
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def chat(family: Family) -> Chat:
    return Chat(family.tokenizer())


@pytest.fixture
def served(chat: Chat) -> Iterator[Served]:
    """An endpoint whose model says texts as they are, marks and ends included."""
    says: list[Any] = []
    requests: list[Request] = []
    streams: list[tuple[int, ...]] = []

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        requests.append(request)
        streams.append(stream)
        return chat.encoder.encode_marked(says.pop(0), continues=True)

    yield from serving(chat, Scripted(script, max_length=4000), says, requests, streams)


def by_completions(url: str, key: str) -> tuple[Seen, str]:
    """Ask as OpenAI's SDK does at chat completions."""
    tools: Any = [{"type": "function", "function": FUNCTION}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        said = sdk.chat.completions.create(model="m", messages=[USER], tools=tools).choices[0].message
        call: Any = (said.tool_calls or [])[0]
        messages: Any = [
            USER,
            said.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": RESULT},
        ]
        last = sdk.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message
    seen = said.content or "", call.function.name, json.loads(call.function.arguments)
    return seen, last.content or ""


def by_responses(url: str, key: str) -> tuple[Seen, str]:
    """Ask as OpenAI's SDK does at responses, all items given back."""
    tools: Any = [{"type": "function", "strict": False, **FUNCTION}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        found = sdk.responses.create(model="m", input=[USER], tools=tools)
        call: Any = next(item for item in found.output if item.type == "function_call")
        items: Any = [
            USER,
            *(item.model_dump(exclude_none=True) for item in found.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": RESULT},
        ]
        last = sdk.responses.create(model="m", input=items, tools=tools)
    return (found.output_text, call.name, json.loads(call.arguments)), last.output_text


def by_messages(url: str, key: str) -> tuple[Seen, str]:
    """Ask as Anthropic's SDK does."""
    tools: Any = [{"name": "look", "description": "Look.", "input_schema": PARAMETERS}]
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as sdk:
        found = sdk.messages.create(model="m", max_tokens=300, messages=[USER], tools=tools)
        call: Any = next(block for block in found.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
        back: Any = [block.model_dump(exclude_none=True) for block in found.content]
        messages: Any = [USER, {"role": "assistant", "content": back}, {"role": "user", "content": [result]}]
        last = sdk.messages.create(model="m", max_tokens=300, messages=messages, tools=tools)
    words = "".join(block.text for block in found.content if block.type == "text")
    return (words, call.name, call.input), "".join(b.text for b in last.content if b.type == "text")


def by_http(url: str, key: str) -> tuple[Seen, str]:
    """Ask without any SDK, over a stream."""

    def ask(*messages: Any) -> Any:
        body = {"messages": messages, "tools": [{"type": "function", "function": FUNCTION}], "stream": True}
        with httpx2.Client(timeout=20) as http:
            sent = http.post(
                f"{url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}
            )
        assert sent.status_code == 200, sent.text
        lines = [line.removeprefix("data: ") for line in sent.text.splitlines() if line.startswith("data: {")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        words = "".join(delta.get("content") or "" for delta in deltas)
        return {"role": "assistant", "content": words, **({"tool_calls": calls} if calls else {})}

    said = ask(USER)
    (call,) = said["tool_calls"]
    last = ask(USER, said, {"role": "tool", "tool_call_id": call["id"], "content": RESULT})
    function = call["function"]
    return (said["content"], function["name"], json.loads(function["arguments"])), last["content"]


CLIENTS: dict[str, Callable[[str, str], tuple[Seen, str]]] = {
    "chat completions": by_completions,
    "responses": by_responses,
    "messages": by_messages,
    "http": by_http,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_words_and_a_call_are_handed_over_and_gone_on_from(
    served: Served, chat: Chat, family: Family, client: str
) -> None:
    session, url, key = served.open()
    answer = chat.encoder.decode(chat.write("In the sun."))
    served.says += [family.call, answer]
    seen, last = CLIENTS[client](url, key)
    assert seen == ("Hm.", "look", {"at": "a"})
    assert last == "In the sun."
    first, second = session.recorder.nodes
    assert (second.parent, second.fork) == (first, ""), "it goes on, in the same stream"
    assert served.requests[0].session == served.requests[1].session
    call = ToolCall(name="look", arguments={"at": "a"}, id=first.spoken.names[0])
    history = [
        Message(role="user", content=as_content("Where?")),
        Message(role="assistant", content=as_content("Hm."), tool_calls=(call,)),
        Message(role="tool", content=as_content(RESULT), tool_call_id=call.id, name="look"),
    ]
    plain: Any = chat.tokenizer
    expected = plain.apply_chat_template(
        [as_row(message) for message in history],
        tools=as_tools((LOOK,)),
        add_generation_prompt=True,
        return_dict=False,
    )
    shown = [*second.whole[: len(second.whole) - len(second.completion.token_ids)]]
    assert chat.encoder.decode(shown) == chat.encoder.decode(expected)
    assert shown == expected == [*served.streams[1]]


def test_words_and_thoughts_are_told_apart_without_tools(served: Served, chat: Chat, family: Family) -> None:
    session, url, key = served.open()
    written = chat.conversation().write(Message(role="assistant", content=as_content("Yes."), reasoning="R"))
    served.says += [chat.encoder.decode(written.token_ids)] * 2
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        said = sdk.chat.completions.create(model="m", messages=[USER]).choices[0].message
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as sdk:
        blocks: Any = sdk.messages.create(model="m", max_tokens=300, messages=[USER]).content
    assert [(each.type, getattr(each, each.type).strip()) for each in blocks] == [
        ("thinking", "R"),
        ("text", "Yes."),
    ]
    thought: str = said.reasoning_content  # pyright: ignore[reportAttributeAccessIssue]
    assert (thought.strip(), (said.content or "").strip()) == ("R", "Yes.")
    assert len(session.recorder.nodes) == 2


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_thought_that_is_given_back_is_gone_on_from(
    served: Served, chat: Chat, family: Family, is_kept: bool
) -> None:
    """What is not given back is not shown: the chat is what the model's template writes without it."""
    session, url, key = served.open()
    spoken = Message(
        role="assistant",
        content=(),
        tool_calls=(ToolCall(name="look", arguments={"at": "a"}),),
        reasoning="R",
    )
    answer = chat.encoder.decode(chat.write("In the sun."))
    served.says += [chat.encoder.decode(chat.write_message(spoken).token_ids), answer]
    tools: Any = [{"type": "function", "function": FUNCTION}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        said = sdk.chat.completions.create(model="m", messages=[USER], tools=tools).choices[0].message
        back: Any = said.model_dump(exclude_none=True)
        assert back["reasoning_content"].strip() == "R" and not back.get("content")
        if not is_kept:
            del back["reasoning_content"]
        call = (said.tool_calls or [])[0]
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        sdk.chat.completions.create(model="m", messages=[USER, back, result], tools=tools)
    first, second = session.recorder.nodes
    assert (second.parent, second.fork) == ((first, "") if is_kept else (None, "thought"))
    history = [
        Message(role="user", content=as_content("Where?")),
        replace(
            spoken,
            reasoning="R" if is_kept else "",
            tool_calls=(replace(spoken.tool_calls[0], id=first.spoken.names[0]),),
        ),
        Message(role="tool", content=as_content(RESULT), tool_call_id=first.spoken.names[0], name="look"),
    ]
    plain: Any = chat.tokenizer
    expected = plain.apply_chat_template(
        [as_row(message) for message in history],
        tools=as_tools((LOOK,)),
        add_generation_prompt=True,
        return_dict=False,
    )
    shown = [*second.whole[: len(second.whole) - len(second.completion.token_ids)]]
    assert chat.encoder.decode(shown) == chat.encoder.decode(expected)


def test_results_come_in_another_order_and_keep_their_calls(chat: Chat, family: Family) -> None:
    if family.format == "harmony":
        pytest.skip("its template shows one call at once")
    conversation = chat.conversation((LOOK,))
    conversation.prompt([Message(role="user", content=as_content("Where?"))])
    calls = tuple(ToolCall(name="look", arguments={"at": at}) for at in "ab")
    written = conversation.write(Message(role="assistant", content=(), tool_calls=calls))
    conversation.record(written.token_ids, names=("x", "y"))
    branch = conversation.branch()
    results = [Message(role="tool", content=as_content(each), tool_call_id=each) for each in "yx"]
    branch.prompt(results)
    entries = branch._history[-2:]  # pyright: ignore[reportPrivateUsage]
    assert [(each["tool_call_id"], each["name"]) for each in entries] == [
        (written.message.tool_calls[1].id, "look"),
        (written.message.tool_calls[0].id, "look"),
    ]

"""The three dialects as their SDKs speak them, who may ask, and what is refused."""

import json
import threading
from collections.abc import Callable
from typing import Any, cast

import anthropic
import httpx2
import openai
import pytest

from quintain.engines.scripted import Scripted
from quintain.serve import chat_completions, messages_api, responses_api
from quintain.serve.chat_types import AssistantMessage, RequestError, canonical, split_thinking
from quintain.serve.endpoint import Endpoint, EpisodeLimits
from quintain.serve.engine_thread import EngineThread
from quintain.serve.listener import Listener
from quintain.serve.source import write_message
from quintain.text.chat import Chat
from quintain.types import Failure, Stop, ToolCall, as_text

Served = Any
Eventually = Callable[[Callable[[], bool]], None]
CALL = 'hm <tool_call>{"name": "guess", "arguments": {"number": 3}}</tool_call>'
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
PATHS = {"chat/completions": chat_completions, "messages": messages_api, "responses": responses_api}


def post(
    url: str, body: Any, path: str = "/v1/chat/completions", method: str = "POST", **headers: str
) -> tuple[int, Any]:
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with httpx2.Client(timeout=20) as plain:
        answer = plain.request(method, url + path, headers=sent, content=raw)
    return answer.status_code, answer.json()


def plain(message: Any) -> Any:
    """Return a message as an agent puts it back into its chat."""
    calls = [
        {
            "id": c.id,
            "type": "function",
            "function": {"name": c.function.name, "arguments": c.function.arguments},
        }
        for c in message.tool_calls or ()
    ]
    return {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})


def parents(session: Any) -> list[int | None]:
    return [None if node.parent is None else node.parent.number for node in session.recorder.nodes]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_chat_completions(served: Served, is_streamed: bool) -> None:
    session, url, key = served.open()
    served.says += [CALL, "done"]
    tools: Any = [{"type": "function", "function": {"name": "guess", "parameters": SCHEMA}}]
    messages: Any = [{"role": "system", "content": "Go."}, {"role": "user", "content": "A wall."}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        assert [model.id for model in sdk.models.list()] == ["policy"]
        choice: Any = None
        for _ in range(2):
            more: Any = {"model": "m", "messages": messages, "tools": tools, "logprobs": True}
            if is_streamed:
                with sdk.chat.completions.stream(**more, stream_options={"include_usage": True}) as events:
                    for _ in events:
                        pass
                    found: Any = events.get_final_completion()
            else:
                found = sdk.chat.completions.create(**more)
            choice = found.choices[0]
            messages.append(plain(choice.message))
            node = session.recorder.nodes[-1]
            assert [each.logprob for each in choice.logprobs.content] == list(node.completion.logprobs)
            assert "".join(each.token for each in choice.logprobs.content).endswith("<|end|>")
            assert found.usage.completion_tokens == len(node.completion.token_ids)
            if choice.message.tool_calls:
                call = choice.message.tool_calls[0]
                assert (choice.finish_reason, choice.message.content) == ("tool_calls", "hm")
                assert (call.function.name, json.loads(call.function.arguments)) == ("guess", {"number": 3})
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "higher"})
        assert (choice.finish_reason, choice.message.content) == ("stop", "done")
    assert parents(session) == [None, 0]
    assert session.recorder.nodes[1].added[0] == AssistantMessage(
        role="tool", text="higher", names=("call_0_0",)
    )


@pytest.mark.parametrize("is_streamed", [False, True])
def test_responses(served: Served, is_streamed: bool) -> None:
    session, url, key = served.open()
    served.says += [CALL, "done", "left"]
    tools: Any = [
        {"type": "function", "name": "guess", "description": "g", "parameters": SCHEMA, "strict": False}
    ]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:

        def ask(**more: Any) -> Any:
            if not is_streamed:
                return sdk.responses.create(model="m", tools=tools, **more)
            with sdk.responses.stream(model="m", tools=tools, **more) as events:
                for _ in events:
                    pass
                return events.get_final_response()

        found = ask(instructions="Go.", input="A wall.", include=["message.output_text.logprobs"])
        text, call = found.output
        assert (text.content[0].text, call.name, json.loads(call.arguments)) == ("hm", "guess", {"number": 3})
        assert len(text.content[0].logprobs) == len(session.recorder.nodes[0].completion.token_ids)
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "higher"}
        found = ask(input=[output], previous_response_id=found.id)
        assert (found.output_text, found.status) == ("done", "completed")
        items: Any = [
            {"role": "user", "content": [{"type": "input_text", "text": "A wall."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c", "name": "guess", "arguments": '{"number":3}'},
            output,
        ]
        ask(instructions="Go.", input=items)
        assert parents(session) == [None, 0, 0]
        served.says += ["left and right"]
        more: Any = {"input": "And?", "instructions": "Stop.", "previous_response_id": found.id}
        found = sdk.responses.create(model="m", max_output_tokens=1, **more)
        assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert [each.text for each in session.recorder.nodes[3].history if each.role == "system"] == ["Stop."]
        with pytest.raises(openai.NotFoundError, match="which this episode has not"):
            sdk.responses.create(model="m", input="x", previous_response_id="resp_none")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_was_thought_stands_beside_the_content(served: Served, is_streamed: bool) -> None:
    """It is taken back from where servers put it; who leaves it out goes on with what its template makes of that."""
    session, url, key = served.open()
    served.says += ["<think>far</think>right", "<think>higher and higher", "<think>it is higher</think>"]
    first: Any = {"role": "user", "content": "A wall."}
    after: Any = {"role": "user", "content": "go on"}
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:

        def answer_to(*messages: Any) -> Any:
            return sdk.chat.completions.create(model="m", messages=messages, max_tokens=90).choices[0]

        def ask(*messages: Any) -> Any:
            more: Any = {"model": "m", "messages": messages, "max_tokens": 90}
            if not is_streamed:
                return answer_to(*messages)
            deltas: list[Any] = []
            with sdk.chat.completions.stream(**more) as events:
                for event in events:
                    if event.type == "chunk":
                        deltas += [choice.delta.model_extra for choice in event.chunk.choices]
                found: Any = events.get_final_completion()
            thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
            assert thoughts == [found.choices[0].message.reasoning_content]
            return found.choices[0]

        said = ask(first).message
        assert (said.content, said.reasoning_content) == ("right", "far")
        kept = said.model_dump(exclude_none=True)
        cut = ask(first, kept, after)
        assert (cut.message.content or "", cut.message.reasoning_content) == ("", "higher and higher")
        alone = ask(first, kept, {"role": "user", "content": "?"}).message
        assert (alone.content or "", alone.reasoning_content) == ("", "it is higher")
        served.says += ["right"] * 9
        bare: Any = {"role": "assistant", "content": "right"}
        for back in (
            bare | {"reasoning": "far"},
            bare | {"reasoning": " far\n", "reasoning_content": None},
            bare | {"reasoning": "far", "reasoning_content": "far"},
            {"role": "assistant", "content": "<think>far</think>right"},
        ):
            answer_to(first, back, after)
        empty = {"role": "assistant", "content": None, "reasoning_content": "it is higher"}
        answer_to(first, kept, {"role": "user", "content": "?"}, empty, after)
        answer_to(first, bare, after)
        with pytest.raises(openai.BadRequestError, match="got two that differ; give what was thought once"):
            answer_to(first, bare | {"reasoning": "near", "reasoning_content": "far"}, after)
    assert parents(session) == [None, 0, 0, 0, 0, 0, 0, 2, None]
    last = session.recorder.nodes[-1]
    assert (last.fork, "far" in served.endpoint.chat.text(last.whole)) == ("thought", False)
    assert session.recorder.turns()[0].action.text == "<think>far</think>right"
    facts: Any = session.recorder.turns()[-1].facts["given"]
    assert [row.get("reasoning_content") for row in facts] == [None, None, None]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_messages(served: Served, is_streamed: bool) -> None:
    session, url, key = served.open()
    served.says += [CALL, "left Observation: x", "<think>far</think>right"]
    tools: Any = [{"name": "guess", "description": "g", "input_schema": SCHEMA}]
    messages: Any = [{"role": "user", "content": "A wall."}]
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as sdk:

        def ask(**more: Any) -> Any:
            more = {
                "model": "m",
                "max_tokens": 90,
                "system": "Go.",
                "messages": messages,
                "tools": tools,
            } | more
            if not is_streamed:
                return sdk.messages.create(**more)
            with sdk.messages.stream(**more) as events:
                return events.get_final_message()

        count: Any = {"model": "m", "system": "Go.", "messages": messages, "tools": tools}
        number = sdk.messages.count_tokens(**count).input_tokens
        found = ask()
        assert (
            found.usage.input_tokens
            == number
            == len(session.recorder.nodes[0].whole) - found.usage.output_tokens
        )
        text, call = found.content
        assert (text.text, call.name, call.input, found.stop_reason) == (
            "hm",
            "guess",
            {"number": 3},
            "tool_use",
        )
        fields = {"type", "text", "id", "name", "input"}
        back = [block.model_dump(include=fields, exclude_none=True) for block in found.content]
        result = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": [{"type": "text", "text": "higher"}],
        }
        messages += [{"role": "assistant", "content": back}, {"role": "user", "content": [result]}]
        found = ask(stop_sequences=["Observation:"])
        assert (found.content[0].text, found.stop_reason, found.stop_sequence) == (
            "left ",
            "stop_sequence",
            "Observation:",
        )
        messages += [{"role": "assistant", "content": "left "}, {"role": "user", "content": "And?"}]
        found = ask()
        assert [(b.type, getattr(b, b.type)) for b in found.content] == [
            ("thinking", "far"),
            ("text", "right"),
        ]
        assert found.content[0].signature == session.recorder.nodes[2].digest
    assert parents(session) == [None, 0, 0]  # the second was cut: its rest is in no later prompt
    assert [node.added[0].role for node in session.recorder.nodes] == ["system", "tool", "tool"]


class TestKeys:
    def test_an_episode_reads_no_other(self, served: Served) -> None:
        _, one, first = served.open("one")
        two, url, second = served.open("two")
        body = {"messages": [{"role": "user", "content": "Go."}]}
        for given in (first, "x", "no such key"):
            status, answer = post(url, body, Authorization=f"Bearer {given}")
            assert status == 401 and "key" in answer["error"]["message"]
        _, answer = post(url, body, Authorization=f"Bearer {second}")
        name = answer["id"].removeprefix("chatcmpl-")
        status, answer = post(
            one, {"input": "x", "previous_response_id": f"resp_{name}"}, "/v1/responses", X_Api_Key=first
        )
        assert status == 404
        assert len(two.recorder.nodes) == 1
        assert second not in repr(vars(two)) and second.encode() not in repr(vars(two)).encode()

    def test_a_key_alone_names_its_episode(self, served: Served) -> None:
        session, url, key = served.open("one")
        base = url.rpartition("/e/")[0]
        body = {"messages": [{"role": "user", "content": "Go."}]}
        assert post(base, body, X_Api_Key=key)[0] == 200
        assert len(session.recorder.nodes) == 1
        served.endpoint.close(session)
        for path in (base, url):
            assert post(path, body, X_Api_Key=key)[0] == 401

    def test_what_is_no_path_of_ours(self, served: Served) -> None:
        _, url, key = served.open()
        for path, method in (
            ("/v2/x y", "POST"),
            ("/v1/embeddings", "POST"),
            ("/v1/messages", "GET"),
            ("/v1/end", "POST"),
        ):
            status, answer = post(url, {}, path, method, X_Api_Key=key)
            assert (status, "error" in answer) == (404, True)

    def test_a_master_key_opens_an_episode_for_each_path(self, chat: Chat) -> None:
        ended: list[tuple[str, Any]] = []
        pump = EngineThread(Scripted(lambda request, stream: chat.write("go on")))
        endpoint = Endpoint(
            pump, chat, master_key="m4ster", on_end=lambda session, row: ended.append((session.name, row))
        )
        listener = Listener(endpoint, token="m4ster").start()
        try:
            body = {"messages": []}
            for path in ("/e/one/v1", "/v1"):
                status, answer = post(listener.url, body, f"{path}/chat/completions", X_Api_Key="m4ster")
                assert (status, answer["error"]["message"]) == (400, "messages: got none; send at least one")
            assert sorted(endpoint.sessions) == ["default", "one"]
            assert post(listener.url, body, "/e/one/v1/models", "GET", X_Api_Key="other")[0] == 401
            assert post(listener.url, {"score": 1.0}, "/e/one/end", X_Api_Key="m4ster") == (
                200,
                {"ended": "one", "calls": 0},
            )
            assert ended == [("one", {"score": 1.0})]
        finally:
            listener.close()


USER = {"role": "user", "content": "Go."}
WRONG: list[tuple[str, Any, str]] = [
    ("chat/completions", b"[1]", "body: got no JSON object"),
    ("chat/completions", b"{", "body: got no JSON;"),
    ("chat/completions", {"messages": "Go."}, "messages: got str; give a list"),
    ("chat/completions", {"messages": ["Go."]}, "a message: got str; give an object"),
    ("chat/completions", {"messages": [{"role": "robot"}]}, "role of a message: got 'robot'"),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": 3}]},
        "content of a user message: got int",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "reads text only",
    ),
    (
        "chat/completions",
        {"messages": [USER, {"role": "assistant", "content": "x"}]},
        "got an answer as the last",
    ),
    ("chat/completions", {"messages": [USER], "max_tokens": 0}, "max_tokens: got 0; give a whole number"),
    ("chat/completions", {"messages": [USER], "stop": [""]}, "stop: got something else than texts"),
    ("chat/completions", {"messages": [USER], "top_logprobs": 3}, "top_logprobs: got 3"),
    (
        "chat/completions",
        {"messages": [USER], "response_format": {"type": "json_object"}},
        "an answer under a schema: got a request for one, and the engine keeps to no grammar",
    ),
    ("chat/completions", {"messages": [USER], "tools": [{"type": "web"}]}, "tools: got one of type 'web'"),
    (
        "chat/completions",
        {"messages": [USER], "tools": [{"type": "function", "function": {}}]},
        "without a name",
    ),
    (
        "chat/completions",
        {
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [{"function": {"name": "g", "arguments": "{"}}]},
            ]
        },
        "arguments of the tool call 'g': they are is not valid JSON",
    ),
    ("messages", {"messages": [{"role": "robot"}]}, "role of a message: got 'robot'"),
    ("messages", {"messages": [USER], "tools": [{"type": "bash"}]}, "tools: got one of type 'bash'"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "reads text only"),
    ("responses", {"input": "x", "background": True}, "background: got True"),
    (
        "responses",
        {"input": "x", "text": {"format": {"type": "json_schema"}}},
        "schema of text.format: got NoneType",
    ),
    ("responses", {"input": "x", "top_logprobs": 1}, "top_logprobs: got 1"),
    ("responses", {"input": [{"type": "item_reference"}]}, "got an item of type 'item_reference'"),
    ("responses", {"input": [{"role": "robot"}]}, "role of a message: got 'robot'"),
    ("responses", {"input": "x", "tools": [{"type": "web_search"}]}, "tools: got one of type 'web_search'"),
]


@pytest.mark.parametrize(("what", "body", "told"), WRONG)
def test_what_is_wrong_is_told_in_a_line(served: Served, what: str, body: Any, told: str) -> None:
    session, url, key = served.open()
    status, answer = post(url, body, f"/v1/{what}", X_Api_Key=key)
    assert status == 400
    assert told in answer["error"]["message"]
    assert not session.recorder.nodes


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_engine_that_fails(
    served: Served, is_streamed: bool, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.serve.endpoint.PING_SECONDS", 0.02)
    fault = Failure(owner="engine", kind="broken", message="no power")
    session, url, key = served.open()
    served.says += [fault, fault]
    body = {"messages": [USER], "stream": is_streamed}
    served.gate.set()
    status, answer = post(url, {"messages": [USER]}, X_Api_Key=key)
    assert (status, answer["error"]["message"]) == (500, "no power")
    assert session.failure == fault
    if is_streamed:
        served.gate.clear()
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
            chunks = sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            served.gate.set()  # the head of the stream is here
            with pytest.raises(openai.APIError, match="no power"):
                list(chunks)
    status, answer = post(url, body | {"stream": False}, X_Api_Key=key, Idempotency_Key="k")
    assert status in (200, 500)


def test_budgets(served: Served) -> None:
    session, url, key = served.open(terms=EpisodeLimits(max_tokens=1))
    body = {"messages": [USER]}
    assert post(url, body, X_Api_Key=key)[0] == 200
    status, answer = post(url, body, X_Api_Key=key)
    assert (status, answer["error"]["code"], session.stop) == (403, "budget_spent", Stop.MAX_TOKENS)
    session, url, key = served.open("b", terms=EpisodeLimits(max_calls=1))
    assert post(url, body, X_Api_Key=key)[0] == 200
    assert post(url, body, X_Api_Key=key)[0] == 403
    assert session.stop is Stop.CUT


def test_an_episode_that_ends_lets_go(served: Served, eventually: Eventually) -> None:
    session, url, key = served.open()
    post(url, {"messages": [USER]}, X_Api_Key=key)
    served.gate.clear()
    answers: list[tuple[int, Any]] = []
    thread = threading.Thread(
        target=lambda: answers.append(post(url, {"messages": [USER, USER]}, X_Api_Key=key))
    )
    thread.start()
    eventually(lambda: len(session.pending) == 2)
    served.endpoint.close(session)
    served.gate.set()
    thread.join(10)
    assert (answers[0][0], answers[0][1]["error"]["message"]) == (403, "the episode is over")
    eventually(lambda: served.endpoint.pump.engine.stats().num_sessions == 0)
    assert session.failure is None


def test_streams_that_the_engine_keeps_are_few(
    served: Served, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("quintain.serve.endpoint.MAX_STREAMS", 2)
    session, url, key = served.open()
    for text in ("A wall.", "Go.", "left", "right"):
        post(url, {"messages": [{"role": "user", "content": text}]}, X_Api_Key=key)
    eventually(lambda: served.endpoint.pump.engine.stats().num_sessions == 2)
    assert [bool(node.session) for node in session.recorder.nodes] == [False, False, True, True]


def test_identity() -> None:
    one = AssistantMessage(
        role="assistant", calls=(ToolCall(name="g", arguments={"b": 1, "a": {"d": 2}}),), names=("x",)
    )
    other = AssistantMessage(
        role="assistant", calls=(ToolCall(name="g", arguments={"a": {"d": 2}, "b": 1}),), names=("y",)
    )
    assert one.key() == other.key()
    assert AssistantMessage(role="user", text="a").key() != AssistantMessage(role="user", text="a ").key()
    assert (
        AssistantMessage(role="user", text="a", opaque="x").key()
        != AssistantMessage(role="user", text="a").key()
    )
    assert canonical({"b": 1, "a": [1.0, None]}) == '{"a":[1.0,null],"b":1}'
    assert split_thinking("a</think>b") == ("a", "b")
    assert split_thinking("<think>a</think>\n\nb") == ("a", "\n\nb")
    assert split_thinking("ab") == ("", "ab")
    assert split_thinking("\n<think>ab") == split_thinking("ab", is_open=True) == ("ab", "")
    thought = AssistantMessage(role="assistant", text="b", thinking="a", opaque="x").message()
    assert (as_text(thought.content), thought.reasoning) == ("b", "a")
    shown = write_message(AssistantMessage(role="assistant", text="b", thinking="a"))
    assert shown == {"role": "assistant", "content": "b", "reasoning_content": "a"}
    refused = RequestError(400, "no")
    assert [module.error(refused)["error"]["message"] for module in PATHS.values()] == ["no"] * 3


HEEDS = EpisodeLimits(temperature=0.7, max_turn_tokens=64, usual_turn_tokens=9, heeds_clients=True)
HELLO = {"messages": [{"role": "user", "content": "A wall."}]}


def asked_with(
    served: Served, terms: EpisodeLimits, path: str = "/v1/chat/completions", **more: Any
) -> tuple[int, Any, Any, Any]:
    """Return status, body, the header and what the engine was asked for."""
    _, url, key = served.open(f"a{len(served.requests)}", terms=terms)
    served.says.append("done")
    body = {**HELLO, **more} if "messages" in path or "chat" in path else {"input": "A wall.", **more}
    with httpx2.Client(timeout=20) as client:
        answer = client.post(url + path, headers={"Authorization": f"Bearer {key}"}, json=body)
    sampling = served.requests[-1].sampling if served.requests else None
    return answer.status_code, answer.json(), answer.headers.get("x-quintain-sampling"), sampling


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_served_model_samples_as_its_clients_ask(served: Served, path: str) -> None:
    status, _, said, sampling = asked_with(served, HEEDS, path, temperature=0, top_p=0.5)
    assert (status, sampling.temperature, sampling.top_p) == (200, 0.0, 0.5)
    assert said == "temperature=0, top_p=0.5"
    limit = "max_output_tokens" if "responses" in path else "max_tokens"
    status, _, said, sampling = asked_with(served, HEEDS, path, **cast(Any, {limit: 30}))
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.7, 1.0, 30)
    assert asked_with(served, HEEDS, path)[3].max_tokens == 9
    assert asked_with(served, HEEDS, path, **cast(Any, {limit: 3000}))[3].max_tokens == 64


def test_the_same_seed_gives_the_same_numbers(served: Served) -> None:
    seeds: list[int] = []
    for seed in (5, 5, 6, None):
        asked_with(served, HEEDS, **cast(Any, {} if seed is None else {"seed": seed}))
        seeds.append(served.requests[-1].seed)
    assert seeds[0] == seeds[1] and len(set(seeds)) == 3


def test_what_is_recorded_to_be_learned_from_is_sampled_by_the_run_and_says_so(served: Served) -> None:
    terms = EpisodeLimits(temperature=0.7)
    status, _, said, sampling = asked_with(
        served, terms, temperature=0, top_p=0.5, logit_bias={"5": 1}, top_k=0
    )
    assert (status, sampling.temperature, sampling.top_p) == (200, 0.7, 1.0)
    assert said == "temperature=0.7, top_p=1; not done: temperature, top_p, logit_bias"
    assert asked_with(served, terms, stream=False)[2] == "temperature=0.7, top_p=1"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"temperature": "hot"}, "temperature: got 'hot'; give a number from 0 to 100"),
        ({"temperature": -1}, "temperature: got -1"),
        ({"top_p": 2}, "top_p: got 2; give a number from 0 to 1"),
        ({"seed": 0.5}, "seed: got 0.5; give a whole number"),
        (
            {"logit_bias": {"5": 100}},
            "logit_bias: got a value, and this server samples by temperature, top_p and seed",
        ),
        ({"presence_penalty": 1}, "presence_penalty: got a value"),
    ],
)
def test_sampling_that_cannot_be_done_is_refused(served: Served, more: Any, said: str) -> None:
    status, body, _, _ = asked_with(served, HEEDS, **more)
    assert status == 400 and said in body["error"]["message"]


def test_values_that_change_nothing_are_taken(served: Served) -> None:
    more: Any = {"logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "top_k": -1, "min_p": 0}
    assert asked_with(served, HEEDS, **more)[0] == 200

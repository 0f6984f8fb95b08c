"""Bodies, tools, schemas and connections past each limit are refused, and an episode beside them does not notice."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.serve.test_endpoint import post

from quintain.serve import bounds, chat_completions, listener
from quintain.serve.bounds import MAX_GRAMMAR_BYTES, MAX_STOPS, MAX_TOOLS, most_bytes
from quintain.serve.chat_types import AssistantMessage
from quintain.serve.recorder import Recorder, chat_key, chat_keys
from quintain.types import Failure

Served = Any
Eventually = Callable[[Callable[[], bool]], None]
USER = {"role": "user", "content": "Go."}
WIDE = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}}


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **more}


def formatted(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def tools(count: int, name: str = "t") -> list[Any]:
    return [{"type": "function", "function": {"name": f"{name}{n}"}} for n in range(count)]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (asked(tools=tools(10_000)), f"tools: got 10000; give at most {MAX_TOOLS}"),
        (asked(messages=[USER] * 2001), "messages: got 2001; give at most 2000"),
        (asked(stop=["x"] * 65), f"stop: got 65; give at most {MAX_STOPS}"),
        (asked(stop_sequences=["x"] * 65), f"stop_sequences: got 65; give at most {MAX_STOPS}"),
    ],
    ids=["tools", "messages", "stop", "stop_sequences"],
)
def test_lists_past_their_limits(served: Served, body: Any, told: str) -> None:
    session, url, key = served.open("a")
    _, beside, other = served.open("b")
    status, answer = post(url, body, Authorization=f"Bearer {key}")
    assert (status, answer["error"]["message"]) == (400, told)
    assert post(beside, asked(), Authorization=f"Bearer {other}")[0] == 200
    assert post(url, asked(), Authorization=f"Bearer {key}")[0] == 200
    assert len(session.recorder.nodes) == 1 and session.failure is None


def test_a_hundred_thousand_tools_are_more_than_a_body_may_hold(served: Served) -> None:
    _, url, key = served.open()
    assert post(url, asked(tools=tools(100_000)), Authorization=f"Bearer {key}")[0] == 413


def test_what_is_within_the_limits_is_answered(served: Served) -> None:
    _, url, key = served.open()
    status, answer = post(url, asked(tools=tools(20), stop=["x"] * 64), Authorization=f"Bearer {key}")
    assert status == 200, answer


def test_a_schema_that_would_take_long_to_compile(untrained: Served) -> None:
    _, url, key = untrained.open()
    schema = {"enum": [f"{n:020}" for n in range(MAX_GRAMMAR_BYTES // 20)]}
    status, answer = post(url, asked(response_format=formatted(schema)), Authorization=f"Bearer {key}")
    assert (
        status == 400
        and f"letters of schemas; give at most {MAX_GRAMMAR_BYTES}" in answer["error"]["message"]
    )


def test_a_schema_past_a_limit_of_the_library_fails_alone(untrained: Served) -> None:
    """Its own episode fails by the engine; one that is being answered at the same time is answered."""
    poisoned, url, key = untrained.open("poisoned")
    innocent, beside, other = untrained.open("innocent")
    found: list[int] = []

    def ask() -> None:
        for _ in range(3):
            found.append(post(beside, asked(max_tokens=40), Authorization=f"Bearer {other}")[0])

    thread = threading.Thread(target=ask)
    thread.start()
    status, answer = 200, {}
    for _ in range(20):  # the limit is met where the object is begun, which a stop token can come before
        status, answer = post(url, asked(response_format=formatted(WIDE)), Authorization=f"Bearer {key}")
        if status != 200:
            break
    thread.join(60)
    assert status == 400 and "following a grammar: got" in answer["error"]["message"], answer
    assert isinstance(poisoned.failure, Failure)
    assert (poisoned.failure.owner, poisoned.failure.kind) == ("engine", "grammar")
    assert found == [200] * 3 and innocent.failure is None and len(innocent.recorder.nodes) == 3


def test_a_request_that_is_long_to_read_keeps_no_other_episode_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url, key = served.open("a")
    _, beside, other = served.open("b")
    begun, over = threading.Event(), threading.Event()
    read = chat_completions.read

    def slow(body: Any) -> Any:
        if body.get("user") == "slow":
            begun.set()
            over.wait(60)
        return read(body)

    monkeypatch.setattr(chat_completions, "read", slow)
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(post(url, asked(user="slow"), Authorization=f"Bearer {key}")[0])
    )
    thread.start()
    assert begun.wait(60)
    assert post(beside, asked(), Authorization=f"Bearer {other}")[0] == 200
    assert not found, "it is still being read"
    over.set()
    thread.join(60)
    assert found == [200]


def test_a_prompt_that_is_long_to_write_keeps_no_other_episode_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, url, key = served.open("a")
    _, beside, other = served.open("b")
    begun, over = threading.Event(), threading.Event()
    plan = Recorder.plan

    def slow(recorder: Recorder, *arguments: Any, **named: Any) -> Any:
        if recorder is session.recorder:
            begun.set()
            over.wait(60)
        return plan(recorder, *arguments, **named)

    monkeypatch.setattr(Recorder, "plan", slow)
    thread = threading.Thread(target=lambda: post(url, asked(), Authorization=f"Bearer {key}"))
    thread.start()
    assert begun.wait(60)
    assert post(beside, asked(), Authorization=f"Bearer {other}")[0] == 200
    over.set()
    thread.join(60)


def bare(served: Served, text: bytes) -> socket.socket:
    channel = socket.create_connection(served.listener.address, 20)
    channel.sendall(text)
    return channel


def head(key: str, *more: str) -> bytes:
    lines = [
        "POST /e/a/v1/chat/completions HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {key}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_body_that_says_that_it_is_too_long_is_not_waited_for(served: Served) -> None:
    _, _, key = served.open()
    with bare(served, head(key, f"Content-Length: {most_bytes(2000) + 1}")) as channel:
        assert channel.recv(1000).startswith(b"HTTP/1.1 413")
    with bare(served, head(key, "Content-Length: 123456789012345678901234567890")) as channel:
        assert channel.recv(1000).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


def test_a_body_that_takes_too_long_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BODY_SECONDS", 0.2)
    _, _, key = served.open()
    with bare(served, head(key, "Content-Length: 9") + b"{") as channel:
        found = b""
        while piece := channel.recv(1000):  # until the server hangs up
            found += piece
    assert found.startswith(b"HTTP/1.1 408") and b"did not arrive within 0.2 s" in found


def test_long_bodies_at_once_are_bounded_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_HELD_BYTES", 50_000)
    _, url, key = served.open()
    long = asked(metadata={"a": "x" * 40_000})
    with bare(served, head(key, "Content-Length: 90000") + b"{" + b" " * 40_000) as channel:
        found: list[int] = []
        for _ in range(100):  # until the server has read what was sent
            found.append(post(url, long, Authorization=f"Bearer {key}")[0])
            if found[-1] == 503:
                break
        assert found[-1] == 503, found
        assert post(url, asked(), Authorization=f"Bearer {key}")[0] == 200, "a short one has room"
        channel.close()


def test_keys_of_chats_are_those_of_their_beginnings() -> None:
    messages = [
        AssistantMessage(role="user", text="a"),
        AssistantMessage(role="assistant", text="ü\ud800"),
        AssistantMessage(role="user"),
    ]
    keys = chat_keys("[]", messages)
    assert len(keys) == 4 == len(set(keys))
    assert keys == [chat_key("[]", messages[:count]) for count in range(4)]


class TestStrangers:
    """Connections that ask nothing which is answered."""

    def test_they_keep_nobody_out(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
    ) -> None:
        monkeypatch.setattr(listener, "MAX_STRANGERS", 4)
        _, url, key = served.open()
        server = served.listener._server  # pyright: ignore[reportPrivateUsage]
        server.config.limit_concurrency = 12
        channels = [bare(served, b"") for _ in range(40)]
        try:
            eventually(lambda: len(server.server_state.connections) <= 5)
            assert post(url, asked(), Authorization=f"Bearer {key}")[0] == 200
            assert channels[0].recv(10) == b"", "the oldest was cut off"
        finally:
            for channel in channels:
                channel.close()

    def test_one_without_a_key_stays_a_stranger(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
    ) -> None:
        strangers = served.listener.guard.strangers
        _, _, key = served.open()
        models = head(key).replace(b"POST", b"GET").replace(b"chat/completions", b"models")
        with bare(served, head("wrong", "Content-Length: 0")) as stranger:
            assert stranger.recv(1000).startswith(b"HTTP/1.1 401")
            assert len(strangers) == 1
            with bare(served, models) as known:
                assert known.recv(1000).startswith(b"HTTP/1.1 200")
                assert len(strangers) == 1
        eventually(lambda: not strangers)

    def test_one_whose_request_is_being_answered_is_not_cut_off(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
    ) -> None:
        monkeypatch.setattr(listener, "MAX_STRANGERS", 2)
        session, _, key = served.open()
        served.gate.clear()
        body = json.dumps(asked()).encode()
        with bare(served, head(key, f"Content-Length: {len(body)}", "Connection: close") + body) as waits:
            eventually(lambda: len(session.pending) == 1)
            channels = [bare(served, b"") for _ in range(10)]
            assert all(channel.recv(10) == b"" for channel in channels[:8])
            served.gate.set()
            assert waits.recv(1000).startswith(b"HTTP/1.1 200")
            for channel in channels:
                channel.close()

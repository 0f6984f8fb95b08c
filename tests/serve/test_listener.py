import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect

from quintain.adapters.remote.websocket import SocketTrouble, connect
from quintain.errors import UsageError
from quintain.processes.http_json import HttpServer, HttpTrouble
from quintain.serve import json_app as module
from quintain.serve import listener
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener, host_in, is_local, is_wild

ANY = ".".join("0000")


def echo(request: Request) -> Any:
    if request.path == "/absent":
        raise Refusal(404, "no such path")
    return [request.method, request.path, dict(request.query), request.body]


async def talk(connection: WebSocket) -> None:
    await connection.accept()
    with suppress(WebSocketDisconnect):
        while True:
            await connection.send_text((await connection.receive_text()).upper())


@pytest.fixture
def server() -> Iterator[Listener]:
    made = Listener(json_app(echo, talk={"/ws": talk}), token="s3cret", also="box.example, other").start()
    yield made
    made.close()


def status(server: Listener, *, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Return the status and the body of the answer to a request with `headers` (``_`` stands for ``-``)."""
    host, port = server.address
    connection = http.client.HTTPConnection(host, port, timeout=10)
    sent = {"Authorization": "Bearer s3cret"} | {key.replace("_", "-"): text for key, text in headers.items()}
    connection.request("POST" if body is not None else "GET", "/a?b=1", body=body, headers=sent)
    answer = connection.getresponse()
    try:
        body = answer.read()
    except ConnectionResetError:  # the server closes on what it cannot read, perhaps before all of it came
        body = b""
    found = answer.status, json.loads(body) if body.startswith((b"{", b"[")) else body
    connection.close()
    return found


def test_requests_and_conversations(server: Listener) -> None:
    assert status(server) == (200, ["GET", "/a", {"b": "1"}, None])
    assert status(server, body=b'{"x": [1]}') == (200, ["POST", "/a", {"b": "1"}, {"x": [1]}])
    connection = connect(f"{server.url}/ws", deadline=10, key="s3cret")
    connection.send("hello")
    assert connection.receive(deadline=10) == "HELLO"
    connection.abort()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": "box.example:99"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer s3cret\xe4"}, 401),
        ({"Authorization": ""}, 401),
    ],
)
def test_who_may_ask(server: Listener, headers: dict[str, str], expected: int) -> None:
    assert status(server, body=None, **headers)[0] == expected


def test_a_websocket_is_checked_like_any_request(server: Listener) -> None:
    for path, key in (("/ws", ""), ("/ws", "wrong"), ("/absent", "s3cret")):
        with pytest.raises(SocketTrouble) as found:
            connect(f"{server.url}{path}", deadline=10, key=key)
        assert found.value.kind == "refused"


def test_what_cannot_be_read_is_refused(server: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(server, body=b"{")[0] == 400
    assert status(server, body=b"1", Content_Length="x")[0] == 400
    assert status(server, body=b"1", Transfer_Encoding="chunked")[0] == 413
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 3)
    assert status(server, body=b"12345")[0] == 413
    with pytest.raises(HttpTrouble) as found:
        HttpServer(server.url, deadline=10, key="s3cret").ask("GET", "/absent", read=lambda answer: answer)
    assert (found.value.kind, found.value.status) == ("refused", 404)


def test_a_bind_that_others_reach_needs_a_token() -> None:
    service = json_app(echo)
    for host in (ANY, "::", "", "192.0.2.1", "box.example"):
        with pytest.raises(UsageError, match="--token-file"):
            Listener(service, host=host)
    wide = Listener(service, host=ANY, token="t")
    assert wide.guard.hosts == {"localhost", "127.0.0.1", "::1"}
    wide.close()
    taken = Listener(service)
    with pytest.raises(UsageError, match="choose another"):
        Listener(service, port=taken.address[1])
    taken.close()


def test_an_end_ends_conversations() -> None:
    server = Listener(json_app(echo, talk={"/ws": talk})).start()
    connection = connect(f"{server.url}/ws", deadline=10)
    connection.send("a")
    assert connection.receive(deadline=10) == "A"
    server.close()
    try:
        assert connection.receive(deadline=10) is None
    except SocketTrouble as trouble:
        assert trouble.kind == "closed"
    connection.abort()


def bare(server: Listener, text: bytes) -> socket.socket:
    """Return a connection to `server` over which `text` was sent."""
    channel = socket.create_connection(server.address, 20)
    channel.sendall(text)
    return channel


def rest_of(channel: socket.socket) -> bytes:
    """Return what comes until the server hangs up."""
    found = b""
    with channel, suppress(ConnectionResetError):
        while piece := channel.recv(1000):
            found += piece
    return found


@contextmanager
def served(
    answer: Callable[[Request], Any] = echo, talk: Callable[[WebSocket], Any] = talk
) -> Generator[Listener]:
    server = Listener(json_app(answer, talk={"/ws": talk})).start()
    try:
        yield server
    finally:
        server.close()


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
HALF = b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


@pytest.mark.parametrize(
    ("header", "status"), [(b"Origin: http://evil.example", b"403"), (b"Host: evil.example", b"421")]
)
def test_a_websocket_of_another_site_or_host_is_refused(header: bytes, status: bytes) -> None:
    asked = UPGRADE.replace(b"Host: localhost", header) if header.startswith(b"Host") else UPGRADE + header
    with served() as server:
        assert rest_of(bare(server, asked.rstrip() + b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)


def test_what_breaks_the_protocol_ends_a_conversation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_MESSAGE_BYTES", 1000)
    with served() as server:
        for frame, code in (
            (b"\x81\x02hi", 1002),  # not masked, as a client's must be
            (b"\x83\x80\1\2\3\4", 1002),  # no such kind
            (b"\x81\x82\0\0\0\0\xff\xfe", 1007),  # not UTF-8
            (b"\x81\xfe\x03\xe9\0\0\0\0" + b"x" * 1001, 1009),  # too long
        ):
            channel = bare(server, UPGRADE + b"\r\n")
            assert channel.recv(1000).startswith(b"HTTP/1.1 101")
            channel.sendall(frame)
            assert rest_of(channel)[2:4] == code.to_bytes(2, "big"), frame
        connection = connect(f"{server.url}/ws", deadline=10)
        connection.send("still here")
        assert connection.receive(deadline=10) == "STILL HERE"
        connection.abort()


@pytest.mark.slow
def test_clients_that_are_slow_do_not_hold_a_connection_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(module, "BODY_SECONDS", 0.3)
    with served() as server:
        silent, partial, half = (bare(server, text) for text in (b"", b"GET / HTTP/1.1\r\nHo", HALF))
        conversation = connect(f"{server.url}/ws", deadline=10)
        assert rest_of(silent) == b"" and rest_of(partial) == b""
        assert rest_of(half).startswith(b"HTTP/1.1 408")
        time.sleep(0.2)
        conversation.send("a conversation may be silent")
        assert conversation.receive(deadline=10) == "A CONVERSATION MAY BE SILENT"
        conversation.abort()


ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer_on(channel: socket.socket, asked: bytes = ASKED) -> bytes:
    """Return the answer to a request on a connection that stays open; nothing where the server has closed it."""
    found = b""
    with suppress(ConnectionResetError, BrokenPipeError):
        channel.sendall(asked)
        while not found.partition(b"\r\n\r\n")[2] and (piece := channel.recv(1000)):
            found += piece
    return found


def test_who_hangs_up_an_idle_connection_first_is_the_client() -> None:
    """A client that uses a connection again while the server closes it has an error for its request."""
    kept = httpx2.Limits().keepalive_expiry
    with served() as server:
        configured = vars(server)["_server"].config.timeout_keep_alive
    assert kept and kept < 15 < 90 < configured == listener.IDLE_SECONDS, "httpx, aiohttp, Go"


@pytest.mark.slow
def test_an_answer_that_took_long_does_not_end_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for the next request counts from the answer, not from the beginning of the connection."""
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 1.0)

    def answer(_: Request) -> Any:
        time.sleep(0.7)
        return "late"

    with served(answer) as server:
        channel = bare(server, b"")
        for _ in range(3):
            assert answer_on(channel).startswith(b"HTTP/1.1 200")
            time.sleep(0.7)
        channel.sendall(ASKED[:10])
        assert answer_on(channel, ASKED[10:]).startswith(b"HTTP/1.1 200"), "a head in two pieces"
        channel.sendall(ASKED[:10])
        assert rest_of(channel) == b"", "a head that does not come is not waited for"


def test_of_too_many_idle_connections_the_longest_idle_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_IDLE", 2)
    with served() as server:
        channels = [bare(server, b"") for _ in range(3)]
        for channel in (*channels[:2], channels[0], channels[2]):
            assert answer_on(channel).startswith(b"HTTP/1.1 200")
        assert rest_of(channels[1]) == b"", "it was asked last before all others"
        assert answer_on(channels[0]).startswith(b"HTTP/1.1 200")
        assert answer_on(channels[2]).startswith(b"HTTP/1.1 200")
        for channel in channels:
            channel.close()


def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 3)
    with served() as server:
        one, other = bare(server, b""), bare(server, b"")
        asked = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert rest_of(bare(server, asked)).startswith(b"HTTP/1.1 503")
        one.close()
        other.close()
        ends = time.monotonic() + 10
        while not rest_of(bare(server, asked)).startswith(b"HTTP/1.1 200"):
            assert time.monotonic() < ends


@pytest.mark.slow
def test_a_call_that_hangs_is_given_up_and_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(listener, "GRACE", 1)
    began, released = threading.Event(), threading.Event()

    def hang(_: Request) -> Any:
        began.set()
        released.wait(60)

    with served(hang) as server:
        with pytest.raises(HttpTrouble, match="HTTP status 504"):
            HttpServer(server.url, deadline=30).ask("GET", read=dict, attempts=1)
        monkeypatch.setattr(module, "CALL_SECONDS", 60.0)
        began.clear()
        waiting = bare(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert began.wait(20)
        started = time.monotonic()
        server.close()
        assert time.monotonic() - started < 30
    assert not rest_of(waiting).startswith(b"HTTP/1.1 200")
    released.set()


def test_what_breaks_in_an_app_is_told_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_: Request) -> Any:
        raise ZeroDivisionError("a bug of the server")

    with served(fail) as server, pytest.raises(HttpTrouble, match="HTTP status 500"):
        HttpServer(server.url, deadline=30).ask("GET", read=dict, attempts=1)
    assert "ZeroDivisionError: a bug of the server" in capfd.readouterr().err


def test_names_of_hosts() -> None:
    assert [host_in(text) for text in ("a:1", "[::1]:2", "A", "[")] == ["a", "::1", "a", ""]
    assert [is_local(text) for text in ("localhost", "127.9.9.9", "::1", "example.org", "10.0.0.1")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert is_wild("") and is_wild("::") and not is_wild("localhost")


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_address_of_version_6() -> None:
    try:
        server = Listener(json_app(echo), host="::1").start()
    except UsageError as error:
        pytest.skip(str(error))
    assert server.url.startswith("http://[::1]:")
    assert HttpServer(server.url, deadline=10).ask("GET", "/x", read=lambda answer: answer)[1] == "/x"
    server.close()

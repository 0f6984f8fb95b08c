"""The HTTP client: what it sends, and what it makes of servers that trickle, redirect or set cookies."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from quintain.errors import UsageError
from quintain.processes import http_json
from quintain.processes.http_json import HttpServer, HttpTrouble, key_in


@contextmanager
def raw(*parts: bytes, pause: float = 0.0) -> Generator[tuple[str, list[bytes]]]:
    """The address of a server that sends `parts` to all who come, with a `pause` after each; and what it was sent."""
    door, seen = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def work() -> None:
        with suppress(OSError):
            while True:
                channel, _ = door.accept()
                with channel, suppress(OSError):
                    asked = channel.recv(100_000)
                    if asked.startswith(b"POST") and asked.endswith(b"\r\n\r\n"):
                        asked += channel.recv(100_000)
                    seen.append(asked)
                    for part in parts:
                        channel.sendall(part)
                        time.sleep(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}", seen
    finally:
        with suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)
        door.close()
        thread.join(20)


OK = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}"


def test_only_what_was_named_is_sent() -> None:
    with raw(OK) as (url, seen):
        server = HttpServer(url, deadline=10, key="s3cret")
        for _ in range(2):
            assert server.ask("POST", "/x?a=1", {"b": 2}, read=dict) == {}
    for request in seen:
        assert request.startswith(b"POST /x?a=1 HTTP/1.1\r\n") and request.endswith(b'\r\n\r\n{"b": 2}')
        assert b"Authorization: Bearer s3cret" in request and b"ookie" not in request
        assert b"gzip" not in request, "a small answer could become a large one"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "refused"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, "malformed"),
        (b"garbage\r\n\r\n", "unreachable"),
    ],
)
def test_answers_that_are_none(answer: bytes, kind: str) -> None:
    with raw(answer) as (url, _), pytest.raises(HttpTrouble) as found:
        HttpServer(url, deadline=10).ask("GET", read=lambda answer: answer, attempts=1)
    assert found.value.kind == kind


@pytest.mark.slow
def test_a_server_that_trickles_does_not_outlast_the_deadline() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    with raw(head, *[b"["] * 99, pause=0.5) as (url, _):
        started = time.monotonic()
        with pytest.raises(HttpTrouble, match=r"no answer within 0\.5 s"):
            HttpServer(url, deadline=0.5).ask("GET", read=dict)
        assert time.monotonic() - started < 20


def test_an_end_is_not_held_up_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 60.0)
    with raw(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n") as (url, seen):
        server = HttpServer(url, deadline=100)
        threading.Timer(0.3, server.close).start()
        with pytest.raises(HttpTrouble, match="HTTP status 503"):
            server.ask("GET", read=dict)
    assert len(seen) == 1


def test_addresses_and_keys_that_cannot_be(tmp_path: Path) -> None:
    for url in ("http://host:0x/", "http://", "ftp://host"):
        with pytest.raises(UsageError, match=r"http://127\.0\.0\.1:8000"):
            HttpServer(url, deadline=1)
    (tmp_path / "key").write_text("schlüssel")
    with pytest.raises(UsageError, match="not ASCII"):
        key_in(str(tmp_path / "key"))
    assert HttpServer("[::1]:80", deadline=1).url == "http://[::1]:80"

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from quintain.processes.websocket import SocketTrouble, WebSocket, accepted, connect

from quintain.processes import websocket

Pair = tuple[WebSocket, WebSocket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A client, the server it talks to, and the client's bare socket."""
    ours, theirs = socket.socketpair()
    client = WebSocket(ours, ours.makefile("rb"), is_client=True)
    server = WebSocket(theirs, theirs.makefile("rb"), is_client=False)
    yield client, server, ours
    client.abort()
    server.abort()


def frame(head: int, data: bytes, mask: bytes = b"\1\2\3\4") -> bytes:
    """Return a client's frame of at most 125 bytes."""
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return struct.pack("!BB", head, 0x80 | len(data)) + mask + masked


def test_the_handshake_of_the_standard() -> None:
    assert accepted("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 65535, 65536, 200_000])
def test_texts_of_every_length_arrive_both_ways(pair: Pair, size: int) -> None:
    client, server, _ = pair
    text = "ä" * (size // 2) + "x" * (size % 2)
    for one, other in ((client, server), (server, client)):
        thread = threading.Thread(target=one.send, args=(text,))
        thread.start()
        assert other.receive(deadline=10) == text
        thread.join(10)


def test_fragments_are_joined_and_pings_answered(pair: Pair) -> None:
    client, server, bare = pair
    bare.sendall(frame(0x01, b"one ") + frame(0x89, b"hi") + frame(0x00, b"two ") + frame(0x80, b"three"))
    assert server.receive(deadline=10) == "one two three"
    server.send("after")
    assert client.receive(deadline=10) == "after"  # the pong before it is no text


def test_closing_is_told_to_the_other_side(pair: Pair) -> None:
    client, server, _ = pair
    client.close()
    assert server.receive(deadline=10) is None
    client.close()
    with pytest.raises(SocketTrouble):
        client.send("too late")


@pytest.mark.parametrize(
    "data",
    [
        frame(0x82, b"binary"),
        frame(0x80, b"goes on without a start"),
        frame(0x01, b"a") + frame(0x81, b"two starts"),
        frame(0xC1, b"a bit for an extension"),
        frame(0x83, b"no such kind"),
        b"\x81\x02hi",  # not masked
        frame(0x09, b"a ping in fragments"),
        frame(0x81, b"\xff\xfe"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(pair: Pair, data: bytes) -> None:
    _, server, bare = pair
    bare.sendall(data)
    with pytest.raises(SocketTrouble) as found:
        server.receive(deadline=10)
    assert found.value.kind == "protocol"
    bare.settimeout(10)
    with suppress(ConnectionResetError):
        while bare.recv(1000):  # its goodbye
            pass


def test_a_text_that_is_too_long_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_BYTES", 10)
    client, server, bare = pair
    client.send("x" * 11)
    with pytest.raises(SocketTrouble, match="more than 10 bytes"):
        server.receive(deadline=10)
    ours, theirs = socket.socketpair()
    bare, other = ours, WebSocket(theirs, theirs.makefile("rb"), is_client=False)
    bare.sendall(frame(0x01, b"123456") + frame(0x80, b"123456"))
    with pytest.raises(SocketTrouble, match="more than 10 bytes"):
        other.receive(deadline=10)
    bare.close()
    other.abort()


def test_silence_and_a_dropped_connection_have_kinds(pair: Pair) -> None:
    client, server, bare = pair
    with pytest.raises(SocketTrouble) as found:
        client.receive(deadline=0.05)
    assert found.value.kind == "timeout"
    with pytest.raises(SocketTrouble) as found:
        server.receive(deadline=10)
    assert found.value.kind == "closed"
    bare.close()


def serving(answer: bytes) -> tuple[socket.socket, str]:
    """Return a listening socket that answers one request with `answer`, and its address."""
    door = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        channel, _ = door.accept()
        channel.recv(10_000)
        channel.sendall(answer)
        channel.close()

    threading.Thread(target=work, daemon=True).start()
    return door, f"http://127.0.0.1:{door.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refused"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "unavailable"),
        (b"HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: wrong\r\n\r\n", "protocol"),
        (b"garbage\r\n\r\n", "unreachable"),
        (b"", "unreachable"),
    ],
)
def test_a_server_that_opens_no_websocket(answer: bytes, kind: str) -> None:
    door, url = serving(answer)
    with pytest.raises(SocketTrouble) as found:
        connect(f"{url}/ws", deadline=10)
    assert found.value.kind == kind
    door.close()


def test_no_server_and_a_silent_one() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{door.getsockname()[1]}/ws"
    with pytest.raises(SocketTrouble) as found:
        connect(url, deadline=0.05)
    assert found.value.kind == "timeout"
    door.close()
    with pytest.raises(SocketTrouble) as found:
        connect(url, deadline=10)
    assert found.value.kind == "unreachable"

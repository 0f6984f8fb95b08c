"""A small HTTP server for our worlds: bound to this machine, and careful about who asks.

A request must name a host that we answer to (against pages that rebind a name to this machine), must not come from
another site's page, and must carry the token where there is one. The one rule: these checks come before anything is
read, and a bind that others can reach is refused without a token.
"""

import hmac
import ipaddress
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from quintain.errors import UsageError
from quintain.processes.websocket import WebSocket, accepted

MOST_BYTES = 16 << 20
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
SECONDS = 300.0
"""How long a connection may say nothing before it is closed."""


class Refusal(Exception):
    """A request that is answered with an error: ``Refusal(404, "no such path")``."""

    def __init__(self, status: int, message: str) -> None:
        """Hold the HTTP status and what to say."""
        super().__init__(status, message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that passed the checks: ``Request(method="POST", path="/step", query={}, body={"id": 0})``."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Who may ask: ``Guard(hosts=frozenset({"localhost"}), token="s3cret")``."""

    hosts: frozenset[str]
    """Names in the Host header that we answer to."""
    token: str = ""
    """What a request must carry as a bearer token; nothing where it is empty."""

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse a request with `headers` that must not be answered.

        Raises:
            Refusal: another host is named, another site's page asks, or the token is missing or wrong.
        """
        if host_in(headers.get("Host", "")) not in self.hosts:
            raise Refusal(421, "this server does not answer to that host; see --allow-host")
        origin = headers.get("Origin")
        if origin is not None and (urlsplit(origin).hostname or "") not in self.hosts:
            raise Refusal(403, "requests of other sites' pages are not answered")
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN")


@dataclass(slots=True, kw_only=True)
class Service:
    """What is served: `answer` for requests, `talk` for WebSockets at their paths."""

    answer: Callable[[Request], Any]
    """Request → a value that JSON can hold; raises `Refusal`."""
    talk: Mapping[str, Callable[[WebSocket], None]] = field(
        default_factory=dict[str, Callable[[WebSocket], None]]
    )
    close: Callable[[], None] = lambda: None


class Listener(ThreadingHTTPServer):
    """Serves a `Service` until it is closed: ``Listener(service, host="127.0.0.1", port=0)``."""

    daemon_threads = True

    def __init__(
        self, service: Service, *, host: str = "127.0.0.1", port: int = 0, token: str = "", also: str = ""
    ) -> None:
        """Bind; port 0 is any that is free. `also` lists further names that the Host header may have, with commas.

        Raises:
            UsageError: others could reach the address and there is no token, or it cannot be bound.
        """
        if not token and not is_local(host):
            raise UsageError(
                f"host of the server: got {host!r}, which others can reach; give a token with --token-file, or "
                "127.0.0.1"
            )
        names = {name.strip().lower() for name in also.split(",") if name.strip()}
        self.guard = Guard(
            hosts=LOCAL | names | (frozenset({host.lower()}) if not is_wild(host) else frozenset()),
            token=token,
        )
        self.service = service
        self._open: set[WebSocket] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.address_family = _family(host)
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"address of the server: got {host}:{port} ({reason}); choose another"
            ) from error

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> "Listener":
        """Serve in a thread of its own, and return this server."""
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, name="quintain-listener", daemon=True
        )
        self._thread.start()
        return self

    def held(self, talk: Callable[[WebSocket], None], connection: WebSocket) -> None:
        """Let `talk` have `connection`, which ends with the server."""
        with self._lock:
            self._open.add(connection)
        try:
            talk(connection)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away; everything else is told as usual."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop listening, end the conversations, and close what is served."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            connection.abort()
        self.service.close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a GET, or open a WebSocket."""
        self._handle()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what is asked is the agent's business."""

    def _handle(self) -> None:
        """Check the request, then answer it."""
        server = cast(Listener, self.server)
        try:
            server.guard.check(dict(self.headers.items()))
            parts = urlsplit(self.path)
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._upgrade(server, parts.path)
                return
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            request = Request(method=self.command, path=parts.path, query=query, body=self._body())
            self._reply(200, server.service.answer(request))
        except Refusal as refusal:
            # What was sent with it is not read, so the connection cannot be used again.
            self.close_connection = True
            self._reply(refusal.status, {"error": refusal.message})

    def _body(self) -> Any:
        """Return the JSON that was sent, None where nothing was."""
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            raise Refusal(400, "Content-Length is no number") from None
        if not 0 <= length <= MOST_BYTES or self.headers.get("Transfer-Encoding"):
            raise Refusal(413, f"give a Content-Length of at most {MOST_BYTES}")
        if not length:
            return None
        try:
            return json.loads(self.rfile.read(length))
        except ValueError:
            raise Refusal(400, "the body is not JSON") from None

    def _reply(self, status: int, value: Any) -> None:
        """Send `value`."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _upgrade(self, server: Listener, path: str) -> None:
        """Open a WebSocket at `path` and talk until it ends."""
        talk = server.service.talk.get(path)
        nonce = self.headers.get("Sec-WebSocket-Key", "")
        if talk is None or not nonce:
            raise Refusal(404 if talk is None else 400, "no WebSocket is here")
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accepted(nonce))
        self.end_headers()
        self.close_connection = True
        server.held(talk, WebSocket(self.connection, cast(Any, self.rfile), is_client=False))


def host_in(header: str) -> str:
    """Return the name in a Host header, without its port: ``host_in("[::1]:80")`` is ``"::1"``."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_local(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wild(host: str) -> bool:
    """Whether `host` stands for every interface."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _family(host: str) -> socket.AddressFamily:
    """Return the address family of `host`."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET

"""A socket of this machine on which an ASGI app answers, careful about who asks; uvicorn speaks the protocols.

A request must name a host that we answer to (against pages that rebind a name to this machine), must not come from
another site's page, and must carry the token where there is one. These checks come before anything of it is read, and
a bind that others can reach is refused without a token.
"""

import asyncio
import hmac
import ipaddress
import socket
import threading
import traceback
from typing import cast
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from quintain.errors import UsageError

MAX_MESSAGE_BYTES = 16 << 20
"""The longest message of a WebSocket."""
MAX_CONNECTIONS = 1000
"""With more open connections requests are answered with status 503."""
MAX_IDLE = 200
"""Connections that are kept though nothing is asked on them; of more, those that were idle longest are closed."""
IDLE_SECONDS = 120.0
"""How long a connection is kept on which nothing is asked. Clients keep theirs for less (httpx 5 s, aiohttp 15 s, Go
90 s): who hangs up first must be the client, or a request may meet a connection that is being closed."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
REQUEST_SECONDS = 60.0
"""How long the head of a request may take from its first byte; that of the first from when the connection begins."""
MAX_STRANGERS = 256
"""Connections of which no request was answered yet: with more, the one that has waited longest is cut off."""
REFUSALS = (401, 403, 421)
"""Answers after which a connection is as unknown as before."""
GRACE = 2
"""Seconds that what is being answered has when the server is to stop."""
STOP_SECONDS = 30.0
"""Seconds that the whole end of the server may take."""


class Guard:
    """Who may ask `app`: ``Guard(app, hosts=frozenset({"localhost"}), token="s3cret")`` is an ASGI app."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str = "") -> None:
        """Answer to Host headers with one of `hosts`; without a `token` none is asked for."""
        self._app, self.hosts, self._token = app, hosts, token
        self.strangers: dict[object, PatientProtocol] = {}
        """connections of which no request was answered yet, by the client's address, in the order in which they came"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or let the app answer it; what breaks in the app is told on the terminal."""
        refusal = self.refusal(Headers(scope=scope)) if scope["type"] != "lifespan" else None
        if refusal is not None:
            status, message = refusal
            # What was sent with it is not read, so the connection cannot be used again.
            response = JSONResponse({"error": message}, status, headers={"Connection": "close"})
            await response(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            is_answer = message["type"] in ("http.response.start", "websocket.accept")
            if is_answer and message.get("status", 101) not in REFUSALS:
                self.strangers.pop(scope.get("client"), None)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception:
            traceback.print_exc()
            raise

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason with which a request is refused; None where it may be answered."""
        if host_in(headers.get("Host", "")) not in self.hosts:
            return 421, "this server does not answer to that host; see --allow-host"
        origin = headers.get("Origin")
        if origin is not None and host_in(origin.partition("://")[2]) not in self.hosts:
            return 403, "requests of other sites' pages are not answered"
        given = headers.get("Authorization", "").removeprefix("Bearer ") or headers.get("X-Api-Key", "")
        if self._token and not hmac.compare_digest(given.encode(), self._token.encode()):
            return 401, "a token is needed: Authorization: Bearer TOKEN"
        return None


class Listener:
    """Serves an ASGI app until it is closed: ``Listener(app, host="127.0.0.1", port=0).start()``."""

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, token: str = "", also: str = "",
        asks_key: bool = False,
    ) -> None:  # fmt: skip
        """Bind; port 0 is any that is free. `also` lists further names that the Host header may have, with commas.

        `asks_key` says that the app itself lets nobody in who does not know a key, as browsers cannot send a token.

        Raises:
            UsageError: others could reach the address and there is no token, or it cannot be bound.
        """
        if not (token or asks_key) and not is_local(host):
            raise UsageError(
                f"host of the server: got {host!r}, which others can reach; give a token with --token-file, or "
                "127.0.0.1"
            )
        names = {name.strip().lower() for name in also.split(",") if name.strip()}
        own = frozenset[str]() if is_wild(host) else frozenset({host.lower()})
        self.guard = Guard(app, hosts=LOCAL | names | own, token=token)
        is_new = ":" in host
        family = socket.AF_INET6 if is_new else socket.AF_INET
        is_dual = is_new and is_wild(host) and socket.has_dualstack_ipv6()
        try:
            self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=is_dual)
        except (OSError, OverflowError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise UsageError(
                f"address of the server: got {host}:{port} ({reason}); choose another"
            ) from error
        # Every connection inherits it; asyncio sets it only on sockets that name their protocol, which this does not.
        # Without it a response on a connection that is used again waits 40 ms for the client's acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.guard,
                http=PatientProtocol,
                ws="websockets-sansio",
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_per_message_deflate=False,
                loop="asyncio",
                lifespan="on",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=IDLE_SECONDS,  # pyright: ignore[reportArgumentType]
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._ended = threading.Event()
        """Whether the server has ended. A thread whose `join` Ctrl-C breaks off counts as ended though it goes on."""
        self._thread = threading.Thread(target=self._serve, name="quintain-listener", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> "Listener":
        """Serve in a thread of its own, and return this server."""
        self._thread.start()
        return self

    def run_until_closed(self) -> None:
        """Return when the server has ended, which is when it is closed, from another thread or by Ctrl-C."""
        while not self._ended.wait(1.0):
            pass

    def close(self) -> None:
        """Stop listening, end the conversations, and let the app close what it serves; may be called again."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._ended.wait(STOP_SECONDS)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()


class PatientProtocol(H11Protocol):
    """uvicorn's connection, which also ends when the head of a request takes longer than `REQUEST_SECONDS`.

    One on which nothing is asked is kept for `IDLE_SECONDS`, which uvicorn watches, and as one of the last `MAX_IDLE`.

    Whoever opens connections and asks nothing that is answered, such as somebody without a key, has room for
    `MAX_STRANGERS` of them: of more, the oldest is cut off, so that they keep nobody out.
    """

    _alarm: asyncio.TimerHandle | None = None
    _idle_since: float | None = None
    """when its last request was answered; none while one comes or is answered"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        strangers = self._strangers()
        strangers[self.client] = self
        if len(strangers) > MAX_STRANGERS:
            oldest = next((each for each in strangers.values() if not each.is_answering), None)
            if oldest is not None:
                del strangers[oldest.client]
                oldest.transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no more."""
        super().connection_lost(exc)
        self._strangers().pop(self.client, None)
        self._idle_since = None
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        """Give the head of a request its time, from its first byte on."""
        if self._idle_since is not None:
            self._idle_since = None
            self._watch()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Keep the connection for the next request."""
        self._stop_watching()
        super().on_response_complete()
        if (
            self.cycle.response_complete and not self.transport.is_closing()
        ):  # the next one is not there already
            self._idle_since = self.loop.time()
            self._close_longest_idle()

    @property
    def is_answering(self) -> bool:
        """Whether a request of it is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _strangers(self) -> "dict[object, PatientProtocol]":
        guard = self.config.app
        assert isinstance(guard, Guard), "a listener serves its guard"
        return guard.strangers

    def _watch(self) -> None:
        """Look whether a request is there when the time for it is over."""
        self._stop_watching()
        self._alarm = self.loop.call_later(REQUEST_SECONDS, self._look, self.cycle)

    def _stop_watching(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _look(self, before: object) -> None:
        """Close the connection if no request came after that of `before`."""
        if self.transport.get_protocol() is self and self.cycle is before:
            self.transport.close()

    def _close_longest_idle(self) -> None:
        """Close those connections that nothing was asked on for longest, where there are too many of them."""
        idle = [
            (since, id(each), each)
            for each in self.connections
            if isinstance(each, PatientProtocol) and (since := each._idle_since) is not None
        ]
        for _, _, each in sorted(idle)[: max(0, len(idle) - MAX_IDLE)]:
            each.transport.close()


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

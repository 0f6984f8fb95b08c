"""Apps that answer JSON with JSON: what is asked is read within bounds, and answered in a thread with a deadline."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette import requests
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

T = TypeVar("T")
MAX_BODY_BYTES = 16 << 20
BODY_SECONDS = 60.0
"""How long the body of a request may take to arrive."""
CALL_SECONDS = 300.0
"""How long an answer may take."""


class Refusal(Exception):
    """A request that is answered with an error: ``Refusal(404, "no such path")``."""

    def __init__(self, status: int, message: str) -> None:
        """Hold the HTTP status and what to say."""
        super().__init__(status, message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked: ``Request(method="POST", path="/step", query={}, body={"id": 0})``."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None


class Threads:
    """Threads for calls that wait for something, at most `most` at once: ``await Threads(64).call(world.close)``."""

    def __init__(self, most: int) -> None:
        """Start none yet."""
        self._limiter = anyio.CapacityLimiter(most)

    async def call(self, call: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return the result of `call`.

        Raises:
            TimeoutError: it takes longer than `seconds`, as a rule `CALL_SECONDS`; its thread is left alone.
        """
        with anyio.fail_after(CALL_SECONDS if seconds is None else seconds):
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter)


def json_app(
    answer: Callable[[Request], Any],
    *,
    talk: Mapping[str, Callable[[WebSocket], Awaitable[None]]] | None = None,
    close: Callable[[], None] = lambda: None,
    most: int = 64,
) -> Starlette:
    """Return an app whose requests `answer` answers, in threads; `talk` has what holds the WebSockets, by path.

    `answer` returns what JSON can hold, or raises a `Refusal`. `close` is called, in a thread, when the server ends.
    """
    threads = Threads(most)

    async def reply(asked: requests.Request) -> Response:
        try:
            request = Request(
                method=asked.method,
                path=asked.scope["path"],
                query=dict(asked.query_params),
                body=await read_body(asked),
            )
            return json_response(await threads.call(lambda: answer(request)))
        except TimeoutError:
            return json_response({"error": f"no answer within {CALL_SECONDS:g} s"}, 504, is_last=True)
        except Refusal as refusal:
            # What was sent with it may not be read, so the connection cannot be used again.
            return json_response({"error": refusal.message}, refusal.status, is_last=True)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        await anyio.to_thread.run_sync(close)

    routes = [
        *(WebSocketRoute(path, conversation) for path, conversation in (talk or {}).items()),
        WebSocketRoute("/{path:path}", _refuse),
        Route("/{path:path}", reply, methods=["GET", "POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def read_body(asked: requests.Request) -> Any:
    """Return the JSON that was sent, None where nothing was.

    Raises:
        Refusal: it is too long, takes too long, or is no JSON.
    """
    length = asked.headers.get("Content-Length", "0")
    if asked.headers.get("Transfer-Encoding") or len(length) > 20 or int(length) > MAX_BODY_BYTES:
        raise Refusal(413, f"give a Content-Length of at most {MAX_BODY_BYTES}")
    try:
        with anyio.fail_after(BODY_SECONDS):
            body = await asked.body()
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None
    except requests.ClientDisconnect:
        raise Refusal(400, "the body did not arrive") from None
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON") from None


def json_response(value: Any, status: int = 200, *, is_last: bool = False) -> Response:
    """Return `value` as a response, after which the connection ends if it `is_last`."""
    headers = {"Connection": "close"} if is_last else None
    return Response(json.dumps(value), status, headers, media_type="application/json")


async def _refuse(connection: WebSocket) -> None:
    """Answer a request for a WebSocket where there is none."""
    await connection.send_denial_response(json_response({"error": "no WebSocket is here"}, 404))

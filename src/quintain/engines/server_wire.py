"""HTTP to a server of a model: questions with a deadline, and completions that come as a stream of events.

The loop that this runs in works only while the engine is asked something; what a server says in between waits in the
sockets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal, cast

from quintain.processes.http_json import UNREADABLE, check_url, client_options

Row = dict[str, Any]
Kind = Literal["refused", "unreachable", "timeout", "malformed", "crash"]
CONNECT = 20.0
"""Seconds in which a server must take a connection."""
LONGEST = 300
"""Characters of an answer that an error quotes."""
EVENT, LAST = "data:", "[DONE]"


class ServerTrouble(Exception):
    """A server did not do what it was asked: ``ServerTrouble("crash", "HTTP status 500 (out of memory)")``."""

    def __init__(self, kind: Kind, got: str, status: int = 0) -> None:
        """Hold what kind of trouble it is, what came, and the HTTP status if any did."""
        super().__init__(kind, got, status)
        self.kind: Kind = kind
        self.got, self.status = got, status


class ServerWire:
    """A server that is asked: ``await ServerWire("http://127.0.0.1:8000").ask("GET", "/health", seconds=5)``."""

    def __init__(self, url: str, key: str = "") -> None:
        """Prepare to ask; a `key` is sent as a bearer token."""
        import httpx2

        self.url = check_url(url)
        self._client = httpx2.AsyncClient(**client_options(self.url, key))

    async def ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        body: Row | None = None,
        *,
        seconds: float,
        is_json: bool = True,
    ) -> Any:
        """Return the JSON that comes back, or the text where it need not be JSON; None where an answer is empty.

        Raises:
            ServerTrouble: there is no usable answer within so many `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                response = await self._send(method, path, body)
                try:
                    text = (await response.aread()).decode("utf-8", "replace")
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise ServerTrouble("timeout", f"no answer to {path} within {seconds:g} s") from error
        if not text or not is_json:
            return text or None
        try:
            return json.loads(text)
        except UNREADABLE as error:
            raise ServerTrouble("malformed", f"no JSON for {path}, but {_short(text)!r}") from error

    async def events(self, path: str, body: Row) -> AsyncIterator[Row]:
        """Yield the events of a stream, each an object of JSON, until the server says that it is over.

        Raises:
            ServerTrouble: the server refuses, breaks off, or says what is no event.
        """
        import httpx2

        response = await self._send("POST", path, body)
        try:
            async for line in response.aiter_lines():
                text = line.removeprefix(EVENT).strip()
                if not line.startswith(EVENT) or not text:
                    if text and not line.startswith(":"):
                        raise ServerTrouble("malformed", f"no event from {path}, but {_short(line)!r}")
                    continue
                if text == LAST:
                    return
                yield _event(path, text)
        except httpx2.TransportError as error:
            raise ServerTrouble("unreachable", _words(error)) from error
        finally:
            await response.aclose()
        raise ServerTrouble("unreachable", f"a stream of {path} that broke off")

    async def close(self) -> None:
        """Let go of what is left of connections."""
        await self._client.aclose()

    async def _send(self, method: str, path: str, body: Row | None) -> Any:
        """Return the answer with a good status, its body unread."""
        import httpx2

        content = None if body is None else json.dumps(body).encode()
        timeout = httpx2.Timeout(None, connect=CONNECT)
        request = self._client.build_request(method, self.url + path, content=content, timeout=timeout)
        try:
            response = await self._client.send(request, stream=True)
            if response.is_success:
                return response
            try:
                said = _reason((await response.aread()).decode("utf-8", "replace"))
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise ServerTrouble("unreachable", _words(error)) from error
        code = int(response.status_code)
        kind: Kind = "refused" if code < 500 else "crash"
        raise ServerTrouble(kind, f"HTTP status {code} for {path}{said and f' ({said})'}", code)


def _event(path: str, text: str) -> Row:
    """Return an event; one that says what went wrong is raised."""
    try:
        event = json.loads(text)
    except UNREADABLE as error:
        raise ServerTrouble("malformed", f"an event of {path} that is no JSON: {_short(text)!r}") from error
    if not isinstance(event, dict):
        raise ServerTrouble("malformed", f"an event of {path} that is no object: {_short(text)!r}")
    if "error" in event:
        raise ServerTrouble("crash", _reason(text))
    return cast(Row, event)


def _reason(text: str) -> str:
    """Return what an answer says of an error, in one line."""
    try:
        found: Any = json.loads(text)
        for name in ("error", "message", "detail"):
            found = found[name] if isinstance(found, dict) and name in found else found
    except UNREADABLE:
        found = text
    return _short(found if isinstance(found, str) else text)


def _short(text: str) -> str:
    """Return the beginning of `text` as one line."""
    return " ".join(text.split())[:LONGEST]


def _words(error: Exception) -> str:
    """Return what a broken connection is called."""
    return f"{type(error).__name__}{str(error) and f': {error}'}"

"""A live connection to an MCP server, behind plain calls with deadlines; the official SDK speaks the protocol.

The SDK is asynchronous: it lives in a thread of its own, for as long as the connection does. Whatever goes wrong is an
`OwnedFault` that says whose it is: the server's (environment) or a tool's.
"""

import logging
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

import anyio

from quintain.adapters.remote.tools import Reply
from quintain.environments.extras import extra_module
from quintain.environments.tools import OwnedFault, ToolFault
from quintain.errors import UsageError, install_command
from quintain.processes.http_json import certificates
from quintain.processes.portal import LoopThread
from quintain.types import ToolSpec

FEATURE = "the environment mcp"
THREAD = "quintain-environment-mcp"
OPENING = 60.0
"""Seconds that the start of a server may take, if the deadline of its calls is not longer."""
SPARE = 2.0
"""Seconds that the SDK has to report a deadline before we stop waiting for it."""
LONGEST_CLOSE = 8.0
"""Seconds that closing may take; the SDK ends a server that stays alive after 4."""
MAX_PAGES = 100
TIMED_OUT, CLOSED, REFUSED = -32001, -32000, frozenset({-32602, -32601})
"""Error codes: a request that took too long, a connection that ended, arguments or a tool that do not exist."""
LONGEST_TAIL = 300
HTTP_SECONDS, STREAM_SECONDS = 30.0, 300.0
"""Seconds that a server may take over HTTP: for each request, and between two messages of an open stream."""


class ServerFault(OwnedFault):
    """An MCP server could not be started or reached, died, or does not speak the protocol."""

    @classmethod
    def of(cls, kind: str, server: str, got: str) -> "ServerFault":
        """Return the fault of `server`; `kind` is for counting."""
        fault = cls(f"MCP server {server}: got {got}; run it by itself to see why")
        fault.kind = f"mcp_{kind}"
        return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """How a server is reached: ``Where(command=("python", "shop.py"))`` or ``Where(url="http://…/mcp")``."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the server gets besides PATH, HOME and the like; nothing else of ours is handed on."""
    folder: str | None = None
    """Where the command runs."""
    url: str = ""
    key: str = ""
    """Sent to the URL as a bearer token."""

    def __str__(self) -> str:
        """Return how people know the server."""
        return self.url or " ".join(self.command)


class Session:
    """A connection: ``Session(Where(command=("python", "shop.py")), deadline=20.0)``."""

    def __init__(self, where: Where, deadline: float) -> None:
        """Start or reach the server, agree on a protocol version, and ask for its tools.

        Raises:
            MissingExtra: the SDK is not installed.
            ServerFault: there was no usable server before the deadline.
        """
        self.where, self.deadline = where, deadline
        self._sdk = package()
        self._talk: TextIO = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.is_broken = False
        """Whether the connection is of no more use."""
        self._client: Any = None
        self._opened: Future[tuple[ToolSpec, ...]] = Future()
        self._leave: anyio.Event | None = None
        self._left = threading.Event()
        self._loop = LoopThread(THREAD)
        self._held = self._loop.start(self._hold)
        opening = max(deadline, OPENING)
        either: tuple[Future[Any], Future[Any]] = (self._opened, self._held)
        wait(either, opening, FIRST_COMPLETED)
        if not self._opened.done():
            got = self._end() if self._held.done() else f"no answer within {opening:g} s"
            fault = ServerFault.of("start", str(where), got + self._tail())
            self.close()
            raise fault
        self.tools = self._opened.result(0)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call tool `name` and return its texts; other content is named in brackets.

        Raises:
            ToolFault: the tool hung, or answered with something that is no result.
            ServerFault: the server is gone.
        """
        late = f"took longer than {self.deadline:g} s"
        try:
            result = self._answer(name, arguments)
        except self._sdk.MCPError as error:
            if error.code in REFUSED:
                return Reply(text=str(error.message), is_error=True)
            self.is_broken = True
            if error.code == CLOSED:
                raise ServerFault.of("closed", str(self.where), f"{error.message}{self._tail()}") from error
            kind = "timeout" if error.code == TIMED_OUT else "error"
            raise _tool_fault(name, kind, late if kind == "timeout" else str(error.message)) from error
        except TimeoutError as error:  # the SDK itself had no time to report it
            self.is_broken = True
            raise _tool_fault(name, "timeout", late) from error
        except (ValueError, RuntimeError) as error:
            raise _tool_fault(
                name, "malformed", f"{type(error).__name__}: {str(error)[:LONGEST_TAIL]}"
            ) from error
        return Reply(text="\n".join(_text(part) for part in result.content), is_error=bool(result.is_error))

    def close(self) -> None:
        """End the connection, and the server if we started it; may be called again."""
        self.kill()
        if self._left.wait(LONGEST_CLOSE) and self._loop.close(LONGEST_CLOSE):
            self._talk.close()

    def kill(self) -> None:
        """Begin to end the connection; whoever waits for an answer gets a `ServerFault`. One not open is broken off."""
        self.is_broken = True
        with suppress(RuntimeError):  # the loop is closed already
            if self._leave is None:
                self._held.cancel()
            else:
                self._loop.start(_set, self._leave)

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the result of tool `name`.

        Raises:
            ServerFault: the connection has ended.
            TimeoutError: there is no answer within the deadline, and the SDK did not say so.
        """
        if not self._held.done():
            asked = self._loop.start(self._call, name, arguments)
            wait((asked, self._held), self.deadline + SPARE, FIRST_COMPLETED)
            if asked.done() and not asked.cancelled():
                return asked.result(0)
            asked.cancel()
            if not self._held.done():
                raise TimeoutError
        self.is_broken = True
        raise ServerFault.of("closed", str(self.where), self._end() + self._tail())

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call tool `name`."""
        return await self._client.call_tool(name, dict(arguments), read_timeout_seconds=self.deadline)

    async def _hold(self) -> None:
        """Open the client, tell its tools, and wait for the end."""
        seconds = max(self.deadline, OPENING)
        try:
            async with (
                self._transport() as transport,
                self._sdk.Client(transport, read_timeout_seconds=seconds) as client,
            ):
                self._client, self._leave = client, anyio.Event()
                self._opened.set_result(await _list_tools(client))
                await self._leave.wait()
        finally:
            self._left.set()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any]:
        """Have the SDK's transport to the server."""
        if self.where.command:
            stdio = extra_module("mcp.client.stdio", package="mcp", extra="mcp", feature=FEATURE)
            command, *arguments = self.where.command
            parameters = stdio.StdioServerParameters(
                command=command, args=arguments, env=dict(self.where.env), cwd=self.where.folder
            )
            yield stdio.stdio_client(parameters, errlog=self._talk)
            return
        import httpx2

        http = extra_module("mcp.client.streamable_http", package="mcp", extra="mcp", feature=FEATURE)
        async with httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self.where.key}"} if self.where.key else None,
            timeout=httpx2.Timeout(HTTP_SECONDS, read=STREAM_SECONDS),
            verify=certificates(self.where.url),
            trust_env=False,
        ) as client:
            yield http.streamable_http_client(self.where.url, http_client=client)

    def _end(self) -> str:
        """Return what ended the connection."""
        if not self._held.done() or self._held.cancelled():
            return "a connection that is closed"
        error = self._held.exception(0)
        return "a connection that is closed" if error is None else _reason(error)

    def _tail(self) -> str:
        """Return the last thing that the server wrote for people."""
        if self._talk.closed:
            return ""
        self._talk.seek(0)
        text = " ".join(self._talk.read().split())[-LONGEST_TAIL:]
        return f" (it wrote: {text})" if text else ""


async def _set(event: anyio.Event) -> None:
    """Set `event`, in its loop."""
    event.set()


async def _list_tools(client: Any) -> tuple[ToolSpec, ...]:
    """Return the tools of the server, all pages of them."""
    specs: list[ToolSpec] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        specs += [
            ToolSpec(
                name=found.name,
                description=found.description or found.title or found.name,
                parameters={"type": "object", "properties": {}, **found.input_schema},
            )
            for found in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(specs)


def _text(part: Any) -> str:
    """Return a part of a result as text."""
    text = getattr(part, "text", None)
    return text if isinstance(text, str) else f"[{getattr(part, 'type', 'content')}]"


def _reason(error: BaseException) -> str:
    """Return the first cause in `error`, which may be a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}"[:LONGEST_TAIL]


def _tool_fault(name: str, kind: str, got: str) -> ToolFault:
    """Return the fault of tool `name`; `kind` is for counting."""
    fault = ToolFault.of(name, f"{got}; mend the MCP server, or raise the deadline")
    fault.kind = f"tool_{kind}"
    return fault


def package() -> Any:
    """Return the module ``mcp``, quiet on the terminal.

    Raises:
        MissingExtra: it is not installed.
        UsageError: it is older than its second version.
    """
    found = extra_module("mcp", package="mcp", extra="mcp", feature=FEATURE)
    if not hasattr(found, "Client"):
        raise UsageError(f"MCP SDK: got one without mcp.Client; {install_command('mcp')}, which needs mcp>=2")
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return found

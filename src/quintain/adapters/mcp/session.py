"""A live connection to an MCP server, behind plain calls with deadlines; the official SDK speaks the protocol.

The SDK is asynchronous: it lives in a thread of its own, for as long as the connection does. The one rule: whatever
goes wrong is an `OwnedFault` that says whose it is: the server's (environment) or a tool's.
"""

import asyncio
import concurrent.futures
import logging
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TextIO, TypeVar, cast

from quintain.adapters.remote.tools import Reply
from quintain.environments.extras import extra_module
from quintain.environments.tools import OwnedFault, ToolFault
from quintain.errors import UsageError
from quintain.types import ToolSpec

T = TypeVar("T")
FEATURE = "the environment mcp"
THREAD = "quintain-environment-mcp"
OPENING = 60.0
"""Seconds that the start of a server may take, if the deadline of its calls is not longer."""
SPARE = 2.0
"""Seconds that the SDK has to report a deadline before we stop waiting for it."""
LONGEST_CLOSE = 8.0
"""Seconds that closing may take; the SDK ends a server that stays alive after 4."""
MOST_PAGES = 100
TIMED_OUT, CLOSED, REFUSED = -32001, -32000, frozenset({-32602, -32601})
"""Error codes: a request that took too long, a connection that ended, arguments or a tool that do not exist."""
LONGEST_TAIL = 300


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
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._client: Any = None
        self._holder: asyncio.Task[None] | None = None
        self._opened: concurrent.futures.Future[tuple[ToolSpec, ...]] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._talk: TextIO = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.is_broken = False
        """Whether the connection is of no more use."""
        # A daemon, because a server that cannot be ended must not keep this process alive.
        self._thread = threading.Thread(target=self._live, name=THREAD, daemon=True)
        self._thread.start()
        opening = max(deadline, OPENING)
        waited: set[concurrent.futures.Future[Any]] = {self._opened, self._ended}
        concurrent.futures.wait(waited, opening, concurrent.futures.FIRST_COMPLETED)
        if not self._opened.done():
            fault = self._end_of("start") if self._ended.done() else self._late("start", opening)
            self.close()
            raise fault
        self.tools = self._opened.result()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call tool `name` and return its texts; other content is named in brackets.

        Raises:
            ToolFault: the tool hung, or answered with something that is no result.
            ServerFault: the server is gone.
        """
        late = f"took longer than {self.deadline:g} s"
        try:
            result = self._answer(
                lambda: self._client.call_tool(name, dict(arguments), read_timeout_seconds=self.deadline)
            )
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
        self._thread.join(LONGEST_CLOSE)
        if not self._talk.closed and not self._thread.is_alive():
            self._talk.close()

    def kill(self) -> None:
        """Begin to end the connection; whoever waits for an answer gets a `ServerFault`."""
        self.is_broken = True
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        """Let the connection end; one that is not open yet is broken off. Runs in its thread."""
        self._stop.set()
        if not self._opened.done() and self._holder is not None:
            self._holder.cancel()

    def _answer(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `ask` gives in the connection's thread.

        Raises:
            ServerFault: the connection has ended.
            TimeoutError: there is no answer within the deadline, and the SDK did not say so.
        """
        if self._ended.done():
            raise self._end_of("closed")
        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            return asked.result(self.deadline + SPARE)
        except (concurrent.futures.CancelledError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not self._ended.done() and self._thread.is_alive():
                raise
            self.is_broken = True
            raise self._end_of("closed") from error
        except TimeoutError:
            asked.cancel()
            raise

    def _live(self) -> None:
        """Hold the connection until it is closed."""
        with _Noted(self._ended), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._hold())

    async def _hold(self) -> None:
        """Open the client, tell its tools, and wait for the end."""
        self._holder = cast("asyncio.Task[None]", asyncio.current_task())
        async with self._sdk.Client(
            self._transport(), read_timeout_seconds=max(self.deadline, OPENING)
        ) as client:
            self._client = client
            self._opened.set_result(await _listed(client))
            await self._stop.wait()

    def _transport(self) -> Any:
        """Return the SDK's transport to the server."""
        if self.where.command:
            stdio = extra_module("mcp.client.stdio", package="mcp", extra="mcp", feature=FEATURE)
            command, *arguments = self.where.command
            parameters = stdio.StdioServerParameters(
                command=command, args=arguments, env=dict(self.where.env), cwd=self.where.folder
            )
            return stdio.stdio_client(parameters, errlog=self._talk)
        http = extra_module("mcp.client.streamable_http", package="mcp", extra="mcp", feature=FEATURE)
        shared = extra_module("mcp.shared._httpx_utils", package="mcp", extra="mcp", feature=FEATURE)
        headers = {"Authorization": f"Bearer {self.where.key}"} if self.where.key else None
        return http.streamable_http_client(
            self.where.url, http_client=shared.create_mcp_http_client(headers=headers)
        )

    def _end_of(self, kind: str) -> ServerFault:
        """Return the fault that ended the connection."""
        error = self._ended.exception() if self._ended.done() else None
        reason = _reason(error) if error is not None else "a connection that is closed"
        return ServerFault.of(kind, str(self.where), reason + self._tail())

    def _late(self, kind: str, seconds: float) -> ServerFault:
        """Return the fault of a server that does not answer within `seconds`."""
        return ServerFault.of(kind, str(self.where), f"no answer within {seconds:g} s{self._tail()}")

    def _tail(self) -> str:
        """Return the last thing that the server wrote for people."""
        if self._talk.closed:
            return ""
        self._talk.seek(0)
        text = " ".join(self._talk.read().split())[-LONGEST_TAIL:]
        return f" (it wrote: {text})" if text else ""


class _Noted:
    """Puts how a block ended into a future, so that another thread can look at it."""

    def __init__(self, ended: "concurrent.futures.Future[None]") -> None:
        self.ended = ended

    def __enter__(self) -> "_Noted":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        return True


async def _listed(client: Any) -> tuple[ToolSpec, ...]:
    """Return the tools of the server, all pages of them."""
    specs: list[ToolSpec] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
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
        raise UsageError(
            'MCP SDK: got one without mcp.Client; pip install "quintain[mcp]", which needs mcp>=2'
        )
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return found

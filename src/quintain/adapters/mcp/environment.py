"""The tools of any MCP server as an environment; the user brings the tasks and the grader.

``mcp/shop.json`` names a file with the server (a command or a URL), the tasks and a grade function; a class with
``server``, ``rows`` and ``grade`` does the same in Python. An episode never sees what another left in the server:
unless a reset tool is named, each gets a server process (or session) of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from quintain.adapters.mcp.session import ServerFault, Session, Where
from quintain.adapters.remote.tools import RemoteTools, Reply, refuse
from quintain.processes.http_json import check_deadline, check_url, key_in
from quintain.types import Task, ToolSpec


class MCP(RemoteTools):
    """Do what you are asked. Call tools as you need them; a reply without a call is your answer."""

    server: Mapping[str, Any] = {}
    """``{"command": ["python", "shop.py"], "env": {}}`` or ``{"url": "http://127.0.0.1:8000/mcp", "key_file": ""}``"""
    reset_tool: str = ""
    """A tool that brings the server back to its first state; the agent is not shown it."""

    def __init__(self, file: str = "", *, deadline: float = 20.0, restart: bool = True) -> None:
        """Start or reach the server that the JSON file at `file` names, else the class.

        `deadline` is for each call, in seconds; a start may take a minute. Without `restart`, and without a
        reset tool, what an episode leaves in the server is there in the next one: for servers that keep nothing.

        Raises:
            MissingExtra: the MCP SDK is not installed.
            UsageError: the file, the server or the tasks cannot be used.
            ServerFault: the server cannot be started or reached.
        """
        super().__init__(file=file)
        self._deadline, self._restart = check_deadline(deadline), restart
        self._where = where(self.settings.get("server", self.server), Path(file).parent if file else None)
        self.reset_tool = str(self.settings.get("reset_tool", self.reset_tool))
        self._session = Session(self._where, self._deadline)
        names = [spec.name for spec in self._session.tools]
        if self.reset_tool and self.reset_tool not in names:
            self.close()
            refuse(str(self._where), f"no tool {self.reset_tool!r}", f"the server has {', '.join(names)}")
        self._specs = tuple(spec for spec in self._session.tools if spec.name != self.reset_tool)
        self._is_used = False

    def list_offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the server, the one that resets it left out."""
        return self._specs

    def begin_episode(self, task: Task) -> None:
        """Bring the server to its first state."""
        if self._session.is_broken or (self._is_used and self._restart and not self.reset_tool):
            self._session.close()
            self._session = Session(self._where, self._deadline)
        self._is_used = False
        if self.reset_tool:
            reply = self._session.call(self.reset_tool, cast("Mapping[str, Any]", self._row.get("reset", {})))
            if reply.is_error:
                raise ServerFault.of("reset", str(self._where), f"{self.reset_tool}: {reply.text[:200]}")

    def carry_out(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call tool `name` of the server."""
        self._is_used = True
        return self._session.call(name, arguments)

    def close(self) -> None:
        """End the connection, and the server if we started it."""
        self._session.close()

    def kill(self) -> None:
        """End the connection from any thread."""
        self._session.kill()

    def keys(self) -> frozenset[str]:
        """Return the keys that a file may have."""
        return super().keys() | {"server", "reset_tool"}


def where(server: object, folder: Path | None) -> Where:
    """Return how `server` is reached; a command runs in `folder`.

    Raises:
        UsageError: it is neither a command nor a URL.
    """
    advice = 'give {"command": ["python", "server.py"]} or {"url": "http://127.0.0.1:8000/mcp"}'
    if not isinstance(server, Mapping) or not server:
        refuse("the MCP server", f"{server!r:.60}", advice)
    known = cast("Mapping[str, Any]", server)
    if set(known) <= {"url", "key_file"} and "url" in known:
        return Where(url=check_url(str(known["url"])), key=key_in(str(known.get("key_file", ""))))
    command, env = known.get("command"), known.get("env", {})
    is_command = isinstance(command, (list, tuple)) and bool(command) and set(known) <= {"command", "env"}
    if not is_command or not isinstance(env, Mapping):
        refuse("the MCP server", f"{dict(known)!r:.120}", advice)
    words = tuple(str(word) for word in cast("list[object]", command))
    variables = {str(key): str(value) for key, value in cast("Mapping[str, Any]", env).items()}
    return Where(command=words, env=variables, folder=str(folder) if folder else None)

"""Tools and a grader behind plain HTTP endpoints, joined by a rollout id, as an environment.

``http-tools/shop.toml`` names a file with the tools' endpoints, the grader's, and the tasks. Every call of an episode,
and its grading, carry the same rollout id, so that a server can keep a state for it. An endpoint that fails after all
attempts is a `Failure` of the tool or the judge, never a score.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from quintain.adapters.http_tools.wire import WIRES, Ending
from quintain.adapters.remote.tools import RemoteTools, Reply, Row, check_score, refuse
from quintain.environments.protocol import environment_name
from quintain.environments.tools import GraderFault, ToolFault
from quintain.errors import suggestion
from quintain.processes.http_json import HttpServer, HttpTrouble, check_headers, key_in
from quintain.types import NOTHING, Task, ToolCall, ToolSpec

WRONG_CALL = frozenset({400, 422})
"""Statuses by which an endpoint says that the arguments do not fit: the agent reads that and may mend it."""
DEADLINE = 20.0
"""Seconds of a call or a grading with all its attempts, unless the file or the option says otherwise."""
ENDPOINT_KEYS = frozenset({"url", "headers", "deadline"})
TOOL_KEYS = ENDPOINT_KEYS | {"name", "description", "parameters", "server_url"}


class HttpTools(RemoteTools):
    """Do what you are asked. Call tools as you need them; a reply without a call is your answer."""

    endpoints: Sequence[Row] = ()
    """The tools: ``{"name": "add", "description": "…", "parameters": {…}, "url": "http://127.0.0.1:8000/add"}``"""
    grader: str | Row = ""
    """URL of the grader, or ``{"url": "…", "headers": {…}, "deadline": 60}``; without one, `grade` decides."""
    headers: Row = NOTHING
    """Headers for all endpoints; ``${NAME}`` in them is a variable of the environment."""
    key_file: str = ""
    """A file whose first word is sent to all endpoints as a bearer token."""
    wire: str = "quintain"
    """What is sent and answered: quintain or openai; see `quintain.adapters.http_tools.wire`."""

    def __init__(self, file: str = "", *, deadline: float | None = None) -> None:
        """Take the endpoints that the file at `file` names, else those of the class; nothing is sent yet.

        `deadline` is for a call or a grading with all its attempts, in seconds: 20 unless the file says otherwise.

        Raises:
            UsageError: the file, the endpoints or the tasks cannot be used, or a variable that it names is not set.
        """
        super().__init__(file=file)
        who = environment_name(self)
        wire = str(self.settings.get("wire", self.wire))
        if wire not in WIRES:
            refuse(who, f"wire={wire!r}", suggestion(wire, WIRES))
        self._wire = WIRES[wire]
        key = key_in(str(self.settings.get("key_file", self.key_file)))
        usual = {
            "headers": self.settings.get("headers", self.headers),
            "deadline": self.settings.get("deadline", DEADLINE),
        }
        make = partial(endpoint, usual=usual, deadline=deadline, key=key)
        rows = cast("Sequence[Any]", self.settings.get("tools", self.endpoints))
        self._specs = tuple(check_tool(row, who) for row in rows)
        self._servers = {
            spec.name: make(row, who=f"{who}: tool {spec.name}")
            for spec, row in zip(self._specs, rows, strict=True)
        }
        if len(self._servers) < len(self._specs):
            refuse(who, "two tools of one name", "give each its own")
        grader: Any = self.settings.get("grader", self.grader)
        row = {"url": grader} if isinstance(grader, str) else grader
        self._grader = make(row, who=f"{who}: grader", known=ENDPOINT_KEYS) if grader else None
        self._rollout, self._task = "", ""

    def list_offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools."""
        return self._specs

    def begin_episode(self, task: Task) -> None:
        """Draw the id of the rollout; one that is tried again has another."""
        self._rollout, self._task = self._wire.rollout_prefix + uuid.uuid4().hex, task.id

    def carry_out(self, name: str, arguments: Row) -> Reply:
        """Ask the endpoint of tool `name`; attempts of one call have the same call id, also as ``Idempotency-Key``."""
        server, call_id = self._servers[name], uuid.uuid4().hex
        body = self._wire.call(self._rollout, call_id, ToolCall(name=name, arguments=dict(arguments)))
        read: Callable[[Any], Reply] = partial(self._wire.read, call_id)
        try:
            return server.ask("POST", body=body, read=read, once=call_id)
        except HttpTrouble as trouble:
            if trouble.status in WRONG_CALL:
                return Reply(text=f"the tool refused the call ({trouble.got})", is_error=True)
            fault = ToolFault.of(name, f"at {hide_query(server)}: got {trouble.got}; mend the endpoint")
            fault.kind = f"tool_{trouble.kind}"
            raise fault from trouble

    def grade(self, row: Row, answer: str) -> float:
        """Ask the grader; without one, see `RemoteTools.grade`."""
        if self._grader is None:
            return super().grade(row, answer)
        end = Ending(
            rollout_id=self._rollout,
            task_id=self._task,
            row={key: value for key, value in row.items() if key != "solution"},
            answer=answer,
            calls=self.calls,
            messages=self.messages,
        )
        try:
            body = self._wire.ending(end)
            return self._grader.ask("POST", body=body, read=self._score, once=f"{self._rollout}-grade")
        except HttpTrouble as trouble:
            fault = GraderFault(f"grader at {hide_query(self._grader)}: got {trouble.got}; mend the endpoint")
            fault.kind = f"grader_{trouble.kind}"
            raise fault from trouble

    def probe_grader(self) -> None:
        """Let the grader say what no answer is worth."""
        super().probe_grader()
        if self._grader is not None:
            self.grade(self._row, "")

    def close(self) -> None:
        """Give up what waits between two attempts."""
        super().close()
        for server in (*self._servers.values(), *filter(None, [self._grader])):
            server.close()

    def kill(self) -> None:
        """See `close`."""
        self.close()

    def keys(self) -> frozenset[str]:
        """Return the keys that a file may have."""
        return super().keys() | {"tools", "grader", "key_file", "headers", "deadline", "wire"}

    def _score(self, answer: Any) -> float:
        """Return the score in the grader's answer ``{"score": 0.5}``; one that is none is asked for again."""
        try:
            return check_score(answer["score"], environment_name(self), self.return_range)
        except GraderFault as fault:
            raise ValueError(str(fault)) from fault


def endpoint(
    row: Any, *, usual: Row, deadline: float | None, key: str, who: str, known: frozenset[str] = TOOL_KEYS
) -> HttpServer:
    """Return the server that `row` names; what it does not say is as `usual`, and a given `deadline` holds for all.

    Raises:
        UsageError: it has no URL, a key that is not `known`, or a header or deadline that cannot be.
    """
    found = cast(Row, row) if isinstance(row, Mapping) else {}
    for name in found:
        if name not in known:
            refuse(who, f"the key {name!r}", suggestion(name, known))
    url = found.get("url", found.get("server_url"))
    if not isinstance(url, str) or not url:
        refuse(who, f"{row!r:.80}", 'give {"url": "http://127.0.0.1:8000/grade"}')
    if "@" in urlsplit(url).netloc:
        refuse(
            who, "a URL with a name and password", 'give them as headers: {Authorization = "Basic ${KEY}"}'
        )
    parts = [usual["headers"], found.get("headers", {})]
    if not all(isinstance(part, Mapping) for part in parts):
        refuse(who, f"headers={parts!r:.60}", 'give {"Authorization": "Bearer ${KEY}"}')
    headers = check_headers({**parts[0], **parts[1]}, asked=f"headers of {who}: got ")
    seconds: Any = deadline if deadline is not None else found.get("deadline", usual["deadline"])
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        refuse(who, f"deadline={seconds!r:.40}", "give a positive number of seconds")
    return HttpServer(url, deadline=seconds, key=key, headers=headers)


def hide_query(server: HttpServer) -> str:
    """Return the address of `server` for messages, which are kept: without its query, which may hold a key."""
    return server.url.partition("?")[0]


def check_tool(row: object, who: str) -> ToolSpec:
    """Return the tool that `row` describes.

    Raises:
        UsageError: it has no name or URL, or its parameters are no schema of an object.
    """
    advice = (
        'give {"name": "add", "description": "…", "parameters": {"type": "object", …}, "url": "http://…"}'
    )
    if not isinstance(row, Mapping):
        refuse(who, f"the tool {row!r:.60}", advice)
    known = cast(Row, row)
    name, parameters = known.get("name"), known.get("parameters", {"type": "object", "properties": {}})
    is_schema = isinstance(parameters, Mapping) and cast(Row, parameters).get("type") == "object"
    url = known.get("url", known.get("server_url"))
    if not isinstance(name, str) or not name or not isinstance(url, str) or not is_schema:
        refuse(who, f"the tool {name or '?'} with {', '.join(known)}", advice)
    return ToolSpec(
        name=name, description=str(known.get("description") or name), parameters=cast(Row, parameters)
    )

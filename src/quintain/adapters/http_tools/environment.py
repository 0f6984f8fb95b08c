"""Tools and a grader behind plain HTTP endpoints, joined by a rollout id, as an environment.

``http-tools/shop.json`` names a file with the tools' endpoints, the grader's, and the tasks. Every call of an episode,
and its grading, carry the same ``rollout_id``, so that a server can keep a state for it. An endpoint that fails after
all attempts is a `Failure` of the tool or the judge, never a score.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

from quintain.adapters.remote.tools import RemoteTools, Reply, Row, checked_score, refuse
from quintain.environments.protocol import environment_name
from quintain.environments.tools import GraderFault, ToolFault
from quintain.processes.http_json import HttpServer, HttpTrouble, key_in
from quintain.types import Task, ToolSpec

WRONG_CALL = frozenset({400, 422})
"""Statuses by which an endpoint says that the arguments do not fit: the agent reads that and may mend it."""


class HttpTools(RemoteTools):
    """Do what you are asked. Call tools as you need them; a reply without a call is your answer."""

    endpoints: Sequence[Row] = ()
    """The tools: ``{"name": "add", "description": "…", "parameters": {…}, "url": "http://127.0.0.1:8000/add"}``"""
    grader: str = ""
    """URL of the grader; without one, `grade` decides."""
    key_file: str = ""
    """A file whose first word is sent to all endpoints as a bearer token."""

    def __init__(self, file: str = "", *, deadline: float = 20.0) -> None:
        """Take the endpoints that the JSON file at `file` names, else those of the class; nothing is sent yet.

        `deadline` is for a call or a grading with all its attempts, in seconds.

        Raises:
            UsageError: the file, the endpoints or the tasks cannot be used.
        """
        super().__init__(file=file)
        key = key_in(str(self.settings.get("key_file", self.key_file)))
        rows = self.settings.get("tools", self.endpoints)
        self._specs = tuple(checked_tool(row, environment_name(self)) for row in cast("Sequence[Any]", rows))
        self._servers = {
            str(row["name"]): HttpServer(str(row["url"]), deadline=deadline, key=key)
            for row in cast("Sequence[Row]", rows)
        }
        grader = str(self.settings.get("grader", self.grader))
        self._grader = HttpServer(grader, deadline=deadline, key=key) if grader else None
        self._rollout, self._task = "", ""

    def offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools."""
        return self._specs

    def begin_episode(self, task: Task) -> None:
        """Draw the id of the rollout; one that is tried again has another."""
        self._rollout, self._task = uuid.uuid4().hex, task.id

    def carry_out(self, name: str, arguments: Row) -> Reply:
        """Ask the endpoint of tool `name`; attempts of one call have the same ``call_id``."""
        body = {
            "rollout_id": self._rollout,
            "call_id": uuid.uuid4().hex,
            "tool": name,
            "arguments": dict(arguments),
        }
        try:
            return self._servers[name].ask("POST", body=body, read=read_reply)
        except HttpTrouble as trouble:
            if trouble.status in WRONG_CALL:
                return Reply(text=f"the tool refused the call ({trouble.got})", is_error=True)
            fault = ToolFault.of(name, f"at {self._servers[name].url}: got {trouble.got}; mend the endpoint")
            fault.kind = f"tool_{trouble.kind}"
            raise fault from trouble

    def grade(self, row: Row, answer: str) -> float:
        """Ask the grader; without one, see `RemoteTools.grade`."""
        if self._grader is None:
            return super().grade(row, answer)
        calls = [
            {
                "tool": call.name,
                "arguments": dict(call.arguments),
                "output": call.reply.text,
                "is_error": call.reply.is_error,
            }
            for call in self.calls
        ]
        task = {key: value for key, value in row.items() if key != "solution"}
        body = {
            "rollout_id": self._rollout,
            "task_id": self._task,
            "task": task,
            "answer": answer,
            "calls": calls,
        }
        try:
            return self._grader.ask("POST", body=body, read=self._score)
        except HttpTrouble as trouble:
            fault = GraderFault(f"grader at {self._grader.url}: got {trouble.got}; mend the endpoint")
            fault.kind = f"grader_{trouble.kind}"
            raise fault from trouble

    def close(self) -> None:
        """Give up what waits between two attempts."""
        for server in (*self._servers.values(), *filter(None, [self._grader])):
            server.close()

    def kill(self) -> None:
        """See `close`."""
        self.close()

    def keys(self) -> frozenset[str]:
        """Return the keys that a file may have."""
        return super().keys() | {"tools", "grader", "key_file"}

    def _score(self, answer: Any) -> float:
        """Return the score in the grader's answer ``{"score": 0.5}``; one that is none is asked for again."""
        try:
            return checked_score(answer["score"], environment_name(self), self.return_range)
        except GraderFault as fault:
            raise ValueError(str(fault)) from fault


def read_reply(answer: Any) -> Reply:
    """Return the reply in an endpoint's answer: ``{"output": "5"}``, or ``{"error": "no such item"}``."""
    if not isinstance(answer, dict):
        raise TypeError(f"the answer must be an object, not {type(answer).__name__}")
    found = cast("dict[str, object]", answer)
    error = found.get("error")
    if isinstance(error, str):
        return Reply(text=error, is_error=True)
    output = found["output"]
    if not isinstance(output, str):
        raise TypeError(f"output must be a text, not {type(output).__name__}")
    return Reply(text=output)


def checked_tool(row: object, who: str) -> ToolSpec:
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
    if not isinstance(name, str) or not name or not isinstance(known.get("url"), str) or not is_schema:
        refuse(who, f"the tool {dict(known)!r:.120}", advice)
    return ToolSpec(
        name=name, description=str(known.get("description") or name), parameters=cast(Row, parameters)
    )

"""The worlds of an OpenEnv server (protocol as in openenv 0.10.0), without its package.

``openenv/127.0.0.1:8000`` reads the server's action schema: one text is spoken as it is, everything else becomes the
tool ``act`` with that schema. A server of ours shows its own tools and legal actions. An episode lives in one
WebSocket; when that breaks, the episode is a `Failure` and the next one gets a new connection.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from quintain.adapters.remote.websocket import SocketTrouble, WebSocket, connect
from quintain.adapters.remote.world import INFINITE, RemoteFault, RemoteWorld, is_ours
from quintain.environments.schema import complaint
from quintain.environments.wire import OURS, action_row
from quintain.errors import UsageError, suggestion
from quintain.processes.http_json import HttpServer, HttpTrouble, key_in
from quintain.types import Action, Observation, StepResult, Task, ToolError, ToolSpec

ACT = "act"
"""The tool that takes an action which is more than a text."""
BROKEN = (KeyError, TypeError, ValueError)
Row = Mapping[str, Any]


class OpenEnv(RemoteWorld):
    """Do what the environment asks."""

    protocol = "openenv"
    tags: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        address: str,
        *,
        key_file: str = "",
        deadline: float = 20.0,
        action_field: str = "",
        observation_field: str = "",
        max_turns: int = 20,
        parallel: int = 16,
    ) -> None:
        """Play the world of the server at `address`, such as ``127.0.0.1:8000``.

        `action_field` and `observation_field` name the texts that are said and shown, where the server's schema does
        not leave one only; `deadline` is for each answer; the key is the first word of `key_file`.
        A rollout has at most `parallel` sessions at once; a server of OpenEnv has one unless it is told otherwise.

        Raises:
            UsageError: the address is none, or there is no such field.
            RemoteFault: there is no OpenEnv server.
        """
        if max_turns < 1:
            raise UsageError(f"max_turns of openenv: got {max_turns}; give 1 or more")
        self.name = f"openenv/{address}"
        self._deadline, self._key = deadline, key_in(key_file)
        self._field, self._shown = action_field, observation_field
        self._socket: WebSocket | None = None
        self.max_turns, self.return_range, self.parallel = max_turns, INFINITE, parallel
        self._server = HttpServer(address, deadline=deadline, key=self._key)
        self._metadata = _request_json(self._server, "/metadata")
        self._told = str(self._metadata.get("description") or "")
        if is_ours(self._metadata):
            self.adopt(self._metadata[OURS])
            if self._metadata[OURS]["is_legal"]:
                self.__class__ = cast("type[Self]", ListedOpenEnv)
            return
        schema = _request_json(self._server, "/schema").get("action")
        self._schema = without_metadata(cast("Row", schema) if isinstance(schema, Mapping) else {})
        self._field = self._field or only_text(self._schema)
        fields = cast("Row", self._schema.get("properties", {}))
        if action_field and action_field not in fields:
            raise UsageError(
                f"action_field of openenv: got {action_field!r}; {suggestion(action_field, fields)}"
            )
        if not self._field:
            self._tools = (
                ToolSpec(name=ACT, description="Act in the environment.", parameters=self._schema),
            )

    def reset(self, task: Task) -> Observation:
        """Start the episode of the task's seed; a server of ours is told its split and index."""
        if self._socket is None:
            self._socket = self._connect()
        data: dict[str, Any] = {"seed": task.seed % (1 << 31)}
        if is_ours(self._metadata):
            data = {"seed": task.seed, "split": task.split, "index": task.data.get("index")}
        answer = self._send("reset", data)
        return self.first(answer[OURS]) if is_ours(answer) else self._text(answer)

    def step(self, action: Action) -> StepResult:
        """Send the action; one that the server refuses changes nothing."""
        if is_ours(self._metadata):
            return self.result(self._send("step", {"text": action.text, OURS: action_row(action)})[OURS])
        payload, wrong = self._payload(action)
        if wrong:
            return _refuse(wrong, is_call=bool(action.tool_calls))
        answer = self._send("step", payload)
        if "refusal" in answer:
            return _refuse(str(answer["refusal"]), is_call=bool(action.tool_calls))
        reward, is_over = answer.get("reward"), answer.get("done", False)
        return StepResult(
            observation=self._text(answer),
            reward=0.0 if reward is None else reward,
            is_terminated=is_over,
        )

    def close(self) -> None:
        """Close the connection."""
        self.kill()

    def kill(self) -> None:
        """Close the connection, from any thread."""
        socket, self._socket = self._socket, None
        self._server.close()
        if socket is not None:
            socket.abort()

    def _payload(self, action: Action) -> tuple[dict[str, Any], str]:
        """Return the action as the server wants it, and what is wrong with it."""
        if action.error is not None:
            return {}, action.error
        if self._field:
            return {self._field: action.text}, ""
        if len(action.tool_calls) != 1 or action.tool_calls[0].name != ACT:
            return {}, f"call {ACT} once, and nothing else"
        arguments = dict(action.tool_calls[0].arguments)
        return arguments, complaint(ACT, self._schema, arguments)

    def _send(self, kind: str, data: Row) -> dict[str, Any]:
        """Send a message and return the observation that comes back; ``{"refusal": …}`` where the action does not fit.

        Raises:
            OwnedFault: something else came, or nothing.
        """
        url = self._server.url
        if self._socket is None:
            raise RemoteFault.of(self.protocol, url, "closed", "no connection; reset first")
        try:
            self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = self._socket.receive(deadline=self._deadline)
            if answer is None:
                raise SocketTrouble("closed", "a connection that the server closed")
            message = cast("dict[str, Any]", json.loads(answer))
            found = cast("dict[str, Any]", message["data"])
            if message["type"] == "observation":
                check_answer(found)
                return found
            if message["type"] != "error":
                raise ValueError(f"a message of type {message['type']!r}"[:80])
            if found.get("code") == "VALIDATION_ERROR" and kind == "step":
                return {"refusal": _reason(found)}
            self.kill_socket()
            raise self.trouble(url, found)
        except SocketTrouble as trouble:
            self.kill_socket()
            raise RemoteFault.of(self.protocol, url, trouble.kind, trouble.got) from trouble
        except BROKEN as error:
            self.kill_socket()
            got = f"an answer that is not OpenEnv's ({type(error).__name__}: {error})"
            raise RemoteFault.of(self.protocol, url, "malformed", got[:200]) from error

    def kill_socket(self) -> None:
        """Give up the connection; the next episode opens another."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

    def _connect(self) -> WebSocket:
        """Return a new connection."""
        try:
            return connect(f"{self._server.url}/ws", deadline=self._deadline, key=self._key)
        except SocketTrouble as trouble:
            raise RemoteFault.of(self.protocol, self._server.url, trouble.kind, trouble.got) from trouble

    def _text(self, answer: Row) -> str:
        """Return an observation as text: the field that is shown, the only text there is, or all of it as JSON."""
        observation = {key: value for key, value in answer["observation"].items() if key != "metadata"}
        if self._shown:
            return str(observation.get(self._shown, ""))
        if len(observation) == 1 and isinstance(next(iter(observation.values())), str):
            return next(iter(observation.values()))
        return json.dumps(observation, ensure_ascii=False)


class ListedOpenEnv(OpenEnv):
    """A world whose server lists legal actions."""

    is_variant = True

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that the server listed last."""
        return self._legal


def without_metadata(schema: Row) -> dict[str, Any]:
    """Return the schema of an action without the field that every OpenEnv action has besides its own."""
    properties = {key: value for key, value in schema.get("properties", {}).items() if key != "metadata"}
    return {"type": "object", **schema, "properties": properties}


def only_text(schema: Row) -> str:
    """Return the field of an action that is only a text, an empty text where there is more to say."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    asked = [name for name in properties if name in schema.get("required", ())] or list(properties)
    is_text = (
        len(asked) == 1
        and properties[asked[0]].get("type") == "string"
        and "enum" not in properties[asked[0]]
    )
    return asked[0] if is_text else ""


def check_answer(found: Row) -> None:
    """Accept an observation that has what the protocol promises.

    Raises:
        ValueError: it has not.
    """
    if not isinstance(found.get("observation"), dict) or not isinstance(found.get("done", False), bool):
        raise ValueError("an observation without its fields")


def _reason(found: Row) -> str:
    """Return why the server refused an action."""
    errors = found.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], Mapping):
        first = cast("Row", errors[0])
        place = ".".join(str(part) for part in first.get("loc", ()))
        return f"{place}: {first.get('msg')}"[:200]
    return str(found.get("message"))[:200]


def _refuse(why: str, *, is_call: bool) -> StepResult:
    """Return the result of an action that was not carried out."""
    errors = (ToolError(tool=ACT, cause="invalid_call"),) if is_call else ()
    return StepResult(observation=f"Error: {why}", is_valid=False, tool_errors=errors)


def _request_json(server: HttpServer, path: str) -> dict[str, Any]:
    """Return the JSON object at `path`.

    Raises:
        RemoteFault: there is none.
    """

    def read(answer: Any) -> dict[str, Any]:
        if not isinstance(answer, dict):
            raise TypeError("no JSON object")
        return cast("dict[str, Any]", answer)

    try:
        return server.ask("GET", path, read=read)
    except HttpTrouble as trouble:
        raise RemoteFault.of("openenv", server.url + path, trouble.kind, trouble.got) from trouble

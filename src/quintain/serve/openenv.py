"""Our worlds over the OpenEnv protocol: each WebSocket at ``/ws`` is an episode after the other in one instance.

Messages are ``{"type": "reset" | "step" | "state" | "close", "data": {…}}``; answers are of type ``observation``,
``state`` or ``error``. Checked against openenv 0.10.0, whose own client plays our worlds. The one rule: a message that
cannot be read is answered with an error, and the connection goes on.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, cast

from quintain.environments.protocol import Factory
from quintain.environments.wire import OURS
from quintain.processes.websocket import SocketTrouble, WebSocket
from quintain.serve.listener import Refusal, Request, Service
from quintain.serve.served import Row, Served, WorldTrouble, action_in, introduction

CODES = {"no_episode": "SESSION_ERROR"}
"""Error codes of OpenEnv by kind of trouble; all others are EXECUTION_ERROR."""
ACTION = {
    "type": "object",
    "title": "TextAction",
    "properties": {"text": {"type": "string"}, "metadata": {"type": "object", "default": {}}},
    "required": ["text"],
    "additionalProperties": False,
}
OBSERVATION = {
    "type": "object",
    "title": "TextObservation",
    "properties": {
        "text": {"type": "string"},
        "instructions": {"type": "string"},
        "legal_actions": {"type": "array", "items": {"type": "string"}},
        "metadata": {"type": "object", "default": {}},
    },
}
STATE = {
    "type": "object",
    "properties": {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}},
}


def openenv_service(make: Factory, *, most: int = 64) -> Service:
    """Return the service that offers the world that `make` builds to at most `most` clients at once."""
    with closing(Served(make)) as one:
        facts = one.facts()
    free = threading.BoundedSemaphore(most)

    def talk(connection: WebSocket) -> None:
        with suppress(SocketTrouble):  # the client is gone
            if not free.acquire(blocking=False):
                code = "CAPACITY_REACHED"
                connection.send(_error({"message": f"all {most} sessions are taken", "code": code}))
                return
            try:
                with closing(Served(make)) as world:
                    _converse(connection, world, facts)
            except WorldTrouble as trouble:
                connection.send(_error({**trouble.row(), "code": "FACTORY_ERROR"}))
            finally:
                free.release()

    return Service(answer=lambda request: _answer(request, facts), talk={"/ws": talk})


def _answer(request: Request, facts: Mapping[str, Any]) -> Row:
    """Return the answer to a request that is no WebSocket."""
    if request.method != "GET":
        raise Refusal(404, "episodes are played over the WebSocket at /ws")
    if request.path == "/health":
        return {"status": "healthy"}
    if request.path == "/metadata":
        return {"name": facts["name"], "description": facts["instructions"], OURS: dict(facts)}
    if request.path == "/schema":
        return {"action": ACTION, "observation": OBSERVATION, "state": STATE}
    raise Refusal(404, "no such path; there are /health, /metadata, /schema and /ws")


def _converse(connection: WebSocket, world: Served, facts: Mapping[str, Any]) -> None:
    """Answer messages until the client closes."""
    episode: list[str | None] = [None]
    while (text := connection.receive()) is not None:
        try:
            message: object = json.loads(text)
        except ValueError as error:
            connection.send(_error({"message": f"Invalid JSON: {error}", "code": "INVALID_JSON"}))
            continue
        found = cast("Mapping[str, Any]", message) if isinstance(message, dict) else {}
        kind, data = found.get("type"), found.get("data", {})
        if kind == "close":
            return
        if kind not in ANSWERS or not isinstance(data, dict):
            code = "VALIDATION_ERROR" if kind in ANSWERS else "UNKNOWN_TYPE"
            connection.send(_error({"message": f"got a message of type {str(kind)[:60]!r}", "code": code}))
            continue
        try:
            answer = ANSWERS[kind](world, cast(Row, data), facts, episode)
        except WorldTrouble as trouble:
            answer = _error_row({**trouble.row(), "code": CODES.get(trouble.kind, "EXECUTION_ERROR")})
        except (KeyError, TypeError, ValueError) as error:
            told = f"{type(error).__name__}: {error}"
            answer = _error_row({"message": told[:200], "code": "VALIDATION_ERROR"})
        connection.send(json.dumps(answer))


def _reset(world: Served, data: Row, facts: Mapping[str, Any], episode: list[str | None]) -> Row:
    """Start an episode: ``seed`` names it, or ``split`` and ``index`` do."""
    split, index, seed = data.get("split", "train"), data.get("index"), data.get("seed")
    if split not in ("train", "eval") or not _is_count(index) or not _is_count(seed):
        raise ValueError("split must be train or eval; index and seed whole numbers, 0 or more")
    row = world.begin(split, index, seed)
    episode[0] = data.get("episode_id")
    shown = {"text": world.shown(), "instructions": introduction(facts), "legal_actions": row["legal"] or []}
    return _observation(shown, row, 0.0, is_over=False)


def _step(world: Served, data: Row, facts: Mapping[str, Any], _episode: list[str | None]) -> Row:
    """Carry out an action: ``{"text": "up"}``, with tools ``{"text": "{\\"name\\": …}"}``."""
    text = data.get("text", "")
    if not isinstance(text, str):
        raise TypeError("text must be a string")
    row = world.act(action_in(text, bool(facts["tools"]), data.get(OURS)))
    assert world.last is not None, "a world that acted has a result"
    shown = {"text": world.shown(), "legal_actions": row["legal"] or []}
    is_over = world.last.is_terminated or world.last.is_truncated
    return _observation(shown, row, world.last.reward, is_over=is_over)


def _state(world: Served, _data: Row, _facts: Mapping[str, Any], episode: list[str | None]) -> Row:
    """Tell where the episode is."""
    return {"type": "state", "data": {"episode_id": episode[0], "step_count": world.num_steps}}


ANSWERS: Mapping[object, Callable[[Served, Row, Mapping[str, Any], list[str | None]], Row]] = {
    "reset": _reset,
    "step": _step,
    "state": _state,
}


def _observation(shown: Row, row: Row, reward: float, *, is_over: bool) -> Row:
    """Return an observation as a message."""
    data = {"observation": {**shown, "metadata": {}}, "reward": reward, "done": is_over, OURS: row}
    return {"type": "observation", "data": data}


def _error_row(data: Row) -> Row:
    return {"type": "error", "data": data}


def _error(data: Row) -> str:
    """Return an error as a text to send."""
    return json.dumps(_error_row(data))


def _is_count(value: object) -> bool:
    """Whether `value` is None or a whole number, 0 or more."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)

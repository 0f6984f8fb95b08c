"""Our worlds over the OpenEnv protocol: each WebSocket at ``/ws`` is an episode after the other in one instance.

Messages are ``{"type": "reset" | "step" | "state" | "close", "data": {…}}``; answers are of type ``observation``,
``state`` or ``error``. Checked against openenv 0.10.0, whose own client plays our worlds. A message that cannot be read
is answered with an error, and the connection goes on.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.websockets import WebSocket, WebSocketDisconnect

from quintain.environments.protocol import Factory
from quintain.environments.wire import OURS
from quintain.serve.environment_server import (
    Row,
    ServedEnvironment,
    WorldTrouble,
    action_in,
    close_all,
    introduction,
)
from quintain.serve.json_app import CALL_SECONDS, Refusal, Request, Threads, json_app
from quintain.types.json_text import load_json

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


def openenv_app(make: Factory, *, most: int = 64) -> Starlette:
    """Return the app that offers the world that `make` builds to at most `most` clients at once."""
    with closing(ServedEnvironment(make)) as one:
        facts = one.facts()
    threads = Threads(most)
    held: set[ServedEnvironment] = set()
    num_taken = 0

    async def talk(connection: WebSocket) -> None:
        nonlocal num_taken
        await connection.accept()
        if num_taken >= most:
            code = "CAPACITY_REACHED"
            await _end(connection, {"message": f"all {most} sessions are taken", "code": code})
            return
        num_taken += 1
        world: ServedEnvironment | None = None
        try:
            world = await threads.call(lambda: ServedEnvironment(make))
            held.add(world)
            await _converse(connection, Conversation(world=world, facts=facts), threads)
        except WorldTrouble as trouble:
            await _end(connection, {**trouble.row(), "code": "FACTORY_ERROR"})
        except TimeoutError:
            await _end(connection, {"message": "the world is not built in time", "code": "FACTORY_ERROR"})
        finally:
            num_taken -= 1
            if world is not None:
                with anyio.CancelScope(shield=True), suppress(WorldTrouble):
                    await anyio.to_thread.run_sync(world.close)
                held.discard(world)

    return json_app(
        lambda request: _answer(request, facts), talk={"/ws": talk}, close=lambda: close_all([*held])
    )


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What a client plays in: ``Conversation(world=ServedEnvironment(make), facts={...})``."""

    world: ServedEnvironment
    facts: Mapping[str, Any]
    episode: str | None = None
    """What the client calls the episode."""


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


async def _converse(connection: WebSocket, conversation: Conversation, threads: Threads) -> None:
    """Answer messages until the client closes or is gone."""
    with suppress(WebSocketDisconnect):
        while True:
            found = await connection.receive()
            if found["type"] == "websocket.disconnect":
                return
            try:
                message: object = load_json(found.get("text") or found.get("bytes") or "")
            except ValueError as error:
                row: Row = {"message": f"Invalid JSON: {error}", "code": "INVALID_JSON"}
                await connection.send_text(_error(row))
                continue
            row = cast(Row, message) if isinstance(message, dict) else {}
            if row.get("type") == "close":
                await connection.close()
                return
            try:
                answer = await threads.call(lambda row=row: _reply(conversation, row))
            except TimeoutError:
                row = {"message": f"no answer within {CALL_SECONDS:g} s", "code": "EXECUTION_ERROR"}
                answer = _error({**row, "owner": "environment", "kind": "timeout"})
            await connection.send_text(answer)


async def _end(connection: WebSocket, row: Row) -> None:
    """Tell the client an error and close."""
    with suppress(WebSocketDisconnect):  # the client is gone
        await connection.send_text(_error(row))
        await connection.close()


def _reply(conversation: Conversation, message: Row) -> str:
    """Return the answer to `message`, as a text to send."""
    kind, data = message.get("type"), message.get("data", {})
    if kind not in ANSWERS or not isinstance(data, dict):
        code = "VALIDATION_ERROR" if kind in ANSWERS else "UNKNOWN_TYPE"
        return _error({"message": f"got a message of type {str(kind)[:60]!r}", "code": code})
    try:
        return json.dumps(ANSWERS[kind](conversation, cast(Row, data)))
    except WorldTrouble as trouble:
        return _error({**trouble.row(), "code": CODES.get(trouble.kind, "EXECUTION_ERROR")})
    except (KeyError, TypeError, ValueError) as error:
        return _error({"message": f"{type(error).__name__}: {error}"[:200], "code": "VALIDATION_ERROR"})


def _reset(conversation: Conversation, data: Row) -> Row:
    """Start an episode: ``seed`` names it, or ``split`` and ``index`` do."""
    split, index, seed = data.get("split", "train"), data.get("index"), data.get("seed")
    if split not in ("train", "eval") or not _is_count(index) or not _is_count(seed):
        raise ValueError("split must be train or eval; index and seed whole numbers, 0 or more")
    world = conversation.world
    row = world.begin(split, index, seed)
    conversation.episode = data.get("episode_id")
    shown = {"text": world.shown(), "legal_actions": row["legal"] or []}
    shown["instructions"] = introduction(conversation.facts)
    return _observation(shown, row, 0.0, is_over=False)


def _step(conversation: Conversation, data: Row) -> Row:
    """Carry out an action: ``{"text": "up"}``, with tools ``{"text": "{\\"name\\": …}"}``."""
    text = data.get("text", "")
    if not isinstance(text, str):
        raise TypeError("text must be a string")
    world = conversation.world
    row = world.act(action_in(text, bool(conversation.facts["tools"]), data.get(OURS)))
    assert world.last is not None, "a world that acted has a result"
    shown = {"text": world.shown(), "legal_actions": row["legal"] or []}
    return _observation(shown, row, world.last.reward, is_over=world.is_over)


def _state(conversation: Conversation, _data: Row) -> Row:
    """Tell where the episode is."""
    count = conversation.world.num_steps
    return {"type": "state", "data": {"episode_id": conversation.episode, "step_count": count}}


ANSWERS: Mapping[object, Callable[[Conversation, Row], Row]] = {
    "reset": _reset,
    "step": _step,
    "state": _state,
}


def _observation(shown: Row, row: Row, reward: float, *, is_over: bool) -> Row:
    """Return an observation as a message."""
    data = {"observation": {**shown, "metadata": {}}, "reward": reward, "done": is_over, OURS: row}
    return {"type": "observation", "data": data}


def _error(data: Row) -> str:
    """Return an error as a text to send."""
    return json.dumps({"type": "error", "data": data})


def _is_count(value: object) -> bool:
    """Whether `value` is None or a whole number, 0 or more."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)

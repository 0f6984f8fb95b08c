"""Our worlds over AgentGym's HTTP protocol (arXiv 2406.04151): create, reset, step, observation, detail, close.

A task has one number: ``data_idx`` 2 k is training task k, 2 k + 1 evaluation task k. As in AgentGym's own servers
an error is an answer ``{"error": …}`` with status 200. A client that never closes loses its instance only to a new
client, and only after it said nothing for a while.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

from starlette.applications import Starlette

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
from quintain.serve.json_app import Refusal, Request, json_app

IDLE = 300.0
"""Seconds of silence after which an instance may be given to another client."""
SPARE_THREADS = 8
"""Threads besides one for each instance, so that those who come are answered when all instances are busy."""


class Instances:
    """The instances of a world by number, at most `most`."""

    def __init__(self, make: Factory, most: int) -> None:
        """Hold none yet."""
        self._make, self._most = make, most
        self._held: dict[int, tuple[ServedEnvironment, float]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        with closing(ServedEnvironment(make)) as one:
            self.facts = one.facts()

    def create(self) -> tuple[int, ServedEnvironment]:
        """Return a new instance and its number.

        Raises:
            WorldTrouble: it cannot be built, or all are taken.
        """
        with self._lock:
            idle = [number for number, (_, seen) in self._held.items() if time.monotonic() - seen > IDLE]
            gone = [self._held.pop(number)[0] for number in idle if len(self._held) >= self._most]
            if len(self._held) >= self._most:
                raise WorldTrouble(f"all {self._most} instances are taken", "environment", "capacity")
        for world in gone:
            world.close()
        world = ServedEnvironment(self._make)
        with self._lock:
            number = next(self._numbers)
            self._held[number] = (world, time.monotonic())
        return number, world

    def find(self, number: object) -> ServedEnvironment:
        """Return instance `number`.

        Raises:
            WorldTrouble: there is none.
        """
        with self._lock:
            if isinstance(number, bool) or not isinstance(number, int) or number not in self._held:
                raise WorldTrouble(f"The id {number!r:.20} is not valid.", "environment", "no_instance")
            world = self._held[number][0]
            self._held[number] = (world, time.monotonic())
            return world

    def drop(self, number: object) -> None:
        """Close instance `number`."""
        world = self.find(number)
        with self._lock:
            self._held.pop(cast(int, number), None)
        world.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        close_all(world for world, _ in held)


def agentgym_app(make: Factory, *, most: int = 64) -> Starlette:
    """Return the app that offers the world that `make` builds to at most `most` clients at once."""
    instances = Instances(make, most)

    def answer(request: Request) -> Any:
        if (request.method, request.path) == ("GET", "/"):
            return f"This is environment {instances.facts['name']}."
        known = ANSWERS.get((request.method, request.path))
        if known is None:
            raise Refusal(404, f"no {request.method} {request.path[:60]} in AgentGym's protocol")
        try:
            return known(instances, _body(request))
        except WorldTrouble as trouble:
            return {"error": trouble.message, OURS: trouble.row()}
        except (KeyError, TypeError, ValueError) as error:
            raise Refusal(422, f"{type(error).__name__}: {error}"[:200]) from error

    return json_app(answer, close=instances.close, most=most + SPARE_THREADS)


def _create(instances: Instances, _body: Row) -> Row:
    """Make an instance."""
    number, _ = instances.create()
    return {"id": number, "observation": "", "reward": 0, "done": False, OURS: instances.facts}


def _reset(instances: Instances, body: Row) -> Row:
    """Start the episode of task ``data_idx``."""
    index = body.get("data_idx", 0)
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ValueError("data_idx must be a whole number, 0 or more")
    world = instances.find(body["id"])
    row = world.begin("eval" if index & 1 else "train", index >> 1)
    shown = f"{introduction(instances.facts)}\n\n{world.shown()}"
    return {"id": body["id"], "observation": shown, "reward": 0.0, "score": 0.0, "done": False, OURS: row}


def _step(instances: Instances, body: Row) -> Row:
    """Carry out an action."""
    text = body["action"]
    if not isinstance(text, str):
        raise TypeError("action must be a string")
    world = instances.find(body["id"])
    row = world.act(action_in(text, bool(instances.facts["tools"]), body.get(OURS)))
    return {**_describe_result(world), OURS: row}


def _detail(instances: Instances, body: Row) -> Row:
    """Tell the last answer again."""
    return _describe_result(instances.find(body["id"]))


def _observation(instances: Instances, body: Row) -> str:
    """Tell the last observation again."""
    return instances.find(body["id"]).shown()


def _actions(instances: Instances, body: Row) -> list[str]:
    """List the legal actions."""
    return list(instances.find(body["id"]).legal() or ())


def _close(instances: Instances, body: Row) -> bool:
    """Close an instance."""
    instances.drop(body["id"])
    return True


ANSWERS: Mapping[tuple[str, str], Callable[[Instances, Row], Any]] = {
    ("POST", "/create"): _create,
    ("POST", "/reset"): _reset,
    ("POST", "/step"): _step,
    ("POST", "/close"): _close,
    ("GET", "/observation"): _observation,
    ("GET", "/available_actions"): _actions,
    ("GET", "/detail"): _detail,
}


def _describe_result(world: ServedEnvironment) -> Row:
    """Return the last result for a foreign client."""
    last = world.last
    if last is None:
        raise WorldTrouble("there is no episode; reset first", "environment", "no_episode")
    return {"observation": world.shown(), "reward": last.reward, "score": world.score, "done": world.is_over}


def _body(request: Request) -> Row:
    """Return what was sent: the body of a POST, the query of a GET."""
    if request.method == "GET":
        return {key: int(value) if value.isdecimal() else value for key, value in request.query.items()}
    if request.body is not None and not isinstance(request.body, dict):
        raise Refusal(422, "the body must be a JSON object")
    return cast(Row, request.body or {})

"""The other side of a worker: an environment that answers requests, frame by frame.

The frames go over what were standard input and output; the environment gets an empty input, and what it prints goes
to the error stream. Each request is answered once; what the environment raises is an answer, too.
"""

import json
import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO, cast

from quintain.environments.catalog import find
from quintain.environments.protocol import (
    Environment,
    Expert,
    Legal,
    Seats,
    StateKey,
    advance,
    begin,
    environment_name,
)
from quintain.environments.tools import OwnedFault, ToolFault, tools_of
from quintain.environments.wire import (
    Row,
    action_row,
    observation_row,
    read_action,
    read_task,
    result_row,
    task_row,
    tool_row,
)
from quintain.errors import EnvironmentFault, QuintainError
from quintain.processes.frames import frame_request
from quintain.processes.host import take_streams

ABILITIES: dict[str, type] = {"expert": Expert, "legal": Legal, "key": StateKey, "seats": Seats}


class Raised:
    """Takes whatever the environment raises, an exit included, as the row of a fault."""

    def __init__(self) -> None:
        self.fault: Row = {}

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, _kind: type[BaseException] | None, problem: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Keep what `problem` stands for; a request to stop goes on."""
        self.fault = fault_row(problem) if isinstance(problem, (Exception, SystemExit)) else {}
        return isinstance(problem, (Exception, SystemExit))


class Host:
    """Answers requests read from `requests` on `replies`."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests, self._replies = requests, replies
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._early: deque[Row] = deque()
        """Requests that came before the last answer was complete."""
        self._built: Environment | None = None

    def serve(self) -> None:
        """Answer requests until there are no more."""
        while (request := self._early.popleft() if self._early else self._receive()) is not None:
            answer = self.answer(request)
            if os.getpid() != self._process:
                os._exit(0)  # a process that the environment forked: the answer is its parent's to give
            self.send({"id": request["id"], **answer})

    def answer(self, request: Row) -> Row:
        """Return the answer to `request`: a value or a fault."""
        handle: Callable[..., object] = getattr(self, f"on_{request['do']}")
        raised = Raised()
        with raised:
            return {"value": handle(*request["with"])}
        return {"fault": raised.fault}

    def on_open(self, spec: str) -> Row:
        """Build the environment and say what it is."""
        world = self._built = find(spec)()
        for name in tools_of(type(world)):
            setattr(world, name, self._wrap_tool(name, getattr(world, name)))
        return {
            "name": environment_name(world),
            "max_turns": world.max_turns,
            "return_range": list(world.return_range),
            "tags": sorted(type(world).tags),
            "evaluation_only": world.evaluation_only,
            "abilities": [name for name, kind in ABILITIES.items() if isinstance(world, kind)],
            **self._describe(),
        }

    def on_task(self, split: str, index: int) -> Row:
        """Name a task."""
        return task_row(self._world.task(cast(Any, split), index))

    def on_reset(self, task: Row) -> Row:
        """Start an episode; instructions and tools may be different in each."""
        observation = begin(self._world, read_task(task))
        return {"observation": observation_row(observation), **self._describe()}

    def on_step(self, action: Row) -> Row:
        """Carry out an action."""
        return result_row(advance(self._world, read_action(action)))

    def on_expert(self) -> Row:
        """Ask the expert."""
        return action_row(cast(Expert, self._world).expert_action())

    def on_legal(self) -> list[str]:
        """List the legal actions."""
        return list(cast(Legal, self._world).legal_actions())

    def on_key(self) -> str:
        """Name the state."""
        return cast(StateKey, self._world).state_key()

    def on_seats(self) -> list[str]:
        """Name the seats."""
        return list(cast(Seats, self._world).seats())

    def on_seat(self) -> str:
        """Name the seat that acts next."""
        return cast(Seats, self._world).seat()

    def on_close(self) -> None:
        """Close the environment."""
        self._world.close()

    def send(self, frame: Row) -> None:
        """Write a frame; what has no JSON form is the environment's fault."""
        try:
            told = frame_request(frame)
        except (TypeError, ValueError, RecursionError) as error:
            fault = EnvironmentFault(f"got a value that has no JSON form ({error}); return plain data")
            told = frame_request({"id": frame["id"], "fault": fault_row(fault)})
        self._replies.write(told)
        self._replies.flush()

    def _wrap_tool(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
        """Return the tool `method`, which says when it begins and ends: so it is known what hangs."""

        def run(**arguments: object) -> object:
            self._announce(name)
            try:
                text = method(**arguments)
            except SystemExit as stop:
                raise ToolFault.of(name, f"called sys.exit({stop.code!r}); return a text instead") from stop
            self._announce("")
            return text

        return run

    def _announce(self, name: str) -> None:
        """Say which tool is at work, and wait until that is heard: so what is printed next is known to be its own.

        Frames and output take two pipes, and neither tells what came first in the other. A process that the
        environment forked says nothing, and another thread does not wait: requests are for this one to read.
        """
        if os.getpid() != self._process:
            return
        waits = threading.get_ident() == self._thread
        self.send({"tool": name, "waits": waits})
        while waits and (frame := self._receive()) is not None and "heard" not in frame:
            self._early.append(frame)

    def _describe(self) -> Row:
        """Return what an agent is told."""
        return {
            "instructions": self._world.instructions(),
            "tools": [tool_row(tool) for tool in self._world.tools()],
        }

    @property
    def _world(self) -> Environment:
        assert self._built is not None, "it is opened first"
        return self._built

    def _receive(self) -> Row | None:
        """Read a frame; None when there are no more."""
        head = self._requests.read(4)
        if len(head) < 4:
            return None
        return cast(Row, json.loads(self._requests.read(int.from_bytes(head, "big"))))


def fault_row(problem: BaseException) -> Row:
    """Return the row of the failure that `problem` is, the same as for an environment in our own process."""
    kind, owner, message = type(problem).__name__, "environment", str(problem)
    if isinstance(problem, OwnedFault):
        kind, owner = problem.kind, problem.owner
    elif isinstance(problem, EnvironmentFault):
        kind = "contract"
    elif isinstance(problem, SystemExit):
        message = f"called sys.exit({problem.code!r})"
    named = type(problem).__name__ if isinstance(problem, QuintainError) else ""
    return {"class": named, "owner": owner, "kind": kind, "message": message}


def main() -> None:
    """Have this process kept, take its standard streams for the frames, and serve."""
    requests, replies = take_streams()
    Host(os.fdopen(requests, "rb"), os.fdopen(replies, "wb")).serve()

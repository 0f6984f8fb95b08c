"""An environment in a process and under an interpreter of its own: for packages that clash, hang or crash.

``worker/nle?python=/path/to/python`` is the environment ``nle`` there. Every request has a deadline; a process that
hangs, dies or says what it must not is ended with everything it started, and the next episode gets a new one. A
process is trusted until it fails once, and what failed has an owner: the environment, or the tool it was in.
"""

import shutil
import sys
import time
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import urlencode

from quintain.environments.protocol import Environment
from quintain.environments.tools import OwnedFault
from quintain.environments.wire import (
    Row,
    action_row,
    read_action,
    read_observation,
    read_result,
    read_task,
    read_tool,
    task_row,
)
from quintain.errors import EnvironmentFault, MissingExtra, QuintainError, UsageError, find_error_class
from quintain.processes.child import PATIENCE, Child, ending
from quintain.processes.frames import MAX_OUTPUT, Frames, UnreadableFrameError, frame_request
from quintain.types import Action, Observation, Owner, Split, StepResult, Task, ToolSpec

PROGRAM = Path(__file__).with_name("worker_program.py")
BROKEN = (KeyError, TypeError, ValueError, AttributeError)
"""What reading an answer of the wrong shape raises."""


class WorkerFault(OwnedFault):
    """A process of an environment hung, died, or said what it must not; or what it raised, told here."""

    @classmethod
    def of(cls, owner: Owner, kind: str, message: str) -> "WorkerFault":
        """Return the fault of `owner`; it survives copying and pickling."""
        fault = cls(message)
        fault.owner, fault.kind = owner, kind
        return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process and the way to talk to it."""

    child: Child
    frames: Frames


class Worker(Environment):
    """Do what the environment in the worker asks for."""

    _known: ClassVar[dict[tuple[str, str], Row]] = {}
    """What environments are, by interpreter and spec: so instances need no process before their first episode."""

    def __init__(
        self,
        spec: str,
        *,
        python: str = "",
        timeout: float = 20.0,
        start_timeout: float = 25.0,
        parallel: int = 8,
        **options: Any,
    ) -> None:
        """Build the environment `spec` with `options` under the interpreter `python` (ours when empty).

        A request may take `timeout` seconds, and building the environment `start_timeout`: keep both below the time
        that a rollout gives a step (30). A rollout has at most `parallel` of them at once.

        Raises:
            UsageError: there is no such interpreter or environment, or this is not Linux.
            MissingExtra: the environment's package is not installed there.
            WorkerFault: the environment cannot be built.
        """
        self._spec = f"{spec}?{urlencode(options)}" if options else spec
        self._python = interpreter(python)
        self.timeout, self.start_timeout, self.parallel = timeout, start_timeout, parallel
        self._running: Running | None = None
        self._number, self._tool = 0, ""
        known = self._known.get((self._python, self._spec))
        if known is None:
            self._start()
            known = self._known[self._python, self._spec]
        self.name = known["name"]
        self.max_turns = known["max_turns"]
        self.return_range = cast("tuple[float, float]", tuple(known["return_range"]))
        self.evaluation_only = known["evaluation_only"]
        self._told: Row = known
        cast(Any, self).__class__ = class_with(tuple(known["abilities"]))

    def reset(self, task: Task) -> Observation:
        """Start the episode that `task` names, in a new process where the last one is not to be trusted."""
        if self._running is not None and not self._running.frames.is_quiet():
            self._end()
        self._told = self._ask("reset", task_row(task))
        return read_observation(self._told["observation"])

    def step(self, action: Action) -> StepResult:
        """Carry out `action`."""
        row = self._ask("step", action_row(action))
        try:
            return read_result(row)
        except BROKEN as error:
            raise self._end_as_lost("protocol", "step", f"answered with {error!r}") from error

    def task(self, split: Split, index: int) -> Task:
        """Return the environment's task number `index` of `split`."""
        return read_task(self._ask("task", split, index))

    def instructions(self) -> str:
        """Return the environment's instruction."""
        return self._told["instructions"]

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the environment's tools."""
        return tuple(read_tool(row) for row in self._told["tools"])

    def close(self) -> None:
        """Close the environment and end its process, if there is one."""
        if self._running is None:
            return
        try:
            self._ask("close")
        finally:
            self._end()

    def kill(self) -> None:
        """End the process now, from any thread, in the middle of a request, too."""
        running = self._running
        if running is not None:
            running.child.kill()

    def _ask(self, do: str, *arguments: object) -> Any:
        """Return what the process answers to the request `do`.

        Raises:
            WorkerFault: it hung, died, said what it must not, or the environment raised.
        """
        if self._running is None:
            self._start()
        return self._exchange(do, arguments, self.timeout)

    def _start(self) -> None:
        """Start a process and build the environment in it."""
        try:
            child = Child([self._python, "-I", "-X", "utf8", str(PROGRAM)])
        except OSError as error:
            raise UsageError(
                f"python of worker {self._spec}: got {self._python}, which does not start: {error}; "
                "give the path of an interpreter"
            ) from error
        weakref.finalize(self, child.end)
        self._running = Running(child=child, frames=Frames(child.process))
        self._known[self._python, self._spec] = self._exchange("open", (self._spec,), self.start_timeout)

    def _exchange(self, do: str, arguments: tuple[object, ...], seconds: float) -> Any:
        """Send a request and return its answer."""
        assert self._running is not None, "a process was started"
        child, frames = self._running.child, self._running.frames
        self._number, self._tool = self._number + 1, ""
        frames.write(frame_request({"id": self._number, "do": do, "with": arguments}))
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = frames.read(deadline, child, MAX_OUTPUT)
            except UnreadableFrameError as error:
                raise self._end_as_lost("protocol", do, f"said what is no answer ({error})") from error
            if found == "time":
                raise self._end_as_lost("timeout", do, f"took longer than {seconds:g} s")
            if found == "output":
                raise self._end_as_lost("output", do, f"printed more than {MAX_OUTPUT >> 20} MiB")
            if isinstance(found, str):
                raise self._end_as_lost("crash", do, "")
            if "tool" in found:
                self._tool = str(found["tool"])
                if found.get("waits"):
                    frames.write(frame_request({"heard": self._tool}))
            elif found.get("id") != self._number:
                raise self._end_as_lost("protocol", do, f"said what was not asked: {found!s:.60}")
            elif "fault" in found:
                frames.output(MAX_OUTPUT)
                raise self._rebuild_error(do, found["fault"])
            else:
                frames.output(MAX_OUTPUT)
                return found["value"]

    def _end_as_lost(self, kind: str, do: str, what: str) -> WorkerFault:
        """End a process that can no longer be trusted, and return the error that says why."""
        assert self._running is not None, "a process was started"
        last = "" if kind == "output" else self._running.frames.last_words(MAX_OUTPUT)
        if not what:
            code = self._running.child.wait(PATIENCE)
            what = "closed its connection" if code is None else f"ended its process ({ending(code)})"
        self._end()
        who = f"tool {self._tool} of {self._spec}" if self._tool else f"environment {self._spec}: {do}"
        return WorkerFault.of("tool" if self._tool else "environment", kind, f"{who} {what}{last}")

    def _rebuild_error(self, do: str, fault: Row) -> QuintainError:
        """Return what the environment raised; where it could not be built, the process is ended."""
        if do == "open":
            self._end()
        kind = find_error_class(fault["class"])
        if kind is not None and kind is not EnvironmentFault:
            there = f" (in the worker, by {self._python} -m pip)" if kind is MissingExtra else ""
            return kind(f"{fault['message']}{there}")
        return WorkerFault.of(fault["owner"], fault["kind"], fault["message"])

    def _end(self) -> None:
        """End the process."""
        running, self._running = self._running, None
        if running is not None:
            running.child.end()


class _Expert(Worker):
    def expert_action(self) -> Action:
        """Return the action of the environment's expert."""
        return read_action(self._ask("expert"))


class _Legal(Worker):
    def legal_actions(self) -> tuple[str, ...]:
        """Return the environment's legal actions."""
        return tuple(self._ask("legal"))


class _Keyed(Worker):
    def state_key(self) -> str:
        """Return the environment's key of the state."""
        return self._ask("key")


class _Seated(Worker):
    def seats(self) -> tuple[str, ...]:
        """Return the environment's seats."""
        return tuple(self._ask("seats"))

    def seat(self) -> str:
        """Return the seat that acts next."""
        return self._ask("seat")


@cache
def class_with(abilities: tuple[str, ...]) -> type[Worker]:
    """Return the worker whose environment has these `abilities`: "expert", "legal", "key", "seats"."""
    parts = {"expert": _Expert, "legal": _Legal, "key": _Keyed, "seats": _Seated}
    bases = tuple(parts[name] for name in abilities)
    return type("Worker", (*bases, Worker), {"__doc__": Worker.__doc__}) if bases else Worker


def interpreter(python: str) -> str:
    """Return the path of the interpreter that `python` names; ours when it is empty.

    Raises:
        UsageError: there is none, or this is not Linux.
    """
    if sys.platform != "linux":
        raise UsageError(f"a worker: got the system {sys.platform}; it needs Linux")
    found = shutil.which(Path(python).expanduser()) if python else sys.executable
    if not found:
        raise UsageError(
            f"python of a worker: got {python!r}, which is no program; give the path of an interpreter"
        )
    return str(found)

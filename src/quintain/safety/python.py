"""Python for one episode: a process in a box that keeps its variables from cell to cell.

Objects go in and come out as JSON; tools are functions inside whose calls are carried out outside. Between two cells
the process stands still and has no other beside it. A cell that passes a limit ends the process for good; the next
cell finds a new one, with the same tools and none of the variables.
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from quintain.errors import DataError, SandboxError, UsageError
from quintain.processes.frames import Frames, UnreadableFrameError, frame_request
from quintain.processes.tree import below, is_alone, send
from quintain.safety.box import Box, check_files
from quintain.safety.isolation import find_interpreter
from quintain.safety.limits import Limits, Reason
from quintain.safety.warm import WORKER, WarmBox, source, worker_box
from quintain.types import NOTHING, ToolSpec
from quintain.types.json_text import load_json

START_SECONDS = 60.0
ROUNDS, SETTLE_SECONDS = 5, 5.0
"""Times that what a cell left running may have grown while it is ended, and how long it may take to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answered to the code: ``ToolResult(text="higher")``; `is_over` ends the cell there."""

    text: str
    is_error: bool = False
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What became of a cell: ``Cell(output="3\\n", state={"total": "int"})``."""

    output: str
    """What it wrote, both streams as one."""
    error: str = ""
    """The traceback of what it raised."""
    state: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables the code has bound so far, with the names of their types."""
    reason: Reason = ""
    """Why the process was killed, with all of its variables."""
    was_cut: bool = False
    """Whether a tool ended the cell (`ToolResult.is_over`); the process is gone then, too."""

    @property
    def was_killed(self) -> bool:
        """Whether the cell passed a limit."""
        return bool(self.reason)


Serve = Callable[[str, Mapping[str, Any]], ToolResult]
"""(name of the tool, its arguments) → the answer; called in the thread that runs the cell"""


def no_tools(name: str, _arguments: Mapping[str, Any]) -> ToolResult:
    """Refuse the call."""
    return ToolResult(text=f"there is no tool {name}", is_error=True)


class PythonProcess:
    """One episode's Python. Close it; it can be used in a ``with`` statement.

    Example: ``with PythonProcess() as python: python.put(x=1); python.run("x += 1"); python.get("x")`` is 2.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
        files: Mapping[str, str | bytes] = NOTHING,
        objects: Mapping[str, Any] = NOTHING,
        setup: str = "",
        is_warm: bool = True,
    ) -> None:
        """Nothing is started before it is needed; `tools` are functions in it, `files` lie in its folder.

        Every new process has the variables `objects` and runs the code `setup` first; what that binds is there
        from the start. Where `is_warm`, it is forked from an interpreter that waits (`quintain.safety.warm`), if that
        works on this machine.

        Raises:
            UsageError: a tool's name is no name of Python, or a file's leads out of the folder.
            DataError: one of the objects has no JSON form.
        """
        self.limits = limits or Limits()
        self.num_starts = 0
        """processes so far"""
        self._tools = [function_of(tool) for tool in tools]
        self._files = check_files(files)
        self._setup, self._is_warm = setup, is_warm
        self._objects = check_objects(objects)
        self._frames: Frames | None = None
        self.running: Box | WarmBox | None = None
        """the box of the live process"""

    def run(self, code: str, serve: Serve = no_tools) -> Cell:
        """Run `code` as the next cell; the value of a last expression is printed.

        The time that `serve` takes does not count.

        Raises:
            SandboxError: isolation is missing or does not work.
        """
        return self._exchange({"do": "run", "code": code}, serve)[1]

    def put(self, **objects: Any) -> None:
        """Bind `objects` to variables; they arrive as the JSON says they are.

        Raises:
            DataError: one of them has no JSON form.
            SandboxError: isolation is missing or does not work, or the process did not take them.
        """
        self._send({"do": "put", "objects": check_objects(objects)})

    def get(self, name: str) -> Any:
        """Return the object that variable `name` is bound to.

        Raises:
            DataError: there is no such variable, it has no JSON form, or it is too large to be read.
            SandboxError: isolation is missing or does not work.
        """
        reply, cell = self._exchange({"do": "get", "name": name}, no_tools)
        if cell.reason or "value" not in reply:
            problem = reply.get("error") or f"the process was ended ({cell.reason or 'protocol'})"
            raise DataError(f"variable {name[:60]} of the sandbox: got none: {problem}; let the code bind it")
        try:
            return load_json(cast(str, reply["value"]))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"variable {name[:60]} of the sandbox: got no JSON ({error}); bind it anew"
            ) from error

    def close(self) -> None:
        """End the process; the next cell would start a new one."""
        if self.running is not None:
            self.running.end()
        self.running, self._frames = None, None

    def __enter__(self) -> "PythonProcess":
        """Return the process, to be closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the process."""
        self.close()

    def _send(self, request: Mapping[str, Any]) -> None:
        """Carry out a `request` that cannot fail by what the code did.

        Raises:
            SandboxError: it failed.
        """
        _, cell = self._exchange(request, no_tools)
        if cell.reason or cell.error:
            problem = cell.error or f"the process ended ({cell.reason}): {cell.output[-200:]!r}"
            raise SandboxError(
                f"telling the sandbox ({request['do']}): got {problem}; "
                "give it fewer or smaller objects, or code that runs"
            )

    def _exchange(self, request: Mapping[str, Any], serve: Serve) -> tuple[Mapping[str, Any], Cell]:
        """Send `request`, serve calls until it is answered, and leave the process standing still."""
        if self.running is None:
            self._start()
        box, frames = self._box()
        send(box.first, signal.SIGCONT)
        reply, reason, was_cut = self._serve(box, frames, request, serve)
        output = frames.output(self.limits.output_bytes)
        if reason == "exited" and box.is_starved:
            reason = "memory"
        if not reason and not was_cut:
            reason = self._find_reason(box)
            frames.forget()
        if reason or was_cut:
            self.close()
        state = cast("dict[str, str]", reply.get("state") or {})
        cell = Cell(
            output=output, error=str(reply.get("error", "")), state=state, reason=reason, was_cut=was_cut
        )
        return reply, cell

    def _serve(
        self, box: Box | WarmBox, frames: Frames, request: Mapping[str, Any], serve: Serve
    ) -> tuple[Mapping[str, Any], Reason, bool]:
        """Return the reply, why the process must be ended, and whether a tool ended the cell."""
        seconds = self.limits.seconds if request["do"] == "run" else START_SECONDS
        deadline = time.monotonic() + seconds
        frames.write(frame_request(request))
        while True:
            try:
                found = frames.read(deadline, box, self.limits.output_bytes)
            except UnreadableFrameError:
                return {}, "protocol", False
            if isinstance(found, str):
                return {}, found, False
            if "call" not in found:
                return found, "", False
            started = time.monotonic()
            served = serve(*_call(found))
            deadline += time.monotonic() - started
            if served.is_over:
                return {}, "", True
            frames.write(frame_request({"text": served.text, "is_error": served.is_error}))

    def _start(self) -> None:
        """Start a process and give it the tools.

        Raises:
            SandboxError: it did not start.
        """
        self.num_starts += 1
        program, box = find_interpreter()[0], self._warm_or_new()
        self.running, self._frames = box, Frames(box.pipes)
        ready: dict[str, Any] | Reason = ""
        with suppress(UnreadableFrameError):
            ready = self._frames.read(time.monotonic() + START_SECONDS, box, self.limits.output_bytes)
        if not isinstance(ready, dict) or "is_ready" not in ready:
            said = self._frames.output(self.limits.output_bytes)
            self.close()
            raise SandboxError(
                f"starting Python in a sandbox: got {ready or 'nothing'!r} from {program}: "
                f"{' '.join(said.split())[-200:] or 'nothing said'}; check that {program} runs"
            )
        if self._tools:
            self._send({"do": "functions", "functions": self._tools})
        if self._objects:
            self._send({"do": "put", "objects": self._objects})
        if self._setup:
            self._send({"do": "setup", "code": self._setup})

    def _warm_or_new(self) -> Box | WarmBox:
        """Return a box with a worker in it: one that is there at once, else a new one."""
        warm = worker_box(self.limits, self._files) if self._is_warm else None
        if warm is not None:
            return warm
        program, mounts = find_interpreter()
        return Box(
            [program, "-I", "-S", "-B", "-X", "utf8", WORKER],
            self.limits,
            files={WORKER: source(WORKER), **self._files},
            mounts=mounts,
            stdin=subprocess.PIPE,
        )

    def _box(self) -> tuple[Box | WarmBox, Frames]:
        if self.running is None or self._frames is None:
            raise SandboxError("using the sandbox: it is not running; report this")
        return self.running, self._frames

    def _find_reason(self, box: Box | WarmBox) -> Reason:
        """Stop the process and end those it left behind; a swarm that grows on ends the box."""
        send(box.first, signal.SIGSTOP)
        if isinstance(box, WarmBox) and is_alone(box.first[0]):
            return ""
        known: set[int] = set()
        rounds, end = 0, time.monotonic() + SETTLE_SECONDS
        while rounds < ROUNDS and time.monotonic() < end:
            processes = below(box.root)
            box.first = processes[:1]
            send(processes, signal.SIGSTOP)
            if len(processes) <= 1:
                return ""
            send(processes[1:], signal.SIGKILL)
            if known.issuperset(processes[1:]):
                time.sleep(0.001)  # what was killed needs a moment to go, longer on a busy machine
            else:
                rounds += 1
                known.update(processes[1:])
        return "processes"


def check_objects(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return `objects` if JSON can say them.

    Raises:
        DataError: it cannot.
    """
    try:
        json.dumps(dict(objects), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"objects for the sandbox: got {sorted(objects)}, of which one has no JSON form ({error}); "
            "give numbers, text, lists and dicts"
        ) from error
    return dict(objects)


def function_of(tool: ToolSpec) -> dict[str, Any]:
    """Return what the process needs to know of `tool`: required parameters come first.

    Raises:
        UsageError: its name cannot be called in Python.
    """
    if not tool.name.isidentifier():
        raise UsageError(f"tool as a function: got the name {tool.name!r}; give it a name of Python")
    required = list(cast("Sequence[str]", tool.parameters.get("required", ())))
    known = list(cast("Mapping[str, Any]", tool.parameters.get("properties", NOTHING)))
    parameters = [name for name in known if name in required] + [
        name for name in known if name not in required
    ]
    return {"name": tool.name, "parameters": parameters, "description": tool.description}


def _call(frame: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the tool and the arguments that `frame` asks for, whatever it is."""
    arguments = frame.get("arguments")
    known = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    return str(frame.get("call")), known

"""The program that runs inside a box and carries out an agent's Python, cell after cell, in one namespace.

It needs the standard library only, because its text is what is sent into the box. Requests and replies are frames
(four bytes of length, then JSON) on what were its standard input and output; those are then given to the code it
runs, closed and redirected. Whatever it says may have been said by the code it runs, so outside nobody trusts it.
"""

import ast
import io
import json
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

Frame = dict[str, Any]
MAX_FRAMES = 6


class ToolError(Exception):
    """A tool was called wrongly, or refused."""


class Raised:
    """Takes whatever the code within raises, an exit included, and tells it."""

    told = ""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> bool:
        """Keep the traceback of `problem`."""
        self.told = describe_error(problem) if problem is not None else ""
        return True


class Worker:
    """Carries out requests read from `requests` and answers on `replies`."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self.requests, self.replies = requests, replies
        self.namespace: dict[str, Any] = {"__name__": "__main__", "ToolError": ToolError}
        self.given: dict[str, Any] = dict(self.namespace)
        self.num_cells = 0
        self._calls = threading.Lock()
        self._process = os.getpid()

    def serve(self) -> None:
        """Answer requests until there are no more."""
        self.send({"is_ready": True})
        while (request := self.receive()) is not None:
            handle: Callable[[Frame], Frame] = getattr(self, f"on_{request['do']}")
            self.send(handle(request))

    def on_run(self, request: Frame) -> Frame:
        """Run a cell; say how it failed, or nothing."""
        bury()
        self.num_cells += 1
        name = f"<cell {self.num_cells}>"
        code = str(request["code"])
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        raised = Raised()
        with raised:
            self._run(ast.parse(code, name), name)
        flush()
        if os.getpid() != self._process:
            os._exit(0)  # a process that the code forked: the answer is its parent's to give
        return {"error": raised.told, "state": self.state()}

    def on_setup(self, request: Frame) -> Frame:
        """Run code whose names are there from the start."""
        answer = self.on_run(request)
        self.given = dict(self.namespace)
        return answer

    def on_put(self, request: Frame) -> Frame:
        """Bind objects to names."""
        self.namespace.update(request["objects"])
        self.given.update(request["objects"])
        return {}

    def on_get(self, request: Frame) -> Frame:
        """Return the object that a name is bound to."""
        name = request["name"]
        if name not in self.namespace:
            return {"error": f"there is no variable {name}"}
        try:
            # Dumped here, so that what has no JSON form is told apart from a broken worker.
            return {"value": json.dumps(self.namespace[name], allow_nan=False)}
        except (TypeError, ValueError, RecursionError) as problem:
            return {"error": f"{name} ({type(self.namespace[name]).__name__}) has no JSON form: {problem}"}

    def on_functions(self, request: Frame) -> Frame:
        """Define functions that are carried out outside: their name, parameters and what they are for."""
        for function in request["functions"]:
            stub = self._stub(function["name"], tuple(function["parameters"]), function["description"])
            self.namespace[function["name"]] = self.given[function["name"]] = stub
        return {}

    def state(self) -> dict[str, str]:
        """Return the variables that the code has bound, with the names of their types."""
        module = type(os)
        return {
            name: type(value).__name__
            for name, value in list(self.namespace.items())
            if not name.startswith("_")
            and self.given.get(name) is not value
            and not isinstance(value, module)
        }

    def send(self, frame: Frame) -> None:
        """Write a frame."""
        body = json.dumps(frame).encode()
        self.replies.write(len(body).to_bytes(4, "big") + body)
        self.replies.flush()

    def receive(self) -> Frame | None:
        """Read a frame; None when there are no more."""
        head = self.requests.read(4)
        if len(head) < 4:
            return None
        return cast(Frame, json.loads(self.requests.read(int.from_bytes(head, "big"))))

    def _run(self, tree: ast.Module, name: str) -> None:
        """Run the statements of a cell, and print the value of the last one if it is an expression."""
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(cast(ast.Expr, tree.body.pop()).value)
        exec(compile(tree, name, "exec"), self.namespace)
        if last is not None:
            value = eval(compile(last, name, "eval"), self.namespace)
            if value is not None:
                print(repr(value))

    def _stub(self, name: str, parameters: tuple[str, ...], description: str) -> Callable[..., str]:
        """Return a function `name` that asks outside."""

        def call(*values: Any, **named: Any) -> str:
            if len(values) > len(parameters):
                raise ToolError(f"{name} takes {len(parameters)} arguments: got {len(values)}")
            arguments = dict(zip(parameters, values, strict=False))
            twice = arguments.keys() & named.keys()
            if twice:
                raise ToolError(f"{name} got two values for {', '.join(sorted(twice))}")
            return self._ask(name, arguments | named)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = description
        return call

    def _ask(self, name: str, arguments: Frame) -> str:
        """Return what the tool `name` answers outside."""
        try:
            json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise ToolError(f"{name}: the arguments have no JSON form: {problem}") from None
        if os.getpid() != self._process:
            raise ToolError(f"{name}: tools cannot be called from a process that was forked")
        flush()
        with self._calls:
            self.send({"call": name, "arguments": arguments})
            answer = self.receive()
        if answer is None:
            raise SystemExit
        if answer["is_error"]:
            raise ToolError(answer["text"])
        return str(answer["text"])


def describe_error(problem: BaseException) -> str:
    """Return the traceback of `problem`, at most its last lines, without those of this program."""
    found = traceback.TracebackException(type(problem), problem, problem.__traceback__, compact=True)
    frames = [frame for frame in found.stack if frame.filename != __file__]
    while frames and not frames[0].filename.startswith("<cell"):
        del frames[0]
    found.stack = traceback.StackSummary.from_list(frames[-MAX_FRAMES:])
    return "".join(found.format(chain=False)).rstrip()


def bury() -> None:
    """Take leave of the processes that were ended since the last cell."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def flush() -> None:
    """Hand on what the code has printed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def main() -> None:
    """Take the standard streams for the frames, give the code an empty input and one output, and serve."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what it said before a kill is read
    Worker(requests, replies).serve()


if __name__ == "__main__":
    main()

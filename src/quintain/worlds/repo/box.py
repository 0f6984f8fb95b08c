"""Where the code of the world `repo` runs: a Python in the sandbox, told to test or to call.

The world and the sandbox are rooms of one floor and do not import each other: the world names the class it wants as
the catalogue names worlds, and knows it by the protocol `Interpreter`. In the box each run is a fresh process in a
fresh folder. What a box says is text and numbers of the agent's making; only here is it compared with what is right.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from quintain.errors import DataError
from quintain.worlds.repo.plan import Case

SANDBOX = "quintain.safety.python:PythonProcess"
REQUIRE = "quintain.safety.isolation:require"
LIMITS = "quintain.safety.limits:Limits"
SECONDS = 20.0
"""By the clock, for what waits; what computes is held to its own seconds of the processor, see `apart`."""
MEMORY_BYTES = 256 << 20
LONGEST_REPORT = 800

DRIVER = '''
import importlib, json, linecache, os, resource, shutil, sys
from ast import get_source_segment, parse

def fresh(files):
    """Lay out `files` in an empty folder and go there."""
    folder = "/tmp/run"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, text in files.items():
        with open(folder + "/" + name, "w") as file:
            file.write(text)
    os.chdir(folder)
    sys.path.insert(0, folder)

def apart(work, *arguments):
    """Return the JSON text that `work` gives in a process of its own, or None if that process is lost."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(receiving)
            resource.setrlimit(resource.RLIMIT_CPU, (3, 4))
            text = work(*arguments).encode()
            while text:
                text = text[os.write(sending, text):]
            code = 0
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving, "rb") as file:
        said = file.read(1 << 20)
    os.waitpid(child, 0)
    try:
        return json.loads(said)
    except ValueError:
        return None

def told(error, files):
    """Say what failed: the comparison and what came instead, or the error and its line."""
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    name = os.path.basename(frame.tb_frame.f_code.co_filename)
    line = linecache.getline(frame.tb_frame.f_code.co_filename, frame.tb_lineno).strip()
    if isinstance(error, AssertionError) and line.startswith("assert "):
        try:
            test = parse(line).body[0].test
            got = eval(get_source_segment(line, test.left), frame.tb_frame.f_globals, frame.tb_frame.f_locals)
            return line[7:] + ", got " + repr(got)
        except Exception:
            return line
    return type(error).__name__ + ": " + str(error) + " in " + name + ": " + line

def tests(files):
    """Run the functions test_* of the modules test_*; return the number that passed and what failed."""
    fresh(files)
    passed, failed = 0, []
    for name in sorted(files):
        if not name.startswith("test_"):
            continue
        try:
            found = vars(importlib.import_module(name[:-3]))
        except BaseException as error:
            failed.append([name, told(error, files)])
            continue
        for key, test in list(found.items()):
            if key.startswith("test_") and callable(test):
                try:
                    test()
                    passed += 1
                except BaseException as error:
                    failed.append([key, told(error, files)])
    return json.dumps([passed, failed])

def calls(files, wanted):
    """Call functions; return what each gave, as [value] or []."""
    fresh(files)
    given = []
    for module, function, arguments in wanted:
        try:
            value = getattr(importlib.import_module(module), function)(*arguments)
            given.append([json.loads(json.dumps(value, allow_nan=False))])
        except BaseException:
            given.append([])
    return json.dumps(given)
'''
"""What the box knows from its start. `tests` and `calls` are run in processes that `apart` forks off."""


class Outcome(Protocol):
    """What became of a cell."""

    @property
    def reason(self) -> str:
        """The limit that was passed, or empty."""
        ...


class Interpreter(Protocol):
    """A Python in a sandbox; see `quintain.safety.python.PythonProcess`."""

    def run(self, code: str) -> Outcome:
        """Run `code`."""
        ...

    def put(self, **objects: Any) -> None:
        """Bind `objects` to variables."""
        ...

    def get(self, name: str) -> Any:
        """Return the object that a variable is bound to."""
        ...

    def close(self) -> None:
        """End the process."""
        ...


class RepoBox:
    """A box that runs tests; it starts with the first of them and stays until it is closed."""

    def __init__(self) -> None:
        self._python: Interpreter | None = None

    def tests(self, files: Mapping[str, str]) -> str:
        """Run the tests in `files` and return a report of them.

        Raises:
            SandboxError: isolation is missing or does not work.
        """
        reason, outcome = self._ask("apart(tests, files)", files=dict(files))
        if reason:
            self.close()
            return f"The tests were stopped: {STOPPED.get(reason, reason)}."
        return report(outcome)

    def results(self, files: Mapping[str, str], cases: Sequence[Case]) -> tuple[bool, ...]:
        """Return which of `cases` the functions in `files` get right; a lost process gets none right.

        Raises:
            SandboxError: isolation is missing or does not work.
        """
        wanted = [[case.module, case.function, case.arguments] for case in cases]
        reason, given = self._ask("apart(calls, files, wanted)", files=dict(files), wanted=wanted)
        if reason or not isinstance(given, list) or len(cast("list[object]", given)) != len(cases):
            return (False,) * len(cases)
        return tuple(
            is_right(value, case.result)
            for value, case in zip(cast("list[object]", given), cases, strict=True)
        )

    def close(self) -> None:
        """End the process."""
        if self._python is not None:
            self._python.close()
        self._python = None

    def _ask(self, call: str, **objects: Any) -> tuple[str, Any]:
        """Return the limit that `call` passed, or what it gave."""
        if self._python is None:
            self._python = open_sandbox()
        self._python.put(**objects)
        reason = self._python.run(f"outcome = {call}").reason
        if reason:
            return reason, None
        try:
            return "", self._python.get("outcome")
        except DataError:
            return "protocol", None


STOPPED = {
    "time": f"they took longer than {SECONDS:g} s",
    "memory": "they used too much memory",
    "files": "they wrote too many files",
    "output": "they wrote too much",
    "processes": "they left processes behind",
    "exited": "the process that ran them is gone",
}


def open_sandbox() -> Interpreter:
    """Return a new Python in the sandbox that knows `DRIVER`.

    Raises:
        SandboxError: isolation is missing or does not work.
    """
    limits = _load_class(LIMITS)(seconds=SECONDS, memory_bytes=MEMORY_BYTES)
    return cast(Interpreter, _load_class(SANDBOX)(limits, setup=DRIVER))


def require_sandbox() -> None:
    """Return where the sandbox works.

    Raises:
        SandboxError: it does not; the message says what to install or allow.
    """
    _load_class(REQUIRE)()


def is_right(value: object, result: object) -> bool:
    """Whether `value`, as [value] or [], is `result`; True is not 1.

    Both are plain JSON, so that no object of the agent's can claim to be equal to everything.
    """
    return (
        isinstance(value, list)
        and cast("list[object]", value)[:1] == [result]
        and _kind(value) == _kind([result])
    )


def report(outcome: object) -> str:
    """Return the words for what `tests` gave: ``1 of 2 tests pass.`` and a line for each that does not."""
    try:
        passed, failed = cast("tuple[int, list[tuple[str, str]]]", outcome)
        lines = [f"FAILED {name}: {what}" for name, what in failed]
        told = "\n".join((f"{int(passed)} of {int(passed) + len(lines)} tests pass.", *lines))
    except (TypeError, ValueError):
        return "The tests were stopped: they took too long, used too much memory or ended the process."
    return told if len(told) <= LONGEST_REPORT else f"{told[:LONGEST_REPORT]}..."


def _kind(value: object) -> str:
    """Return the text that tells booleans from numbers; 2.0 and 2 are one."""
    return json.dumps(value, default=str).replace(".0", "")


def _load_class(place: str) -> Any:
    """Return what stands at ``package.module:name``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)

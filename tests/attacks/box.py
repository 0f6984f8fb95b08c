"""Attacks from inside a box, and the defences of a box that can be switched off one by one.

The attacker's code always runs under a real user id that is not root's, in weakened builds too. It tries one thing
and says as JSON what it got, or which error it met.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.attacks.attack import Found, Scene

from quintain.safety import box, isolation, sandbox, syscalls
from quintain.safety.isolation import find_interpreter
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.safety.warm import WarmBox

LONG = Limits(seconds=90.0)
PRELUDE = """
import ctypes, errno, json, os, signal, socket, struct, sys, time
LIBC = ctypes.CDLL(None, use_errno=True)
def called(found):
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
def may(path, how):
    called(LIBC.access(path.encode(), how))
    return path + " is open"
def reached(name, *arguments):
    try:
        called(LIBC.syscall(NUMBERS[name], *map(ctypes.c_long, arguments)))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise
        return name + ": the kernel answered " + error.strerror
    return name + " was done"
def only(found):
    if not found:
        raise PermissionError("nothing is there")
    return str(found)
def attack():
"""
REPORT = """
try:
    said, landed = attack(), True
except (OSError, MemoryError) as error:
    said, landed = f"{type(error).__name__}: {error}", False
print("\\n" + json.dumps([landed, str(said)[:300]]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """The attempt to do `body`, lines of a function, in a box; what is in capitals is filled in."""

    body: str
    limits: Limits

    def __call__(self, scene: Scene) -> Found:
        """Try it in a box of its own."""
        found = sandbox.run(
            [find_interpreter()[0], "-I", "-S", "-B", "-c", self.code(scene)], limits=self.limits
        )
        return told(found.stdout, found.reason, f"{found.exit_code}, {found.stderr[-400:]}")

    def as_cell(self, scene: Scene) -> Found:
        """Try it as a cell of an episode's Python, which is forked from an interpreter that waits."""
        with PythonProcess(self.limits) as python:
            found = python.run("")
            assert isinstance(python.running, WarmBox), found.reason
            found = python.run(self.code(scene))
        return told(found.output, found.reason, found.error)

    def code(self, scene: Scene) -> str:
        """Return the program that tries it, and says what came of it."""
        indented = "".join(f"    {line}\n" for line in self.body.splitlines())
        return f"NUMBERS = {syscalls.numbers()}\n{PRELUDE}{filled(indented, scene)}{REPORT}"


def told(output: str, reason: str, otherwise: str) -> Found:
    """Return what the program said last, or why it was ended."""
    if reason:
        return Found(False, f"killed: {reason}")
    try:
        landed, words = json.loads(output.strip().rpartition("\n")[2])
    except ValueError as error:
        raise AssertionError(f"the attack itself broke: {otherwise}") from error
    return Found(bool(landed), str(words))


def inside(body: str, limits: Limits = LONG) -> Inside:
    """Return the attempt to do `body` in a box."""
    return Inside(body, limits)


def filled(body: str, scene: Scene) -> str:
    """Return `body` with the places of the canaries."""
    canaries = scene.canaries
    places: dict[str, object] = {
        "CANARY_FILE": str(canaries.file),
        "CANARY_FOLDER": str(canaries.folder),
        "CANARY_PID": canaries.process.pid,
        "TCP6_PORT": canaries.tcp6.getsockname()[1],
        "TCP_PORT": canaries.tcp.getsockname()[1],
        "UDP_PORT": canaries.udp.getsockname()[1],
        "ABSTRACT_NAME": canaries.abstract_name,
        "UNIX_PATH": str(canaries.unix_path),
    }
    for name, value in places.items():
        body = body.replace(name, str(value))
    return body


def edited(edit: Callable[[list[str], Scene], list[str]]) -> Callable[[Scene], None]:
    """Return what changes the command line of a box."""

    def weaken(scene: Scene) -> None:
        original = isolation.isolate

        def isolate(*arguments: Any, **named: Any) -> list[str]:
            return edit(original(*arguments, **named), scene)

        scene.patch.setattr(box, "isolate", isolate)

    return weaken


def without(*words: str) -> Callable[[Scene], None]:
    """Return what leaves out `words`, which stand beside each other in the command line."""

    def edit(line: list[str], _: Scene) -> list[str]:
        place = at(line, *words)
        return [*line[:place], *line[place + len(words) :]]

    return edited(edit)


def instead(old: Sequence[str], new: Sequence[str]) -> Callable[[Scene], None]:
    """Return what puts the words `new` where `old` stand."""

    def edit(line: list[str], _: Scene) -> list[str]:
        place = at(line, *old)
        return [*line[:place], *new, *line[place + len(old) :]]

    return edited(edit)


def shown(how: str, what: str, where: str, *, before: str = "/") -> Callable[[Scene], None]:
    """Return what mounts `what` of the host (capitals are filled in) at `where`, before `before` is made read-only."""

    def edit(line: list[str], scene: Scene) -> list[str]:
        place = at(line, "--remount-ro", before)
        mount = [
            how,
            filled(what, scene).replace("STAND_IN", str(scene.canaries.stand_in)),
            filled(where, scene),
        ]
        return [*line[:place], *mount, *line[place:]]

    return edited(edit)


def at(line: Sequence[str], *words: str) -> int:
    """Return the place of `words` in `line`."""
    for place in range(len(line)):
        if tuple(line[place : place + len(words)]) == words:
            return place
    raise AssertionError(f"{words} are not in the command line of a box: {line}")


def no_filter(scene: Scene) -> None:
    """Let every system call through, and have no group of the kernel, which would stop some of what they do."""
    scene.patch.setattr(box, "open_filter", lambda: None)
    ungrouped(scene)


def ungrouped(scene: Scene) -> None:
    """Make no group of the kernel for a box."""
    scene.patch.setattr(box.Cgroup, "make", lambda _: None)


def bare(scene: Scene) -> None:
    """Run the command without bubblewrap, as a user that is not root."""

    def isolate(command: Sequence[str], limits: Limits, **_: Any) -> list[str]:
        limiter = isolation.find_program("prlimit")
        return [*plain_user(), limiter, f"--as={limits.memory_bytes}", "--core=0", "--", *command]

    scene.patch.setattr(box, "isolate", isolate)
    scene.patch.setattr(box, "open_filter", lambda: None)


def plain_user() -> list[str]:
    """Return the command that gives up root for the user of the canary process; nothing for another user."""
    if os.geteuid() != 0:
        return []
    uid = str(isolation.FIRST_UID)
    return [isolation.find_program("setpriv"), "--reuid", uid, "--regid", uid, "--clear-groups", "--"]


def started_with(**more: Any) -> Callable[[Scene], None]:
    """Return what starts boxes with other arguments of `subprocess.Popen`; a callable is given the scene."""

    def weaken(scene: Scene) -> None:
        original = box.subprocess.Popen

        def start(line: Sequence[str], **named: Any) -> Any:
            given = {name: value(scene, named.get(name)) for name, value in more.items()}
            return original(line, **{**named, **given})

        scene.patch.setattr(box.subprocess, "Popen", start)

    return weaken


def wide(**bounds: Any) -> Callable[[Scene], None]:
    """Return what does not hold a command to its limits: it gets `bounds` instead."""

    def weaken(scene: Scene) -> None:
        original = sandbox.run

        def run(command: Sequence[str], files: Any = None, limits: Limits | None = None) -> Any:
            return original(command, files or {}, replace(limits or Limits(), **bounds))

        scene.patch.setattr(sandbox, "run", run)

    return weaken


SHARED_NETWORK = instead(
    ["--unshare-all"], ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
)
CAPABLE = instead(["--cap-drop"], ["--cap-add"])

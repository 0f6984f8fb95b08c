"""A4: using up what the machine has. Sizes are small: what is tested is that the limit holds."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.attacks.attack import Attack, Found, Scene, both
from tests.attacks.box import LONG, bare, edited, filled, inside, no_filter, ungrouped, wide

from quintain.errors import DataError, SandboxError
from quintain.processes import frames
from quintain.safety import box, sandbox
from quintain.safety.isolation import find_interpreter
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess

SHORT = Limits(seconds=0.6)
FEW = Limits(seconds=90.0, processes=8)
SMALL = Limits(seconds=90.0, memory_bytes=96 << 20)
QUIET = Limits(seconds=90.0, output_bytes=1 << 14)
NARROW = Limits(seconds=90.0, scratch_bytes=1 << 20, scratch_files=100)
WAITED = "\nreturn 'it was let be'"
FORKS = (
    "children = []\nfor _ in range(24):\n    child = os.fork()\n    if not child:\n        time.sleep(20)\n"
    "        os._exit(0)\n    children.append(child)\nfor child in children:\n    os.kill(child, 9)\n"
    "    os.waitpid(child, 0)\nreturn len(children)"
)
THREADS = (
    # Small stacks, and one heap for all threads: it is their number that meets a limit, not their address space.
    "import _thread\nLIBC.mallopt(-8, 1)\n_thread.stack_size(256 << 10)\ntry:\n"
    "    for _ in range(24): _thread.start_new_thread(time.sleep, (5,))\n"
    "except RuntimeError as error:\n    raise OSError(str(error))\nreturn '24 threads'"
)
TREE = (
    "for _ in range(4):\n    if not os.fork():\n        held = bytearray(40 << 20)\n        time.sleep(1.5)\n"
    "        os._exit(0)\nfor _ in range(4):\n    os.wait()\nreturn 'held 160 MiB'"
)
SHARED = (
    "import mmap\ndone, tell = os.pipe()\nfor _ in range(4):\n    if not os.fork():\n"
    "        held = mmap.mmap(-1, 40 << 20)\n        for place in range(0, 40 << 20, 4096): held[place] = 1\n"
    "        os.write(tell, b'x')\n        time.sleep(60)\n        os._exit(0)\n"
    "for _ in range(4): os.read(done, 1)\ntime.sleep(1.0)\nreturn 'held 160 MiB'"
)
MEMFDS = (
    "held = [os.memfd_create(str(n)) for n in range(60)]\nfor file in held: os.write(file, bytes(3 << 20))\n"
    "time.sleep(1.5)\nreturn 'held 180 MiB'"
)
SEGMENTS = (
    "LIBC.shmat.restype = ctypes.c_void_p\nfor n in range(6):\n    held = called(LIBC.shmget(0, 30 << 20, 0o1600))\n"
    "    place = LIBC.shmat(held, None, 0)\n    ctypes.memset(place, 1, 30 << 20)\n"
    "    LIBC.shmdt(ctypes.c_void_p(place))\ntime.sleep(1.5)\nreturn 'held 180 MiB'"
)
SOCKETS = (
    "for _ in range(6):\n    if not os.fork():\n        held = [socket.socketpair() for _ in range(100)]\n"
    "        for one, _ in held:\n            one.setblocking(False)\n            try:\n"
    "                while True: one.send(bytes(4096))\n            except BlockingIOError: pass\n"
    "        time.sleep(1.5)\n        os._exit(0)\nfor _ in range(6):\n    os.wait()\nreturn 'held 600 pairs'"
)
WISHES = (
    "one, other = socket.socketpair()\none.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)\n"
    "one.setblocking(False)\nsent = 0\ntry:\n    while sent < (1 << 20): sent += one.send(bytes(4096))\n"
    "except BlockingIOError:\n    raise OSError(f'{sent} bytes fit')\nreturn '1 MiB fits'"
)
QUEUES = "return called(LIBC.msgget(0, 0o1600))"
FLAGS = "return called(LIBC.semget(0, 250, 0o1600))"
FILES = "for n in range(400):\n    open(f'/tmp/{n}', 'w').close()\ntime.sleep(0.3)\nreturn '400 files'"
FOLDERS = "for n in range(400):\n    os.mkdir(f'/tmp/{n}')\ntime.sleep(0.3)\nreturn '400 folders'"


def unset(*flags: str) -> Callable[[Scene], None]:
    """Return what does not let the kernel hold processes to `flags`."""

    def edit(line: list[str], _: Scene) -> list[str]:
        return [word for word in line if not word.startswith(tuple(f"--{flag}=" for flag in flags))]

    return edited(edit)


def unwatched(scene: Scene) -> None:
    """Do not look at what a box holds, nor let the kernel hold it."""
    scene.patch.setattr(box.Box, "find_passed_limit", lambda self: "")
    ungrouped(scene)


def roomy(scene: Scene) -> None:
    """Give every box a large folder."""

    def edit(line: list[str], _: Scene) -> list[str]:
        place = line.index("--size")
        return [*line[: place + 1], str(64 << 20), *line[place + 2 :]]

    edited(edit)(scene)


def survivor(scene: Scene) -> Found:
    """Attempt to leave a process behind."""
    mark = f"{scene.folder}"
    code = (
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n"
        f"        for n in (0, 1, 2): os.close(n)\n        time.sleep(30)\n    os._exit(0)\nos.wait()\n# {mark}"
    )
    sandbox.run([find_interpreter()[0], "-I", "-S", "-c", code], limits=LONG)
    time.sleep(0.05)
    left = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and mark in _command(entry) and int(entry.name) != os.getpid()
    ]
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, 9)
    return Found(bool(left), str(left) if left else "nothing is left of it")


def _command(entry: Path) -> str:
    with suppress(OSError):
        return (entry / "cmdline").read_text(errors="replace")
    return ""


def said(code: str, limits: Limits = QUIET) -> Callable[[Scene], Found]:
    """Return the attempt to run `code` as a cell of an episode's Python."""

    def attempt(scene: Scene) -> Found:
        with PythonProcess(limits) as python:
            found = python.run(filled(code, scene))
            return Found(not found.was_killed, found.reason or found.output[:50])

    return attempt


def returned(code: str) -> Callable[[Scene], Found]:
    """Return the attempt to hand out of a box what `code` binds to x."""

    def attempt(_: Scene) -> Found:
        with PythonProcess(LONG) as python:
            python.run(code)
            try:
                return Found(True, f"{len(str(python.get('x')))} letters")
            except (DataError, SandboxError) as error:
                return Found(False, str(error))
            except RecursionError as error:
                return Found(True, f"our own reader broke: {error}")

    return attempt


def large_frames(scene: Scene) -> None:
    """Read frames of every size."""
    scene.patch.setattr(frames, "LARGEST", 1 << 30)


def talkative(scene: Scene) -> None:
    """Read all that a cell says."""
    original = frames.Frames.read

    def read(self: frames.Frames, deadline: float, watched: box.Box, _: int) -> object:
        return original(self, deadline, watched, 1 << 26)

    scene.patch.setattr(frames.Frames, "read", read)


NO_TIME = wide(seconds=90.0)
NO_OUTPUT = wide(output_bytes=1 << 26)
FLOODS = {
    "output": "os.write(1, b'x\\n' * (1 << 15))",
    "errors": "os.write(2, b'x\\n' * (1 << 15))",
    "a line without end": "os.write(1, b'x' * (1 << 16))",
    "signs for a terminal": "os.write(1, b'\\x1b[2J\\x1b[9999;9999H' * (1 << 12))",
    "both streams": "for _ in range(64):\n    os.write(1, b'x' * 512)\n    os.write(2, b'y' * 512)",
}
SLEEPS = {
    "sleep": "time.sleep(2)",
    "compute": "until = time.monotonic() + 2\nwhile time.monotonic() < until: pass",
    "ignore signals": "for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(2)",
    "wait for a pipe": "signal.alarm(2)\nsignal.signal(14, lambda *_: None)\n"
    "import select\nselect.select([os.pipe()[0]], [], [], 2)",
    "close its output and stay": "keep = os.dup(1)\nos.close(1)\nos.close(2)\ntime.sleep(2)\nos.dup2(keep, 1)",
}

ATTACKS = [
    Attack("A4", "a bomb of forks", inside(FORKS, FEW), unset("nproc"), bare),
    Attack(
        "A4",
        "a swarm of threads",
        inside(THREADS, FEW),
        unset("nproc"),
        bare,
    ),
    Attack(
        "A4",
        "memory of one process",
        inside("return len(bytearray(160 << 20))", SMALL),
        both(unset("as"), unwatched),
    ),
    Attack("A4", "memory of a tree of processes", inside(TREE, SMALL), unwatched),
    Attack("A4", "memory of a tree that is shared by mapping", inside(SHARED, SMALL), unwatched),
    Attack("A4", "memory in files of memory", inside(MEMFDS, SMALL), no_filter),
    Attack("A4", "memory in segments of System V", inside(SEGMENTS, SMALL), no_filter),
    Attack("A4", "queues of System V", inside(QUEUES), no_filter),
    Attack("A4", "semaphores of System V", inside(FLAGS), no_filter),
    Attack("A4", "memory in sockets", inside(SOCKETS, SMALL), unwatched),
    Attack("A4", "a socket with a large buffer", inside(WISHES), no_filter),
    Attack("A4", "many files", inside(FILES, NARROW), unwatched),
    Attack("A4", "many folders", inside(FOLDERS, NARROW), unwatched),
    Attack(
        "A4",
        "a full disk",
        inside(
            "for n in range(8):\n    with open(f'/tmp/{n}', 'wb') as file: file.write(bytes(1 << 18))\n"
            "return 'wrote 2 MiB'",
            NARROW,
        ),
        roomy,
    ),
    Attack(
        "A4",
        "a file with holes",
        inside(
            "signal.signal(25, signal.SIG_IGN)\n"
            "with open('/tmp/x', 'wb') as file: file.truncate(8 << 20)\nreturn '8 MiB'",
            NARROW,
        ),
        unset("fsize"),
        bare,
    ),
    Attack("A4", "open files", inside("return len([os.dup(0) for _ in range(400)])"), unset("nofile"), bare),
    Attack(
        "A4",
        "memory that cannot be swapped",
        inside(
            "held = ctypes.create_string_buffer(1 << 16)\ncalled(LIBC.mlock(held, 1 << 16))\nreturn 'locked'"
        ),
        unset("memlock"),
        bare,
    ),
    *(
        Attack("A4", f"a flood of {name}", inside(f"{body}\nreturn 'written'", QUIET), NO_OUTPUT)
        for name, body in FLOODS.items()
    ),
    *(
        Attack("A4", f"no end: {name}", inside(f"{body}{WAITED}", SHORT), NO_TIME)
        for name, body in SLEEPS.items()
    ),
    Attack("A4", "a process that stays", survivor, bare),
    Attack("A4", "a flood from a cell", said("print('x' * (1 << 16))"), talkative),
    Attack("A4", "an answer too large to read", returned("x = 'x' * (9 << 20)"), large_frames),
]

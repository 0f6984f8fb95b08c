"""The program that waits inside a box and forks a worker for each episode, in namespaces and with files of its own.

A worker is forked ahead and shut in before it is needed, so that an order finds one that waits. It is shut in as
`quintain.safety.isolation` shuts in a command of its own, step by step the same: new namespaces of processes, network,
mounts, names and IPC, a fresh `/tmp` and `/proc`, no capability, no way to gain one, and the filter of system calls.
Only then does it read what an agent wrote. It sees neither this program nor any other worker, and when it ends the
kernel takes along all that it started. What it inherits is a copy of an interpreter that has run nothing but this. It
needs the standard library alone, because its text is what is sent into the box.
"""

import array
import base64
import ctypes
import fcntl
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

NEW_MOUNTS, NEW_NAMES, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = (
    0x20000,
    0x4000000,
    0x8000000,
    0x20000000,
    0x40000000,
)
NO_SUID, NO_DEVICES, NO_PROGRAMS, RECURSIVE, PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
DEATH_SIGNAL, DROP_BOUND, NO_NEW_PRIVILEGES, FILTER, AMBIENT, CLEAR_AMBIENT = 1, 24, 38, 22, 47, 4
SET_CAPABILITIES = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION = 0x20080522
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
WORKER, SETTINGS = "/worker.py", "/settings.json"
LIBC = ctypes.CDLL(None, use_errno=True)


def check_call(found: int, what: str) -> None:
    """Raise `OSError` where a call of the C library failed."""
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, place: str, kind: str, flags: int, data: str = "") -> None:
    """Mount `source` at `place`."""
    names = (text.encode() for text in (source, place, kind))
    check_call(LIBC.mount(*names, ctypes.c_ulong(flags), data.encode()), f"mounting {place}")


def shut_in(settings: "dict[str, Any]") -> None:
    """Leave everything behind that a worker must not have; its `/tmp` holds ``size`` bytes."""
    check_call(LIBC.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "dying with the parent")
    check_call(LIBC.unshare(NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_NETWORK), "new namespaces")
    mount("none", "/", "none", RECURSIVE | PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", NO_SUID | NO_DEVICES, f"size={settings['size']},mode=0755")
    mount("proc", "/proc", "proc", NO_SUID | NO_DEVICES | NO_PROGRAMS)
    raise_loopback()
    os.chdir("/tmp")
    os.setsid()
    drop_capabilities()
    check_call(LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "gaining no privileges")
    if settings["filter"]:
        program = base64.b64decode(settings["filter"])
        steps = ctypes.create_string_buffer(program, len(program))
        head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
        check_call(LIBC.prctl(FILTER, 2, head, 0, 0), "filtering system calls")


def raise_loopback() -> None:
    """Let the new network reach itself, and nothing else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(handle, GET_FLAGS, request)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("16sH22x", b"lo", flags | UP))


def drop_capabilities() -> None:
    """Give up every capability, also those that a program could be given."""
    check_call(LIBC.prctl(AMBIENT, CLEAR_AMBIENT, 0, 0, 0), "ambient capabilities")
    for number in range(64):
        if LIBC.prctl(DROP_BOUND, number, 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    none, head = struct.pack("6I", *[0] * 6), struct.pack("Ii", CAPABILITY_VERSION, 0)
    check_call(LIBC.syscall(SET_CAPABILITIES[os.uname().machine], head, none), "capabilities")


def keep(control: socket.socket, worker: ModuleType, settings: "dict[str, Any]") -> None:
    """Fork the worker into a new namespace of processes, and wait for its end: one that unshares stays outside."""
    check_call(LIBC.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "dying with the parent")
    check_call(LIBC.unshare(NEW_PROCESSES), "a new namespace of processes")
    control.send(b"forking")
    child = os.fork()
    if not child:
        work(control, worker, settings)
    os.closerange(3, 256)
    os.waitpid(child, 0)
    os._exit(0)


def work(control: socket.socket, worker: ModuleType, settings: "dict[str, Any]") -> None:
    """Be shut in, wait for the order, and become a worker with its streams among its files."""
    try:
        shut_in(settings)
        control.send(b"begun")
    except OSError as error:
        control.send(f"failed: {error}".encode())
        os._exit(1)
    order, *handles = receive_handles(control) or os._exit(0)
    with os.fdopen(order, "rb") as file:
        place_files(json.load(file))
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
    os.closerange(3, 256)
    worker.main()
    os._exit(0)


def place_files(files: "dict[str, str]") -> None:
    """Write `files`: path → content in base 64."""
    for name, content in files.items():
        place = Path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(base64.b64decode(content))
        place.chmod(0o644)


def load(place: str) -> ModuleType:
    """Return the program at `place`, imported."""
    found = importlib.util.spec_from_file_location("worker", place)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["worker"] = module
    found.loader.exec_module(module)
    return module


def main() -> None:
    """Fork a worker whenever the next one is asked for; it takes its order itself."""
    worker, settings = load(WORKER), json.loads(Path(SETTINGS).read_text())
    with socket.socket(fileno=os.dup(0)) as control:
        control.send(b"ready")
        while said := control.recv(16):
            if said != b"next":
                continue  # the order of a worker that was ended before it took it
            keeper = os.fork()
            if not keeper:
                keep(control, worker, settings)
            os.waitpid(keeper, 0)
            control.send(b"over")


def receive_handles(control: socket.socket) -> "list[int]":
    """Return the handles of the order: what is to be written, then three streams; none where there is no order."""
    _, sent, _, _ = control.recvmsg(16, socket.CMSG_SPACE(4 * 8))
    handles = array.array("i")
    for _, _, data in sent:
        handles.frombytes(data)
    return list(handles)


if __name__ == "__main__":
    main()

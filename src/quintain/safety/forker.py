"""The program that waits inside a box and forks a worker for each episode, in namespaces and with files of its own.

A worker is shut in as `quintain.safety.isolation` shuts in a command of its own, step by step the same: new namespaces
of processes, network, mounts, names and IPC, a fresh `/tmp` and `/proc`, no capability, no way to gain one, and the
filter of system calls. Only then does it read what an agent wrote. It sees neither this program nor any other worker,
and when it ends the kernel takes along all that it started. What it inherits is a copy of an interpreter that has run
nothing but this. It needs the standard library alone, because its text is what is sent into the box.
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
WORKER = "/worker.py"
LIBC = ctypes.CDLL(None, use_errno=True)


def called(found: int, what: str) -> None:
    """Raise `OSError` where a call of the C library failed."""
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, place: str, kind: str, flags: int, data: str = "") -> None:
    """Mount `source` at `place`."""
    names = (text.encode() for text in (source, place, kind))
    called(LIBC.mount(*names, ctypes.c_ulong(flags), data.encode()), f"mounting {place}")


def shut_in(order: "dict[str, Any]") -> None:
    """Leave everything behind that a worker must not have."""
    called(LIBC.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "dying with the parent")
    called(LIBC.unshare(NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_NETWORK), "new namespaces")
    mount("none", "/", "none", RECURSIVE | PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", NO_SUID | NO_DEVICES, f"size={order['size']},mode=0755")
    mount("proc", "/proc", "proc", NO_SUID | NO_DEVICES | NO_PROGRAMS)
    raise_loopback()
    os.chdir("/tmp")
    os.setsid()
    for name, content in order["files"].items():
        place = Path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(base64.b64decode(content))
        place.chmod(0o644)
    drop_capabilities()
    called(LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "gaining no privileges")
    if order["filter"]:
        program = base64.b64decode(order["filter"])
        steps = ctypes.create_string_buffer(program, len(program))
        head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
        called(LIBC.prctl(FILTER, 2, head, 0, 0), "filtering system calls")


def raise_loopback() -> None:
    """Let the new network reach itself, and nothing else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(handle, GET_FLAGS, request)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("16sH22x", b"lo", flags | UP))


def drop_capabilities() -> None:
    """Give up every capability, also those that a program could be given."""
    called(LIBC.prctl(AMBIENT, CLEAR_AMBIENT, 0, 0, 0), "ambient capabilities")
    for number in range(64):
        if LIBC.prctl(DROP_BOUND, number, 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    none, head = struct.pack("6I", *[0] * 6), struct.pack("Ii", CAPABILITY_VERSION, 0)
    called(LIBC.syscall(SET_CAPABILITIES[os.uname().machine], head, none), "capabilities")


def keep(control: socket.socket, worker: ModuleType, handles: "list[int]") -> None:
    """Fork the worker into a new namespace of processes, and wait for its end: one that unshares stays outside."""
    called(LIBC.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "dying with the parent")
    called(LIBC.unshare(NEW_PROCESSES), "a new namespace of processes")
    control.send(b"forking")
    child = os.fork()
    if not child:
        work(control, worker, handles)
    os.closerange(3, 256)
    os.waitpid(child, 0)
    os._exit(0)


def work(control: socket.socket, worker: ModuleType, handles: "list[int]") -> None:
    """Become a worker whose standard streams are `handles`, after the order."""
    try:
        with os.fdopen(handles[0], "rb") as file:
            shut_in(json.load(file))
        control.send(b"begun")
    except OSError as error:
        control.send(f"failed: {error}".encode())
        os._exit(1)
    for number, handle in enumerate(handles[1:]):
        os.dup2(handle, number)
    os.closerange(3, 256)
    worker.main()
    os._exit(0)


def load(place: str) -> ModuleType:
    """Return the program at `place`, imported."""
    found = importlib.util.spec_from_file_location("worker", place)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["worker"] = module
    found.loader.exec_module(module)
    return module


def main() -> None:
    """Fork a worker for each order that comes, one after another."""
    worker = load(WORKER)
    with socket.socket(fileno=os.dup(0)) as control:
        control.send(b"ready")
        while handles := received(control):
            keeper = os.fork()
            if not keeper:
                keep(control, worker, handles)
            for handle in handles:
                os.close(handle)
            os.waitpid(keeper, 0)
            control.send(b"over")


def received(control: socket.socket) -> "list[int]":
    """Return the handles of the next order; none when there are no more orders."""
    _, sent, _, _ = control.recvmsg(16, socket.CMSG_SPACE(4 * 8))
    handles = array.array("i")
    for _, _, data in sent:
        handles.frombytes(data)
    return list(handles)


if __name__ == "__main__":
    main()

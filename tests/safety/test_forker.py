"""The program that forks workers, run here with a kernel that only takes notes: the box does not count lines."""

import array
import base64
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from quintain.safety import forker

Notes = list[tuple[str, ...]]


class Ended(Exception):
    """The process would have ended here."""


class Kernel:
    """A C library that notes what it is asked for; what it `refuses` fails."""

    def __init__(self, refuses: str = "", most: int = 3) -> None:
        self.notes: Notes = []
        self.refuses, self.most = refuses, most

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            words = tuple(
                part.decode() if isinstance(part, bytes) and part.isascii() else repr(part)
                for part in arguments
            )
            self.notes.append((name, *words))
            is_unknown = name == "prctl" and arguments[0] == forker.DROP_BOUND and arguments[1] >= self.most
            return -1 if is_unknown or self.refuses in (name, words[0]) else 0

        return call


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A kernel that takes notes, also of what is asked of `os`, which stays as it is for others."""
    found = Kernel()

    def noting(name: str) -> Callable[..., None]:
        return lambda *words: found.notes.append((name, *map(str, words)))

    def end(code: int) -> None:
        raise Ended(code)

    named = {name: noting(name) for name in ("chdir", "setsid", "closerange", "dup2")}
    monkeypatch.setattr(forker, "LIBC", found)
    monkeypatch.setattr(forker, "os", SimpleNamespace(**{**vars(os), **named, "_exit": end}))
    monkeypatch.setattr(forker, "raise_loopback", noting("loopback"))
    return found


SETTINGS = {"size": 7, "filter": base64.b64encode(bytes(16)).decode()}


def test_a_worker_is_shut_in_step_by_step_and_the_filter_comes_last(kernel: Kernel) -> None:
    forker.shut_in(SETTINGS)
    steps = [note[:2] for note in kernel.notes]
    assert steps[0] == ("prctl", "1") and steps[1][0] == "unshare"
    every = forker.NEW_MOUNTS | forker.NEW_NAMES | forker.NEW_IPC | forker.NEW_NETWORK
    assert steps[1][1] == str(every)
    assert [note[2] for note in kernel.notes if note[0] == "mount"] == ["/", "/tmp", "/proc"]
    assert ("chdir", "/tmp") in steps
    tail = [note[:2] for note in kernel.notes[-7:]]
    dropped = [("prctl", "24")] * 4
    assert tail == [
        *dropped,
        ("syscall", str(forker.SET_CAPABILITIES[os.uname().machine])),
        ("prctl", "38"),
        ("prctl", "22"),
    ]


def test_without_a_filter_for_the_processor_there_is_none(kernel: Kernel) -> None:
    forker.shut_in({**SETTINGS, "filter": ""})
    assert kernel.notes[-1][:2] == ("prctl", "38")


def test_a_step_that_the_kernel_refuses_is_named(kernel: Kernel) -> None:
    kernel.refuses = "unshare"
    with pytest.raises(OSError, match="new namespaces"):
        forker.shut_in(SETTINGS)
    kernel.refuses = "tmpfs"
    with pytest.raises(OSError, match="mounting /tmp"):
        forker.shut_in(SETTINGS)


def test_the_network_of_a_worker_reaches_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        forker.fcntl, "ioctl", lambda _, request, about: asked.append((request, bytes(about)))
    )
    forker.raise_loopback()
    assert [request for request, _ in asked] == [forker.GET_FLAGS, forker.SET_FLAGS]
    assert asked[1][1].startswith(b"lo\0") and asked[1][1][16] & forker.UP


class Told(ModuleType):
    """A worker that ends at once."""

    def main(self) -> None:
        """End."""
        raise Ended("served")


def handed(control: socket.socket, order: str, folder: Path) -> None:
    """Send `order` with three streams."""
    (folder / "order").write_text(order)
    with open(folder / "order", "rb") as file, open(os.devnull, "rb") as nothing:
        sent = array.array("i", [file.fileno(), *[nothing.fileno()] * 3]).tobytes()
        control.sendmsg([b"order"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])


def test_a_worker_that_is_shut_in_takes_its_order_and_nothing_else_and_serves(
    kernel: Kernel, tmp_path: Path
) -> None:
    place = tmp_path / "a" / "b.txt"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(Ended, match="served"):
        handed(ours, json.dumps({str(place): base64.b64encode(b"7").decode()}), tmp_path)
        forker.work(theirs, Told("worker"), SETTINGS)
    assert place.read_bytes() == b"7" and place.stat().st_mode & 0o777 == 0o644
    filtered, *streams, closed = kernel.notes[-5:]
    assert filtered[:2] == ("prctl", "22") and closed == ("closerange", "3", "256")
    assert [note[::2] for note in streams] == [("dup2", "0"), ("dup2", "1"), ("dup2", "2")]
    for note in streams:
        os.close(int(note[1]))


def test_a_worker_without_an_order_ends(kernel: Kernel) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(Ended, match="0"):
        ours.shutdown(socket.SHUT_WR)
        forker.work(theirs, Told("worker"), SETTINGS)
    assert not any(note[0] == "dup2" for note in kernel.notes)


def test_a_worker_that_cannot_be_shut_in_says_why_and_runs_nothing(kernel: Kernel) -> None:
    kernel.refuses = "unshare"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        with pytest.raises(Ended, match="1"):
            forker.work(theirs, Told("worker"), SETTINGS)
        assert ours.recv(100).startswith(b"failed: [Errno ")
    assert not any(note[0] == "dup2" for note in kernel.notes)


def test_the_keeper_waits_for_its_worker(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(forker.os, "fork", lambda: 4711)
    monkeypatch.setattr(forker.os, "waitpid", lambda number, _: waited.append(number))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        with pytest.raises(Ended, match="0"):
            forker.keep(theirs, Told("worker"), SETTINGS)
        assert ours.recv(100) == b"forking" and waited == [4711]
    monkeypatch.setattr(forker.os, "fork", lambda: 0)
    monkeypatch.setattr(forker, "work", lambda *_: kernel.notes.append(("work",)))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(Ended):
        forker.keep(theirs, Told("worker"), SETTINGS)
    assert ("work",) in kernel.notes


def test_it_forks_whenever_it_is_asked_to_until_nobody_can_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text("def main() -> None: ...\n")
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(forker, "WORKER", str(tmp_path / "worker.py"))
    monkeypatch.setattr(forker, "SETTINGS", str(tmp_path / "settings.json"))
    named: dict[str, Any] = {
        "dup": lambda _: theirs.detach(),
        "fork": lambda: 4711,
        "waitpid": lambda *_: None,
    }
    monkeypatch.setattr(forker, "os", SimpleNamespace(**{**vars(os), **named}))
    thread = threading.Thread(target=forker.main, daemon=True)
    thread.start()
    with ours:
        assert ours.recv(100) == b"ready"
        for _ in range(2):
            ours.send(b"order")  # nobody took it
            ours.send(b"next")
            assert ours.recv(100) == b"over"
    thread.join(5.0)
    assert not thread.is_alive()

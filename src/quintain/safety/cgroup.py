"""A group of processes of the kernel for each box, where we may make one: its limit of memory holds for everything.

What a box may hold is looked at from outside, every few hundredths of a second. A group of the kernel (a cgroup) holds
at every moment and counts also what no process owns: pipes, sockets, tables of pages. We may make one as root, in a
container whose groups are given to it, and within what systemd gives to a user (``systemd-run --user --scope``).
Elsewhere there is none, and what is looked at stands alone.

In the second version of cgroups the first folder upwards is taken whose children have limits of memory; in the first
the own one.
"""

import itertools
import os
import re
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
PREFIX = "quintain"
SLACK = 64 << 20
"""Bytes beyond the limits of a box: for bubblewrap, the interpreter that forks, and what the kernel keeps for them."""
PATIENCE = 1.0
"""Seconds that a group may need to be empty after its last process."""
NEW, OLD = "memory.max", "memory.limit_in_bytes"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The group of one box: ``Cgroup.make(512 << 20)``, then ``group.enter(command)`` as what is started."""

    folder: Path

    @classmethod
    def make(cls, num_bytes: int) -> "Cgroup | None":
        """Return a new group whose processes hold at most `num_bytes`; None where none can be made."""
        parent = find_parent()
        if parent is None:
            return None
        group = cls(parent / f"{PREFIX}-{os.getpid()}-{next(_numbers)}")
        try:
            group.folder.mkdir()
            group.limit(num_bytes)
        except OSError:
            group.remove()
            return None
        return group

    def limit(self, num_bytes: int) -> None:
        """Let the processes hold at most `num_bytes`, swap included.

        Raises:
            OSError: the kernel does not let us.
        """
        is_new = (self.folder / NEW).exists()
        (self.folder / (NEW if is_new else OLD)).write_text(str(num_bytes))
        swap = self.folder / ("memory.swap.max" if is_new else "memory.memsw.limit_in_bytes")
        if swap.exists():
            swap.write_text("0" if is_new else str(num_bytes))

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the command that goes into the group and becomes `command`, so that nothing of it is outside."""
        place = shlex.quote(str(self.folder / "cgroup.procs"))
        return ["/bin/sh", "-c", f'echo 0 2>/dev/null > {place}; exec "$@"', "sh", *command]

    @property
    def num_kills(self) -> int:
        """How many processes the kernel has killed because the limit was passed."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                found = re.search(r"^oom_kill (\d+)$", (self.folder / name).read_text(), re.MULTILINE)
                return int(found[1]) if found else 0
        return 0

    def remove(self) -> None:
        """Let the kernel forget the group, whose processes have ended; one that stays busy is left."""
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)
            else:
                return


@cache
def find_parent() -> Path | None:
    """Return the folder in which groups with a limit of memory can be made; it is tried once."""
    try:
        lines = OWN.read_text().splitlines()
    except OSError:  # this is not Linux
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _usable([_below(ROOT / "memory", path)])
        if number == "0" and (place := _mount()) is not None:
            own = _below(place, path)
            ups = [own, *(up for up in own.parents if up.is_relative_to(place))]
            if found := _usable([up for up in ups if "memory" in _words(up / "cgroup.subtree_control")]):
                return found
    return None


def _mount() -> Path | None:
    """Return where the second version is, if limits of memory are its own."""
    return ROOT if "memory" in _words(ROOT / "cgroup.controllers") else None


def _below(root: Path, path: str) -> Path:
    """Return the folder of the group `path` below `root`; a container often sees its own group as the root."""
    folder = root / path.strip("/")
    return folder if folder.is_dir() else root


def _usable(folders: Sequence[Path]) -> Path | None:
    """Return the first of `folders` in which a process can enter a new group with a limit of memory."""
    for folder in folders:
        _sweep(folder)
        group = Cgroup(folder / f"{PREFIX}-{os.getpid()}-try")
        try:
            group.folder.mkdir()
            group.limit(SLACK)
            if os.access(group.folder / "cgroup.procs", os.W_OK) and os.access(
                folder / "cgroup.procs", os.W_OK
            ):
                return folder
        except OSError:
            continue
        finally:
            group.remove()
    return None


def _sweep(folder: Path) -> None:
    """Remove the empty groups in `folder` that processes of ours left which were killed."""
    for left in folder.glob(f"{PREFIX}-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            with suppress(OSError):
                left.rmdir()


def _words(file: Path) -> set[str]:
    """Return the words in `file`; none where it cannot be read."""
    try:
        return {*file.read_text().split()}
    except OSError:
        return set()

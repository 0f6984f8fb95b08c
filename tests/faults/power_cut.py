"""What a disk may hold after a power cut: every order in which writes that were not synced may have reached it.

`Disk` listens at the fault shim, just before each operation of the store, and keeps what a folder held then and what
had been synced. `states` gives folders as they may be found after a cut at any operation: of a file, what was synced
or a prefix, zeros or all of what it held since; of a folder, any mixture of the entries that it had since it was
synced, so that renames and new files come in any order or not at all (ALICE, Pillai et al., OSDI 2014). SQLite syncs
its files by itself, where the shim does not see it: these count as synced.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from quintain.store import faults

Entries = dict[str, "int | None"]
"""name → number of the file or folder; None for a name that is not there"""


@dataclass(slots=True)
class Node:
    """A file or a folder: what is surely on the disk, and what it has been since."""

    is_folder: bool
    synced: bytes | Entries
    since: list[bytes | Entries] = field(default_factory=list["bytes | Entries"])

    def see(self, now: bytes | Entries) -> None:
        """Note what it is now."""
        if now != (self.since[-1] if self.since else self.synced):
            self.since.append(now)

    def sync(self) -> None:
        """Note that what it is now is on the disk."""
        if self.since:
            self.synced, self.since = self.since[-1], []


class Disk:
    """Follows what happens below `root`, which is on the disk as it is now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes: dict[int, Node] = {}
        self._open = ExitStack()
        self.num_cuts = 0
        self.on_cut: Callable[[], None] = lambda: None
        self._is_syncing: Path | None = None
        self._is_looked_at = False
        self._look()
        for node in self.nodes.values():
            node.sync()

    def strike(self, operation: str, path: Path) -> None:
        """Hear of an operation that is about to happen: the one before it is done."""
        if self._is_looked_at:
            return
        self._look()
        if self._is_syncing is not None and self._is_syncing.exists():
            self.nodes[self._is_syncing.stat().st_ino].sync()
        self._is_syncing = path if operation == "sync" else None
        self.num_cuts += 1
        self._is_looked_at = True
        self.on_cut()
        self._is_looked_at = False

    def states(self, rng: random.Random, count: int) -> Iterator[Callable[[Path], None]]:
        """Yield what writes a possible state: all that is synced, all there is, and `count` others."""
        yield lambda place: self._write(place, lambda node: node.synced)
        yield lambda place: self._write(place, lambda node: node.since[-1] if node.since else node.synced)
        for _ in range(count):
            yield lambda place: self._write(place, lambda node: survived(node, rng))

    def _write(self, place: Path, chosen: Callable[[Node], bytes | Entries]) -> None:
        """Write the root with what is `chosen` of each node into `place`."""
        held = {number: chosen(node) for number, node in self.nodes.items()}
        todo = [(self.root.stat().st_ino, place)]
        while todo:
            number, target = todo.pop()
            inside = held[number]
            if isinstance(inside, bytes):
                target.write_bytes(inside)
                continue
            target.mkdir(exist_ok=True)
            todo += [(inner, target / name) for name, inner in inside.items() if inner is not None]

    def close(self) -> None:
        """Give the numbers of what is gone back to the system."""
        self._open.close()

    def _node(self, path: Path, *, is_folder: bool) -> Node:
        """Return the node at `path`; held open, so that its number is given to nothing else once it is gone."""
        number = path.stat().st_ino
        if number not in self.nodes:
            self._open.callback(os.close, os.open(path, os.O_PATH))
            self.nodes[number] = Node(is_folder=is_folder, synced={} if is_folder else b"")
        return self.nodes[number]

    def _look(self) -> None:
        """See what there is below the root now."""
        for parent, folders, plain in os.walk(self.root):
            folder = Path(parent)
            entries: Entries = {name: (folder / name).stat().st_ino for name in (*folders, *plain)}
            known = self._node(folder, is_folder=True)
            assert isinstance(known.synced, dict)
            names = {name for held in (known.synced, *known.since) for name in held}
            gone: Entries = {str(name): None for name in names}
            known.see(gone | entries)
            for name in plain:
                node = self._node(folder / name, is_folder=False)
                node.see((folder / name).read_bytes())
                if name.startswith("run.db"):
                    node.sync()


def survived(node: Node, rng: random.Random) -> bytes | Entries:
    """Return something that `node` may be after a cut."""
    if isinstance(node.synced, bytes):
        held = rng.choice([node.synced, *node.since])
        assert isinstance(held, bytes)
        if held == node.synced:
            return held
        cut = rng.randrange(len(held) + 1)
        return rng.choice([held, held[:cut], held[:cut] + bytes(len(held) - cut), bytes(len(held))])
    versions = [held for held in (node.synced, *node.since) if isinstance(held, dict)]
    names = sorted({name for held in versions for name in held})
    return {name: rng.choice(versions).get(name) for name in names}


@contextmanager
def followed(root: Path) -> Generator[Disk]:
    """Follow what the block does below `root`."""
    with closing(Disk(root)) as disk, faults.listen(disk):
        yield disk

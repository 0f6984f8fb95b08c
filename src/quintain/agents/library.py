"""A library of actions that grows: functions that an agent wrote in episodes that it solved (DynaSaur, 2411.01747).

Each is kept with all it stands on: imports with their aliases, constants, and the other functions it calls, so that
it runs in a fresh process. Constants and imports are a function's own: those of two functions never meet. A function
that stands on anything else is not kept. Nothing is ever replaced; another function of a known name, in its text or in
what it stands on, gets a name with a number. A frozen library learns nothing, and none learns from held-out tasks.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from quintain.agents.functions import Definition, functions_of, rename
from quintain.errors import DataError
from quintain.types import Task
from quintain.types.json_text import load_json

WORD = re.compile(r"[A-Za-z]{3,}")
SILENT = frozenset(
    {"the", "and", "for", "with", "from", "that", "this", "return", "are", "not", "its", "all"}
)
"""Words that tell nothing of a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A function of the library: ``Entry(name="area", source="def area(a, b): ...", signature="area(a, b)")``."""

    name: str
    source: str
    signature: str
    description: str = ""
    """First line of its docstring."""
    setup: tuple[str, ...] = ()
    """Imports and constants it stands on, as statements."""
    depends: tuple[str, ...] = ()
    """Other functions of the library that it calls."""
    tools: tuple[str, ...] = ()
    """Tools of the environment that it calls."""
    num_uses: int = 0
    """Solved episodes in which it was called after the one it was written in."""


class ActionLibrary:
    """Functions by name; shared by all episodes of an agent, from several threads."""

    def __init__(
        self, entries: Iterable[Entry] = (), *, is_frozen: bool = False, path: Path | None = None
    ) -> None:
        """Hold `entries`; with `path`, every change is written there."""
        self.is_frozen = is_frozen
        self.path = path
        self._entries = {entry.name: entry for entry in entries}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, is_frozen: bool = False) -> ActionLibrary:
        """Return the library in the file at `path`, an empty one if there is none.

        Raises:
            DataError: the file holds no library; or there is none, and a frozen one could never fill.
        """
        if not path.exists():
            if is_frozen:
                raise DataError(
                    f"frozen action library: got {path}, which does not exist; let one grow first"
                )
            return cls(path=path)
        try:
            rows = load_json(path.read_text(encoding="utf-8"))
            entries = [_read_entry(row) for row in rows]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"action library: got {path}, which holds none ({error}); name another file"
            ) from error
        return cls(entries, is_frozen=is_frozen, path=path)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything in it, oldest first."""
        with self._lock:
            return tuple(self._entries.values())

    def learn(self, task: Task, cells: Sequence[str], tools: Collection[str]) -> tuple[str, ...]:
        """Keep the functions that the `cells` of a solved episode of `task` define, and count those that they call.

        `tools` are functions that the environment gives. Returns the names of new entries: none of a held-out task.
        """
        if self.is_frozen or task.is_held_out:
            return ()
        definitions, called = functions_of(cells, tools, {entry.name for entry in self.entries})
        with self._lock:
            new = self._find_kept(definitions)
            for name in called & self._entries.keys() - set(new):
                entry = self._entries[name]
                self._entries[name] = replace(entry, num_uses=entry.num_uses + 1)
            self._save()
        return new

    def relevant(self, query: str, max_entries: int, tools: Collection[str]) -> tuple[Entry, ...]:
        """Return the entries whose names and descriptions share the most telling words with `query`, best first.

        Only those are considered that need none but `tools`. A word counts ``log(1 + N / n)`` where n of the N
        entries hold it; entries without any are left out, and of equal ones the more used comes first.
        """
        asked = set(_words(query))
        words = {entry.name: set(_words(f"{entry.name} {entry.description}")) for entry in self.entries}
        counts = Counter(word for found in words.values() for word in found)
        scores = {
            name: sum(math.log(1 + len(words) / counts[word]) for word in found & asked)
            for name, found in words.items()
        }
        usable = [entry for entry in self.entries if self._tools(entry.name) <= set(tools)]
        ranked = sorted(usable, key=lambda entry: (-scores[entry.name], -entry.num_uses))
        return tuple(entry for entry in ranked if scores[entry.name] > 0)[:max_entries]

    def code(self, names: Iterable[str]) -> str:
        """Return Python that defines the functions `names` and all they stand on."""
        with self._lock:
            order: dict[str, Entry] = {}
            for name in names:
                self._collect(name, order)
        return "\n".join(_enclose_entry(entry) for entry in order.values())

    def _tools(self, name: str) -> set[str]:
        """Return the tools that entry `name` and all it stands on call."""
        order: dict[str, Entry] = {}
        self._collect(name, order)
        return {tool for entry in order.values() for tool in entry.tools}

    def _collect(self, name: str, order: dict[str, Entry]) -> None:
        """Add entry `name` and those it depends on to `order`."""
        if name not in order:
            entry = order[name] = self._entries[name]
            for other in entry.depends:
                self._collect(other, order)

    def _find_kept(self, definitions: Sequence[Definition]) -> tuple[str, ...]:
        """Add `definitions` and return the names of those that were not there in the same words."""
        names = {found.name: found.name for found in definitions}
        numbers = dict.fromkeys(names, 1)
        while clashing := [each for each in definitions if not self._fits(rename(each, names))]:
            for found in clashing:
                numbers[found.name] += 1
                names[found.name] = f"{found.name}_{numbers[found.name]}"
        new: list[str] = []
        for found in (rename(definition, names) for definition in definitions):
            if found.name not in self._entries:
                new.append(found.name)
                self._entries[found.name] = Entry(
                    name=found.name,
                    source=found.source,
                    signature=found.signature,
                    description=found.description,
                    setup=found.setup,
                    depends=found.depends,
                    tools=found.tools,
                )
        return tuple(new)

    def _fits(self, found: Definition) -> bool:
        """Whether the name of `found` is free, or that of the same function, which stands on the same."""
        old = self._entries.get(found.name)
        return old is None or (old.source, old.setup, old.depends, old.tools) == (
            found.source,
            found.setup,
            found.depends,
            found.tools,
        )

    def _save(self) -> None:
        """Write the library to its file, whole or not at all."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.draft")
        with draft.open("w", encoding="utf-8") as file:
            json.dump([asdict(entry) for entry in self._entries.values()], file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)


def _read_entry(row: Mapping[str, Any]) -> Entry:
    """Return the entry that is written as `row`."""
    several: dict[str, Any] = {key: tuple(row[key]) for key in ("setup", "depends", "tools")}
    return Entry(**{**row, **several})


def _enclose_entry(entry: Entry) -> str:
    """Return Python that defines the function of `entry`, its imports and constants in a scope of its own."""
    if not entry.setup:
        return entry.source
    text = f"def _define():\n    return {entry.name}\n{entry.name} = _define()\ndel _define"
    made = ast.parse(text)
    scope = made.body[0]
    assert isinstance(scope, ast.FunctionDef), "as it is written above"
    scope.body[:0] = [node for part in (*entry.setup, entry.source) for node in ast.parse(part).body]
    return ast.unparse(made)


def _words(text: str) -> list[str]:
    """Return the words of `text` in lower case, without a plural's s; names are taken apart."""
    words = (word.lower() for word in WORD.findall(text.replace("_", " ")))
    return [word.rstrip("s") for word in words if word not in SILENT]

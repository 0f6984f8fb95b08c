"""A library of actions that grows: functions that an agent wrote in episodes that it solved (DynaSaur, 2411.01747).

It is a bank of entries: one for each function, whose source is the task that it was written for and whose value is in
how many solved episodes it was called since. A function is kept with all it stands on, imports with their aliases,
constants, and other functions, so that it runs in a fresh process. Constants and imports are a function's own: those of
two functions never meet. A function that stands on anything else is not kept. Nothing is ever replaced; another
function of a known name, in its text or in what it stands on, gets a name with a number. Where there is no room, the
function that was called least, and that no other calls, is forgotten. None learns from held-out tasks.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from quintain.agents.functions import Definition, functions_of, rename
from quintain.errors import DataError
from quintain.memory.bank import Bank, Edit, Entry, load_bank
from quintain.types import Task

MAX_FUNCTIONS, MAX_LENGTH = 200, 4_000
"""Functions of a library, and characters of one with its constants."""
WORD = re.compile(r"[A-Za-z]{3,}")
SILENT = frozenset(
    {"the", "and", "for", "with", "from", "that", "this", "return", "are", "not", "its", "all"}
)
"""Words that tell nothing of a function."""
HEAD = re.compile(r"# functions:(.*)\n# tools:(.*)\n")


class ActionLibrary:
    """Functions by name: ``ActionLibrary().learn(task, ["def f(x): return x"], {"act"})`` is ``("f",)``."""

    def __init__(self, bank: Bank | None = None) -> None:
        """Hold the functions of `bank`.

        Raises:
            DataError: an entry is no function, or one that it stands on is missing.
        """
        self.bank = Bank(size=MAX_FUNCTIONS, length=MAX_LENGTH) if bank is None else bank
        self.num_refused = 0
        """functions that were too long, or for which there was no room"""
        for found in self.functions:
            if missing := set(found.depends) - {entry.id for entry in self.bank.entries}:
                raise DataError(
                    f"action library: got {found.name}, which calls {', '.join(sorted(missing))}; put them in, too"
                )

    @property
    def functions(self) -> tuple[Definition, ...]:
        """Everything in it, oldest first."""
        return tuple(read_function(entry.id, entry.text) for entry in self.bank.entries)

    def learn(self, task: Task, cells: Sequence[str], tools: Collection[str]) -> tuple[str, ...]:
        """Keep the functions that the `cells` of a solved episode of `task` define, and count those that they call.

        `tools` are functions that the environment gives. Returns the names of new entries: none of a held-out task.
        """
        if task.is_held_out:
            return ()
        definitions, called = functions_of(cells, tools, {entry.id for entry in self.bank.entries})
        new = self._keep(definitions, task)
        others = called - {found.name for found in definitions}  # its own function is none of the library's
        known = {entry.id: entry.value for entry in self.bank.entries if entry.id in others}
        self.bank.edit(Edit(kind="update", id=name, value=uses + 1) for name, uses in known.items())
        return new

    def relevant(self, query: str, count: int, tools: Collection[str]) -> tuple[Definition, ...]:
        """Return at most `count` functions that share telling words with `query`, best first (see `rank_by_words`).

        Only those are considered that can be called beside `tools`.
        """
        usable = {found.name for found in self.usable(tools)}

        def rank(query: str, entries: Sequence[Entry]) -> list[float]:
            scores = zip(entries, rank_by_words(query, entries), strict=True)
            return [score if entry.id in usable else 0.0 for entry, score in scores]

        found = self.bank.read(query, count, rank=rank, least=0.0)
        return tuple(read_function(read.entry.id, read.entry.text) for read in found)

    def usable(self, tools: Collection[str]) -> list[Definition]:
        """Return the functions that need none but `tools`, and hide none of them."""
        known = {found.name: found for found in self.functions}
        closures = {name: self._close([name], known) for name in known}
        return [
            known[name]
            for name, closure in closures.items()
            if not closure.keys() & set(tools)
            and {t for f in closure.values() for t in f.tools} <= set(tools)
        ]

    def code(self, names: Iterable[str]) -> str:
        """Return Python that defines the functions `names` and all they stand on."""
        known = {found.name: found for found in self.functions}
        return "\n".join(map(_enclose, self._close(names, known).values()))

    def _close(self, names: Iterable[str], known: dict[str, Definition]) -> dict[str, Definition]:
        """Return the functions `names` of those `known` and all they depend on, by name."""
        pending, found = list(names), dict[str, Definition]()
        while pending:
            name = pending.pop(0)
            if name not in found:
                found[name] = known[name]
                pending[:0] = known[name].depends
        return found

    def _keep(self, definitions: Sequence[Definition], task: Task) -> tuple[str, ...]:
        """Add `definitions` and return the names of those that were not there in the same words."""
        known = {found.name: found for found in self.functions}
        names = {found.name: found.name for found in definitions}
        numbers = dict.fromkeys(names, 1)
        while clashing := [
            each for each in definitions if not _fits(rename(each, names), known.get(names[each.name]))
        ]:
            for found in clashing:
                numbers[found.name] += 1
                names[found.name] = f"{found.name}_{numbers[found.name]}"
        renamed = [rename(definition, names) for definition in definitions]
        new = [found for found in renamed if found.name not in known]
        self._make_room(len(new), {name for found in renamed for name in (found.name, *found.depends)})
        self.bank.edit(
            Edit(
                kind="add",
                id=found.name,
                key=f"{found.name} {found.description}",
                text=write_function(found),
                source=task.id,
            )
            for found in new
        )
        while lost := [found for found in self.functions if set(found.depends) - self._names()]:
            self.bank.edit(Edit(kind="delete", id=found.name) for found in lost)
        kept = tuple(found.name for found in new if found.name in self._names())
        self.num_refused += len(new) - len(kept)
        return kept

    def _make_room(self, num: int, needed: Collection[str]) -> None:
        """Forget what was called least until `num` have room, but none that is `needed` or that others call."""
        while self.bank.size is not None and len(self.bank) + num > self.bank.size:
            called = {name for found in self.functions for name in found.depends}
            loose = [entry for entry in self.bank.entries if entry.id not in {*called, *needed}]
            if not loose:
                return
            self.bank.edit([Edit(kind="delete", id=min(loose, key=lambda entry: entry.value).id)])

    def _names(self) -> set[str]:
        return {entry.id for entry in self.bank.entries}


def load_library(path: Path) -> ActionLibrary:
    """Return the library in the file at `path`, frozen.

    Raises:
        DataError: there is none, or it holds other things than functions.
    """
    return ActionLibrary(load_bank(path).freeze())


def write_function(found: Definition) -> str:
    """Return the text of a function as it is kept: what it calls, what it stands on, and itself."""
    head = f"# functions: {', '.join(found.depends)}\n# tools: {', '.join(found.tools)}\n"
    return head + "\n".join((*found.setup, found.source))


@lru_cache(maxsize=4096)
def read_function(name: str, text: str) -> Definition:
    """Return the function `name` that `write_function` wrote as `text`, checked: nothing else stands in it.

    Raises:
        DataError: it holds none, or more.
    """
    head = HEAD.match(text)
    depends, tools = (
        [part.strip() for part in words.split(",") if part.strip()]
        for words in (head.groups() if head else ("", ""))
    )
    found, _ = functions_of([text], tools, depends)
    (own,) = found if len(found) == 1 else (None,)
    if own is None or own.name != name or write_function(own) != text:
        raise DataError(
            f"action library: got the entry {name[:40]!r}, which is no function as they are kept; name another file"
        )
    return own


def rank_by_words(query: str, entries: Sequence[Entry]) -> list[float]:
    """Return Σ log(1 + N / n) over the words that `query` shares with the key of each of N `entries`.

    n of them hold the word. Of equal ones the more used has a little more.
    """
    asked = set(_words(query))
    words = [set(_words(entry.key)) for entry in entries]
    counts = Counter(word for found in words for word in found)
    scores = [sum(math.log(1 + len(words) / counts[word]) for word in found & asked) for found in words]
    return [score * (1 + 1e-9 * entry.value) for score, entry in zip(scores, entries, strict=True)]


def _fits(found: Definition, old: Definition | None) -> bool:
    """Whether the name of `found` is free, or that of the same function, which stands on the same."""
    return old is None or replace(old, description=found.description) == found


@lru_cache(maxsize=4096)
def _enclose(found: Definition) -> str:
    """Return Python that defines a function, its imports and constants in a scope of its own."""
    if not found.setup:
        return found.source
    text = f"def _define():\n    return {found.name}\n{found.name} = _define()\ndel _define"
    made = ast.parse(text)
    scope = made.body[0]
    assert isinstance(scope, ast.FunctionDef), "as it is written above"
    scope.body[:0] = [node for part in (*found.setup, found.source) for node in ast.parse(part).body]
    return ast.unparse(made)


def _words(text: str) -> list[str]:
    """Return the words of `text` in lower case, without a plural's s; names are taken apart."""
    words = (word.lower() for word in WORD.findall(text.replace("_", " ")))
    return [word.rstrip("s") for word in words if word not in SILENT]

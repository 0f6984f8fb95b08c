"""A bounded memory of entries with sources, edited in total.

Whatever text asks for an edit, the bank stays sound: an edit that cannot be carried out is refused with its reason, and
nothing else happens. Reading may draw by chance, and then says how likely each entry was, which credit for retrieval
needs (Memento, arXiv 2508.16153, eq. 7: μ(c|s, M) ∝ exp(Q(s, c) / α)).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quintain.errors import DataError, UsageError
from quintain.store.files import replace_file
from quintain.types.json_text import load_json

HELD_OUT = re.compile(r"/eval/(seed-)?\d+(?![\w.])")
"""What is in the id of a held-out task: ``web/eval/3``."""
Rank = Callable[[str, Sequence["Entry"]], Sequence[float]]
"""(query, entries) → a score of each, the higher the better"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is kept: ``Entry(id="3", key="open red lamp", text="click red", value=1.0, source="web/train/3")``."""

    id: str
    key: str
    """what it is found by"""
    text: str
    """what is told of it"""
    value: float = 0.0
    """what it was worth, such as the reward of its episode"""
    source: str = ""
    """where it is from: the id of a task, or who wrote it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change that is asked for: ``Edit(kind="update", id="3", text="click lamps; click red")``.

    An update changes what is given and leaves the rest; an addition without an id gets a free number.
    """

    kind: Literal["add", "update", "delete"]
    id: str = ""
    key: str | None = None
    text: str | None = None
    value: float | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An entry that was found, and how likely it was: ``Read(entry=entry, chance=0.31)``."""

    entry: Entry
    chance: float
    """of being drawn in its place, given those drawn before it; 1 where the best are read"""


class Bank:
    """Entries by id: ``Bank(size=100).read("Task: open blue lamp.", 4, rank=rank_by_words)``.

    Args:
        entries: what it holds from the beginning.
        size: most entries; None: any number.
        length: most characters of a key or a text; None: any number.
        evicts: whether a full bank forgets its oldest entry for a new one; else the new one is refused.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        size: int | None = None,
        length: int | None = None,
        evicts: bool = False,
    ) -> None:
        if size is not None and size < 1:
            raise UsageError(f"size of a bank: got {size}; give 1 or more, or none for any number")
        self.size, self.length, self.evicts, self.is_frozen = size, length, evicts, False
        self._entries: dict[str, Entry] = {}
        self._next = 1
        refused = self.edit([Edit(kind="add", **_fields_of(entry)) for entry in entries])
        if refused:
            raise DataError(f"entries of a bank: got {refused[0]}")

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self._entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them, oldest first."""
        return tuple(self._entries.values())

    def read(
        self,
        query: str,
        count: int,
        *,
        rank: Rank,
        without: Collection[str] = (),
        temperature: float = 0.0,
        least: float = -np.inf,
        seed: int = 0,
    ) -> list[Read]:
        """Return at most `count` entries that fit `query`, best first.

        Args:
            query: what is looked for.
            count: most entries.
            rank: scores the entries, the higher the better; of equal scores the newer comes first.
            without: sources whose entries are not read, such as the task that is being played.
            temperature: 0: the best are read. Above: they are drawn one after the other without being put back, each in
                proportion to exp(score / temperature).
            least: entries with a score that is not above are not read.
            seed: of the drawing.
        """
        own = [entry for entry in reversed(self.entries) if entry.source not in without]
        scores = np.asarray(rank(query, own), np.float64) if own else np.zeros(0)
        if len(scores) != len(own) or np.isnan(scores).any():
            raise UsageError(f"scores of {len(own)} entries: got {len(scores)}, or some that are no number")
        places = [place for place in range(len(own)) if scores[place] > least]
        if not temperature:
            best = sorted(places, key=lambda place: -scores[place])[:count]
            return [Read(entry=own[place], chance=1.0) for place in best]
        rng = np.random.default_rng(seed)
        found: list[Read] = []
        while places and len(found) < count:
            chances = softmax(scores[places] / temperature)
            drawn = int(rng.choice(len(places), p=chances))
            found.append(Read(entry=own[places.pop(drawn)], chance=float(chances[drawn])))
        return found

    def edit(self, edits: Iterable[Edit]) -> list[str]:
        """Carry out `edits` in order; return of each that was refused why. Nothing is kept of a held-out task.

        Raises:
            UsageError: the bank is frozen.
        """
        if self.is_frozen:
            raise UsageError(
                "edit of a frozen bank: got one in an evaluation; keep what was learned in training only"
            )
        found = ((edit, self._refusal(edit)) for edit in edits)
        refused: list[str] = []
        for edit, reason in found:
            if reason:
                refused.append(reason)
            else:
                self._carry_out(edit)
        return refused

    def freeze(self) -> Bank:
        """Return a copy that cannot be edited, as evaluations get it."""
        copy = Bank(size=self.size, length=self.length, evicts=self.evicts)
        copy._entries, copy._next, copy.is_frozen = dict(self._entries), self._next, True
        return copy

    def digest(self) -> str:
        """Return a hash of all that is in it: equal before and after an evaluation."""
        rows = [asdict(entry) for entry in self.entries]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the entries to `path`, a JSON object a line; whatever happens, it is the old file or the new one."""
        lines = [json.dumps(asdict(entry), ensure_ascii=False) for entry in self.entries]
        replace_file(path, "".join(f"{line}\n" for line in lines).encode())

    def _refusal(self, edit: Edit) -> str:
        """Return why `edit` is not carried out; empty where it is."""
        said = f"{edit.kind} {edit.id or 'of a new entry'}"
        if edit.kind == "add":
            if not (edit.key or "").strip() or not (edit.text or "").strip():
                return f"{said}: got no key or no text; give both"
            if edit.id in self._entries:
                return f"{said}: got an id that is taken; update it, or leave the id out"
            if self.size is not None and len(self) >= self.size and not self.evicts:
                return f"{said}: got a bank that is full ({self.size} entries); delete one first"
        elif edit.kind in ("update", "delete"):
            if edit.id not in self._entries:
                return (
                    f"{said}: got an id that is not there; the bank has {', '.join(self._entries) or 'none'}"
                )
        else:
            return f"{said}: got an edit that is none; use add, update or delete"
        if edit.source is not None and HELD_OUT.search(edit.source):
            return f"{said}: got the source {edit.source}, which is held out; nothing of it is kept"
        for name in ("key", "text"):
            words = getattr(edit, name)
            if self.length is not None and words is not None and len(words) > self.length:
                return f"{said}: got a {name} of {len(words)} characters; at most {self.length} are kept"
        if edit.value is not None and not np.isfinite(edit.value):
            return f"{said}: got the value {edit.value}; give a finite number"
        return ""

    def _carry_out(self, edit: Edit) -> None:
        given = {name: value for name, value in asdict(edit).items() if name != "kind" and value is not None}
        if edit.kind == "delete":
            del self._entries[edit.id]
        elif edit.kind == "update":
            self._entries[edit.id] = replace(self._entries[edit.id], **given)
        else:
            while not given["id"] or given["id"] in self._entries:
                given["id"], self._next = str(self._next), self._next + 1
            if self.size is not None and len(self) >= self.size:
                del self._entries[next(iter(self._entries))]
            self._entries[given["id"]] = Entry(**given)


def load_bank(path: Path, **bounds: Any) -> Bank:
    """Return the bank that `Bank.save` wrote to `path`, with `bounds` as those of a `Bank`.

    Raises:
        DataError: the file is missing, or a line of it is no entry.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"bank: got {path}, which cannot be read ({error}); name another file") from error
    return Bank((_read_entry(path, number, line) for number, line in enumerate(lines, 1) if line), **bounds)


def softmax(scores: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return exp(x) / Σ exp(x) [N] of `scores` [N]."""
    grown = np.exp(scores - scores.max())
    return grown / grown.sum()


def _fields_of(entry: Entry) -> dict[str, Any]:
    return {field.name: getattr(entry, field.name) for field in fields(Entry)}


def _read_entry(path: Path, number: int, line: str) -> Entry:
    """Return the entry of a `line`.

    Raises:
        DataError: it is none.
    """
    kinds: dict[str, type | tuple[type, ...]] = {
        "id": str, "key": str, "text": str, "value": (int, float), "source": str
    }  # fmt: skip
    try:
        row = load_json(line)
    except ValueError:
        row = None
    if (
        not isinstance(row, dict)
        or not {"id", "key", "text"} <= row.keys() <= kinds.keys()
        or not all(
            isinstance(value, kinds[name]) and not isinstance(value, bool) for name, value in row.items()
        )
    ):
        raise DataError(f"bank: got {path}:{number}, which is no entry; give id, key, text, value and source")
    return Entry(**row)

"""Edits of a list of notes as text asks for them: ``add: TEXT``, ``update NUMBER: TEXT``, ``delete NUMBER``.

Any text may be written. What is no edit is counted, what cannot be carried out is refused by the bank, and nothing else
happens. The edits of a step are an event of the journal, so that a resumed run has its list again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quintain.memory.bank import Bank, Edit

if TYPE_CHECKING:
    from quintain.store.run import Run

MAX_EDITS, MAX_LENGTH = 2, 200
"""Edits of an answer, and characters of a note."""
LINE = re.compile(r"\W*(add|update|delete)\s*\[?(\w+)?\]?\s*(?::\s*(.*))?", re.IGNORECASE)


def read_edits(text: str, *, source: str) -> tuple[list[Edit], int]:
    """Return the first `MAX_EDITS` edits that the lines of `text` ask for, and how many lines ask for none.

    Example: "add: Look first.", "update 3: Look twice.", "delete [4]".
    """
    edits: list[Edit] = []
    unread = 0
    for line in (line.strip() for line in text.splitlines()):
        found = LINE.fullmatch(line)
        if found is None:
            unread += bool(line)
            continue
        kind, name, words = found[1].lower(), found[2] or "", " ".join((found[3] or "").split())[:MAX_LENGTH]
        if kind == "add" and words:
            edits.append(Edit(kind="add", key=words, text=words, source=source))
        elif kind == "update" and name and words:
            edits.append(Edit(kind="update", id=name, key=words, text=words, source=source))
        elif kind == "delete" and name:
            edits.append(Edit(kind="delete", id=name))
        else:
            unread += 1
    return edits[:MAX_EDITS], unread + max(len(edits) - MAX_EDITS, 0)


def merge(asked: Sequence[Edit], most: int) -> list[Edit]:
    """Return the `most` edits that are `asked` for most often, each once; of equal ones the first.

    Example: add a, add b, delete 1, add b → at most 2: add b, add a.
    """
    by_words: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in asked:
        by_words.setdefault((edit.kind, edit.id, edit.text or ""), []).append(edit)
    return [same[0] for same in sorted(by_words.values(), key=len, reverse=True)[:most]]


def record_edits(run: Run, event: str, step: int, edits: Sequence[Edit]) -> None:
    """Write the `edits` of `step` into the journal of `run` as an `event`."""
    run.event(event, f"{len(edits)} edits of step {step}", step=step, edits=[asdict(edit) for edit in edits])


def replay_edits(run: Run, event: str, size: int, *, before: int | None = None) -> Bank:
    """Return the list of at most `size` notes that the edits in the journal of `run` made, up to the step `before`."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for found in run.events():
        if found["kind"] == event and (before is None or int(found["data"]["step"]) < before):
            # a step that is done again counts once
            by_step[int(found["data"]["step"])] = found["data"]["edits"]
    bank = Bank(size=size, length=MAX_LENGTH)
    for _, rows in sorted(by_step.items()):
        bank.edit(Edit(**row) for row in rows)
    return bank

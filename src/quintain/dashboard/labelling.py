"""A person compares two sides: what is asked next, what was answered, and how both look in a page.

Whoever shows the questions, a browser or a terminal, asks a `Session` for the next one and gives it the answer, which
is on the disk before the next one is shown. Sides are conversations; what they say is escaped, whatever it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from quintain.dashboard.page import escape, page
from quintain.data.labels import Choice, Label, Labels, Query, read_labels
from quintain.errors import DataError
from quintain.store import files
from quintain.types import Message, as_text

SCRIPT = (Path(__file__).parent / "labelling.js").read_text(encoding="utf-8")
KEYS: Mapping[str, Choice] = {"1": "first", "2": "second", "=": "tie", "s": "skip"}
UNDO_KEY = "u"
MEANINGS: Mapping[str, str] = {
    "1": "the first is better",
    "=": "as good as each other",
    "2": "the second is better",
    "s": "cannot be compared",
    UNDO_KEY: "undo",
}


def now() -> str:
    """Return the time, in seconds, with its offset."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Session:
    """The labels file `file` as `labeller` answers it: ``Session(file, "ann").answer(query.id, "first")``.

    The file is read anew when it has changed, so that others can add to it meanwhile.
    """

    def __init__(self, file: Path, labeller: str, *, clock: Callable[[], str] = now) -> None:
        self.file, self.labeller, self._clock = file, labeller, clock
        self._lock = threading.Lock()
        self._read: tuple[tuple[int, int], Labels] | None = None

    @property
    def labels(self) -> Labels:
        """What the file says now."""
        state = self.file.stat() if self.file.exists() else None
        key = (0, 0) if state is None else (state.st_size, state.st_mtime_ns)
        if self._read is None or self._read[0] != key:
            self._read = key, read_labels(self.file)
        return self._read[1]

    def ask(self, queries: Sequence[Query]) -> None:
        """Add those of `queries` to the file that it does not ask yet."""
        with self._lock:
            known = self.labels.queries
            self._append([query.line() for query in queries if query.id not in known])

    def next(self) -> Query | None:
        """Return the first question that the labeller has not answered."""
        return next(iter(self.labels.left(self.labeller)), None)

    def answer(self, id: str, choice: Choice) -> bool:
        """Write down the answer to the question `id`; return False where it has one already, which stays.

        Raises:
            DataError: nobody asks that.
        """
        with self._lock:
            if id not in self.labels.queries:
                raise DataError(
                    f"answer to the query {id}: got a name that {self.file} does not ask; reload it"
                )
            if id in self.labels.of(self.labeller):
                return False
            self._append([Label(query=id, choice=choice, labeller=self.labeller, time=self._clock()).line()])
            return True

    def undo(self) -> Query | None:
        """Take the labeller's last answer back, and return its question; None where there is none."""
        with self._lock:
            last = next(reversed(self.labels.of(self.labeller).values()), None)
            if last is None:
                return None
            back = Label(query=last.query, choice=last.choice, labeller=self.labeller, time=self._clock())
            self._append([back.line(is_undone=True)])
            return self.labels.queries[last.query]

    def _append(self, lines: Sequence[str]) -> None:
        """Add `lines` to the file, and force them to the disk."""
        if not lines:
            return
        try:
            if self.file.exists() and self.file.stat().st_size and self.file.read_bytes()[-1:] != b"\n":
                files.append_line(self.file, "")  # ends the last line, which an editor may have left open
            for line in lines:
                files.append_line(self.file, line)
            files.sync_file(self.file)
        except OSError as error:
            raise files.disk_error("adding a label", self.file, error, then="label on") from error


def words(message: Message) -> str:
    """Return what a person reads of `message`: its text, then its calls."""
    calls = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in message.tool_calls
    ]
    return "\n".join(part for part in (as_text(message.content), *calls) if part)


def progress(session: Session) -> str:
    """Return how far the labeller has come: ``7 of 50 answered by ann``."""
    labels = session.labels
    return f"{len(labels.of(session.labeller))} of {len(labels.queries)} answered by {session.labeller}"


def question_page(session: Session) -> str:
    """Return the page with the next question of `session`, or that there is none."""
    query, where = session.next(), progress(session)
    if query is None:
        body = "<p>Nothing is left to compare. Reload this page when there is more.</p>"
        keys = [UNDO_KEY]
    else:
        shared, first, second = query.parts
        before = f"<details><summary>Both begin with</summary>{_html(shared)}</details>" if shared else ""
        cells = "".join(
            f"<td><h2><kbd>{key}</kbd>{name}</h2>{_html(side)}</td>"
            for key, name, side in (("1", "first", first), ("2", "second", second))
        )
        body = f'{before}<table class="pair"><tr>{cells}</tr></table>'
        keys = [*MEANINGS]
    if not session.labels.of(session.labeller):
        keys.remove(UNDO_KEY)
    id = "" if query is None else query.id
    buttons = "".join(
        f'<form method="post" action="answer/{id or "none"}/{_WORDS[key]}"><button data-key="{key}">'
        f"<kbd>{key}</kbd>{MEANINGS[key]}</button></form>"
        for key in keys
    )
    task = "" if query is None else str(query.first.get("task", ""))
    head = f'<h1>Which is better?</h1><p class="soft">{escape(where)} · {escape(task)}</p>'
    return page(
        f"{session.file.name} · {where}", f'{head}{body}<div class="keys">{buttons}</div>', script=SCRIPT
    )


_WORDS: Mapping[str, str] = {**KEYS, UNDO_KEY: "undo"}


def _html(messages: Sequence[Message]) -> str:
    """Return `messages` as blocks; what the agent said is marked."""
    return "".join(
        f'<p class="soft">{escape(message.role)}</p>'
        f'<pre><span class="{_marked(message)}">{escape(words(message))}</span></pre>'
        for message in messages
    )


def _marked(message: Message) -> str:
    return "sampled" if message.role == "assistant" else "prompt"

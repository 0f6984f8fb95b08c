"""Asking people, and writing down what they answer.

Whoever shows the questions, a browser or a terminal, asks a `Session` for the next one and gives it the answer, which
is on the disk before the next one is shown. A run that needs answers adds its questions and waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from quintain.data.labels import Choice, Label, Labels, Query, read_labels
from quintain.errors import DataError
from quintain.store import files

FILE = "labels.jsonl"
"""What the labels of a run are called in its folder."""


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
        """What the file says now.

        Raises:
            DataError: a line of it is no label. StoreError: it cannot be read.
        """
        try:
            state = self.file.stat() if self.file.exists() else None
            key = (0, 0) if state is None else (state.st_size, state.st_mtime_ns)
            if self._read is None or self._read[0] != key:
                self._read = key, read_labels(self.file)
            return self._read[1]
        except OSError as error:
            raise files.disk_error("reading labels", self.file, error, then="label on") from error

    @property
    def progress(self) -> str:
        """How far the labeller has come: ``7 of 50 answered by ann``."""
        labels = self.labels
        return f"{len(labels.of(self.labeller))} of {len(labels.queries)} answered by {self.labeller}"

    def ask(self, queries: Sequence[Query]) -> None:
        """Add those of `queries` to the file that it does not ask yet."""
        with self._lock:
            known = self.labels.queries
            self._append([query.line() for query in queries if query.id not in known])

    def ask_until(self, count: int, drawn: Iterable[Query], *, of: str) -> None:
        """Add questions of `drawn` until the file asks `count`; `of` says of what they are.

        Raises:
            DataError: nothing is asked then.
        """
        known, fresh = self.labels.queries, dict[str, Query]()
        for query in drawn if len(known) < count else ():
            if query.id not in known:
                fresh.setdefault(query.id, query)
            if len(known) + len(fresh) == count:
                break
        self.ask(list(fresh.values()))
        if not self.labels.queries:
            raise DataError(
                f"{of}: got none to compare, because no two of the same task differ; collect several episodes of a task"
            )

    def next(self) -> Query | None:
        """Return the first question that the labeller has not answered."""
        return next(iter(self.labels.open_queries(self.labeller)), None)

    def answer(self, id: str, choice: Choice, remark: str = "") -> bool:
        """Write down the answer to the question `id`, with a `remark`; return False where it has one, which stays.

        Raises:
            DataError: nobody asks that.
        """
        return self.answer_all({id: choice}, remark) == 1

    def answer_all(self, choices: Mapping[str, Choice], remark: str = "") -> int:
        """Write down answers by their questions, at once; return how many there were that had none before.

        Raises:
            DataError: nobody asks one of them.
        """
        with self._lock:
            labels, known = self.labels, self.labels.of(self.labeller)
            if unknown := [id for id in choices if id not in labels.queries]:
                raise DataError(
                    f"answer to the query {unknown[0]}: got a name that {self.file} does not ask; reload it"
                )
            fresh: dict[str, Choice] = {id: choice for id, choice in choices.items() if id not in known}
            time = self._clock() if fresh else ""
            self._append(
                [
                    Label(query=id, choice=choice, labeller=self.labeller, time=time, remark=remark).line()
                    for id, choice in fresh.items()
                ]
            )
            return len(fresh)

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

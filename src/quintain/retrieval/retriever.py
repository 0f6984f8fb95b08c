"""Who finds passages: an index in this process, a server over HTTP, and a record of what either answered.

The server's form is Search-R1's: ``POST /retrieve`` with ``{"queries": ["…"], "topk": 3, "return_scores": true}``
is answered by ``{"result": [[{"document": {"id": "7", "contents": "title\\ntext"}, "score": 1.5}]]}``. What does not
come in time or cannot be read is a `RetrievalTrouble`, never an empty answer.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args
from urllib.parse import urlsplit

from quintain.errors import DataError, QuintainError, StoreError, UsageError, suggestion
from quintain.processes.http_json import UNREADABLE, HttpServer, HttpTrouble
from quintain.retrieval.bm25 import BM25
from quintain.retrieval.passages import Passage, fingerprint, passage_of
from quintain.types.unicode import valid_text

Kind = Literal["bm25", "dense", "hnsw"]
"""By words; by an embedder, with an exact index; or with one that looks at a part of the texts."""
DEADLINE = 10.0
"""Seconds that a search by a server may take, with all its attempts."""
EPOCHS = 3
"""Epochs in which an embedder is trained on the passages it is to find."""


class RetrievalTrouble(QuintainError):
    """A search that came to nothing because of who searches: ``RetrievalTrouble("timeout", "…")``."""

    exit_code = 3

    def __init__(self, kind: str, message: str) -> None:
        """Hold the `kind` of trouble, for counting, and one line for people."""
        super().__init__(message)
        self.kind = kind


class FoundPassage(NamedTuple):
    """A passage, and how well it fits."""

    passage: Passage
    score: float


class Retriever(Protocol):
    """Who finds passages."""

    @property
    def name(self) -> str:
        """What it is and what it searches: equal names give equal answers, unless a server's texts change."""
        ...

    def search(self, query: str, count: int) -> tuple[FoundPassage, ...]:
        """Return the at most `count` passages that fit `query`, the best first.

        Raises:
            RetrievalTrouble: there is no answer.
        """
        ...


class _Index(Protocol):
    def search(self, query: str, count: int) -> list[tuple[int, float]]: ...


class Indexed:
    """An index over `passages` in this process: ``Indexed(passages, "bm25").search("orbit", 3)``."""

    def __init__(self, passages: Sequence[Passage], kind: str = "bm25", *, model: Path | None = None) -> None:
        """Index `passages`; the embedder of a dense index is read from `model`, else trained on them and written there.

        Raises:
            DataError: there is no passage, or the file holds no embedder.
            UsageError: there is no such kind.
            MissingExtra: bm25s is not installed, or for hnsw faiss.
        """
        if kind not in get_args(Kind):
            raise UsageError(f"kind of retriever: got {kind!r}; {suggestion(kind, get_args(Kind))}")
        if not passages:
            raise DataError("passages to search: got none; give a corpus that holds some")
        self.passages = tuple(passages)
        texts = [f"{passage.title} {passage.text}" for passage in self.passages]
        self._index: _Index = BM25(texts) if kind == "bm25" else dense_index(texts, model, kind)
        self.name = f"{kind}/{fingerprint(self.passages)}"

    def search(self, query: str, count: int) -> tuple[FoundPassage, ...]:
        """See `Retriever.search`."""
        return tuple(
            FoundPassage(self.passages[number], score) for number, score in self._index.search(query, count)
        )


def dense_index(texts: Sequence[str], model: Path | None, kind: str = "dense") -> _Index:
    """Return the dense index over `texts` by the embedder in `model`, or by one that is trained on them, and kept.

    A folder is a run of `dare`, or holds its embedder; a file is what `quintain.retrieval.dense` saved.
    """
    from quintain.retrieval.dense import Dense, Embedder, Graph, cloze_pairs  # torch is not needed for words

    make = Graph if kind == "hnsw" else Dense

    if model is not None and model.is_dir():
        from quintain.models.embedder import Embedder as Trained

        return make(texts, Trained.load(model))
    if model is not None and model.is_file():
        return make(texts, Embedder.load(model))
    embedder = Embedder()
    embedder.fit(cloze_pairs(texts), epochs=EPOCHS)
    if model is not None:
        embedder.save(model)
    return make(texts, embedder)


class Remote:
    """A server that is asked: ``Remote("http://127.0.0.1:8200").search("orbit", 3)``."""

    def __init__(self, url: str, *, deadline: float = DEADLINE, key: str = "") -> None:
        """Prepare to ask; nothing is sent yet. Without a path in `url` it is ``/retrieve``.

        Raises:
            UsageError: `url` is no http(s) URL, or the deadline is not positive.
        """
        self._server = HttpServer(url, deadline=deadline, key=key)
        self._path = "" if urlsplit(self._server.url).path else "/retrieve"
        self.name = self._server.url.partition("?")[0]

    def search(self, query: str, count: int) -> tuple[FoundPassage, ...]:
        """See `Retriever.search`."""
        body = {"queries": [query], "topk": count, "return_scores": True}
        try:
            return self._server.ask("POST", self._path, body, read=lambda answer: _read(answer, count))
        except HttpTrouble as trouble:
            raise RetrievalTrouble(
                trouble.kind,
                f"retrieval server at {self.name}: got {trouble.got}; start one with `quintain retrieve CORPUS`",
            ) from trouble

    def close(self) -> None:
        """Give up what waits between two attempts."""
        self._server.close()


def _read(answer: Any, count: int) -> tuple[FoundPassage, ...]:
    """Return the passages in the `answer` to one query; raises what `HttpServer.ask` takes for unreadable."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"the answer must be an object, not {type(answer).__name__}")
    rows: Any = cast("Mapping[str, Any]", answer)["result"]
    if not isinstance(rows, list) or len(cast("list[Any]", rows)) != 1 or not isinstance(rows[0], list):
        raise TypeError("result must be a list with one list of passages, for the one query")
    own = cast("list[Any]", rows[0])
    if len(own) > count:
        raise ValueError(f"{len(own)} passages, where {count} were asked for")
    found: list[FoundPassage] = []
    for number, row in enumerate(own):
        passage = passage_of(row.get("document", row) if isinstance(row, dict) else row, str(number))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        found.append(FoundPassage(passage, check_number(cast("dict[str, Any]", row).get("score", 0.0))))
    return tuple(found)


def check_number(value: object) -> float:
    """Return `value` as a finite number; raises what `HttpServer.ask` takes for unreadable."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"a score must be a number, not {value!r:.40}")
    return float(value)


class Recorded:
    """What `inner` answered, kept in the file `path`: asked again, the same comes back and costs nothing.

    With `inner` None the record alone answers. Threads and processes may share a file.
    """

    def __init__(self, inner: Retriever | None, path: str | Path, *, name: str = "") -> None:
        """Open the record, an SQLite file; it is made where there is none. `name` is that of a retriever left out.

        Raises:
            StoreError: the file cannot be opened, or is no record.
            UsageError: there is neither a retriever nor a record.
        """
        self.inner, self.path = inner, Path(path)
        self.num_asked, self.num_recalled, self.seconds_saved = 0, 0, 0.0
        if inner is None and not self.path.is_file():
            raise UsageError(
                f"record {self.path}: got nothing there to replay; record it first, with a retriever"
            )
        self._lock = threading.Lock()
        try:
            self._rows = sqlite3.connect(
                self.path, timeout=60.0, check_same_thread=False, isolation_level=None
            )
            self._rows.execute("PRAGMA trusted_schema=OFF")
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS answers (retriever TEXT, query TEXT, count INTEGER, answer TEXT, "
                "seconds REAL, PRIMARY KEY (retriever, query, count))"
            )
            if self._rows.execute(
                "SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')"
            ).fetchone():
                raise sqlite3.DatabaseError("views or triggers")
            known = [row[0] for row in self._rows.execute("SELECT DISTINCT retriever FROM answers")]
        except sqlite3.Error as error:
            raise StoreError(f"record {self.path}: got {error}; give a record, or a new file") from error
        if inner is None and not name and len(known) != 1:
            raise UsageError(
                f"record {self.path}: got answers of {len(known)} retrievers; say which one is replayed"
            )
        self.name = inner.name if inner is not None else name or known[0]

    def search(self, query: str, count: int) -> tuple[FoundPassage, ...]:
        """See `Retriever.search`; trouble is not recorded."""
        query = valid_text(query)
        with self._lock:
            row = self._rows.execute(
                "SELECT answer, seconds FROM answers WHERE retriever = ? AND query = ? AND count = ?",
                (self.name, query, count),
            ).fetchone()
            if row is not None:
                return self._recall(*row)
        if self.inner is None:
            raise RetrievalTrouble(
                "not_recorded",
                f"record {self.path}: got the query {query!r:.80}, which it does not hold; record it",
            )
        began = time.monotonic()
        found = self.inner.search(query, count)
        seconds = time.monotonic() - began
        with self._lock:
            self.num_asked += 1
            self._rows.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?)",
                (self.name, query, count, _write_passages(found), seconds),
            )
        return found

    def _recall(self, answer: object, seconds: object) -> tuple[FoundPassage, ...]:
        """Return the passages in an `answer` that took so many `seconds`.

        Raises:
            StoreError: it is not what a record holds.
        """
        try:
            found = tuple(
                FoundPassage(passage_of({"id": name, "title": title, "text": text}, ""), check_number(score))
                for name, title, text, score in json.loads(cast(str, answer))
            )
            self.seconds_saved += check_number(seconds)
        except UNREADABLE as error:
            raise StoreError(
                f"record {self.path}: got an answer that cannot be read ({error}); record it anew"
            ) from error
        self.num_recalled += 1
        return found

    def drift(self, *, most: int | None = None) -> list[str]:
        """Ask the retriever for what is recorded again, at most `most`; return the queries it answers otherwise now.

        Raises:
            UsageError: the record is replayed without a retriever.
            RetrievalTrouble: there is no answer.
        """
        if self.inner is None:
            raise UsageError(f"drift of {self.path}: got no retriever to compare with; give one")
        with self._lock:
            rows = self._rows.execute(
                "SELECT query, count, answer FROM answers WHERE retriever = ? ORDER BY query, count LIMIT ?",
                (self.name, -1 if most is None else most),
            ).fetchall()
        return [
            query
            for query, count, answer in rows
            if _write_passages(self.inner.search(query, count)) != answer
        ]

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def _write_passages(found: Sequence[FoundPassage]) -> str:
    return json.dumps(
        [[each.passage.id, each.passage.title, each.passage.text, each.score] for each in found]
    )

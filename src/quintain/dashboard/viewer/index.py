"""An index of a run's episodes, beside it in the user's cache: quick to filter, sort and search.

The journal is the truth and is only read; the index may be deleted at any time and is made again. Facts that stand in
the journal's columns are taken first, within a second or two for a hundred thousand episodes. What stands in the
records alone (words, seats, tools, reward terms) is read in the background, and `Index.num_read` says how far.
A run that was begun anew under the same name, or taken up after a kill, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quintain.data.seats import seat_returns, speakers
from quintain.errors import QuintainError, UsageError
from quintain.store import Run
from quintain.store.rows import MAX_STEPS, Recorded
from quintain.types import Trajectory, as_text

VERSION = 3
"""Of the tables below; an index of another version is made again."""
AT_ONCE, READ_AT_ONCE, LINKS_AT_ONCE = 5_000, 100, 50
"""Episodes whose facts, and whose records, are taken at once, and steps whose uses are."""
MAX_WORDS = 20_000
"""Characters of an episode that can be searched."""
MAX_FACETS = 50
"""Values of a column that can be chosen from."""
MAX_PAGE = 500
"""Episodes that are listed at once."""
MAX_RELATIVES = 200
"""Episodes of a tree that are drawn."""
SORTS: Mapping[str, str] = {
    "order": "e.row",
    "step": "e.step",
    "value": "e.value",
    "turns": "e.turns",
    "tokens": "e.tokens",
    "seconds": "e.seconds",
    "task": "e.task",
}
"""What episodes can be sorted by → the column."""
EXACT = ("phase", "task", "environment", "split", "stop", "policy", "group", "owner", "kind")
"""Filters that are equal to a column."""
OUTCOMES: Mapping[str, str] = {
    "solved": "e.success = 1",
    "unsolved": "e.success = 0",
    "failed": "e.owner IS NOT NULL",
    "scored": "e.owner IS NULL",
}

TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE episodes (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, parent INTEGER, parent_turn INTEGER, phase TEXT NOT NULL,
    step INTEGER NOT NULL, "group" TEXT NOT NULL, place INTEGER NOT NULL, task TEXT NOT NULL,
    environment TEXT NOT NULL, split TEXT NOT NULL, value REAL, success INTEGER, owner TEXT, kind TEXT,
    stop TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL, seconds REAL NOT NULL, policy TEXT NOT NULL,
    version INTEGER, is_superseded INTEGER NOT NULL
);
CREATE INDEX by_id ON episodes (id);
CREATE INDEX by_step ON episodes (step, phase);
CREATE INDEX by_phase ON episodes (phase, step) WHERE is_superseded = 0;
CREATE INDEX by_kind ON episodes (phase, environment, stop, policy, owner, kind) WHERE is_superseded = 0;
CREATE INDEX by_failure ON episodes (step, owner, kind) WHERE owner IS NOT NULL AND is_superseded = 0;
CREATE INDEX by_tokens ON episodes (tokens) WHERE is_superseded = 0;
CREATE INDEX by_outcome ON episodes (success) WHERE is_superseded = 0;
CREATE INDEX by_task ON episodes (task);
CREATE INDEX by_parent ON episodes (parent) WHERE parent IS NOT NULL;
CREATE TABLE uses (step_row INTEGER NOT NULL, step INTEGER NOT NULL, episode INTEGER NOT NULL, rejected INTEGER);
CREATE INDEX by_use ON uses (episode);
CREATE TABLE terms (name TEXT NOT NULL, episode INTEGER NOT NULL, value REAL NOT NULL);
CREATE INDEX by_term ON terms (name, episode);
CREATE TABLE marks (kind TEXT NOT NULL, name TEXT NOT NULL, episode INTEGER NOT NULL);
CREATE INDEX by_mark ON marks (kind, name, episode);
"""
WORDS = "CREATE VIRTUAL TABLE words USING fts5 (said, content='')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which episodes are asked for: ``Query(equal={"phase": "train"}, first_step=3, last_step=3, words="sun")``."""

    equal: Mapping[str, str]
    """of `EXACT`, what a column is to be"""
    outcome: str = ""
    """of `OUTCOMES`; empty: any"""
    first_step: int = 0
    last_step: int = MAX_STEPS
    seat: str = ""
    tool: str = ""
    term: str = ""
    """a reward term that it was given, other than 0"""
    words: str = ""
    sort: str = "order"
    is_descending: bool = False
    offset: int = 0
    limit: int = 50


class Index:
    """The index of the run in `folder`, kept in `cache`; None keeps it in memory. May be used from several threads."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        """Open the index, or make one.

        Raises:
            UsageError: `folder` is no run. StoreError: its journal cannot be read.
        """
        self.folder = folder
        self._mutex = threading.RLock()
        self._reading = threading.Lock()
        self.has_words = True
        """Whether this SQLite can search."""
        with closing(Run.open(folder, writable=False)) as run:
            self._mark = f"{VERSION} {run.created} {folder.absolute()}"
        self._file = None if cache is None else cache / f"{_name(folder)}.db"
        try:
            self._connection = self._open(self._file)
        except (sqlite3.Error, OSError):  # the cache is full, read-only or damaged: it is only a cache
            self._file = None
            self._connection = self._open(None)

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._connection.close()

    def update(self, run: Run) -> None:
        """Take in what the journal of `run` has more than the index: facts of all episodes, and what steps used."""
        superseded = run.read_superseded()
        with self._mutex:
            if str(len(superseded)) != self._about("superseded"):
                self._connection.execute("UPDATE episodes SET is_superseded = 0 WHERE is_superseded = 1")
                self._connection.executemany(
                    "UPDATE episodes SET is_superseded = 1 WHERE row = ?", [(row,) for row in superseded]
                )
                self._connection.execute("DELETE FROM uses")
                self._note(superseded=len(superseded), links=0)
                self._connection.commit()
            last = self._one("SELECT ifnull(max(row), 0) FROM episodes")
        while rows := run.read_facts(last, AT_ONCE):
            kept = [fact for row in rows if (fact := _read_fact(row)) is not None]
            marks = ", ".join("?" * 22)
            with self._mutex:
                self._connection.executemany(f"INSERT OR IGNORE INTO episodes VALUES ({marks})", kept)
                self._connection.commit()
            last = rows[-1][0]
        self._link(run)

    def _link(self, run: Run) -> None:
        """Take in which episodes the steps used that were committed since."""
        last = int(self._about("links") or 0)
        while rows := run.read_links(last, LINKS_AT_ONCE):
            last = max(row[0] for row in rows)
            kept = [row for row in rows if all(type(part) is int for part in row[:3])]
            with self._mutex:
                self._connection.executemany("INSERT INTO uses VALUES (?, ?, ?, ?)", kept)
                self._note(links=last)
                self._connection.commit()

    def read_records(self, run: Run, most: int = READ_AT_ONCE) -> int:
        """Take in words, seats, tools and terms of the next `most` episodes, and return how many were left to read."""
        with self._reading:
            done = int(self._about("read") or 0)
            last = self._one("SELECT ifnull(max(row), 0) FROM episodes")
            if done >= last:
                return 0
            found = list(run.read_rows(after=done, most=most))
            end = found[-1].row if len(found) == most else last
            with self._mutex:
                for each in found:
                    self._take(each)
                self._note(read=end)
                self._connection.commit()
                return self._one("SELECT count(*) FROM episodes WHERE row > ?", end)

    def _take(self, recorded: Recorded) -> None:
        """Take in what stands in one record."""
        row, trajectory = recorded.row, recorded.trajectory
        execute = self._connection.execute
        if self.has_words:
            with suppress(sqlite3.Error):  # a text that it cannot split
                execute("INSERT INTO words (rowid, said) VALUES (?, ?)", (row, _clean(words_of(trajectory))))
        for name, value in terms_of(trajectory).items():
            execute("INSERT INTO terms VALUES (?, ?, ?)", (_clean(name), row, value))
        for kind, names in (("seat", speakers(trajectory)), ("tool", tools_of(trajectory))):
            self._connection.executemany(
                "INSERT INTO marks VALUES (?, ?, ?)", [(kind, _clean(name), row) for name in names]
            )

    @property
    def num_read(self) -> tuple[int, int]:
        """How many episodes were read for words, seats, tools and terms, and how many there are."""
        done = int(self._about("read") or 0)
        with self._mutex:
            return (
                self._one("SELECT count(*) FROM episodes WHERE row <= ?", done),
                self._one("SELECT count(*) FROM episodes"),
            )

    def find(self, query: Query) -> tuple[list[dict[str, Any]], int]:
        """Return a page of episodes that `query` asks for, and how many there are in all.

        Raises:
            UsageError: it sorts by something else, or asks for an outcome that does not exist.
        """
        where, values = self._conditions(query)
        if query.sort not in SORTS:
            raise UsageError(f"sort: got {query.sort!r:.60}; use one of {', '.join(SORTS)}")
        order = f"{SORTS[query.sort]} {'DESC' if query.is_descending else 'ASC'}, e.row"
        limit = max(1, min(query.limit, MAX_PAGE))
        with self._mutex:
            total = self._one(f"SELECT count(*) FROM episodes AS e WHERE {where}", *values)
            rows = self._rows(
                f"SELECT e.* FROM episodes AS e WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
                *values, limit, max(0, query.offset),
            )  # fmt: skip
            self._add_terms(rows)
        return rows, total

    def _conditions(self, query: Query) -> tuple[str, list[Any]]:
        """Return the condition of `query`, and its values."""
        parts, values = ["e.is_superseded = 0"], list[Any]()
        for name, value in query.equal.items():
            if name not in EXACT:
                raise UsageError(f"filter: got {name!r:.60}; use one of {', '.join(EXACT)}")
            parts.append(f'e."{name}" = ?')
            values.append(value)
        if query.outcome:
            if query.outcome not in OUTCOMES:
                raise UsageError(f"outcome: got {query.outcome!r:.60}; use one of {', '.join(OUTCOMES)}")
            parts.append(OUTCOMES[query.outcome])
        if query.first_step > 0 or query.last_step < MAX_STEPS:
            parts.append("e.step BETWEEN ? AND ?")
            values += [query.first_step, query.last_step]
        for kind, name in (("seat", query.seat), ("tool", query.tool)):
            if name:
                parts.append("e.row IN (SELECT episode FROM marks WHERE kind = ? AND name = ?)")
                values += [kind, name]
        if query.term:
            parts.append("e.row IN (SELECT episode FROM terms WHERE name = ? AND value != 0)")
            values.append(query.term)
        if query.words.strip():
            if not self.has_words:
                raise UsageError("search: got a SQLite without FTS5; filter by task, tool or term")
            parts.append("e.row IN (SELECT rowid FROM words WHERE words MATCH ?)")
            values.append(_phrases(query.words))
        return " AND ".join(parts), values

    def _add_terms(self, rows: Sequence[dict[str, Any]]) -> None:
        """Put the reward terms of `rows` beside them."""
        by_row = {row["row"]: row for row in rows}
        for row in rows:
            row["terms"] = {}
        if not rows:
            return
        found = self._connection.execute(
            "SELECT episode, name, value FROM terms WHERE episode IN (SELECT value FROM json_each(?))",
            (json.dumps(list(by_row)),),
        )
        for episode, name, value in found:
            by_row[episode]["terms"][name] = value

    def facets(self) -> dict[str, list[tuple[str, int]]]:
        """Return what can be filtered by: the values of each column of few, and how many episodes have each."""
        found: dict[str, list[tuple[str, int]]] = {}
        names = ("phase", "environment", "stop", "policy", "owner", "kind")
        with self._mutex:
            columns = ", ".join(f'"{name}"' for name in names)
            rows = self._connection.execute(
                f"SELECT {columns}, count(*) FROM episodes WHERE is_superseded = 0 GROUP BY {columns}"
            ).fetchall()
            for place, name in enumerate(names):
                counts: Counter[str] = Counter()
                for row in rows:
                    if row[place] is not None:
                        counts[row[place]] += row[-1]
                found[name] = counts.most_common(MAX_FACETS)
            for kind in ("seat", "tool"):
                found[kind] = self._count(
                    "SELECT name, count(*) FROM marks WHERE kind = ? GROUP BY name ORDER BY 2 DESC LIMIT 50",
                    kind,
                )
            found["term"] = self._count(
                "SELECT name, count(*) FROM terms GROUP BY name ORDER BY 2 DESC LIMIT 50"
            )
        return found

    def count_after(self, step: int) -> dict[str, int]:
        """Return how many episodes were collected for steps behind `step`, by phase."""
        with self._mutex:
            return dict(
                self._count(
                    "SELECT phase, count(*) FROM episodes WHERE step > ? AND is_superseded = 0 GROUP BY phase",
                    step,
                )
            )

    def count_failures(self) -> list[dict[str, Any]]:
        """Return how many episodes failed, by step, owner and kind."""
        with self._mutex:
            return self._rows(
                "SELECT e.step, e.owner, e.kind, count(*) AS num FROM episodes AS e WHERE e.owner IS NOT NULL "
                "AND e.is_superseded = 0 GROUP BY e.step, e.owner, e.kind ORDER BY e.step"
            )

    def episode(self, name: str) -> dict[str, Any] | None:
        """Return the facts of the episode `name`; None where there is none."""
        with self._mutex:
            rows = self._rows(
                "SELECT e.* FROM episodes AS e WHERE e.id = ? ORDER BY e.is_superseded, e.row", name
            )
            self._add_terms(rows[:1])
        return rows[0] if rows else None

    def neighbours(self, found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the members of the group of an episode, what was played on from it, and what it was played on from."""
        with self._mutex:
            group = self._rows(
                'SELECT e.* FROM episodes AS e WHERE e.step = ? AND e.phase = ? AND e."group" = ? AND '
                "e.is_superseded = 0 ORDER BY e.place LIMIT 200",
                found["step"], found["phase"], found["group"],
            )  # fmt: skip
            children = self._rows(
                "SELECT e.* FROM episodes AS e WHERE e.parent = ? AND e.is_superseded = 0 LIMIT 200",
                found["row"],
            )
            parents = self._rows("SELECT e.* FROM episodes AS e WHERE e.row = ?", found["parent"])
            around = [
                self._rows(
                    f"SELECT e.* FROM episodes AS e WHERE e.row {sign} ? AND e.is_superseded = 0 "
                    f"ORDER BY e.row {order} LIMIT 1",
                    found["row"],
                )
                for sign, order in (("<", "DESC"), (">", "ASC"))
            ]
        return {
            "group": group,
            "children": children,
            "parents": parents,
            "before": around[0],
            "after": around[1],
        }

    def relatives(self, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the episode that an episode goes back to by branches, and all that were played on from that."""
        with self._mutex:
            above, root = found["parent"], found["row"]
            while above is not None and above < root:  # a branch is recorded after what it goes on from
                root = above
                row = self._connection.execute(
                    "SELECT parent FROM episodes WHERE row = ?", (root,)
                ).fetchone()
                above = None if row is None else row[0]
            return self._rows(
                "WITH RECURSIVE kin(row) AS (SELECT ? UNION SELECT e.row FROM episodes AS e JOIN kin ON e.parent = "
                "kin.row WHERE e.is_superseded = 0) SELECT e.* FROM kin JOIN episodes AS e ON e.row = kin.row "
                "ORDER BY e.row LIMIT ?",
                root, MAX_RELATIVES,
            )  # fmt: skip

    def find_steps(self, row: int) -> list[int]:
        """Return the steps that learned from the episode in `row`."""
        with self._mutex:
            found = self._connection.execute(
                "SELECT DISTINCT step FROM uses WHERE episode = ? ORDER BY step", (row,)
            )
            return [step for (step,) in found]

    def pairs(self, step: int) -> list[tuple[str, str]]:
        """Return the ids of the chosen and the rejected episodes that `step` compared."""
        with self._mutex:
            return self._connection.execute(
                "SELECT c.id, r.id FROM uses AS u JOIN episodes AS c ON c.row = u.episode "
                "JOIN episodes AS r ON r.row = u.rejected WHERE u.step = ? LIMIT 200",
                (step,),
            ).fetchall()

    def steps_with_pairs(self) -> list[int]:
        """Return the steps that compared episodes."""
        with self._mutex:
            found = self._connection.execute(
                "SELECT DISTINCT step FROM uses WHERE rejected IS NOT NULL ORDER BY step"
            )
            return [step for (step,) in found]

    def evaluations(self) -> list[int]:
        """Return the steps after which the run was evaluated."""
        with self._mutex:
            found = self._connection.execute(
                "SELECT DISTINCT step FROM episodes WHERE phase = 'eval' AND is_superseded = 0 ORDER BY step"
            )
            return [step for (step,) in found]

    def by_task(self, step: int) -> dict[str, list[dict[str, Any]]]:
        """Return the episodes of the evaluation after `step`, by task."""
        with self._mutex:
            rows = self._rows(
                "SELECT e.* FROM episodes AS e WHERE e.phase = 'eval' AND e.step = ? AND e.is_superseded = 0 "
                "ORDER BY e.row",
                step,
            )
        found: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault(row["task"], []).append(row)
        return found

    def _open(self, file: Path | None) -> sqlite3.Connection:
        """Return the index in `file`, made anew where it is of another run or release."""
        if file is None:
            connection = sqlite3.connect(":memory:", check_same_thread=False)
        else:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
            connection = sqlite3.connect(file, check_same_thread=False, timeout=30)
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            if file is not None:
                connection.execute("PRAGMA journal_mode=WAL")
            with suppress(sqlite3.OperationalError):  # nothing is there yet
                if connection.execute("SELECT value FROM about WHERE key = 'run'").fetchone() == (
                    self._mark,
                ):
                    self.has_words = self._has_table(connection)
                    return connection
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'words_%' AND name NOT LIKE "
                "'sqlite_%'"
            ).fetchall():
                connection.execute(f'DROP TABLE "{name}"')
            connection.executescript(TABLES)
            try:
                connection.execute(WORDS)
            except sqlite3.OperationalError:
                self.has_words = False
            connection.execute("INSERT INTO about VALUES ('run', ?)", (self._mark,))
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _has_table(connection: sqlite3.Connection) -> bool:
        return connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'words'").fetchone() == (
            1,
        )

    def _about(self, key: str) -> str:
        """Return what is known of the index itself."""
        with self._mutex:
            row = self._connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return "" if row is None else row[0]

    def _note(self, **values: int) -> None:
        """Note what is known of the index itself."""
        self._connection.executemany(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", [(key, str(value)) for key, value in values.items()]
        )

    def _one(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()[0]

    def _count(self, query: str, *values: Any) -> list[tuple[str, int]]:
        return self._connection.execute(query, values).fetchall()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def cache_folder() -> Path | None:
    """Return where indexes are kept: the user's cache; None where there is no home."""
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "quintain" / "viewer"
    return None


def words_of(trajectory: Trajectory) -> str:
    """Return what can be searched of an episode: the task, what was shown and what was done, up to `MAX_WORDS`."""
    return "\n".join(_words(trajectory))[:MAX_WORDS]


def _words(trajectory: Trajectory) -> Iterator[str]:
    yield trajectory.task.id
    if trajectory.task.prompt:
        yield trajectory.task.prompt
    for turn in trajectory.turns:
        yield as_text(turn.observation)
        yield turn.action.text
        for call in turn.action.tool_calls:
            yield f"{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False, default=str)}"
        if turn.action.error:
            yield turn.action.error
    yield as_text(trajectory.final_observation)
    if not hasattr(trajectory.outcome, "value"):
        yield str(getattr(trajectory.outcome, "message", ""))


def terms_of(trajectory: Trajectory) -> dict[str, float]:
    """Return the reward terms of an episode, summed over its turns, and what each seat got as ``seat SEAT``."""
    found: dict[str, float] = {}
    for turn in trajectory.turns:
        for name, value in turn.reward_terms.items():
            found[name] = found.get(name, 0.0) + float(value)
    return found | {f"seat {name}": value for name, value in seat_returns(trajectory).items()}


def tools_of(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the tools that were called, each once."""
    return tuple(dict.fromkeys(call.name for turn in trajectory.turns for call in turn.action.tool_calls))


def _read_fact(row: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return a row of the index; None where a column of the journal is of another type than was written."""
    (
        number, name, parent, parent_turn, phase, step, group, place, task, environment, split, value, success, failure,
        stop, turns, tokens, seconds, policy, version, abandoned,
    ) = row  # fmt: skip
    texts = (phase, group, task, environment, split, stop)
    counts = (step, place, turns, tokens)
    if type(name) is not bytes or not all(type(text) is str for text in texts):
        return None
    if not all(type(count) is int for count in counts) or not isinstance(seconds, int | float):
        return None
    owner, _, kind = failure.partition("/") if type(failure) is str else (None, "", None)
    number_of = value if isinstance(value, int | float) else None
    return (
        number, name.hex(), parent, parent_turn, phase, step, group, place, task, environment, split, number_of,
        None if success is None else int(bool(success)), owner, kind, stop, turns, tokens, seconds, str(policy or ""),
        version if type(version) is int else None, int(bool(abandoned)),
    )  # fmt: skip


def _phrases(words: str) -> str:
    """Return `words` as a search for all of them, each as it stands; what is between quotes is one."""
    parts = words.split('"')
    found = [
        text for at, part in enumerate(parts) for text in ([part] if at % 2 else part.split()) if text.strip()
    ]
    return " ".join(f'"{text}"' for text in found) or '""'


def _clean(text: str) -> str:
    """Return `text` without half surrogate pairs, which SQLite cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _name(folder: Path) -> str:
    return hashlib.blake2b(
        str(folder.absolute()).encode("utf-8", "surrogateescape"), digest_size=10
    ).hexdigest()


def try_update(index: Index, run: Run) -> str:
    """Bring `index` up to `run`, and return what kept it from that; empty where nothing did."""
    try:
        index.update(run)
    except (QuintainError, sqlite3.Error) as error:
        return str(error)
    return ""

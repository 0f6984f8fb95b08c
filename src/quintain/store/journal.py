"""The journal ``run.db``: episodes, committed steps with what they used, and events in SQLite (write-ahead log).

An episode is written once, with ``synchronous=NORMAL`` (it survives the process). A step is committed once, with
``FULL`` (it and everything before it survive the machine): it names the episodes that it used with their signals,
through a hash of all of it, and the weights that came out of it.
"""

import hashlib
import json
import logging
import math
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, cast

from quintain.errors import DataError, QuintainError, StoreError, UsageError
from quintain.store import codec, faults
from quintain.store.files import PRIVATE, can_write, disk_error
from quintain.store.rows import (
    MAX_STEPS,
    READ_FIELDS,
    Commit,
    Opened,
    Recorded,
    as_column,
    episode_id,
    open_rows,
    read_row,
    write_branch,
    write_rows,
)
from quintain.store.schema import (
    APPLICATION,
    COLUMNS,
    FACTS,
    INSERT_BRANCH,
    INSERT_ROOT,
    INSERT_STEP,
    INSERT_USE,
    OF_STEP,
    TABLES,
    UPGRADES,
    VERSION,
    VIEWS,
)
from quintain.store.signals import DIGEST, decode_signals, encode_signals
from quintain.types import Trajectory, Use
from quintain.types.rows import plain

Report = Callable[[str, str], None]
TABLE_NAMES = frozenset({"meta", "episodes", "uses", "steps", "events", "trajectories"})
COMPUTED = re.compile(
    r"\b(AS|CHECK|COLLATE|FOREIGN|GENERATED|REFERENCES|SELECT|VIRTUAL)\b|DEFAULT [^01]", re.I
)
"""Words in the statement of a table by which something is computed when it is read."""
INDEX = re.compile(r"CREATE UNIQUE INDEX (one_of_each|one_commit) ON \w+ \([\w, ]+\) WHERE is_abandoned = 0")
LATEST = 1e11
"""Seconds since 1970 up to which an event is one."""
_log = logging.getLogger("quintain.store")
SUPERSEDED, UNDECIDED = 1, 2
"""What a row says that a resumed run has left behind, for good or until it says which episodes it takes back."""
MAX_PARENTS = 64
"""Episodes that are kept while reading, because branches may follow that begin with their turns."""
PAGE = 4096
"""Bytes of a page of the file: what an episode leaves of its last one is empty."""
TICK = 100_000
"""Steps of SQLite between two looks at how long a query goes on."""
MIN_TICKS, BYTES_OF_A_TICK = 200, 20_000
"""Looks that a query may take: so many, and one more for so many bytes of the file. A table is read in far fewer."""
WRITE_TICKS = 1 << 40
"""The same for a transaction of ours, which writes as much as it is given."""
MAX_CHAIN = 1024
"""Branches that may begin with each other's turns, one after the other."""
FETCHED, FETCHED_BYTES = 32, 32_768
"""Rows that are fetched at once, and the bytes after which there are no more of them."""


def create_journal(file: Path, meta: Mapping[str, str]) -> None:
    """Write a new, empty journal to `file`."""
    with _report_errors("creating the journal", file):
        faults.point("create", file)
        file.touch(mode=PRIVATE)  # which the write-ahead log takes over
        connection = sqlite3.connect(file, isolation_level=None)
        try:
            connection.execute(f"PRAGMA page_size={PAGE}")
            connection.execute("PRAGMA journal_mode=WAL")
            for statement in TABLES:
                connection.execute(statement)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute(f"PRAGMA user_version={VERSION}")
        finally:
            connection.close()


def _read_only_suffix(file: Path) -> str:
    """Return how to open `file` where nothing can be written beside it, and no log of a writer lies there."""
    log = file.with_name(f"{file.name}-wal")
    return "" if can_write(file.parent) or log.exists() else "&immutable=1"


class Journal:
    """An open journal; usable from several threads of one process."""

    def __init__(self, file: Path, report: Report, *, is_writable: bool) -> None:
        """Open `file`; `report` hears of every row that cannot be read."""
        self.file = file
        self.machine = ""
        """What computes the steps that are committed."""
        self._waits: bool | None = None
        """Whether a transaction waits until it is on the disk, as was said last."""
        self._noted = ""
        """The machine of the newest step that was committed here."""
        self._report = report
        self._mutex = RLock()
        self._num_ticks = 0
        """looks that the present query may still take"""
        with _report_errors("opening the journal", file):
            mode = "rw" if is_writable else f"ro{_read_only_suffix(file)}"
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=30, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            try:
                self._connection.execute("PRAGMA trusted_schema=OFF")
                self._version = self._read_version()
                check_schema(self._connection, file)
                self._connection.set_progress_handler(self._tick, TICK)
                self._run = self.meta("run") or file.absolute().parent.name
                self._connection.create_function("episode_id", 4, self._name, deterministic=True)
                if self._version < VERSION:
                    self._upgrade() if is_writable else self._show()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it."""
        self._connection.close()

    def append(self, trajectories: Sequence[Trajectory], *, step: int, phase: str) -> tuple[str, ...]:
        """Add `trajectories` in one transaction and return the ids of the episodes.

        A trajectory that is there already, equal but for its duration, keeps its row. Raises `DataError` for
        another one under the same (phase, step, group, index), for additions to a committed step, and for a branch
        whose parent is not in the journal or had other turns.
        """
        roots = [trajectory for trajectory in trajectories if not trajectory.parent]
        rows = iter(write_rows(roots, step, phase, run=self._run))
        with self._transaction("recording trajectories") as connection:
            faults.point("append", self.file)
            is_committed = self._find_step(step, phase) is not None
            parents: dict[str, Recorded] = {}
            names: list[str] = []
            waiting: list[tuple[Any, ...]] = []
            for trajectory in trajectories:
                if trajectory.parent:  # which may be among those that wait
                    self._add(connection, INSERT_ROOT, waiting, is_committed)
                    row = self._write_branch(trajectory, step, phase, parents)
                    self._add(connection, INSERT_BRANCH, [row], is_committed)
                    waiting = []
                else:
                    row = next(rows)
                    waiting.append(row)
                names.append(row[0].hex())
            self._add(connection, INSERT_ROOT, waiting, is_committed)
        return tuple(names)

    def commit(
        self, *, step: int, phase: str, metrics: Mapping[str, float | None], seconds: float,
        weights: str | None = None, policy_version: int | None = None, uses: Sequence[Use] | None = None,
    ) -> str:  # fmt: skip
        """Close `step` of `phase` durably and return the hash of the episodes and signals that it used.

        `uses` None means all episodes that were collected for it. `weights` names the weights after the step, by their
        fingerprint, and `policy_version` counts the updates that led to them. Where `machine` is another one than
        before, that is noted, too. Raises `DataError` for a step that is committed, an episode that is not in the
        journal or was collected later, and signals that do not fit it.
        """
        with self._transaction("committing a step", is_durable=True) as connection:
            faults.point("commit row", self.file)
            if self._find_step(step, phase) is not None:
                raise DataError(
                    f"committing step {step} of phase {phase!r}: got a step that is committed; "
                    "commit each step of a phase once"
                )
            used = [self._used(use, step) for use in uses or ()]
            rivals = [self._rival(use, step) for use in uses or ()]
            if uses is None:
                hashed = [digest[:16] for (digest,) in self._read_column(step, phase, "digest")]
            else:
                hashed = [digest + (signals or b"")[:DIGEST] for _, digest, signals in used]
                hashed += [digest for _, digest in rivals]
            batch_hash, text = _batch_hash(hashed), json.dumps(metrics)
            row = (
                step, phase, text, batch_hash, len(uses or hashed), seconds, weights, policy_version, codec.CODEC,
                uses is None,
            )  # fmt: skip
            step_row = connection.execute(INSERT_STEP, row).lastrowid or 0
            if self.machine != self._noted and self.machine != self.machine_of(step_row):
                connection.execute("INSERT INTO meta VALUES (?, ?)", (_machine_key(step_row), self.machine))
            rows = [
                (step_row, place, episode, part, rejected)
                for place, ((episode, _, part), (rejected, _)) in enumerate(zip(used, rivals, strict=True))
            ]
            if rows:
                connection.executemany(INSERT_USE, rows)
        self._noted = self.machine
        return batch_hash

    def abandon(self, first_step: int) -> int:
        """Mark everything from `first_step` on as superseded; return how many trajectories that are.

        Until `take_back` is called, its episodes can be taken back.
        """
        with self._transaction("resuming", is_durable=True) as connection:
            for table, mark in (("steps", SUPERSEDED), ("episodes", UNDECIDED)):
                marked = connection.execute(
                    f"UPDATE {table} SET is_abandoned = ? WHERE step >= ? AND is_abandoned = 0",
                    (mark, first_step),
                )
            return marked.rowcount

    def take_back(self, is_wanted: Callable[[Trajectory], bool], *, phase: str) -> int:
        """Take back the episodes that the newest `abandon` marked, of `phase`, that are wanted; return how many.

        The others, and branches, stay superseded for good. A row that cannot be read is reported and stays so, too.
        """
        query = (
            "SELECT row FROM episodes WHERE is_abandoned = ? AND phase = ? AND parent IS NULL ORDER BY row"
        )
        wanted: list[int] = []
        if self._one("SELECT EXISTS (SELECT 1 FROM episodes WHERE is_abandoned = ?)", (UNDECIDED,)) != (1,):
            return 0
        for (row_id,) in self._all(query, (UNDECIDED, phase)):
            try:
                if is_wanted(self._read(row_id).trajectory):
                    wanted.append(row_id)
            except (DataError, StoreError) as error:
                self._report("quarantine", f"trajectory row {row_id} of {self.file}: {error}")
        with self._transaction("taking episodes back", is_durable=True) as connection:
            connection.executemany(
                "UPDATE episodes SET is_abandoned = 0 WHERE row = ?", [(row,) for row in wanted]
            )
            connection.execute(
                "UPDATE episodes SET is_abandoned = ? WHERE is_abandoned = ?", (SUPERSEDED, UNDECIDED)
            )
        return len(wanted)

    def find_abandoned_hashes(self, step: int, phase: str) -> tuple[str, str | None, str] | None:
        """Return hash of what the newest superseded commit of `step` used, weights and machine; None if there is none.

        That of an earlier encoding is computed anew; None if that commit does not say what it used.
        """
        query = (
            "SELECT id, batch_hash, weights, codec, num_trajectories FROM steps "
            "WHERE step = ? AND phase = ? AND is_abandoned = 1 ORDER BY id DESC"
        )
        row = self._one(query, (step, phase))
        if row is None:
            return None
        step_row, batch_hash, weights, version, count = row
        if version != codec.CODEC:
            used = self._all("SELECT episode FROM uses WHERE step_row = ? ORDER BY place", (step_row,))
            if len(used) != count:
                return None
            batch_hash = _batch_hash([codec.encode(self._read(each).trajectory).digest for (each,) in used])
        return batch_hash, weights, self.machine_of(step_row)

    def _tick(self) -> bool:
        """Whether the present query has gone on for longer than the file can make it."""
        self._num_ticks -= 1
        return self._num_ticks < 0

    def machine_of(self, row_id: int) -> str:
        """Return the name of what computed the step in row `row_id`; an empty string where it was not noted."""
        query = "SELECT value FROM meta WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
        row = self._one(query, (_machine_key(0), _machine_key(row_id)))
        return "" if row is None else str(row[0])

    def weights(self) -> dict[int, str]:
        """Return step → fingerprint of the weights after it, where that is known."""
        query = "SELECT step, weights FROM steps WHERE is_abandoned = 0 AND weights IS NOT NULL"
        return {
            step: weights
            for step, weights in self._all(query, ())
            if type(step) is int and type(weights) is str
        }

    def metrics(self, phase: str | None = None, *, containing: str = "") -> list[dict[str, Any]]:
        """Return one row per committed step in order: ``{"step": …, "phase": …, **metrics}``.

        With `containing` only those in whose JSON that stands: of a long run, what is evaluated is little.
        """
        query = (
            "SELECT id, step, phase, metrics FROM steps "
            "WHERE is_abandoned = 0 AND (:phase IS NULL OR phase = :phase) "
            "AND (:part = '' OR instr(metrics, :part)) ORDER BY id"
        )
        rows: list[dict[str, Any]] = []
        for row_id, step, name, text in self._all(query, {"phase": phase, "part": containing}):
            try:
                rows.append({"step": step, "phase": name, **read_metrics(step, name, text)})
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                self._report("quarantine", f"step row {row_id} of {self.file}: {error}")
        return rows

    def commits(self, phase: str) -> list[Commit]:
        """Return the committed steps of `phase` in order; one whose metrics cannot be read is reported and skipped."""
        known = {int(row["step"]): row for row in self.metrics(phase)}
        query = (
            "SELECT id, step, batch_hash, weights, policy_version FROM steps "
            "WHERE is_abandoned = 0 AND phase = ? ORDER BY id"
        )
        return [
            Commit(step, known[step], str(batch_hash), weights, version, self.machine_of(row_id))
            for row_id, step, batch_hash, weights, version in self._all(query, (phase,))
            if step in known
        ]

    def digests(self, step: int) -> dict[str, str]:
        """Return id → digest of the episodes that were recorded in `step`, in the order of arrival."""
        query = f"SELECT id, digest FROM episodes WHERE is_abandoned = 0 AND {OF_STEP} ORDER BY row"
        return {name.hex(): digest[:16].hex() for name, digest in self._all(query, _range(step, None))}

    def copy_to(self, file: Path) -> None:
        """Write all of it to the new `file`."""
        with self._mutex, _report_errors("copying the journal", file):
            file.touch(mode=PRIVATE)
            self._num_ticks = WRITE_TICKS
            target = sqlite3.connect(file)
            try:
                self._connection.backup(target)
            finally:
                target.close()

    def last_step(self) -> int | None:
        """Return the highest committed step, or None."""
        query = "SELECT max(step) FROM steps WHERE is_abandoned = 0 AND typeof(step) = 'integer' AND step < ?"
        row = self._one(query, (MAX_STEPS,))
        return None if row is None else row[0]

    def last_ids(self) -> dict[str, int]:
        """Return the offset of the journal's end: the last row of episodes (``trajectories``) and of steps."""
        ends = {"trajectories": "SELECT max(row) FROM episodes", "steps": "SELECT max(id) FROM steps"}
        return {name: (self._one(query, ()) or (None,))[0] or 0 for name, query in ends.items()}

    def read_facts(self, after: int, most: int) -> list[tuple[Any, ...]]:
        """Return the `FACTS` of at most `most` episodes behind the row `after`, superseded ones too, as they stand."""
        query = f"SELECT {', '.join(FACTS)} FROM episodes WHERE row > ? ORDER BY row LIMIT ?"
        return self._all(query, (after, most))

    def read_superseded(self) -> list[int]:
        """Return the rows of the episodes that a resumed run has left behind."""
        return [row for (row,) in self._all("SELECT row FROM episodes WHERE is_abandoned != 0", ())]

    def read_links(self, after: int, most: int) -> list[tuple[Any, ...]]:
        """Return (row of the step, step, row of the episode, of the rejected one) of the uses of the next `most` steps.

        These are the committed ones whose rows are behind `after`; of a step without uses it is a row of None.
        """
        query = (
            "SELECT s.id, s.step, u.episode, u.rejected FROM "
            "(SELECT id, step FROM steps WHERE id > ? AND is_abandoned = 0 ORDER BY id LIMIT ?) AS s "
            "LEFT JOIN uses AS u ON u.step_row = s.id"
        )
        return self._all(query, (after, most))

    def last_event(self) -> int:
        """Return the number of the newest event, 0 before the first."""
        row = self._one("SELECT max(id) FROM events", ())
        return 0 if row is None else row[0] or 0

    def read_rows(
        self, *, step: int | None, phase: str | None, after: int = 0, most: int = -1
    ) -> Iterator[Recorded]:
        """Yield the trajectories in order of arrival; a row that cannot be read is reported and skipped.

        Only those behind the row `after`, and at most so many: all of them below 0.
        """
        query = (
            "SELECT row, ifnull(length(structure) + length(payload), 0) FROM episodes WHERE is_abandoned = 0 "
            f"AND {':step IS NULL' if step is None else OF_STEP} "
            "AND (:phase IS NULL OR phase = :phase) AND row > :after ORDER BY row LIMIT :most"
        )
        parents: dict[int, Recorded] = {}
        for rows in _portions(self._all(query, {**_range(step, phase), "after": after, "most": most})):
            fetched = self._fetch(rows)
            for row_id in rows:
                if len(parents) > MAX_PARENTS:
                    parents.clear()
                try:
                    recorded = self._read(row_id, parents, fetched)
                except (DataError, StoreError) as error:
                    self._report("quarantine", f"trajectory row {row_id} of {self.file}: {error}")
                    continue
                yield recorded

    def episode(self, name: str) -> Trajectory:
        """Return the episode with the id `name`; raise `DataError` when there is none or it cannot be read."""
        return self._read(self._find_episode(name)[0]).trajectory

    def uses(self, *, step: int | None, phase: str) -> Iterator[tuple[int, Use]]:
        """Yield (step, use) in the order of the steps; signals that cannot be read are reported and left out."""
        query = (
            "SELECT id, step, is_collected FROM steps "
            "WHERE is_abandoned = 0 AND phase = :phase AND (:step IS NULL OR step = :step) ORDER BY id"
        )
        for step_row, used_in, is_collected in self._all(query, {"step": step, "phase": phase}):
            if type(used_in) is not int or not 0 <= used_in < MAX_STEPS:
                self._report("quarantine", f"step row {step_row} of {self.file}: got step {used_in!r:.40}")
            elif is_collected:
                ids = self._read_column(used_in, phase, "id")
                yield from [(used_in, Use(episode=name.hex())) for (name,) in ids]
            else:
                yield from [(used_in, use) for use in self._uses(step_row, used_in)]

    def _uses(self, step_row: int, step: int) -> Iterator[Use]:
        """Yield what `step`, in the row `step_row`, is said to have used."""
        query = (
            "SELECT e.row, e.id, e.digest, e.num_sampled, u.signals, r.id FROM uses AS u "
            "JOIN episodes AS e ON e.row = u.episode LEFT JOIN episodes AS r ON r.row = u.rejected "
            "WHERE u.step_row = ? ORDER BY u.place"
        )
        for row_id, name, digest, count, blob, rival in self._all(query, (step_row,)):
            if type(name) is not bytes or type(digest) is not bytes or type(count) is not int:
                self._report(
                    "quarantine", f"uses of row {row_id} in step {step} of {self.file}: got wrong types"
                )
                continue
            if not isinstance(blob, bytes | None) or not isinstance(rival, bytes | None):
                blob, rival = None, None
                self._report(
                    "quarantine", f"uses of row {row_id} in step {step} of {self.file}: got wrong types"
                )
            signals = None
            if blob is not None:
                try:
                    signals = decode_signals(blob, digest[:16], count)
                except DataError as error:
                    told = f"signals of row {row_id} in step {step} of {self.file}: {error}"
                    self._report("quarantine", told)
            yield Use(episode=name.hex(), signals=signals, rejected="" if rival is None else rival.hex())

    def add_event(self, kind: str, message: str, data: Mapping[str, Any]) -> None:
        """Add an event with the wall-clock time."""
        text = json.dumps(data, default=plain)
        with self._transaction("recording an event") as connection:
            connection.execute(
                "INSERT INTO events (time, kind, message, data) VALUES (?, ?, ?, ?)",
                (time.time(), as_column(kind), as_column(message), text),
            )

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order: ``{"time": …, "kind": …, "message": …, "data": {…}}``."""
        rows = self._all("SELECT time, kind, message, data FROM events ORDER BY id", ())
        events: list[dict[str, Any]] = []
        for number, (at, kind, message, text) in enumerate(rows):
            try:
                events.append(read_event(at, kind, message, text))
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                _log.warning("quarantine: event %d of %s: %s", number, self.file, error)
        return events

    def meta(self, key: str) -> str:
        """Return a value of the table of facts about the run, or an empty string."""
        row = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return "" if row is None or type(row[0]) is not str else row[0]

    def set_meta(self, key: str, value: str) -> None:
        """Set a value of the table of facts about the run."""
        with self._transaction("recording the status") as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _read_version(self) -> int:
        """Return the version of the file, which this release can read."""
        application = self._connection.execute("PRAGMA application_id").fetchone()[0]
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise StoreError(
                f"opening {self.file}: got a file that is no journal of a run; restore it from a copy"
            )
        if version > VERSION:
            raise StoreError(
                f"opening {self.file}: got schema version {version}, and this release reads up to {VERSION}; "
                "upgrade quintain"
            )
        return version

    def _upgrade(self) -> None:
        """Bring the file of an earlier release to the present version, in one transaction."""
        with self._transaction(
            f"bringing version {self._version} to {VERSION}", is_durable=True
        ) as connection:
            for version in range(self._version, VERSION):
                for statement in UPGRADES[version]:
                    connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('run', ?)", (self._run,))
            connection.execute(f"PRAGMA user_version={VERSION}")
        self._version = VERSION

    def _show(self) -> None:
        """Show the file of an earlier release, which is only read, as one of the present version."""
        for statement in VIEWS[self._version]:
            self._connection.execute(statement)

    def _name(self, phase: str, step: int, group: str, place: int) -> bytes:
        """Return the id of an episode of this run."""
        return episode_id(self._run, phase, step, group, place)

    def _add(
        self, connection: sqlite3.Connection, insert: str, rows: Sequence[tuple[Any, ...]], is_committed: bool
    ) -> None:
        """Add `rows` by the statement `insert`; those that are there must be the same."""
        if not is_committed and connection.executemany(insert, rows).rowcount == len(rows):
            return
        query = "SELECT digest FROM episodes WHERE id = ? AND is_abandoned = 0"
        for values in rows:
            row = dict(zip(COLUMNS, values, strict=False))
            found = connection.execute(query, (row["id"],)).fetchone()
            if found is None or found[0][:16] != row["digest"][:16]:
                what = "a committed step" if is_committed else "another trajectory in that place"
                raise DataError(
                    f"recording trajectory {row['place']} of group {row['group_id']!r} in step {row['step']} "
                    f"of phase {row['phase']!r}: got {what}; "
                    "give each trajectory of a step its own (group, index), before the step is committed"
                )

    def _write_branch(
        self, trajectory: Trajectory, step: int, phase: str, parents: dict[str, Recorded]
    ) -> tuple[Any, ...]:
        """Return the row of a branch, after a look at its parent."""
        branch = trajectory.parent
        assert branch is not None, "only branches are written here"
        if branch.episode not in parents:
            row_id, _, _, collected = self._find_episode(branch.episode)
            if collected > step:
                raise DataError(
                    f"recording a branch in step {step}: got a parent of step {collected}; it must be there before"
                )
            parents[branch.episode] = self._read(row_id)
        parent = parents[branch.episode]
        shared = parent.trajectory.turns[: branch.turn]
        if not 0 < branch.turn == len(shared) or trajectory.turns[: branch.turn] != shared:
            raise DataError(
                f"recording a branch of episode {branch.episode} at turn {branch.turn}: got other turns than "
                f"the {len(parent.trajectory.turns)} of its parent; it begins with those before that turn, as they are"
            )
        return write_branch(trajectory, step, phase, run=self._run, parent=parent)

    def _fetch(self, rows: Sequence[int]) -> dict[int, Opened | DataError]:
        """Return what is in `rows` at once; nothing where one of them cannot be had."""
        query = f"SELECT row, {READ_FIELDS} FROM episodes WHERE row IN (SELECT value FROM json_each(?))"
        try:
            found = self._all(query, (json.dumps(rows),))
        except StoreError:
            return {}
        return dict(zip([row[0] for row in found], open_rows([row[1:] for row in found]), strict=True))

    def _open(self, row_id: int) -> Opened | DataError:
        """Return what is in one row."""
        return open_rows([self._one(f"SELECT {READ_FIELDS} FROM episodes WHERE row = ?", (row_id,))])[0]

    def _read(
        self,
        row_id: int,
        parents: dict[int, Recorded] | None = None,
        fetched: dict[int, Opened | DataError] | None = None,
    ) -> Recorded:
        """Return the episode in the row, its parents put before it; `parents` keeps those that were read.

        `fetched` has what is in rows that were fetched before, and loses those that are read.
        """
        waiting = {} if fetched is None else fetched
        opened = waiting.pop(row_id, None) or self._open(row_id)
        if isinstance(opened, DataError) or opened.parent is None:
            return read_row(row_id, opened)
        known = {} if parents is None else parents
        chain: list[tuple[int, Opened | DataError]] = [(row_id, opened)]
        at: int | None = opened.parent if opened.parent < row_id else None
        while at is not None and at not in known:
            opened = waiting.pop(at, None) or self._open(at)
            chain.append((at, opened))
            if len(chain) > MAX_CHAIN:
                raise DataError(f"got a branch of more than {MAX_CHAIN} others")
            above = None if isinstance(opened, DataError) else opened.parent
            at = None if above is None or above >= at else above
        found = None if at is None else known[at]
        for number, opened in reversed(chain):
            found = read_row(number, opened, found)
            if number != row_id:
                known[number] = found
        assert found is not None, "the row itself is the last of them"
        return found

    def _find_episode(self, name: str) -> tuple[int, bytes, int, int]:
        """Return row, digest, number of sampled tokens and step of the episode `name`."""
        try:
            key = bytes.fromhex(name)
        except ValueError:
            key = b""
        query = "SELECT row, digest, num_sampled, step FROM episodes WHERE id = ? AND is_abandoned = 0"
        row = self._one(query, (key,))
        if row is None:
            raise DataError(
                f"an episode of {self.file}: got the id {name!r}, which is not there; append it first, and take its id"
            )
        return row[0], row[1][:16], row[2], row[3]

    def _read_column(self, step: int, phase: str, what: str) -> list[tuple[bytes]]:
        """Return the column `what` of the episodes that were collected for `step`, in the order of their places."""
        query = (
            f"SELECT {what} FROM episodes WHERE {OF_STEP} AND phase = :phase AND is_abandoned = 0 "
            "ORDER BY group_id, place"
        )
        return self._all(query, _range(step, phase))

    def _used(self, use: Use, step: int) -> tuple[int, bytes, bytes | None]:
        """Return row, digest and signals of what `use` names."""
        row_id, digest, count, collected = self._find_episode(use.episode)
        if collected > step:
            raise DataError(
                f"committing step {step}: got episode {use.episode}, which was collected for step {collected}; "
                "a step uses episodes of its own and of earlier steps"
            )
        return row_id, digest, None if use.signals is None else encode_signals(use.signals, digest, count)

    def _rival(self, use: Use, step: int) -> tuple[int | None, bytes]:
        """Return row and digest of the episode that the one of `use` was chosen over; None and nothing for none."""
        if not use.rejected:
            return None, b""
        row_id, digest, _ = self._used(Use(episode=use.rejected), step)
        return row_id, digest

    def _find_step(self, step: int, phase: str) -> tuple[Any, ...] | None:
        return self._one(
            "SELECT id FROM steps WHERE step = ? AND phase = ? AND is_abandoned = 0", (step, phase)
        )

    def _all(self, query: str, values: tuple[Any, ...] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._mutex, _report_errors("reading the journal", self.file):
            self._begin_query()
            return self._connection.execute(query, values).fetchall()

    def _one(self, query: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        with self._mutex, _report_errors("reading the journal", self.file):
            self._begin_query()
            return self._connection.execute(query, values).fetchone()

    def _begin_query(self) -> None:
        """Give the next query the time that the file can make it take."""
        num_bytes = self.file.stat().st_size
        with suppress(OSError):
            num_bytes += self.file.with_name(f"{self.file.name}-wal").stat().st_size
        self._num_ticks = MIN_TICKS + num_bytes // BYTES_OF_A_TICK

    @contextmanager
    def _transaction(self, asked: str, *, is_durable: bool = False) -> Generator[sqlite3.Connection]:
        """Run the block in one transaction: all of it is kept, or nothing."""
        connection = self._connection
        with self._mutex, _report_errors(asked, self.file):
            if is_durable is not self._waits:
                connection.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
                self._waits = is_durable
            self._num_ticks = WRITE_TICKS
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._num_ticks = WRITE_TICKS
                faults.point("commit", self.file)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def check_schema(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse a journal with more than the tables and indexes that journals have: what else is in it would be run.

    Raises:
        StoreError: it has a view, a trigger, a table of somebody else's, or a column that is computed.
    """
    for kind, name, table, text in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
        is_ours = kind in ("table", "index") and table in TABLE_NAMES
        words = " ".join(text.split()) if isinstance(text, str) else ""
        if kind == "table":
            is_ours = is_ours and name == table and bool(words) and not COMPUTED.search(words)
        elif words:
            is_ours = is_ours and INDEX.fullmatch(words) is not None
        else:  # that of a key, which SQLite makes itself
            is_ours = is_ours and name == f"sqlite_autoindex_{table}_1"
        if not is_ours:
            raise StoreError(
                f"opening {file}: got a {kind!s:.20} {name!r:.60}, which no journal has; restore it from a copy"
            )


def read_metrics(step: object, phase: object, text: object) -> dict[str, Any]:
    """Return the metrics of a step.

    Raises:
        ValueError: they are none. TypeError, OverflowError, RecursionError: the same.
    """
    found: object = json.loads(text) if isinstance(text, str) else None
    is_place = type(step) is int and 0 <= step < MAX_STEPS and type(phase) is str
    if not is_place or not isinstance(found, dict):
        raise ValueError("got no metrics of a step")
    metrics = cast("dict[str, Any]", found)
    for name, value in metrics.items():
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            raise ValueError(f"got {value!r:.40} for {name!r:.40}")
    return metrics


def read_event(at: object, kind: object, message: object, text: object) -> dict[str, Any]:
    """Return an event.

    Raises:
        ValueError: it is none. TypeError, OverflowError, RecursionError: the same.
    """
    data: object = json.loads(text) if isinstance(text, str) else None
    is_time = isinstance(at, int | float) and math.isfinite(at) and abs(at) < LATEST
    if not is_time or type(kind) is not str or type(message) is not str or not isinstance(data, dict):
        raise ValueError("got no event")
    return {"time": at, "kind": kind, "message": message, "data": data}


def _machine_key(row_id: int) -> str:
    """Return under what is noted which machine computed the steps from row `row_id` on; keys sort like rows."""
    return f"machine from step row {row_id:020}"


def _range(step: int | None, phase: str | None) -> dict[str, Any]:
    """Return the values for `schema.OF_STEP` and the phase."""
    first, last = (b"", b"") if step is None else (step.to_bytes(4), step.to_bytes(4) + b"\xff" * 6)
    return {"step": step, "phase": phase, "first": first, "last": last}


def _portions(rows: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield the numbers of `rows`, which have so many bytes, in portions that are fetched at once."""
    portion: list[int] = []
    size = 0
    for row_id, num_bytes in rows:
        portion.append(row_id)
        size += num_bytes
        if size > FETCHED_BYTES or len(portion) == FETCHED:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _batch_hash(parts: Sequence[bytes]) -> str:
    """Return the hash of what a step used.

    The parts are the digest of each episode, with that of its signals where it has some; after them, where uses were
    named, the digests of the episodes that those were chosen over, empty ones where there are none.
    """
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


@contextmanager
def _report_errors(asked: str, file: Path) -> Generator[None]:
    """Turn errors of the disk or of SQLite into a `StoreError` that names `file`."""
    try:
        yield
    except QuintainError:
        raise
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"{asked} {file}: got a run that is closed ({error}); open it again") from error
    except (OSError, sqlite3.OperationalError) as error:
        if str(error) == "interrupted":
            raise StoreError(
                f"{asked} in {file}: got a query that goes on for longer than the file can make it; restore the file "
                "from a copy"
            ) from error
        raise disk_error(asked, file, error) from error
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        raise StoreError(
            f"{asked} in {file}: got a damaged file ({error}); "
            "restore it from a copy; the checkpoints are files of their own"
        ) from error

"""The journal ``run.db``: trajectories, committed steps and events in SQLite (write-ahead log).

Rows are written with ``synchronous=NORMAL`` (they survive the process), a step with ``FULL`` (it and
everything before it survive the machine). The one rule: a step is committed once and names exactly the
trajectories it learned from, through the hash of their bytes in the order (group, index), and the weights that
came out of it.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from quintain.errors import DataError, QuintainError, StoreError, UsageError
from quintain.store import codec, faults
from quintain.store.files import disk_error
from quintain.store.rows import READ_FIELDS, Recorded, as_column, read_row, write_row
from quintain.store.schema import APPLICATION, INSERT_STEP, INSERT_TRAJECTORY, TABLES, UPGRADES, VERSION
from quintain.types import Trajectory

Report = Callable[[str, str], None]


def create_journal(file: Path, meta: Mapping[str, str]) -> None:
    """Write a new, empty journal to `file`."""
    with _reported("creating the journal", file):
        faults.point("create", file)
        connection = sqlite3.connect(file, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(TABLES)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute(f"PRAGMA user_version={VERSION}")
        finally:
            connection.close()


class Journal:
    """An open journal; usable from several threads of one process."""

    def __init__(self, file: Path, report: Report, *, is_writable: bool) -> None:
        """Open `file`; `report` hears of every row that cannot be read."""
        self.file = file
        self.machine = ""
        """What computes the steps that are committed."""
        self._report = report
        self._mutex = RLock()
        with _reported("opening the journal", file):
            mode = "rw" if is_writable else "ro"
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=30, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            try:
                self._version = self._checked_version()
                self._connection.execute("PRAGMA synchronous=NORMAL")
                if is_writable and self._version < VERSION:
                    self._upgrade()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it."""
        self._connection.close()

    def append(self, trajectories: Sequence[Trajectory], *, step: int, phase: str) -> tuple[int, ...]:
        """Add `trajectories` in one transaction and return their row ids.

        A trajectory that is there already, equal but for its duration, keeps its row. Raises `DataError` for
        another one under the same (phase, step, group, index) and for additions to a committed step.
        """
        rows = [write_row(trajectory, step, phase) for trajectory in trajectories]
        with self._transaction("recording trajectories") as connection:
            faults.point("append", self.file)
            is_committed = self._find_step(step, phase) is not None
            return tuple(self._add(connection, row, is_committed) for row in rows)

    def commit(
        self, *, step: int, phase: str, metrics: Mapping[str, float | None], seconds: float,
        weights: str | None = None, policy_version: int | None = None,
    ) -> str:  # fmt: skip
        """Close `step` of `phase` durably and return the hash of its trajectories.

        `weights` names the weights after the step, by their fingerprint, and `policy_version` counts the updates that
        led to them. Where `machine` is another one than before, that is noted, too.
        """
        with self._transaction("committing a step", is_durable=True) as connection:
            faults.point("commit row", self.file)
            if self._find_step(step, phase) is not None:
                raise DataError(
                    f"committing step {step} of phase {phase!r}: got a step that is committed; "
                    "commit each step of a phase once"
                )
            batch_hash, count = self._hash_batch(step, phase)
            text = json.dumps(metrics)
            row = (step, phase, text, batch_hash, count, seconds, weights, policy_version)
            row_id = connection.execute(INSERT_STEP, row).lastrowid or 0
            if self.machine and self.machine != self.machine_of(row_id):
                connection.execute("INSERT INTO meta VALUES (?, ?)", (_machine_key(row_id), self.machine))
            return batch_hash

    def abandon(self, first_step: int) -> int:
        """Mark everything from `first_step` on as superseded; return how many trajectories that are."""
        with self._transaction("resuming", is_durable=True) as connection:
            for table in ("steps", "trajectories"):
                marked = connection.execute(
                    f"UPDATE {table} SET is_abandoned = 1 WHERE step >= ? AND is_abandoned = 0", (first_step,)
                )
            return marked.rowcount

    def abandoned_hashes(self, step: int, phase: str) -> tuple[str, str | None, str] | None:
        """Return hash of the trajectories, weights and machine of the newest superseded commit of `step`, or None."""
        query = (
            "SELECT batch_hash, weights, id FROM steps WHERE step = ? AND phase = ? AND is_abandoned = 1 "
            "ORDER BY id DESC"
        )
        row = self._one(query, (step, phase))
        return None if row is None else (row[0], row[1], self.machine_of(row[2]))

    def machine_of(self, row_id: int) -> str:
        """Return the name of what computed the step in row `row_id`; an empty string where it was not noted."""
        query = "SELECT value FROM meta WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
        row = self._one(query, (_machine_key(0), _machine_key(row_id)))
        return "" if row is None else row[0]

    def weights(self) -> dict[int, str]:
        """Return step → fingerprint of the weights after it, where that is known."""
        if self._version < 2:
            return {}
        return dict(
            self._all("SELECT step, weights FROM steps WHERE is_abandoned = 0 AND weights IS NOT NULL", ())
        )

    def metrics(self, phase: str | None = None) -> list[dict[str, Any]]:
        """Return one row per committed step in order: ``{"step": …, "phase": …, **metrics}``."""
        query = (
            "SELECT id, step, phase, metrics FROM steps "
            "WHERE is_abandoned = 0 AND (:phase IS NULL OR phase = :phase) ORDER BY id"
        )
        rows: list[dict[str, Any]] = []
        for row_id, step, name, text in self._all(query, {"phase": phase}):
            try:
                rows.append({"step": step, "phase": name, **json.loads(text)})
            except (ValueError, TypeError) as error:
                self._report("quarantine", f"step row {row_id} of {self.file}: {error}")
        return rows

    def last_step(self) -> int | None:
        """Return the highest committed step, or None."""
        row = self._one("SELECT max(step) FROM steps WHERE is_abandoned = 0", ())
        return None if row is None else row[0]

    def last_ids(self) -> dict[str, int]:
        """Return the offset of the journal's end: the last row id of trajectories and of steps."""
        return {
            table: (self._one(f"SELECT max(id) FROM {table}", ()) or (None,))[0] or 0
            for table in ("trajectories", "steps")
        }

    def recorded(self, *, step: int | None, phase: str | None) -> Iterator[Recorded]:
        """Yield the trajectories in order of arrival; a row that cannot be read is reported and skipped."""
        query = (
            "SELECT id FROM trajectories WHERE is_abandoned = 0 AND (:step IS NULL OR step = :step) "
            "AND (:phase IS NULL OR phase = :phase) ORDER BY id"
        )
        for (row_id,) in self._all(query, {"step": step, "phase": phase}):
            try:
                row = self._one(f"SELECT {READ_FIELDS} FROM trajectories WHERE id = ?", (row_id,))
                recorded = read_row(row_id, row)
            except (DataError, StoreError) as error:
                self._report("quarantine", f"trajectory row {row_id} of {self.file}: {error}")
                continue
            yield recorded

    def add_event(self, kind: str, message: str, data: Mapping[str, Any]) -> None:
        """Add an event with the wall-clock time."""
        text = json.dumps(data, default=codec.plain)
        with self._transaction("recording an event") as connection:
            connection.execute(
                "INSERT INTO events (time, kind, message, data) VALUES (?, ?, ?, ?)",
                (time.time(), as_column(kind), as_column(message), text),
            )

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order: ``{"time": …, "kind": …, "message": …, "data": {…}}``."""
        rows = self._all("SELECT time, kind, message, data FROM events ORDER BY id", ())
        return [{"time": t, "kind": k, "message": m, "data": json.loads(d)} for t, k, m, d in rows]

    def meta(self, key: str) -> str:
        """Return a value of the table of facts about the run, or an empty string."""
        row = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return "" if row is None else row[0]

    def set_meta(self, key: str, value: str) -> None:
        """Set a value of the table of facts about the run."""
        with self._transaction("recording the status") as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _checked_version(self) -> int:
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
            connection.execute(f"PRAGMA user_version={VERSION}")
        self._version = VERSION

    def _add(self, connection: sqlite3.Connection, row: tuple[Any, ...], is_committed: bool) -> int:
        if not is_committed:
            cursor = connection.execute(INSERT_TRAJECTORY, row)
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                return cursor.lastrowid
        phase, step, group, place = row[:4]
        found = connection.execute(
            "SELECT id, digest FROM trajectories WHERE step = ? AND phase = ? AND group_id = ? AND place = ? "
            "AND is_abandoned = 0",
            (step, phase, group, place),
        ).fetchone()
        if found is not None and found[1][:16] == row[15][:16]:
            return found[0]
        what = "a committed step" if is_committed else "another trajectory in that place"
        raise DataError(
            f"recording trajectory {place} of group {group!r} in step {step} of phase {phase!r}: got {what}; "
            "give each trajectory of a step its own (group, index), before the step is committed"
        )

    def _find_step(self, step: int, phase: str) -> tuple[Any, ...] | None:
        return self._one(
            "SELECT id FROM steps WHERE step = ? AND phase = ? AND is_abandoned = 0", (step, phase)
        )

    def _hash_batch(self, step: int, phase: str) -> tuple[str, int]:
        query = (
            "SELECT digest FROM trajectories WHERE step = ? AND phase = ? AND is_abandoned = 0 "
            "ORDER BY group_id, place"
        )
        digests = [row[0][:16] for row in self._all(query, (step, phase))]
        return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest(), len(digests)

    def _all(self, query: str, values: tuple[Any, ...] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._mutex, _reported("reading the journal", self.file):
            return self._connection.execute(query, values).fetchall()

    def _one(self, query: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        with self._mutex, _reported("reading the journal", self.file):
            return self._connection.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self, asked: str, *, is_durable: bool = False) -> Generator[sqlite3.Connection]:
        """Run the block in one transaction: all of it is kept, or nothing."""
        connection = self._connection
        with self._mutex, _reported(asked, self.file):
            connection.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                faults.point("commit", self.file)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _machine_key(row_id: int) -> str:
    """Return under what is noted which machine computed the steps from row `row_id` on; keys sort like rows."""
    return f"machine from step row {row_id:020}"


@contextmanager
def _reported(asked: str, file: Path) -> Generator[None]:
    """Turn errors of the disk or of SQLite into a `StoreError` that names `file`."""
    try:
        yield
    except QuintainError:
        raise
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"{asked} {file}: got a run that is closed ({error}); open it again") from error
    except (OSError, sqlite3.OperationalError) as error:
        raise disk_error(asked, file, error) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StoreError(
            f"{asked} in {file}: got a damaged file ({error}); "
            "restore it from a copy; the checkpoints are files of their own"
        ) from error

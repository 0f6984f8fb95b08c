"""A run: the folder that training writes and everything else reads.

``Run.create`` starts one, ``Run.open`` takes one up or reads it. There is a single writer, and on resuming it continues
after the newest intact checkpoint; what was recorded later is kept but marked as superseded.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from quintain.errors import StoreError, UsageError
from quintain.store import files
from quintain.store.best import best_step
from quintain.store.calls import CALLS
from quintain.store.checkpoints import Checkpoint, Checkpoints, journal_offset
from quintain.store.creation import CONFIG, HASHES, JOURNAL, MARK, METRICS, create_folder, read_settings
from quintain.store.journal import Journal
from quintain.store.lock import WriterLock, is_locked
from quintain.store.machine import machine
from quintain.store.manifest import files_below, find_changes, hash_files, in_words, read_manifest
from quintain.store.marks import Origin, find_origin, mark_run
from quintain.store.rows import Commit, Recorded, finite_metrics
from quintain.types import Trajectory, Use
from quintain.types.terminal import write_command

Status = Literal["running", "done", "interrupted", "failed"]
_STATUSES: tuple[Status, ...] = ("running", "done", "interrupted", "failed")
FindRecorded = Callable[[str, int, int], Trajectory | None]
"""(group, index, seed) → the episode of that name; None where there is none"""
_log = logging.getLogger("quintain.store")
CHANGED, UNKNOWN, BEHIND, DRIFT = "changed files", "no hashes", "journal behind", "drift"
DAMAGED = "damaged checkpoint"
RESUMED = ("start", "adapter", "tokenizer")
"""Folders of a run that a resumed one reads, beside its checkpoints."""
NOTICES = frozenset({CHANGED, UNKNOWN, BEHIND, DRIFT, DAMAGED})
"""Events after which the numbers of a run are not those of a run that was left alone, or cannot be known to be."""


class Run:
    """A run folder, open for writing (one process) or reading (any number); use it as a context manager."""

    def __init__(self, folder: Path, lock: WriterLock | None) -> None:
        """Open `folder`; use `Run.create` or `Run.open` instead."""
        self.folder = folder
        self._lock = lock
        self.num_quarantined = 0
        self.accepts_changes = False
        """Whether whoever resumed it said that files and data which changed are to be taken as they are now."""
        settings = read_settings(folder)
        self.recipe: str = settings["recipe"]
        self.config: dict[str, Any] = settings["config"]
        self.created: float = settings["created"]
        self._journal = Journal(folder / JOURNAL, self._hear, is_writable=lock is not None)
        self._checkpoints = Checkpoints(folder / "checkpoints", self._report)
        self._next_step: int | None = None
        self._since = time.monotonic()
        self._may_drift = False
        self.find_recorded: FindRecorded | None = None
        """What gives an episode in the place of playing it, where steps of another run are made again."""
        self.last_wanted: int | None = None
        """The step after which it ends as if the user had asked for it; None: as it is configured."""

    @classmethod
    def create(cls, folder: Path, *, recipe: str, config: Mapping[str, Any], replace: bool = False) -> Self:
        """Start the run `folder` with its effective `config`.

        Raises `UsageError` for a bad name or an existing run (unless `replace`), `StoreError` when the disk
        fails; nothing is left half-written.
        """
        lock = create_folder(folder, recipe=recipe, config=config, replace=replace)
        run = _open_run(folder, lock, cls)
        run._next_step = 0
        return run

    @classmethod
    def open(cls, folder: Path, *, writable: bool = True, accepts_changes: bool = False) -> Self:
        """Take up the run `folder`, or only read it with ``writable=False``.

        A writer closes the folder to others, and continues after the newest intact checkpoint: records of later
        steps are marked as superseded and ``metrics.jsonl`` is written anew. Raises `UsageError` for a folder
        that is no run and `StoreError` for one that another process writes, that a newer release wrote, whose
        checkpoints are all damaged, that holds a link, or of whose other files one is not what was written, unless it
        `accepts_changes`.
        """
        read_settings(folder)
        if not writable:
            run = cls(folder, None)
            if (folder / CALLS).exists() and not is_locked(folder):
                command = write_command("quintain", "resume", folder)
                run._report(
                    "calls left",
                    f"a server that was killed left calls in {folder / CALLS}; `{command}` records them",
                )
            return run
        run = _open_run(folder, _lock(folder), cls)
        try:
            run.accepts_changes = accepts_changes
            # One of an earlier release, or unpacked from an archive, may be open.
            files.close_to_others(folder)
            run._compare_files()
            run._take_up()
        except BaseException:
            run.close()
            raise
        return run

    @property
    def name(self) -> str:
        """The name of the run: that of its folder."""
        return self.folder.name

    @property
    def next_step(self) -> int:
        """The first step after the newest intact checkpoint; 0 where there is none."""
        if self._next_step is None:
            checkpoint = self._checkpoints.latest()
            self._next_step = 0 if checkpoint is None else checkpoint.step + 1
        return self._next_step

    @property
    def status(self) -> str:
        """One of `Status`; a run whose writer died is ``interrupted``."""
        status = self._journal.meta("status")
        is_dead = status == "running" and self._lock is None and not is_locked(self.folder)
        return "interrupted" if is_dead else status

    @property
    def last_step(self) -> int | None:
        """The newest committed step, None before the first."""
        return self._journal.last_step()

    def append(
        self, trajectories: Sequence[Trajectory], *, step: int, phase: str = "train"
    ) -> tuple[str, ...]:
        """Record `trajectories` of `step` in one transaction and return the ids of the episodes.

        Repeating a call is harmless: (phase, step, group, index) is the key, and the id follows from it and the run's
        name. Of a branch (`Trajectory.parent`) only the turns that its parent has not are written. Raises `DataError`
        when the key is taken by another trajectory, the step is committed, or a branch does not begin with the turns of
        a parent that is recorded.
        """
        self._check_writable()
        return self._journal.append(trajectories, step=_natural(step), phase=phase)

    def take_back(self, is_wanted: Callable[[Trajectory], bool], *, phase: str = "train") -> int:
        """Take back the episodes of `phase` that were superseded when the run was opened and are wanted; count them.

        They are there as if they had just been appended; the others stay superseded.
        """
        self._check_writable()
        return self._journal.take_back(is_wanted, phase=phase)

    def commit(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        phase: str = "train",
        weights: str | None = None,
        policy_version: int | None = None,
        uses: Sequence[Use] | None = None,
    ) -> None:
        """Close `step` durably with its `metrics`; what is not finite is stored as null.

        `uses` names the episodes that it learned from, of this and of earlier steps, with their signals where those
        are to be kept; None means all that were appended for this step and phase. `weights` is the fingerprint of the
        weights after the step, `policy_version` the number of updates until then. Raises `DataError` for a step that is
        committed, an episode that is not there or was collected later, and signals that do not fit their episode.
        """
        self._check_writable()
        numbers = finite_metrics(metrics)
        self._journal.machine = machine()
        now = time.monotonic()
        batch_hash = self._journal.commit(
            step=_natural(step), phase=phase, metrics=numbers, seconds=now - self._since,
            weights=weights, policy_version=policy_version, uses=uses,
        )  # fmt: skip
        self._since = now
        self._compare_with_abandoned(step, phase, batch_hash, weights)
        line = json.dumps({"step": step, "phase": phase, **numbers})
        with _on_disk("adding metrics", self.folder / METRICS):
            files.append_line(self.folder / METRICS, line)

    def checkpoint(
        self, step: int, write: Callable[[Path], None], *, keep: int = 2, protect: Collection[int] = ()
    ) -> Path:
        """Save the state after `step` by letting `write` fill an empty folder; return the folder's final
        path.

        The new checkpoint is synced and verified before older ones are deleted, down to the `keep` newest (at
        least 2), the one of the step that did best on what is held out, and the steps in `protect`. Raises
        `StoreError` naming path and free bytes when the disk fails.
        """
        self._check_writable()
        offset = self._journal.last_ids()
        best = self.best_step
        kept = {*protect} if best is None else {*protect, best}
        saved = self._checkpoints.write(_natural(step), write, journal=offset, keep=keep, protect=kept)
        self._next_step = step + 1
        return saved.folder

    @property
    def best_step(self) -> int | None:
        """The committed step that did best on what is held out, the earliest of several; None where nothing was."""
        return best_step(self._journal.metrics(containing='"eval/'))

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints that are kept, newest first, whether they are intact or not."""
        return self._checkpoints.all()

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, verified byte for byte, or None if there never was one.

        A damaged one is reported (log and events) and the one before is taken; `StoreError` if none is
        intact.
        """
        return self._checkpoints.latest()

    def fact(self, name: str) -> str:
        """Return what is known of the run as a whole under `name`; empty where nothing is."""
        return self._journal.meta(name)

    def set_fact(self, name: str, value: str) -> None:
        """Note what is known of the run as a whole."""
        self._check_writable()
        self._journal.set_meta(name, value)

    @property
    def origin(self) -> Origin:
        """Who made the run: this user, by a mark that nobody else can make, or somebody else."""
        return find_origin(self._journal.meta(MARK), self.recipe, self.config)

    def adopt(self) -> None:
        """Give the run the mark of this user, who trusts what it names."""
        self._check_writable()
        self._journal.set_meta(MARK, mark_run(self.recipe, self.config))

    def record_files(self, *places: str | Path) -> None:
        """Keep the SHA-256 of the files at and below `places`, of the run's folder or anywhere, for when it is resumed.

        What was recorded of a place before is replaced.
        """
        self._check_writable()
        known = read_manifest(self._journal.meta(HASHES)) or {}
        with _on_disk("reading what the run is made of", self.folder):
            found = hash_files(self.folder, places)
        gone = tuple(f"{place}/" for place in places)
        kept = {name: digest for name, digest in known.items() if not name.startswith(gone)}
        self._journal.set_meta(HASHES, json.dumps(kept | found))

    def find_changes(self) -> dict[str, str]:
        """Return which files that were recorded are not what they were, and how: changed, missing or new."""
        return find_changes(self.folder, read_manifest(self._journal.meta(HASHES)) or {})

    def check_files(self, to: str, *, is_all: bool, accepts_changes: bool) -> str:
        """Return which files are not what they were, in words, where the run is only used; empty where all are.

        Those outside of its folder count where `is_all`, one's own Python never.

        Raises:
            StoreError: there are some, and they are not accepted.
        """
        known = {
            name: digest
            for name, digest in (read_manifest(self._journal.meta(HASHES)) or {}).items()
            if not _is_code(name) and (is_all or not Path(name).is_absolute())
        }
        with _on_disk("comparing the files of the run", self.folder):
            changes = find_changes(self.folder, known)
        if changes and not accepts_changes:
            raise self._refuse(to, changes)
        return in_words(changes)

    def notices(self) -> list[dict[str, Any]]:
        """Return the events of the kinds of `NOTICES`: what is to be known before the run's numbers are believed."""
        return [event for event in self.events() if event["kind"] in NOTICES]

    def event(self, kind: str, message: str, **data: Any) -> None:
        """Record that something happened, with the time."""
        self._check_writable()
        self._journal.add_event(kind, message, data)

    def events(self) -> list[dict[str, Any]]:
        """Return what happened: ``{"time": …, "kind": …, "message": …, "data": {…}}``."""
        return self._journal.events()

    def weights(self) -> dict[int, str]:
        """Return step → fingerprint of the weights after it, of the steps that recorded one."""
        return self._journal.weights()

    def commits(self, phase: str = "train") -> dict[int, Commit]:
        """Return the committed steps of `phase` in order, each with what it is compared by when it is made again."""
        return {each.step: each for each in self._journal.commits(phase)}

    def digests(self, step: int) -> dict[str, str]:
        """Return id → digest of the episodes that were recorded in `step`, in the order of arrival."""
        return self._journal.digests(step)

    def copy_journal(self, file: Path) -> None:
        """Write the journal as it is now to `file`, which is new."""
        self._journal.copy_to(file)

    def metrics(self, phase: str | None = None) -> list[dict[str, Any]]:
        """Return the curve: one ``{"step": …, "phase": …, **metrics}`` per committed step."""
        return self._journal.metrics(phase)

    def trajectories(self, step: int | None = None, phase: str | None = None) -> Iterator[Trajectory]:
        """Yield the recorded trajectories (of one step, of one phase), equal to what was appended.

        A row that cannot be read is skipped, counted in `num_quarantined` and reported.
        """
        return (each.trajectory for each in self.read_rows(step, phase))

    def read_rows(
        self, step: int | None = None, phase: str | None = None, *, after: int = 0, most: int = -1
    ) -> Iterator[Recorded]:
        """Yield the same as `trajectories`, each with its row, step and phase.

        Only those behind the row `after`, and at most so many: all of them below 0.
        """
        return self._journal.read_rows(step=step, phase=phase, after=after, most=most)

    def read_facts(self, after: int, most: int) -> list[tuple[Any, ...]]:
        """Return `schema.FACTS` of at most `most` episodes behind the row `after`, superseded ones too.

        They are as they stand in the file, of whatever type, and quickly had: nothing of an episode is decoded.
        """
        return self._journal.read_facts(after, most)

    def read_superseded(self) -> list[int]:
        """Return the rows of the episodes that a resumed run has left behind."""
        return self._journal.read_superseded()

    def read_links(self, after: int, most: int) -> list[tuple[Any, ...]]:
        """Return what the next `most` steps used, by rows, as `Journal.read_links` has it."""
        return self._journal.read_links(after, most)

    def read_ends(self) -> dict[str, int]:
        """Return the last row of episodes (``trajectories``), steps and events: what has changed since is behind."""
        return {**self._journal.last_ids(), "events": self._journal.last_event()}

    def episode(self, id: str) -> Trajectory:
        """Return the episode `id`, a branch with the turns of its parent before its own.

        Raises `DataError` when there is none, it was superseded, or it cannot be read.
        """
        return self._journal.episode(id)

    def uses(self, step: int | None = None, *, phase: str = "train") -> Iterator[tuple[int, Use]]:
        """Yield (step, use) for what the committed steps (or one) of `phase` learned from, in the order of learning.

        Signals that cannot be read are left out, counted in `num_quarantined` and reported.
        """
        return self._journal.uses(step=step, phase=phase)

    def finish(self, status: Status = "done") -> None:
        """Record how the run ended."""
        self._check_writable()
        if status not in _STATUSES:
            raise UsageError(
                f"status of the run {self.name}: got {status!r}; use one of {', '.join(_STATUSES)}"
            )
        self._journal.set_meta("status", status)
        self._journal.add_event("finish", status, {})

    def close(self) -> None:
        """Give the folder back, its files closed to others; a second call does nothing."""
        self._journal.close()
        if self._lock is not None:
            files.close_to_others(self.folder)
            self._lock.release()

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the run; an error that ends the block is recorded as its end."""
        try:
            if error is not None and self._lock is not None and self._journal.meta("status") == "running":
                with suppress(StoreError):  # the first error is the one to see
                    self.finish("failed" if isinstance(error, Exception) else "interrupted")
        finally:
            self.close()

    def _compare_files(self) -> None:
        """Refuse files that are not what they were; note those that are accepted, and a run that kept no hashes."""
        known = read_manifest(self._journal.meta(HASHES))
        if known is not None and any(map(_is_result, known)):  # it is written anew, and not read
            known = {name: digest for name, digest in known.items() if not _is_result(name)}
            self._journal.set_meta(HASHES, json.dumps(known))
        if known is None:
            self._note(
                UNKNOWN,
                f"{self.name} was begun by a release that kept no hashes: config.json, start/ and the files that it "
                "names are taken as they are",
            )
            self.record_files(CONFIG, *(place for place in RESUMED if files_below(self.folder / place)))
            return
        with _on_disk("comparing the files of the run", self.folder):
            changes = find_changes(self.folder, known)
        refused = {name: what for name, what in changes.items() if not _is_code(name)}
        if not changes:
            return
        if refused and not self.accepts_changes:
            raise self._refuse("resuming", refused, ", which the report will show")
        self._note(CHANGED, f"from step {self.next_step} on: {in_words(changes)}")
        gone = [name for name, what in changes.items() if what == "missing"]
        kept = {name: digest for name, digest in known.items() if name not in gone}
        found = hash_files(self.folder, [name for name in changes if name not in gone])
        self._journal.set_meta(HASHES, json.dumps(kept | found))

    def _refuse(self, to: str, changes: Mapping[str, str], consequence: str = "") -> StoreError:
        """Return the error of `changes` that are not accepted."""
        return StoreError(
            f"{to} {self.folder}: got files that are not what the run wrote or began with: {in_words(changes)}; bring "
            f"them back, or go on with them as they are{consequence}: --accept-changes (accept_changes=True in Python)"
        )

    def _take_up(self) -> None:
        """Make the folder fit to continue after the newest intact checkpoint."""
        with _on_disk("resuming", self.folder):
            self._checkpoints.recover()
            first = self.next_step
            self._compare_with_journal(first - 1)
            num_abandoned = self._journal.abandon(first)
            self._checkpoints.set_aside(newer_than=first - 1)
            rows = [json.dumps(row) + "\n" for row in self._journal.metrics()]
            files.replace_file(self.folder / METRICS, "".join(rows).encode())
            self._journal.set_meta("status", "running")
            self._journal.add_event("resume", f"at step {first}", {"abandoned_trajectories": num_abandoned})
        self._may_drift = True

    def _compare_with_journal(self, step: int) -> None:
        """Say so if the checkpoint of `step` has seen more of the journal than there is (an old copy)."""
        saved = [each for each in self._checkpoints.all() if each.step == step]
        ends = self._journal.last_ids()
        for table, row in journal_offset(saved[0].folder).items() if saved else ():
            if row > ends[table]:
                seen = f"the checkpoint of step {step} has seen row {row}"
                self._report(BEHIND, f"{table} end at row {ends[table]}, and {seen}")

    def _compare_with_abandoned(self, step: int, phase: str, batch_hash: str, weights: str | None) -> None:
        """Say once after resuming if the repeated step saw other trajectories, or led to other weights, than before."""
        before = self._journal.find_abandoned_hashes(step, phase) if self._may_drift else None
        if before is None:
            return
        what = "saw other trajectories" if before[0] != batch_hash else ""
        if not what and None not in (before[1], weights) and before[1] != weights:
            what = "led to other weights"
        if what:
            self._may_drift = False
            here = self._journal.machine
            differs = "" if before[2] == here else _differs(before[2], here)
            self._report(DRIFT, f"step {step} of {phase!r} {what} than before the interruption{differs}")

    def _hear(self, kind: str, message: str) -> None:
        """Count what the journal cannot read, and report it."""
        self.num_quarantined += 1
        self._report(kind, message)

    def _report(self, kind: str, message: str) -> None:
        """Say it in the log, and in the journal as far as that can be written."""
        _log.warning("%s: %s", kind, message)
        if self._lock is not None:
            with suppress(StoreError):
                self._journal.add_event(kind, message, {})

    def _note(self, kind: str, message: str) -> None:
        """Say it in the log, and write it into the journal."""
        _log.warning("%s: %s", kind, message)
        self._journal.add_event(kind, message, {})

    def _check_writable(self) -> None:
        if self._lock is None:
            raise UsageError(
                f"writing to the run {self.name}: got a run opened for reading; open it with writable=True"
            )


_Run = TypeVar("_Run", bound=Run)


def _lock(folder: Path) -> WriterLock:
    with _on_disk("locking the run", folder):
        return WriterLock(folder)


def _open_run(folder: Path, lock: WriterLock, kind: type[_Run]) -> _Run:
    try:
        return kind(folder, lock)
    except BaseException:
        lock.release()
        raise


def _is_code(name: str) -> bool:
    """Whether a file of the manifest is this user's code: to mend it is what many a run is resumed for."""
    return name.endswith(".py") and Path(name).is_absolute()


def _is_result(name: str) -> bool:
    """Whether a file of the manifest is of a policy that the run ended with."""
    return name.partition("/")[0].partition("-")[0] == "model"


def _differs(before: str, now: str) -> str:
    """Say that a step was repeated on another machine, or perhaps on another where the first was not noted."""
    was = f"another machine ({before})" if before else "a machine that was not noted"
    return (
        f", which was on {was}; this is {now}. Processors, libraries and numbers of threads round differently, "
        "so equal bits are not to be expected; continue where the run began if they must be equal"
    )


def _natural(step: int) -> int:
    if isinstance(step, bool) or not 0 <= step < 1 << 32:
        raise UsageError(f"step: got {step!r}; count steps from 0")
    return step


@contextmanager
def _on_disk(asked: str, path: Path) -> Generator[None]:
    """Turn an error of the disk into a `StoreError` that names `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise files.disk_error(asked, path, error) from error

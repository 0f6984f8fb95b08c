"""Rows of the journal: what goes into the columns, and back.

The columns repeat a few facts of a trajectory for queries; the encoded record is the truth. Every byte of a row that is
read back is under a checksum, so damage is found and never taught to a model.
"""

import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quintain.errors import DataError
from quintain.store import codec
from quintain.types import Branch, Failure, Trajectory

READ_FIELDS = "id, parent, parent_turn, phase, step, seconds, codec, digest, structure, payload"
_DIGEST = 16
MAX_STEPS = 1 << 32
"""Steps are below this."""


class Recorded(NamedTuple):
    """A trajectory with its place in the journal: ``Recorded(row=7, step=0, phase="train", …)``."""

    row: int
    step: int
    phase: str
    trajectory: Trajectory
    digest: bytes
    """16 bytes over everything that is recorded of it, its parents included"""


class Commit(NamedTuple):
    """A committed step: ``Commit(step=7, metrics={…}, batch_hash="…", weights="…", version=7, machine="…")``."""

    step: int
    metrics: Mapping[str, Any]
    batch_hash: str
    """over the episodes that it used, and their signals"""
    weights: str | None
    """fingerprint of the weights after it, where one was taken"""
    version: int | None
    """updates of the policy until then"""
    machine: str
    """what computed it; empty where that was not noted"""


def finite_metrics(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Return `metrics` ready for JSON: whole numbers stay whole, what is not finite becomes None.

    Raises `DataError` for the names ``step`` and ``phase`` and for what is not a number.
    """
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if name in ("step", "phase"):
            raise DataError(f"metric {name!r}: got a name that every row has already; rename the metric")
        try:
            is_finite = math.isfinite(value)
        except OverflowError:
            is_finite = False
        except (TypeError, ValueError) as error:
            raise DataError(f"metric {name!r}: got {value!r}; give a number") from error
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        found[name] = (value if is_whole else float(value)) if is_finite else None
    return found


def episode_id(run: str, phase: str, step: int, group: str, place: int) -> bytes:
    """Return the 10 bytes that name an episode of the run named `run`, from where it was collected.

    They begin with the step, so that the episodes of a step are neighbours in the index.
    """
    return _name(step, _names(run, phase, step), as_column(group), place)


def _names(run: str, phase: str, step: int) -> hashlib.blake2b:
    """Return what the names of the episodes of a step begin with, as a hash that goes on."""
    return hashlib.blake2b(f"{run}\0{phase}\0{step}\0".encode(), digest_size=6)


def _name(step: int, names: hashlib.blake2b, group: str, place: int) -> bytes:
    own = names.copy()
    own.update(f"{group}\0{place}".encode())
    return step.to_bytes(4) + own.digest()


def write_rows(
    trajectories: Sequence[Trajectory], step: int, phase: str, *, run: str = ""
) -> list[tuple[Any, ...]]:
    """Return the values of `schema.ROOT` for each of `trajectories`; raise `DataError` for what cannot be encoded."""
    return _rows(trajectories, codec.encode_all(trajectories), step, phase, run)


def write_branch(
    trajectory: Trajectory, step: int, phase: str, *, parent: Recorded, run: str = ""
) -> tuple[Any, ...]:
    """Return the values of `schema.COLUMNS` for a branch without the turns that are its `parent`'s."""
    record = codec.encode(trajectory, parent=parent.digest)
    (row,) = _rows([trajectory], [record], step, phase, run)
    return *row, parent.row, trajectory.parent and trajectory.parent.turn


def _rows(
    trajectories: Sequence[Trajectory], records: Sequence[codec.Record], step: int, phase: str, run: str
) -> list[tuple[Any, ...]]:
    """Return the columns of each trajectory; bytes as bytearrays, which `sqlite3` takes without a look for adapters."""
    names, rows = _names(run, phase, step), list[tuple[Any, ...]]()
    for trajectory, (structure, payload, digest, version) in zip(trajectories, records, strict=True):
        task, outcome, seconds = trajectory.task, trajectory.outcome, float(trajectory.seconds)
        if isinstance(outcome, Failure):
            value, is_success, failure = None, None, as_column(f"{outcome.owner}/{outcome.kind}")
        else:
            value, is_success, failure = float(outcome.value), int(outcome.is_success), None
        group = as_column(trajectory.group)
        name = _name(step, names, group, trajectory.index)
        done = [turn.completion for turn in trajectory.turns]
        policies, versions = {each.policy for each in done}, {each.policy_version for each in done}
        row = (
            bytearray(name),
            phase,
            step,
            group,
            trajectory.index,
            as_column(task.id),
            as_column(task.environment),
            task.split,
            value,
            is_success,
            failure,
            str(trajectory.stop),
            len(done),
            sum([len(each.token_ids) for each in done]),
            seconds,
            as_column(
                ",".join(policies if len(policies) < 2 else dict.fromkeys([each.policy for each in done]))
            ),
            min(versions) if versions else None,
            version,
            bytearray(digest + _seal(phase, step, seconds, digest, name)),
            bytearray(structure),
            bytearray(payload),
        )
        rows.append(row)
    return rows


def _seal(phase: str, step: int, seconds: float, digest: bytes, name: bytes = b"") -> bytes:
    """Return 4 bytes that tie a record to its place in the journal; those of the first encoding have no `name`."""
    place = f"{phase}\0{step}\0{seconds!r}".encode()
    return zlib.crc32(name, zlib.crc32(place, zlib.crc32(digest))).to_bytes(4, "little")


def as_column(text: str) -> str:
    """Return `text` as UTF-8 can hold it: half a surrogate pair, which a model can write, is spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class Opened(NamedTuple):
    """A row as far as it can be read without the parent of a branch; `read_row` takes it, once."""

    fields: tuple[Any, ...]
    """the `READ_FIELDS`"""
    digest: bytes
    content: codec.Opened

    @property
    def parent(self) -> int | None:
        """The row of the episode that a branch was played on from."""
        return self.fields[1]


def open_rows(rows: Sequence[tuple[Any, ...] | None]) -> list[Opened | DataError]:
    """Return what the `READ_FIELDS` of `rows` hold, an error where anything changed; many at once are quicker."""
    found = [_record(row) for row in rows]
    contents = iter(codec.open_all([each[1] for each in found if not isinstance(each, DataError)]))
    return [each if isinstance(each, DataError) else _open_row(*each, next(contents)) for each in found]


def _open_row(
    row: tuple[Any, ...], record: codec.Record, content: codec.Opened | DataError
) -> Opened | DataError:
    return content if isinstance(content, DataError) else Opened(row, record.digest, content)


def _record(row: tuple[Any, ...] | None) -> tuple[tuple[Any, ...], codec.Record] | DataError:
    """Return a row and the record in it, or what is wrong with the row."""
    if row is None:
        return DataError("got no such row")
    name, parent, turn, phase, step, seconds, version, digest, structure, payload = row
    if version not in (1, codec.CODEC):
        return DataError(
            f"got encoding {version!r}, and this release reads up to {codec.CODEC}; upgrade quintain"
        )
    if not type(name) is type(digest) is type(structure) is type(payload) is bytes:
        return DataError("got columns of the wrong type")
    is_number = type(seconds) in (int, float) and math.isfinite(seconds)
    places = (each for each in (parent, turn) if each is not None)
    if (
        type(phase) is not str
        or not is_number
        or not all(type(each) is int and 0 <= each < 1 << 62 for each in (step, *places))
        or (parent is None) != (turn is None)
        or step >= MAX_STEPS
    ):
        return DataError("got columns of the wrong type")
    whole, seal = digest[:_DIGEST], digest[_DIGEST:]
    if seal != _seal(phase, step, seconds, whole, b"" if version == 1 else name):
        return DataError("got an id, step, phase or duration that was changed")
    return row, codec.Record(structure, payload, whole, version)


def read_row(row_id: int, opened: Opened | DataError, parent: Recorded | None = None) -> Recorded:
    """Return the episode in a row; raise `DataError` when anything in it changed.

    `parent` is what a branch was played on from: the episode in the row's column ``parent``.
    """
    if isinstance(opened, DataError):
        raise opened
    (name, _, turn, phase, step, seconds, *_), digest, content = opened
    if parent is None:
        found = codec.finish(content, seconds=seconds, id=name.hex())
    else:
        before, branch = parent.trajectory.turns[:turn], Branch(episode=parent.trajectory.id, turn=turn)
        found = codec.finish(
            content, seconds=seconds, id=name.hex(), before=before, parent=parent.digest, branch=branch
        )
    return Recorded(row_id, step, phase, found, digest)

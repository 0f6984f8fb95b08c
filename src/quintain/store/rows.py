"""Rows of the journal: what goes into the columns, and back.

The columns repeat a few facts of a trajectory for queries; the encoded record is the truth. The one rule:
every byte of a row that is read back is under a checksum, so damage is found and never taught to a model.
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quintain.errors import DataError
from quintain.store import codec
from quintain.types import Failure, Trajectory

READ_FIELDS = "phase, step, seconds, codec, digest, structure, payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trajectory with its place in the journal: ``Recorded(row=7, step=0, phase="train", …)``."""

    row: int
    step: int
    phase: str
    trajectory: Trajectory


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


def write_row(trajectory: Trajectory, step: int, phase: str) -> tuple[Any, ...]:
    """Return the values of `schema.INSERT_TRAJECTORY`; raise `DataError` for what cannot be encoded."""
    record = codec.encode(trajectory)
    task, outcome, seconds = trajectory.task, trajectory.outcome, float(trajectory.seconds)
    if isinstance(outcome, Failure):
        value, is_success, failure = None, None, as_column(f"{outcome.owner}/{outcome.kind}")
    else:
        value, is_success, failure = float(outcome.value), bool(outcome.is_success), None
    return (
        phase,
        step,
        as_column(trajectory.group),
        trajectory.index,
        as_column(task.id),
        as_column(task.environment),
        task.split,
        value,
        is_success,
        failure,
        trajectory.stop.value,
        len(trajectory.turns),
        trajectory.num_sampled,
        seconds,
        codec.CODEC,
        record.digest + _seal(phase, step, seconds, record.digest),
        record.structure,
        record.payload,
    )


def _seal(phase: str, step: int, seconds: float, digest: bytes) -> bytes:
    """Return 4 bytes that tie a record to its place in the journal."""
    return zlib.crc32(f"{phase}\0{step}\0{seconds!r}".encode(), zlib.crc32(digest)).to_bytes(4, "little")


def as_column(text: str) -> str:
    """Return `text` as UTF-8 can hold it: half a surrogate pair, which a model can write, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_row(row_id: int, row: tuple[Any, ...] | None) -> Recorded:
    """Return what the `READ_FIELDS` of a row hold; raise `DataError` when anything in them changed."""
    if row is None:
        raise DataError("got no such row")
    phase, step, seconds, version, digest, structure, payload = row
    if version != codec.CODEC:
        raise DataError(f"got encoding {version!r}, and this release reads {codec.CODEC}; upgrade quintain")
    if not all(isinstance(blob, bytes) for blob in (digest, structure, payload)):
        raise DataError("got columns of the wrong type")
    if digest[16:] != _seal(str(phase), step, seconds, digest[:16]):
        raise DataError("got a step, phase or duration that was changed")
    record = codec.Record(structure=structure, payload=payload, digest=digest[:16])
    return Recorded(row=row_id, step=step, phase=phase, trajectory=codec.decode(record, seconds=seconds))

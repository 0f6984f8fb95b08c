"""Rows of the journal: what goes into the columns, and back.

The columns repeat a few facts of a trajectory for queries; the encoded record is the truth. Every byte of a row that is
read back is under a checksum, so damage is found and never taught to a model.
"""

import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quintain.errors import DataError
from quintain.store import codec
from quintain.types import Branch, Failure, Trajectory

READ_FIELDS = "id, parent, parent_turn, phase, step, seconds, codec, digest, structure, payload"
_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trajectory with its place in the journal: ``Recorded(row=7, step=0, phase="train", …)``."""

    row: int
    step: int
    phase: str
    trajectory: Trajectory
    digest: bytes
    """16 bytes over everything that is recorded of it, its parents included"""


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
    text = "\0".join([run, phase, str(step), as_column(group), str(place)])
    return step.to_bytes(4) + hashlib.blake2b(text.encode(), digest_size=6).digest()


def write_row(
    trajectory: Trajectory, step: int, phase: str, *, run: str = "", parent: Recorded | None = None
) -> dict[str, Any]:
    """Return the values of `schema.COLUMNS`; raise `DataError` for what cannot be encoded.

    Of a branch the turns that are its `parent`'s are left out.
    """
    record = codec.encode(trajectory, parent=b"" if parent is None else parent.digest)
    task, outcome, seconds = trajectory.task, trajectory.outcome, float(trajectory.seconds)
    if isinstance(outcome, Failure):
        value, is_success, failure = None, None, as_column(f"{outcome.owner}/{outcome.kind}")
    else:
        value, is_success, failure = float(outcome.value), bool(outcome.is_success), None
    name = episode_id(run, phase, step, trajectory.group, trajectory.index)
    done = [turn.completion for turn in trajectory.turns]
    policies = dict.fromkeys([each.policy for each in done])
    return {
        "id": name,
        "parent": parent and parent.row,
        "parent_turn": trajectory.parent and trajectory.parent.turn,
        "phase": phase,
        "step": step,
        "group_id": as_column(trajectory.group),
        "place": trajectory.index,
        "task": as_column(task.id),
        "environment": as_column(task.environment),
        "split": task.split,
        "value": value,
        "is_success": is_success,
        "failure": failure,
        "stop": str(trajectory.stop),
        "num_turns": len(trajectory.turns),
        "num_sampled": sum([len(each.token_ids) for each in done]),
        "seconds": seconds,
        "policy": as_column(",".join(policies)),
        "version": min([each.policy_version for each in done], default=None),
        "codec": codec.CODEC,
        "digest": record.digest + _seal(phase, step, seconds, record.digest, name),
        "structure": record.structure,
        "payload": record.payload,
    }


def _seal(phase: str, step: int, seconds: float, digest: bytes, name: bytes = b"") -> bytes:
    """Return 4 bytes that tie a record to its place in the journal; those of the first encoding have no `name`."""
    place = f"{phase}\0{step}\0{seconds!r}".encode()
    return zlib.crc32(name, zlib.crc32(place, zlib.crc32(digest))).to_bytes(4, "little")


def as_column(text: str) -> str:
    """Return `text` as UTF-8 can hold it: half a surrogate pair, which a model can write, is spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_row(row_id: int, row: tuple[Any, ...] | None, parent: Recorded | None = None) -> Recorded:
    """Return what the `READ_FIELDS` of a row hold; raise `DataError` when anything in them changed.

    `parent` is what a branch was played on from: the episode in the row's column ``parent``.
    """
    if row is None:
        raise DataError("got no such row")
    name, _, turn, phase, step, seconds, version, digest, structure, payload = row
    if version not in (1, codec.CODEC):
        raise DataError(
            f"got encoding {version!r}, and this release reads up to {codec.CODEC}; upgrade quintain"
        )
    if not type(name) is type(digest) is type(structure) is type(payload) is bytes:
        raise DataError("got columns of the wrong type")
    whole, seal = digest[:_DIGEST], digest[_DIGEST:]
    if seal != _seal(str(phase), step, seconds, whole, b"" if version == 1 else name):
        raise DataError("got an id, step, phase or duration that was changed")
    record = codec.Record(structure=structure, payload=payload, digest=whole)
    if parent is None:
        found = codec.decode(record, seconds=seconds, id=name.hex(), version=version)
    else:
        before, branch = parent.trajectory.turns[:turn], Branch(episode=parent.trajectory.id, turn=turn)
        found = codec.decode(
            record, seconds=seconds, id=name.hex(), before=before, parent=parent.digest, branch=branch
        )
    return Recorded(
        row=row_id,
        step=step,
        phase=phase,
        trajectory=found,
        digest=whole,
    )

"""Trajectories as bytes: JSON for the structure, little-endian arrays for ids, log-probs and pictures.

The one rule: what is decoded equals what was encoded, bit for bit. Ids are int32; log-probs are float32 where
that loses nothing and float64 otherwise. Mappings hold JSON data: a tuple inside `Task.data` comes back as a
list.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, cast

from quintain.errors import DataError
from quintain.types import (
    NOTHING,
    Action,
    Completion,
    Content,
    Failure,
    Image,
    Outcome,
    Score,
    Stop,
    Task,
    Text,
    ToolCall,
    ToolError,
    Trajectory,
    Turn,
)

CODEC = 1
_COMPRESS_ABOVE = 2048
_MAX_RECORD = 1 << 29
_BROKEN = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    RecursionError,
    struct.error,
    zlib.error,
)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A trajectory without its duration: ``Record(structure=b"{...", payload=b"...", digest=b"...")``."""

    structure: bytes
    """JSON, compressed where it is long"""
    payload: bytes
    """arrays and pictures in the order of the structure"""
    digest: bytes
    """16 bytes over the uncompressed structure and the payload"""


def encode(trajectory: Trajectory) -> Record:
    """Return `trajectory` as bytes.

    Equal trajectories give equal digests, whatever their `seconds`. Raises `DataError` for values that JSON
    or int32 cannot hold.
    """
    payload = _Payload()
    try:
        row = _trajectory_row(trajectory, payload)
        blob, row["logprobs"] = payload.pack()
        text = _JSON.encode(row).encode("ascii")
    except (TypeError, ValueError, RecursionError, struct.error) as error:
        raise DataError(
            f"recording an episode of task {trajectory.task.id!r}: got {error}; "
            "use JSON data in task.data, reward_terms and tool arguments, and token ids below 2**31"
        ) from error
    structure = zlib.compress(text, 1) if len(text) > _COMPRESS_ABOVE else text
    return Record(structure=structure, payload=blob, digest=_digest(text, blob))


def decode(record: Record, *, seconds: float = 0.0) -> Trajectory:
    """Return the trajectory that `record` holds; raise `DataError` when a byte of it changed."""
    try:
        text = record.structure if record.structure[:1] == b"{" else _decompress(record.structure)
        if _digest(text, record.payload) != record.digest:
            raise DataError("reading an episode: got other bytes than were written; it is left out")
        row = json.loads(text)
        return _read_trajectory(row, _Arrays(row, record.payload), seconds)
    except _BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"reading an episode: got a broken record ({error!r}); it is left out") from error


def plain(value: object) -> object:
    """Return the JSON value of a mapping or number that `json` does not know; TypeError for the rest."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, object], value))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_JSON = json.JSONEncoder(separators=(",", ":"), default=plain)


def _digest(text: bytes, payload: bytes) -> bytes:
    whole = hashlib.blake2b(len(text).to_bytes(8, "little"), digest_size=16)
    whole.update(text)
    whole.update(payload)
    return whole.digest()


def _decompress(blob: bytes) -> bytes:
    reader = zlib.decompressobj()
    text = reader.decompress(blob, _MAX_RECORD)
    if not reader.eof:
        raise ValueError("a record that is cut off or longer than 512 MiB")
    return text


class _Payload:
    """Collects what is not text: all ids, then all log-probs, then all pictures."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.pictures: list[bytes] = []

    def pack(self) -> tuple[bytes, str]:
        """Return the bytes, and the struct letter of the narrowest type that holds the log-probs exactly."""
        letter, logprobs = _floats(self.logprobs)
        ids = struct.pack(f"<{len(self.ids)}i", *self.ids)
        return b"".join([ids, logprobs, *self.pictures]), letter


def _trajectory_row(trajectory: Trajectory, payload: _Payload) -> Row:
    turns = [_turn_row(turn, payload) for turn in trajectory.turns]
    return {
        "task": task_row(trajectory.task),
        "outcome": _outcome_row(trajectory.outcome),
        "stop": trajectory.stop.value,
        "seed": trajectory.seed,
        "group": trajectory.group,
        "index": trajectory.index,
        "turns": turns,
        "final": _content_row(trajectory.final_observation, payload),
    }


def task_row(task: Task) -> Row:
    """Return `task` as JSON data, what is empty left out."""
    row: Row = {"id": task.id, "environment": task.environment, "seed": task.seed, "split": task.split}
    if task.prompt:
        row["prompt"] = task.prompt
    if task.data:
        row["data"] = task.data
    if task.tags:
        row["tags"] = sorted(task.tags)
    return row


def _outcome_row(outcome: Outcome) -> Row:
    if isinstance(outcome, Failure):
        return {"owner": outcome.owner, "kind": outcome.kind, "message": outcome.message}
    return {"value": outcome.value, "is_success": outcome.is_success}


def _turn_row(turn: Turn, payload: _Payload) -> Row:
    completion = turn.completion
    payload.ids += turn.prompt_ids
    payload.ids += completion.token_ids
    payload.logprobs += completion.logprobs
    row: Row = {
        "observation": _content_row(turn.observation, payload),
        "lengths": [len(turn.prompt_ids), len(completion.token_ids), len(completion.logprobs)],
        "action": turn.action.text,
        "reward": turn.reward,
        "version": completion.policy_version,
        "stop": completion.stop,
    }
    if turn.seat != "agent":
        row["seat"] = turn.seat
    if turn.action.tool_calls:
        row["calls"] = [[call.name, call.arguments] for call in turn.action.tool_calls]
    if turn.action.error is not None:
        row["error"] = turn.action.error
    if turn.reward_terms:
        row["terms"] = turn.reward_terms
    if turn.state_key is not None:
        row["state"] = turn.state_key
    if not turn.is_valid:
        row["invalid"] = True
    if turn.starts_segment:
        row["segment"] = True
    if turn.tool_errors:
        row["tool_errors"] = [[error.tool, error.cause] for error in turn.tool_errors]
    return row


def _content_row(content: Sequence[Content], payload: _Payload) -> str | list[str | list[Any]]:
    """Return a single text as itself, anything else as a list; a picture as its type and size."""
    if len(content) == 1 and isinstance(content[0], Text):
        return content[0].text
    payload.pictures += [part.data for part in content if isinstance(part, Image)]
    return [part.text if isinstance(part, Text) else [part.media_type, len(part.data)] for part in content]


def _floats(values: Sequence[float]) -> tuple[str, bytes]:
    """Return `values` in the narrowest type that holds them exactly, after its struct letter."""
    layout = f"<{len(values)}f"
    try:
        packed = struct.pack(layout, *values)
        if list(struct.unpack(layout, packed)) == values:
            return "f", packed
    except OverflowError:
        pass  # too large for float32
    return "d", struct.pack(f"<{len(values)}d", *values)


class _Arrays:
    """Gives the payload back, front to back within each kind."""

    def __init__(self, row: Row, payload: bytes) -> None:
        num_ids = sum(turn["lengths"][0] + turn["lengths"][1] for turn in row["turns"])
        floats = f"<{sum(turn['lengths'][2] for turn in row['turns'])}{row['logprobs']}"
        self._ids = struct.unpack_from(f"<{num_ids}i", payload)
        self._logprobs = struct.unpack_from(floats, payload, 4 * num_ids)
        self._pictures = payload[4 * num_ids + struct.calcsize(floats) :]
        self._next_id = self._next_logprob = self._next_picture = 0

    def ids(self, count: int) -> tuple[int, ...]:
        self._next_id += count
        return self._ids[self._next_id - count : self._next_id]

    def logprobs(self, count: int) -> tuple[float, ...]:
        self._next_logprob += count
        return self._logprobs[self._next_logprob - count : self._next_logprob]

    def picture(self, size: int) -> bytes:
        self._next_picture += size
        return self._pictures[self._next_picture - size : self._next_picture]


def _read_trajectory(row: Row, arrays: _Arrays, seconds: float) -> Trajectory:
    return Trajectory(
        task=read_task(row["task"]),
        turns=tuple(_read_turn(turn, arrays) for turn in row["turns"]),
        outcome=_read_outcome(row["outcome"]),
        stop=Stop(row["stop"]),
        seed=row["seed"],
        group=row["group"],
        index=row["index"],
        final_observation=_read_content(row["final"], arrays),
        seconds=seconds,
    )


def read_task(row: Row) -> Task:
    """Return the task that `row` holds."""
    return Task(
        id=row["id"],
        environment=row["environment"],
        seed=row["seed"],
        split=row["split"],
        prompt=row.get("prompt", ""),
        data=row.get("data", NOTHING),
        tags=frozenset(row.get("tags", ())),
    )


def _read_outcome(row: Row) -> Outcome:
    return Failure(**row) if "owner" in row else Score(**row)


def _read_turn(row: Row, arrays: _Arrays) -> Turn:
    num_prompt, num_sampled, num_logprobs = row["lengths"]
    return Turn(
        seat=row.get("seat", "agent"),
        observation=_read_content(row["observation"], arrays),
        prompt_ids=arrays.ids(num_prompt),
        completion=Completion(
            token_ids=arrays.ids(num_sampled),
            logprobs=arrays.logprobs(num_logprobs),
            stop=row["stop"],
            policy_version=row["version"],
        ),
        action=Action(
            text=row["action"],
            tool_calls=tuple(ToolCall(name=name, arguments=given) for name, given in row.get("calls", ())),
            error=row.get("error"),
        ),
        reward=row["reward"],
        reward_terms=row.get("terms", NOTHING),
        state_key=row.get("state"),
        is_valid="invalid" not in row,
        starts_segment="segment" in row,
        tool_errors=tuple(ToolError(tool=tool, cause=cause) for tool, cause in row.get("tool_errors", ())),
    )


def _read_content(row: str | Sequence[str | list[Any]], arrays: _Arrays) -> tuple[Content, ...]:
    if isinstance(row, str):
        return (Text(text=row),)
    return tuple(
        Text(text=part) if isinstance(part, str) else Image(media_type=part[0], data=arrays.picture(part[1]))
        for part in row
    )

"""Trajectories as bytes: a JSON record for the structure, little-endian arrays for tokens, log-probs and pictures.

The one rule: what is decoded equals what was encoded, bit for bit. Ids are int32; log-probs are float32 where that
loses nothing and float64 otherwise. Mappings hold JSON data: a tuple inside `Task.data` comes back as a list.
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
    Trajectory,
    Turn,
)

CODEC = 1
_COMPRESS_ABOVE = 256
_MAX_RECORD = 1 << 29
_BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, struct.error, zlib.error)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A trajectory as bytes, without its duration: ``Record(structure=b"{...", payload=b"...", digest=b"...")``."""

    structure: bytes
    """JSON, compressed where it is long"""
    payload: bytes
    """arrays and pictures in the order of the structure"""
    digest: bytes
    """16 bytes over the uncompressed structure and the payload"""


def encode(trajectory: Trajectory) -> Record:
    """Return `trajectory` as bytes.

    Equal trajectories give equal digests, whatever their `seconds`. Raises `DataError` for values that JSON or
    int32 cannot hold.
    """
    payload: list[bytes] = []
    try:
        text = _JSON.encode(_trajectory_row(trajectory, payload)).encode("ascii")
    except (TypeError, ValueError, RecursionError, struct.error) as error:
        raise DataError(
            f"recording an episode of task {trajectory.task.id!r}: got {error}; "
            "use JSON data in task.data, reward_terms and tool arguments, and token ids below 2**31"
        ) from error
    blob = b"".join(payload)
    structure = zlib.compress(text, 1) if len(text) > _COMPRESS_ABOVE else text
    return Record(structure=structure, payload=blob, digest=_digest(text, blob))


def decode(record: Record, *, seconds: float = 0.0) -> Trajectory:
    """Return the trajectory that `record` holds; raise `DataError` when a byte of it changed."""
    try:
        text = record.structure if record.structure[:1] == b"{" else _decompress(record.structure)
        if _digest(text, record.payload) != record.digest:
            raise DataError("reading an episode: got other bytes than were written; it is left out")
        return _read_trajectory(json.loads(text), _Cursor(record.payload), seconds)
    except _BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"reading an episode: got a broken record ({error!r}); it is left out") from error


def plain(value: object) -> object:
    """Return the JSON value of a mapping or number that `json` does not know; raise TypeError for the rest."""
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


def _trajectory_row(trajectory: Trajectory, payload: list[bytes]) -> Row:
    return {
        "task": _task_row(trajectory.task),
        "outcome": _outcome_row(trajectory.outcome),
        "stop": trajectory.stop.value,
        "seed": trajectory.seed,
        "group": trajectory.group,
        "index": trajectory.index,
        "turns": [_turn_row(turn, payload) for turn in trajectory.turns],
        "final": _content_row(trajectory.final_observation, payload),
    }


def _task_row(task: Task) -> Row:
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


def _turn_row(turn: Turn, payload: list[bytes]) -> Row:
    completion = turn.completion
    observation = _content_row(turn.observation, payload)
    payload.append(_ids(turn.prompt_ids))
    payload.append(_ids(completion.token_ids))
    row: Row = {
        "observation": observation,
        "lengths": [len(turn.prompt_ids), len(completion.token_ids), len(completion.logprobs)],
        "logprobs": _floats(completion.logprobs, payload),
        "stop": completion.stop,
        "version": completion.policy_version,
        "action": _action_row(turn.action),
        "reward": turn.reward,
    }
    if turn.seat != "agent":
        row["seat"] = turn.seat
    if turn.reward_terms:
        row["terms"] = turn.reward_terms
    if turn.state_key is not None:
        row["state"] = turn.state_key
    if not turn.is_valid:
        row["invalid"] = True
    if turn.starts_segment:
        row["segment"] = True
    return row


def _action_row(action: Action) -> Row:
    row: Row = {"text": action.text}
    if action.tool_calls:
        row["calls"] = [[call.name, call.arguments] for call in action.tool_calls]
    if action.error is not None:
        row["error"] = action.error
    return row


def _content_row(content: Sequence[Content], payload: list[bytes]) -> list[str | list[Any]]:
    row: list[str | list[Any]] = []
    for part in content:
        if isinstance(part, Text):
            row.append(part.text)
        else:
            payload.append(part.data)
            row.append([part.media_type, len(part.data)])
    return row


def _ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def _floats(values: Sequence[float], payload: list[bytes]) -> str:
    """Append `values` to `payload` in the narrowest type that holds them exactly; return its struct letter."""
    for letter in "fd":
        layout = f"<{len(values)}{letter}"
        try:
            packed = struct.pack(layout, *values)
        except OverflowError:
            continue
        if letter == "d" or struct.unpack(layout, packed) == tuple(values):
            payload.append(packed)
            return letter
    raise ValueError("log-probs beyond float64")


class _Cursor:
    """Reads the payload front to back."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._offset = 0

    def numbers(self, count: int, letter: str) -> tuple[Any, ...]:
        layout = f"<{count}{letter}"
        found = struct.unpack_from(layout, self._payload, self._offset)
        self._offset += struct.calcsize(layout)
        return found

    def raw(self, count: int) -> bytes:
        self._offset += count
        return self._payload[self._offset - count : self._offset]


def _read_trajectory(row: Row, cursor: _Cursor, seconds: float) -> Trajectory:
    return Trajectory(
        task=_read_task(row["task"]),
        turns=tuple(_read_turn(turn, cursor) for turn in row["turns"]),
        outcome=_read_outcome(row["outcome"]),
        stop=Stop(row["stop"]),
        seed=row["seed"],
        group=row["group"],
        index=row["index"],
        final_observation=_read_content(row["final"], cursor),
        seconds=seconds,
    )


def _read_task(row: Row) -> Task:
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


def _read_turn(row: Row, cursor: _Cursor) -> Turn:
    num_prompt, num_sampled, num_logprobs = row["lengths"]
    return Turn(
        seat=row.get("seat", "agent"),
        observation=_read_content(row["observation"], cursor),
        prompt_ids=cursor.numbers(num_prompt, "i"),
        completion=Completion(
            token_ids=cursor.numbers(num_sampled, "i"),
            logprobs=cursor.numbers(num_logprobs, row["logprobs"]),
            stop=row["stop"],
            policy_version=row["version"],
        ),
        action=_read_action(row["action"]),
        reward=row["reward"],
        reward_terms=row.get("terms", NOTHING),
        state_key=row.get("state"),
        is_valid="invalid" not in row,
        starts_segment="segment" in row,
    )


def _read_action(row: Row) -> Action:
    calls = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in row.get("calls", ()))
    return Action(text=row["text"], tool_calls=calls, error=row.get("error"))


def _read_content(row: Sequence[str | list[Any]], cursor: _Cursor) -> tuple[Content, ...]:
    return tuple(
        Text(text=part) if isinstance(part, str) else Image(media_type=part[0], data=cursor.raw(part[1]))
        for part in row
    )

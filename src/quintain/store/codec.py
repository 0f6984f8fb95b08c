"""Trajectories as bytes: JSON for the structure, little-endian arrays for ids, log-probs and pictures.

The structure is what `quintain.types.rows` makes of the nouns, so a new field of a noun needs no line here. What is
decoded equals what was encoded, bit for bit: ids are int32, log-probs are float32 where that loses nothing and float64
otherwise. Mappings hold JSON data: a tuple inside `Task.data` comes back as a list. Duration, id and parent are no part
of a record: the journal has them in columns.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from quintain.errors import DataError
from quintain.store.codec_1 import as_present
from quintain.types import Branch, Trajectory, Turn
from quintain.types.forest import find_parents
from quintain.types.rows import Arrays, from_row, plain, to_row

CODEC = 2
_COMPRESS_ABOVE = 640
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
_KNOWN = (
    b'"reward_terms":{"tool_errors":[{"tool":","cause":"invalid_call"}],"is_valid":false,"starts_segment":true,'
    b'"state_key":","rewards":{"stop":"length","policy":","version_spans":[["error":","tool_calls":[{"name":","arguments":{"'
    b'],"outcome":{"owner":"environment","kind":"timeout","message":"stop":"max_turns","final_observation":["","tags":['
    b'"data":{"prompt":"split":"eval","parents":{{"task":{"id":"/train/","environment":","seed":},"turns":[{'
    b'"seat":"agent/plan","observation":[","prompt_ids":1,"completion":{"token_ids":1,"logprobs":1,"stop":"stop",'
    b'"policy_version":1},"action":{"text":","reward":0.0},{"observation":["],"outcome":{"value":1.0,"is_success":true},'
    b'"stop":"terminated","seed":1,"group":","index":1,"arrays":[1,"f",1]}'
)
"""What records have in common; each is compressed as if this stood before it. It belongs to the encoding for good."""
_COLUMNS = ("seconds", "id", "parent")
_COMPRESSED, _AS_IT_IS = b"\x01", b"{"
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


def encode(trajectory: Trajectory, *, parent: bytes = b"") -> Record:
    """Return `trajectory` as bytes; of a branch only the turns that are not its parent's, whose digest is `parent`.

    Equal trajectories give equal digests, whatever their `seconds`. Raises `DataError` for values that JSON
    or int32 cannot hold.
    """
    payload = _Payload()
    first = 0 if trajectory.parent is None else trajectory.parent.turn
    try:
        parents, turns = _without_prefixes(trajectory.turns, first)
        row: Row = to_row(
            trajectory if turns is trajectory.turns else replace(trajectory, turns=turns), None, payload
        )
        for name in _COLUMNS:
            row.pop(name, None)
        blob, row["arrays"] = payload.pack()
        if parents:
            row["parents"] = parents
        if parent:
            row["branch"] = [parent.hex(), first]
        text = _JSON.encode(row).encode("ascii")
    except (TypeError, ValueError, RecursionError, struct.error) as error:
        raise DataError(
            f"recording an episode of task {trajectory.task.id!r}: got {error}; "
            "use JSON data in task.data, reward_terms and tool arguments, and token ids below 2**31"
        ) from error
    return Record(structure=_compress(text), payload=blob, digest=_digest(text, blob))


def decode(
    record: Record,
    *,
    seconds: float = 0.0,
    id: str = "",
    before: Sequence[Turn] = (),
    parent: bytes = b"",
    branch: Branch | None = None,
    version: int = CODEC,
) -> Trajectory:
    """Return the trajectory that `record`, of the encoding `version`, holds; raise `DataError` when a byte changed.

    A `branch` follows on the turns `before` of the episode whose digest is `parent`; `id` is the name it is given.
    """
    try:
        text = record.structure if record.structure[:1] == _AS_IT_IS else _decompress(record.structure)
        if _digest(text, record.payload) != record.digest:
            raise DataError("reading an episode: got other bytes than were written; it is left out")
        row: Row = json.loads(text)
        if version == 1:
            row = as_present(row)
        arrays, parents = _Taken(record.payload, *row.pop("arrays")), row.pop("parents", {})
        if row.pop("branch", None) != ([parent.hex(), len(before)] if parent else None):
            raise DataError("reading a branch: got another parent than it was played on from; it is left out")
        row["seconds"], row["id"] = seconds, id
        found = from_row(Trajectory, row, arrays)
        if not (before or parents):
            return found
        turns = _with_prefixes([*before, *found.turns], {int(key): at for key, at in parents.items()})
        return replace(found, turns=turns, parent=branch)
    except _BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"reading an episode: got a broken record ({error!r}); it is left out") from error


_JSON = json.JSONEncoder(
    separators=(",", ":"), default=plain, check_circular=False
)  # a circle is a RecursionError


def _without_prefixes(turns: tuple[Turn, ...], first: int) -> tuple[dict[int, int], tuple[Turn, ...]]:
    """Return the turns from `first` on without what their prompts have from an earlier turn: that turn, by number."""
    own = turns[first:] if first else turns
    if not any(turn.starts_segment for turn in turns[max(first, 1) :]):
        return {}, own
    parents: dict[int, int] = {}
    cut: list[Turn] = []
    for number, (parent, num_shared) in enumerate(find_parents(turns)[first:], first):
        turn = turns[number]
        if parent is not None and num_shared:
            parents[number] = parent
            turn = replace(turn, prompt_ids=turn.prompt_ids[num_shared:])
        cut.append(turn)
    return parents, tuple(cut)


def _with_prefixes(turns: list[Turn], parents: dict[int, int]) -> tuple[Turn, ...]:
    """Return `turns` with what `_without_prefixes` took from their prompts."""
    walks: list[tuple[int, ...]] = []
    newest: dict[str, int] = {}
    for number, turn in enumerate(turns):
        before: tuple[int, ...] = ()
        if number in parents:
            before = walks[parents[number]]
            turn = turns[number] = replace(turn, prompt_ids=before + turn.prompt_ids)
        elif not turn.starts_segment and turn.speaker in newest:
            before = walks[newest[turn.speaker]]
        prompt = turn.prompt_ids if number in parents else before + turn.prompt_ids
        walks.append(prompt + turn.completion.token_ids)
        newest[turn.speaker] = number
    return tuple(turns)


def _digest(text: bytes, payload: bytes) -> bytes:
    whole = hashlib.blake2b(len(text).to_bytes(8, "little"), digest_size=16)
    whole.update(text)
    whole.update(payload)
    return whole.digest()


def _compress(text: bytes) -> bytes:
    if len(text) <= _COMPRESS_ABOVE:
        return text
    writer = zlib.compressobj(1, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _KNOWN)
    packed = writer.compress(text) + writer.flush()
    return _COMPRESSED + _checksum(packed) + packed


def _decompress(blob: bytes) -> bytes:
    """Return the text of a structure: of the present encoding, or of the first one where it was long."""
    reader, packed = zlib.decompressobj(), blob
    if blob[:1] == _COMPRESSED:
        reader, packed = zlib.decompressobj(-15, _KNOWN), blob[5:]
        if blob[1:5] != _checksum(packed):
            raise ValueError("a record whose bytes were changed")
    text = reader.decompress(packed, _MAX_RECORD)
    if not reader.eof:
        raise ValueError("a record that is cut off or longer than 512 MiB")
    return text


def _checksum(packed: bytes) -> bytes:
    """Return 4 bytes over `packed`: the last bits of a compressed text mean nothing and can change unseen."""
    return zlib.crc32(packed).to_bytes(4, "little")


class _Payload(Arrays):
    """Collects what is not text: all ids, then all log-probs, then all pictures; the row has their lengths."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._reals: list[float] = []
        self._blobs: list[bytes] = []

    def put_ids(self, ids: tuple[int, ...]) -> int:
        """Keep `ids` and return how many they are."""
        self._ids += ids
        return len(ids)

    def put_reals(self, reals: tuple[float, ...]) -> int:
        """Keep `reals` and return how many they are."""
        self._reals += reals
        return len(reals)

    def put_bytes(self, blob: bytes) -> int:
        """Keep `blob` and return its length."""
        self._blobs.append(blob)
        return len(blob)

    def pack(self) -> tuple[bytes, list[int | str]]:
        """Return the bytes; and the number of ids, the struct letter of the numbers, and how many there are."""
        letter, reals = _floats(self._reals)
        ids = struct.pack(f"<{len(self._ids)}i", *self._ids)
        return b"".join([ids, reals, *self._blobs]), [len(self._ids), letter, len(self._reals)]


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


class _Taken(Arrays):
    """Gives the payload back, front to back within each kind."""

    def __init__(self, payload: bytes, num_ids: int, letter: str, num_reals: int) -> None:
        if letter not in ("f", "d"):
            raise ValueError(f"an array of type {letter!r}")
        reals = f"<{num_reals}{letter}"
        self._ids = struct.unpack_from(f"<{num_ids}i", payload)
        self._reals = struct.unpack_from(reals, payload, 4 * num_ids)
        self._blobs = payload[4 * num_ids + struct.calcsize(reals) :]
        self._next_id = self._next_real = self._next_byte = 0

    def take_ids(self, row: int) -> tuple[int, ...]:
        """Return the next `row` ids."""
        start = self._next_id
        self._next_id = start + row
        return self._ids[start : self._next_id]

    def take_reals(self, row: int) -> tuple[float, ...]:
        """Return the next `row` numbers."""
        start = self._next_real
        self._next_real = start + row
        return self._reals[start : self._next_real]

    def take_bytes(self, row: int) -> bytes:
        """Return the next `row` bytes."""
        start = self._next_byte
        self._next_byte = start + row
        return self._blobs[start : self._next_byte]

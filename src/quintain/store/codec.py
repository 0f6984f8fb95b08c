"""Trajectories as bytes: MessagePack for the structure, little-endian arrays for ids, log-probs and pictures.

The structure is what `quintain.types.rows` makes of the nouns, with the turns as `quintain.types.columns`, so a new
field of a noun needs no line here. It is JSON where a text has half of a surrogate pair, which only JSON can hold. What
is decoded equals what was encoded, bit for bit: ids are int32, log-probs are float32 where that loses nothing and
float64 otherwise. Mappings hold JSON data: a tuple inside `Task.data` comes back as a list. Duration, id and parent are
no part of a record: the journal has them in columns.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from quintain.errors import DataError
from quintain.store.codec_1 import as_present
from quintain.types import Branch, Trajectory, Turn
from quintain.types.columns import Arrays, Values, from_columns, read_columns, to_columns
from quintain.types.forest import find_parents
from quintain.types.rows import noun_reader, noun_writer, plain

CODEC = 2
AT_ONCE = 64
"""Turns whose columns are made at once: of more, the processor's cache would not hold what is made."""
_COMPRESS_ABOVE = 2048
MAX_MEMORY, MEMORY_OF_A_BYTE = 256 << 20, 72
"""What a record may take when it is read: so much whatever it is, and so much more for each of its bytes in the file.

A byte that says "an empty object" takes as much as that in memory, so a record that is not compressed is always read.
"""
MEMORY_OF_A_TURN = 1 << 10
MAX_IDS = 1 << 25
"""Token ids of all prompts of an episode, each counted as often as it stands in one."""
_BROKEN = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    RecursionError,
    struct.error,
    zlib.error,
    DataError,
)
_COMPRESSED = b"\x01"
_HASH = hashlib.blake2b(digest_size=16)
_PACKED = (_COMPRESSED, b"x")
"""What compressed structures begin with: those of the present encoding, and those of the first, which are zlib's"""
Row = dict[str, Any]


class Record(NamedTuple):
    """A trajectory without its duration: ``Record(structure=b"{...", payload=b"...", digest=b"...")``."""

    structure: bytes
    """MessagePack or JSON, compressed where it is long"""
    payload: bytes
    """arrays and pictures in the order of the structure"""
    digest: bytes
    """16 bytes over the uncompressed structure and the payload"""
    version: int = CODEC
    """the encoding"""


def encode(trajectory: Trajectory, *, parent: bytes = b"") -> Record:
    """Return `trajectory` as bytes; of a branch only the turns that are not its parent's, whose digest is `parent`.

    Equal trajectories give equal digests, whatever their `seconds`. Raises `DataError` for values that JSON
    or int32 cannot hold.
    """
    try:
        return _encode([trajectory], parent)[0]
    except (TypeError, ValueError, RecursionError, struct.error) as error:
        raise DataError(
            f"recording an episode of task {trajectory.task.id!r}: got {error}; "
            "use JSON data in task.data, reward_terms and tool arguments, and token ids below 2**31"
        ) from error


def encode_all(trajectories: Sequence[Trajectory]) -> list[Record]:
    """Return what `encode` makes of each of `trajectories`, none of them a branch; many at once are quicker."""
    records: list[Record] = []
    while len(records) < len(trajectories):
        ends = accumulate([len(each.turns) for each in trajectories[len(records) : len(records) + AT_ONCE]])
        num = max(1, sum(end <= AT_ONCE for end in ends))
        some = trajectories[len(records) : len(records) + num]
        try:
            records += _encode(some)
        except (TypeError, ValueError, RecursionError, struct.error):
            records += [encode(trajectory) for trajectory in some]  # the one that is to blame says so
    return records


def _encode(trajectories: Sequence[Trajectory], parent: bytes = b"") -> list[Record]:
    firsts = [0 if each.parent is None else each.parent.turn for each in trajectories]
    cut = [_without_prefixes(each.turns, first) for each, first in zip(trajectories, firsts, strict=True)]
    payloads = _Payloads([len(turns) for _, turns in cut])
    columns = to_columns(Turn, [turns for _, turns in cut], payloads)
    rows: list[Row] = []
    for number, each in enumerate(trajectories):
        payloads.turn_to(number)
        rows.append(_write(each, payloads))
    records: list[Record] = []
    for row, (blob, arrays), turns, (parents, _), first in zip(
        rows, payloads.pack(), columns, cut, firsts, strict=True
    ):
        row["turns"], row["arrays"] = turns, arrays
        if parents:
            row["parents"] = parents
        if parent:
            row["branch"] = [parent.hex(), first]
        text = _text(row)
        packed = _compress(text)
        if packed is not text:
            most = most_memory(len(packed) + len(blob))
            packed = text if memory_of(text, most) > most else packed
        records.append(Record(packed, blob, _digest(text, blob)))
    return records


class Opened(NamedTuple):
    """What a record holds, as far as that can be known without the parent of a branch; `finish` takes it, once."""

    row: Row
    """the structure but for its turns"""
    payload: "_Taken"
    turns: tuple[Turn, ...]
    """those that are the record's own"""


def decode(
    record: Record,
    *,
    seconds: float = 0.0,
    id: str = "",
    before: Sequence[Turn] = (),
    parent: bytes = b"",
    branch: Branch | None = None,
) -> Trajectory:
    """Return the trajectory that `record` holds; raise `DataError` when a byte changed.

    A `branch` follows on the turns `before` of the episode whose digest is `parent`; `id` is the name it is given.
    """
    (opened,) = open_all([record])
    if isinstance(opened, DataError):
        raise opened
    return finish(opened, seconds=seconds, id=id, before=before, parent=parent, branch=branch)


def open_all(records: Sequence[Record]) -> list[Opened | DataError]:
    """Return what is in each of `records`, an error where a byte was changed; many at once are quicker."""
    found: list[tuple[Row, _Taken, Values] | DataError] = []
    for record in records:
        try:
            found.append(_open(record))
        except _BROKEN as error:
            found.append(_as_data_error(error))
    turns = iter(from_columns(Turn, [each[2] for each in found if not isinstance(each, DataError)]))
    return [each if isinstance(each, DataError) else Opened(each[0], each[1], next(turns)) for each in found]


def _open(record: Record) -> tuple[Row, "_Taken", Values]:
    most = most_memory(len(record.structure) + len(record.payload))
    text = record.structure if record.structure[:1] not in _PACKED else _decompress(record.structure, most)
    if _digest(text, record.payload) != record.digest:
        raise DataError("reading an episode: got other bytes than were written; it is left out")
    if memory_of(text, most) > most:
        raise ValueError(
            f"a record of {len(record.structure)} bytes that would take more than {most} in memory"
        )
    row: Row = json.loads(text) if text[:1] == b"{" else _DECODER.decode(text)
    blob = record.payload
    if record.version == 1:
        row, blob = as_present(row, blob)
    payload, turns = _Taken(blob, *row.pop("arrays")), row.pop("turns")
    if type(turns[0]) is not int or not 0 <= turns[0] * MEMORY_OF_A_TURN <= most:
        raise ValueError(f"a record of {turns[0]!r:.40} turns")
    return row, payload, read_columns(Turn, turns, payload)


def finish(
    opened: Opened,
    *,
    seconds: float = 0.0,
    id: str = "",
    before: Sequence[Turn] = (),
    parent: bytes = b"",
    branch: Branch | None = None,
) -> Trajectory:
    """Return the trajectory of which `opened` is the record; see `decode`."""
    try:
        row, payload, turns = opened
        parents = row.pop("parents", {})
        if row.pop("branch", None) != ([parent.hex(), len(before)] if parent else None):
            raise DataError("reading a branch: got another parent than it was played on from; it is left out")
        turns = (*before, *turns)
        if parents:
            turns = _with_prefixes(list(turns), {int(key): at for key, at in parents.items()})
        return _read(row, payload, turns=turns, seconds=seconds, id=id, parent=branch)
    except _BROKEN as error:
        raise _as_data_error(error) from error


def _as_data_error(error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    return DataError(f"reading an episode: got a broken record ({error!r}); it is left out")


_JSON = json.JSONEncoder(
    separators=(",", ":"), default=plain, check_circular=False
)  # a circle is a RecursionError
_ENCODER, _DECODER = msgspec.msgpack.Encoder(enc_hook=plain), msgspec.msgpack.Decoder()


def _text(row: Row) -> bytes:
    """Return `row` as MessagePack; as JSON, which begins otherwise, where it has what only that can hold."""
    try:
        return _ENCODER.encode(row)
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, a number of more than 64 bits
        return _JSON.encode(row).encode("ascii")


_starts_segment = attrgetter("starts_segment")
_write = noun_writer(Trajectory, ("turns", "seconds", "id", "parent"))
_read = noun_reader(Trajectory)


def most_memory(num_bytes: int) -> int:
    """Return what a record of `num_bytes` in the file may take in memory."""
    return MAX_MEMORY + MEMORY_OF_A_BYTE * num_bytes


def memory_of(text: bytes, most: int) -> int:
    """Return about how many bytes the values take that the structure `text` holds; at once where it is over `most`."""
    if len(text) * MEMORY_OF_A_BYTE <= most:
        return len(text) * MEMORY_OF_A_BYTE
    if text[:1] == b"{":
        return len(text) + MEMORY_OF_A_BYTE * sum(map(text.count, (b",", b"[", b"{")))
    return len(text) + MEMORY_OF_A_BYTE * count_values(text, most // MEMORY_OF_A_BYTE)


def count_values(text: bytes, most: int) -> int:
    """Return how many values are in the MessagePack `text`, or a little more than `most`; texts are passed over."""
    at = count = 0
    end = len(text)
    while at < end and count <= most:
        head = text[at]
        count += 1
        if head < 0xA0 or head >= 0xE0:  # a small number, or a short map or list, whose values follow
            at += 1
        elif head < 0xC0:  # a short text
            at += 1 + (head & 31)
        else:
            width, counted = _WIDTHS[head]
            at += 1 + width + (int.from_bytes(text[at + 1 : at + 1 + counted]) if counted else 0)
    return count


_WIDTHS = {
    **dict.fromkeys((0xC0, 0xC1, 0xC2, 0xC3), (0, 0)),
    **{0xC4 + n: (1 << n, 1 << n) for n in range(3)},  # bytes
    **{0xC7 + n: ((1 << n) + 1, 1 << n) for n in range(3)},  # extensions
    0xCA: (4, 0),
    0xCB: (8, 0),
    **{0xCC + n: (1 << n, 0) for n in range(4)},
    **{0xD0 + n: (1 << n, 0) for n in range(4)},
    **{0xD4 + n: (1 + (1 << n), 0) for n in range(5)},
    **{0xD9 + n: (1 << n, 1 << n) for n in range(3)},  # texts
    0xDC: (2, 0),
    0xDD: (4, 0),
    0xDE: (2, 0),
    0xDF: (4, 0),
}
"""First byte → bytes that follow it before what it holds, and how many of them say how long a text is."""


def _without_prefixes(turns: tuple[Turn, ...], first: int) -> tuple[dict[int, int], tuple[Turn, ...]]:
    """Return the turns from `first` on without what their prompts have from an earlier turn: that turn, by number."""
    own = turns[first:] if first else turns
    if not any(map(_starts_segment, turns[max(first, 1) :])):
        return {}, own
    num_ids = sum([len(turn.prompt_ids) for turn in turns])
    if num_ids > MAX_IDS:
        raise ValueError(f"prompts of {num_ids} tokens in all, and {MAX_IDS} can be recorded")
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
    num_ids = 0
    newest: dict[str, int] = {}
    for number, turn in enumerate(turns):
        before: tuple[int, ...] = ()
        if number in parents:
            before = walks[parents[number]]
            turn = turns[number] = replace(turn, prompt_ids=before + turn.prompt_ids)
        elif not turn.starts_segment and turn.speaker in newest:
            before = walks[newest[turn.speaker]]
        prompt = turn.prompt_ids if number in parents else before + turn.prompt_ids
        num_ids += len(prompt)
        if num_ids > MAX_IDS:
            raise ValueError(f"prompts of more than {MAX_IDS} tokens in all")
        walks.append(prompt + turn.completion.token_ids)
        newest[turn.speaker] = number
    return tuple(turns)


def _digest(text: bytes, payload: bytes) -> bytes:
    whole = _HASH.copy()  # quicker than a new one
    whole.update(b"".join([len(text).to_bytes(8, "little"), text, payload]))
    return whole.digest()


def _compress(text: bytes) -> bytes:
    if len(text) <= _COMPRESS_ABOVE:
        return text
    packed = zlib.compress(text, 1)
    return _COMPRESSED + _checksum(packed) + packed


def _decompress(blob: bytes, most: int) -> bytes:
    """Return the text of a structure, of at most so many bytes: of the present encoding, or of the first one."""
    packed = blob
    if blob[:1] == _COMPRESSED:
        packed = blob[5:]
        if blob[1:5] != _checksum(packed):
            raise ValueError("a record whose bytes were changed")
    reader = zlib.decompressobj()
    text = reader.decompress(packed, most)
    if not reader.eof:
        raise ValueError(f"a record that is cut off or longer than {most} bytes")
    return text


def _checksum(packed: bytes) -> bytes:
    """Return 4 bytes over `packed`: the last bits of a compressed text mean nothing and can change unseen."""
    return zlib.crc32(packed).to_bytes(4, "little")


class _Payloads(Arrays):
    """Collects what is not text: of each episode all ids, then all log-probs, then all pictures; rows have lengths."""

    def __init__(self, counts: Sequence[int]) -> None:
        """Take in the arrays of as many episodes as there are `counts` of turns."""
        self._ends = [*accumulate(counts, initial=0)]
        self._ids: list[Sequence[tuple[int, ...]]] = []
        self._reals: list[Sequence[tuple[float, ...]]] = []
        self._blobs: dict[int, list[bytes]] = {}
        self._at = 0

    def turn_to(self, group: int) -> None:
        """Keep the bytes that are put from now on for the episode `group`."""
        self._at = group

    def put(self, blob: bytes) -> int:
        """Keep `blob` and return its length."""
        self._blobs.setdefault(self._at, []).append(blob)
        return len(blob)

    def put_data(self, data: Mapping[str, Any]) -> str:
        """Return `data` as JSON, which refuses what is none."""
        return _JSON.encode(data)

    def put_ids(self, column: Sequence[tuple[int, ...]]) -> None:
        """Keep the ids of all of `column`."""
        self._ids.append(column)

    def put_reals(self, column: Sequence[tuple[float, ...]]) -> None:
        """Keep the numbers of all of `column`."""
        self._reals.append(column)

    def pack(self) -> list[tuple[bytes, list[int | str]]]:
        """Return of each episode the bytes; and number of ids, the struct letter of the numbers, how many there are."""
        shares = [self._share(column, _integers(_flat(column))) for column in self._ids]
        numbers = [_floats(_flat(column)) for column in self._reals]
        is_narrow = all(letter == "f" for letter, _ in numbers)
        if is_narrow:
            shares += [
                self._share(column, blob) for column, (_, blob) in zip(self._reals, numbers, strict=True)
            ]
        num_columns, packed = len(self._ids), list[tuple[bytes, list[int | str]]]()
        for episode, parts in enumerate(
            zip(*shares, strict=True) if shares else [()] * (len(self._ends) - 1)
        ):
            num_ids, letter = sum(map(len, parts[:num_columns])), "f"
            num_reals = sum(map(len, parts[num_columns:])) // 4
            blob = b"".join(parts)
            if not is_narrow:  # which may be another episode's
                start, end = self._ends[episode : episode + 2]
                flat = _flat([each for column in self._reals for each in column[start:end]])
                letter, own = _floats(flat)
                blob, num_reals = blob + own, len(flat)
            if episode in self._blobs:
                blob = b"".join([blob, *self._blobs[episode]])
            packed.append((blob, [num_ids // 4, letter, num_reals]))
        return packed

    def _share(self, column: Sequence[Sequence[Any]], blob: bytes) -> list[bytes]:
        """Return the share of each episode in the numbers of a column, which have 4 bytes each."""
        ends = [*accumulate(map(len, column), initial=0)]
        bounds = [4 * ends[end] for end in self._ends]
        return [blob[start:end] for start, end in pairwise(bounds)]


def _flat(column: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the numbers of a column end to end; several times as quick as one by one."""
    flat: list[Any] = []
    for numbers in column:
        flat += numbers
    return flat


def _integers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _floats(values: Sequence[float]) -> tuple[str, bytes]:
    """Return `values` in the narrowest type that holds them exactly, after its struct letter."""
    form = f"<{len(values)}f"
    try:
        narrow = struct.pack(form, *values)
    except OverflowError:  # too large for float32
        return "d", struct.pack(f"<{len(values)}d", *values)
    if struct.unpack(form, narrow) == tuple(values):
        return "f", narrow
    wide = struct.pack(f"<{len(values)}d", *values)  # the bytes tell what is not a number
    is_exact = np.frombuffer(narrow, "<f4").astype("<f8").tobytes() == wide
    return ("f", narrow) if is_exact else ("d", wide)


class _Taken(Arrays):
    """Gives the payload back, front to back within each kind."""

    def __init__(self, payload: bytes, num_ids: int, letter: str, num_reals: int) -> None:
        if letter not in ("f", "d"):
            raise ValueError(f"an array of type {letter!r}")
        reals = f"<{num_reals}{letter}"
        self._ids = struct.unpack_from(f"<{num_ids}i", payload)
        self._reals = struct.unpack_from(reals, payload, 4 * num_ids)
        self._payload = payload
        self._next_id = self._next_real = 0
        self._next_byte = 4 * num_ids + struct.calcsize(reals)

    def take(self, row: int) -> bytes:
        """Return the next `row` bytes."""
        start = self._next_byte
        self._next_byte = start + row
        if row < 0 or self._next_byte > len(self._payload):
            raise ValueError(f"{row} bytes of a payload that has {len(self._payload) - start} left")
        return self._payload[start : self._next_byte]

    def take_data(self, row: str | dict[str, Any]) -> dict[str, Any]:
        """Return the data of a text; the first encoding has the data itself."""
        return super().take_data(row if isinstance(row, dict) else json.loads(row))

    def take_ids(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the next ids, so many in each tuple."""
        ends = _ends(lengths, self._next_id, len(self._ids))
        self._next_id = ends[-1]
        return [self._ids[start:end] for start, end in pairwise(ends)]

    def take_reals(self, lengths: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the next numbers, so many in each tuple."""
        ends = _ends(lengths, self._next_real, len(self._reals))
        self._next_real = ends[-1]
        return [self._reals[start:end] for start, end in pairwise(ends)]


def _ends(lengths: Sequence[int], first: int, num: int) -> list[int]:
    """Return where arrays of so many `lengths` end, from `first` on; there are `num` numbers."""
    ends = [*accumulate(lengths, initial=first)]
    if lengths and (min(lengths) < 0 or ends[-1] > num):
        raise ValueError(f"arrays up to number {ends[-1]} of {num}")
    return ends

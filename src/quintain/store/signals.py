"""The per-token signals of a use as bytes: little-endian arrays behind a checksum, compressed where it pays.

What is decoded equals what was encoded, bit for bit: float32 stays float32, float64 stays float64. What a step
learned from comes first, and its checksum is what the hash of the step is made of. What was only looked at stands
behind it with a checksum of its own, so that a step has the same hash with it and without.
"""

import hashlib
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError
from quintain.types import Signals

LEARNED = ("weights", "advantages", "returns", "logprobs")
"""The arrays that a step learned from, in the order of the bytes."""
NAMES = (*LEARNED, "entropies", "values", "reference_logprobs")
"""All arrays; a new one is added at the end."""
_LETTERS = {"e": np.dtype("<f2"), "f": np.dtype("<f4"), "d": np.dtype("<f8")}
_BEHIND = b"\x7f"
"""What stands before the arrays that were only looked at: no array has that number."""
_HEAD = struct.Struct("<BcI")
DIGEST = 8
MAX_SAMPLED = 1 << 25
"""Tokens of an episode whose signals are read."""
_COMPRESS_ABOVE = 48


def encode_signals(signals: Signals, episode: bytes, num_sampled: int) -> bytes:
    """Return `signals` as bytes that are good for the episode with the digest `episode` only.

    Raises `DataError` for an array that has not one number for each of the `num_sampled` tokens.
    """
    body, behind = (_pack(signals, names, num_sampled) for names in (LEARNED, NAMES[len(LEARNED) :]))
    blob = _digest(body, episode) + body
    return blob + _BEHIND + _digest(behind, episode) + behind if behind else blob


def _pack(signals: Signals, names: Sequence[str], num_sampled: int) -> bytes:
    """Return those of the arrays that are there."""
    parts: list[bytes] = []
    for name in names:
        array: NDArray[np.floating] | None = getattr(signals, name)
        if array is None:
            continue
        letter = array.dtype.char
        if letter not in _LETTERS or array.shape != (num_sampled,):
            raise DataError(
                f"{name} of an episode of {num_sampled} sampled tokens: got {array.dtype}{list(array.shape)}; "
                "give one float32 or float64 for each, turn by turn"
            )
        raw = array.astype(_LETTERS[letter], copy=False).tobytes()
        packed = zlib.compress(raw, 1) if len(raw) > _COMPRESS_ABOVE else raw
        data = packed if len(packed) < 0.9 * len(raw) else raw
        number = NAMES.index(name) | (128 if data is not raw else 0)
        parts += [_HEAD.pack(number, letter.encode(), len(data)), data]
    return b"".join(parts)


def decode_signals(blob: bytes, episode: bytes, num_sampled: int) -> Signals:
    """Return what `encode_signals` made `blob` of; raise `DataError` when a byte of it or its episode changed."""
    if not 0 <= num_sampled <= MAX_SAMPLED:
        raise DataError(f"reading the signals of an episode: got {num_sampled} tokens; they are left out")
    try:
        end = _find_end(blob)
        body, behind = blob[DIGEST:end], blob[end + 1 :]
        is_whole = blob[:DIGEST] == _digest(body, episode)
        if behind:
            is_whole = is_whole and behind[:DIGEST] == _digest(behind[DIGEST:], episode)
        if not is_whole or (end < len(blob) and len(behind) <= DIGEST):
            raise DataError(
                "reading the signals of an episode: got other bytes than were written; they are left out"
            )
        return Signals(**_arrays(body, num_sampled), **_arrays(behind[DIGEST:], num_sampled))
    except (struct.error, zlib.error, LookupError, ValueError, TypeError) as error:
        raise DataError(
            f"reading the signals of an episode: got a broken record ({error!r}); they are left out"
        ) from error


def _find_end(blob: bytes) -> int:
    """Return where the arrays that a step learned from end."""
    at = DIGEST
    while at < len(blob) and blob[at : at + 1] != _BEHIND:
        _, _, length = _HEAD.unpack_from(blob, at)
        at += _HEAD.size + length
    return min(at, len(blob))


def _arrays(body: bytes, num_sampled: int) -> dict[str, NDArray[np.floating]]:
    """Return the arrays in `body`, each of at most `num_sampled` numbers."""
    found: dict[str, NDArray[np.floating]] = {}
    at = 0
    while at < len(body):
        number, letter, length = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        data = body[at : at + length]
        dtype = _LETTERS[letter.decode()]
        if number & 128:
            most = max(1, num_sampled * dtype.itemsize)
            data = zlib.decompressobj().decompress(data, most)
        found[NAMES[number & 127]] = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
        at += length
    return found


def _digest(body: bytes, episode: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST, key=episode).digest()

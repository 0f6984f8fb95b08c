"""The per-token signals of a use as bytes: little-endian arrays behind a checksum, compressed where it pays.

What is decoded equals what was encoded, bit for bit: float32 stays float32, float64 stays float64.
"""

import hashlib
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError
from quintain.types import Signals

NAMES = ("weights", "advantages", "returns", "logprobs")
"""The arrays in the order of the bytes; a new one is added at the end."""
_LETTERS = {"f": np.dtype("<f4"), "d": np.dtype("<f8")}
_HEAD = struct.Struct("<BcI")
DIGEST = 8
MAX_SAMPLED = 1 << 25
"""Tokens of an episode whose signals are read."""
_COMPRESS_ABOVE = 48


def encode_signals(signals: Signals, episode: bytes, num_sampled: int) -> bytes:
    """Return `signals` as bytes that are good for the episode with the digest `episode` only.

    Raises `DataError` for an array that has not one number for each of the `num_sampled` tokens.
    """
    parts: list[bytes] = []
    for number, name in enumerate(NAMES):
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
        parts += [_HEAD.pack(number | (128 if data is not raw else 0), letter.encode(), len(data))]
        parts.append(data)
    body = b"".join(parts)
    return _digest(body, episode) + body


def decode_signals(blob: bytes, episode: bytes, num_sampled: int) -> Signals:
    """Return what `encode_signals` made `blob` of; raise `DataError` when a byte of it or its episode changed."""
    if not 0 <= num_sampled <= MAX_SAMPLED:
        raise DataError(f"reading the signals of an episode: got {num_sampled} tokens; they are left out")
    body = blob[DIGEST:]
    if blob[:DIGEST] != _digest(body, episode):
        raise DataError(
            "reading the signals of an episode: got other bytes than were written; they are left out"
        )
    try:
        return Signals(**_arrays(body, num_sampled))
    except (struct.error, zlib.error, LookupError, ValueError) as error:
        raise DataError(
            f"reading the signals of an episode: got a broken record ({error!r}); they are left out"
        ) from error


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

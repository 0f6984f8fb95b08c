"""Signals as bytes: bit for bit, compressed where it pays, and no byte changed unseen."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quintain.errors import DataError
from quintain.store.signals import DIGEST, NAMES, decode_signals, encode_signals
from quintain.types import Signals

EPISODE = b"e" * 16
NUM = 7
array = arrays.arrays(np.float16, NUM) | arrays.arrays(np.float32, NUM) | arrays.arrays(np.float64, NUM)


def same(left: Signals, right: Signals) -> bool:
    pairs = [(getattr(left, name), getattr(right, name)) for name in NAMES]
    return all(
        (a is None and b is None) or (a is not None and a.dtype == b.dtype and a.tobytes() == b.tobytes())
        for a, b in pairs
    )


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, array)))
def test_decoding_gives_back_every_bit(given_arrays: dict[str, Any]) -> None:
    signals = Signals(**given_arrays)
    assert same(decode_signals(encode_signals(signals, EPISODE, NUM), EPISODE, NUM), signals)


def test_the_names_are_those_of_the_noun() -> None:
    assert set(NAMES) == set(Signals.__dataclass_fields__)


def test_what_is_only_looked_at_changes_no_hash_of_a_step() -> None:
    half = np.arange(NUM, dtype=np.float16)
    learned = {"weights": np.ones(NUM, np.float32)}
    bare = encode_signals(Signals(**learned), EPISODE, NUM)
    seen = encode_signals(Signals(**learned, entropies=half), EPISODE, NUM)
    assert seen.startswith(bare) and len(seen) > len(bare)
    alone = encode_signals(Signals(entropies=half), EPISODE, NUM)
    assert alone[:DIGEST] == encode_signals(Signals(), EPISODE, NUM)
    for blob in (seen, alone):
        found = decode_signals(blob, EPISODE, NUM)
        assert found.entropies is not None and found.entropies.tobytes() == half.tobytes()
        for place in range(len(blob)):
            changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
            with pytest.raises(DataError, match="reading the signals"):
                decode_signals(changed, EPISODE, NUM)
    for end in range(len(bare) + 1, len(seen)):
        with pytest.raises(DataError, match="reading the signals"):
            decode_signals(seen[:end], EPISODE, NUM)


def test_a_constant_is_compressed_and_noise_is_not() -> None:
    noise = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    flat = Signals(advantages=np.full(1000, 0.5, np.float32))
    assert len(encode_signals(flat, EPISODE, 1000)) < 100
    assert len(encode_signals(Signals(logprobs=noise), EPISODE, 1000)) < 4020
    for signals in (flat, Signals(logprobs=noise), Signals(weights=np.zeros(0, np.float32))):
        count = max(len(each) for name in NAMES if (each := getattr(signals, name)) is not None)
        assert same(decode_signals(encode_signals(signals, EPISODE, count), EPISODE, count), signals)


def test_every_changed_byte_and_another_episode_are_found() -> None:
    blob = encode_signals(Signals(advantages=np.full(100, 0.5, np.float32)), EPISODE, 100)
    for place in range(len(blob)):
        changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        with pytest.raises(DataError, match="reading the signals"):
            decode_signals(changed, EPISODE, 100)
    with pytest.raises(DataError, match="reading the signals"):
        decode_signals(blob, b"f" * 16, 100)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (np.zeros(3, np.float32), r"got float32\[3\]"),
        (np.zeros((NUM, 1), np.float32), r"got float32\[7, 1\]"),
        (np.zeros(NUM, np.int64), r"got int64\[7\]"),
    ],
)
def test_what_does_not_fit_the_episode_is_refused(bad: Any, told: str) -> None:
    with pytest.raises(
        DataError, match=f"returns of an episode of 7 sampled tokens: {told}; give one float32"
    ):
        encode_signals(Signals(returns=bad), EPISODE, NUM)

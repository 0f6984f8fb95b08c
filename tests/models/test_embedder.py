"""The embedder: what it reads in a text, lengths, files without pickle, and what is wrong with those."""

from pathlib import Path

import numpy as np
import pytest

from quintain.errors import ModelError
from quintain.models.embedder import SETTINGS, WEIGHTS, Embedder, features, magnitude


def test_numbers_count_by_magnitude_and_words_in_pairs() -> None:
    assert features("n 12,480") == ["n", "10^4.0", "n 10^4.0"]
    assert features("Seat of x_1") == ["seat", "of", "x", "10^0.0", "seat of", "of x", "x 10^0.0"]
    assert [magnitude(x) for x in (0.0, 0.009, 0.01, 3, 4, 40)] == [
        "0", "0", "10^-2.0", "10^0.0", "10^0.5", "10^1.5"]  # fmt: skip


def test_embeddings_have_length_one_and_one_without_words_none() -> None:
    found = Embedder(size=8, buckets=64).embed(["the seat of Orbit", "", "12"])
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 0, 1], abs=1e-6)


def test_untrained_it_finds_what_shares_words() -> None:
    model = Embedder(seed=1)
    texts = ["the seat of Orbit", "the mayor of Rome", "a twin of Oslo"]
    assert (model.embed(["Orbit: seat"]) @ model.embed(texts).T).argmax() == 0
    assert not np.allclose(model.embed(texts), Embedder(seed=2).embed(texts))
    assert np.array_equal(model.embed(texts), Embedder(seed=1).embed(texts))


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    model = Embedder(size=8, buckets=128, seed=3)
    model.save(tmp_path / "embedder")
    assert sorted(f.name for f in (tmp_path / "embedder").iterdir()) == [SETTINGS, WEIGHTS]
    for folder in (tmp_path, tmp_path / "embedder"):
        assert np.array_equal(Embedder.load(folder).embed(["a b 7"]), model.embed(["a b 7"]))


def test_what_is_no_embedder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no embedder.json; train one, quintain train dare"):
        Embedder.load(tmp_path)
    Embedder(size=8, buckets=16).save(tmp_path)
    (tmp_path / SETTINGS).write_text('{"size": 9, "buckets": 16}')
    with pytest.raises(ModelError, match="cannot be read"):
        Embedder.load(tmp_path)
    (tmp_path / SETTINGS).write_text("[]")
    with pytest.raises(ModelError, match="cannot be read"):
        Embedder.load(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"\x80\x04no safetensors")
    (tmp_path / SETTINGS).write_text('{"size": 8, "buckets": 16}')
    with pytest.raises(ModelError, match="cannot be read"):
        Embedder.load(tmp_path)

import random
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bm25s")

from quintain.errors import DataError, MissingExtra, UsageError
from quintain.retrieval.bm25 import highest
from quintain.retrieval.dense import Dense, Embedder, Graph, cloze_pairs
from quintain.retrieval.passages import Passage
from quintain.retrieval.retriever import Indexed
from quintain.worlds.hopqa.corpus import draw_facts


def test_highest_are_in_order_and_of_equal_ones_the_first() -> None:
    assert highest(np.array([1.0, 3.0, 2.0, 3.0]), 3) == [(1, 3.0), (3, 3.0), (2, 2.0)]
    assert highest(np.array([1.0, 1.0, 1.0]), 2) == [(0, 1.0), (1, 1.0)]
    assert highest(np.array([1.0]), 5) == [(0, 1.0)] and highest(np.zeros(0), 2) == []


def test_points_have_length_one_and_the_same_words_are_the_same_point() -> None:
    embedder = Embedder(seed=1)
    points = embedder.embed(["seat of Orbit", "Orbit seat", "", "zebra"])
    assert points.shape == (4, 64)
    assert np.linalg.norm(points, axis=1) == pytest.approx([1, 1, 0, 1], abs=1e-5)
    assert points[0] @ points[1] == pytest.approx(1, abs=1e-5) and abs(points[0] @ points[3]) < 0.5
    assert Embedder(seed=1).embed(["a word"]) == pytest.approx(embedder.embed(["a word"]))
    assert embedder.embed([]).shape == (0, 64)


def test_training_finds_facts_that_an_untrained_embedder_misses() -> None:
    corpus = draw_facts(600, 0.0, 0.3, False)
    texts = [f"{passage.title} {passage.text}" for passage in corpus.passages]
    asked = [(f"what is the {f.relation} of {f.subject}", corpus.sources[f]) for f in corpus.facts[:200]]

    def recall(embedder: Embedder) -> float:
        index = Dense(texts, embedder)
        return float(np.mean([index.search(query, 1)[0][0] == wanted for query, wanted in asked]))

    embedder = Embedder()
    before = recall(embedder)
    losses = embedder.fit(cloze_pairs(texts), epochs=6, batch_size=64)
    assert losses[-1] < 0.7 * losses[0]
    after = recall(embedder)
    assert after > before + 0.03 and after > 0.97, (before, after)


def test_queries_are_words_of_the_text() -> None:
    pairs = cloze_pairs(["The seat of Orbit is Rome.", "of the"])(random.Random(0))
    [(query, text)] = pairs
    assert text == "The seat of Orbit is Rome." and set(query.split()) <= {"seat", "orbit", "rome"}


def test_an_embedder_is_saved_and_loaded(tmp_path: Path) -> None:
    passages = [
        Passage(id=str(n), title=word, text=f"{word} text") for n, word in enumerate(("red", "blue", "green"))
    ]
    first = Indexed(passages, "dense", model=tmp_path / "model.safetensors")
    again = Indexed(passages, "dense", model=tmp_path / "model.safetensors")
    assert first.search("blue", 2) == again.search("blue", 2) and first.search("blue", 1)[0].passage.id == "1"
    assert first.search("the of", 2) == ()
    (tmp_path / "other").write_bytes(b"nothing")
    with pytest.raises(DataError, match="give a file that was saved as one"):
        Embedder.load(tmp_path / "other")
    from safetensors.numpy import save_file

    save_file({"rows": np.zeros((3, 2), np.float32)}, tmp_path / "short")
    with pytest.raises(DataError, match=r"got rows of \(3, 2\)"):
        Embedder.load(tmp_path / "short")


def test_training_that_cannot_be() -> None:
    with pytest.raises(DataError, match="pairs to train an embedder: got 1"):
        Embedder().fit(lambda _: [("a", "b")])
    with pytest.raises(UsageError, match="batch_size=1"):
        Embedder().fit(lambda _: [], batch_size=1)


def test_a_graph_finds_nearly_what_the_exact_index_finds() -> None:
    pytest.importorskip("faiss")
    corpus = draw_facts(600, 0.0, 0.0, False)
    texts = [f"{passage.title} {passage.text}" for passage in corpus.passages]
    embedder = Embedder(seed=3)
    exact, near = Dense(texts, embedder), Graph(texts, embedder)
    asked = [f"{fact.relation} {fact.subject}" for fact in corpus.facts[:100]]
    same = [near.search(query, 3)[0][0] == exact.search(query, 3)[0][0] for query in asked]
    assert np.mean(same) >= 0.95, np.mean(same)
    assert near.search(asked[0], 3)[0][1] == pytest.approx(exact.search(asked[0], 3)[0][1], abs=1e-5)
    assert near.search("of the", 3) == [] and len(Graph(texts[:2], embedder).search(asked[0], 5)) == 2


def test_a_graph_without_its_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"\[faiss\]"):
        Graph(["a text"], Embedder())

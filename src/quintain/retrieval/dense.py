"""Search by meaning, as far as a small model has it: hashed words and their trigrams, embedded, averaged, compared.

An `Embedder` has a row of numbers for each of `BUCKETS` hashes (fastText, arXiv 1607.04606); a text is the mean of its
rows, scaled to length 1. It is trained by InfoNCE on pairs of a query and the text that answers it. A corpus without
queries makes its own: some of a passage's words, in a new order (the inverse cloze task, arXiv 1906.00300, by words).
The index is exact: 50,000 passages are one product of matrices. `Graph` is one for more: it looks at a few hundred and
mostly finds the nearest.
"""

from __future__ import annotations

import importlib
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from quintain.errors import DataError, MissingExtra, UsageError
from quintain.losses.contrastive import info_nce
from quintain.retrieval.bm25 import highest, terms
from quintain.types import derive_seed

BUCKETS = 1 << 16
WIDTH = 64
NEIGHBOURS, LOOKED_AT = 32, 128
"""Edges of a point in the graph, and points that a search keeps in mind."""
Pair = tuple[str, str]
"""a query, and the text that answers it"""


class Embedder:
    """Texts as points: ``Embedder(seed=0).embed(["seat of Orbit"])`` is float32 [1, 64], of length 1."""

    def __init__(self, *, seed: int = 0, width: int = WIDTH) -> None:
        """Draw the rows at random; untrained, texts are near that share words."""
        generator = torch.Generator().manual_seed(derive_seed("embedder", seed) % (1 << 62))
        rows = torch.randn(BUCKETS, width, generator=generator) / width**0.5
        self.bag = nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="mean", sparse=True)
        self._hashed: dict[str, tuple[int, ...]] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the points of `texts`, [len(texts), width]; one without words is 0."""
        with torch.no_grad():
            parts = [self(texts[first : first + 4096]).numpy() for first in range(0, len(texts), 4096)]
        return np.concatenate(parts) if parts else np.zeros((0, self.bag.embedding_dim), np.float32)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the points of `texts` [len(texts), width], with gradients."""
        rows = [[number for word in terms(text) for number in self._rows(word)] for text in texts]
        ends = np.cumsum([0, *map(len, rows)])
        flat = torch.tensor([number for own in rows for number in own], dtype=torch.int64)
        return nn.functional.normalize(self.bag(flat, torch.from_numpy(ends[:-1].astype(np.int64))), dim=-1)

    def fit(
        self,
        pairs: Callable[[random.Random], Sequence[Pair]],
        *,
        epochs: int = 2,
        batch_size: int = 256,
        rate: float = 0.005,
        temperature: float = 0.05,
        seed: int = 0,
    ) -> list[float]:
        """Learn from `pairs`, drawn anew for each epoch; return the mean loss of each.

        Texts that occur twice in a batch are no negatives of each other.

        Raises:
            DataError: there are fewer than two pairs, so that nothing can be told apart.
            UsageError: a number is not positive.
        """
        if min(epochs, batch_size - 1, rate, temperature) <= 0:
            raise UsageError(
                f"training an embedder: got epochs={epochs}, batch_size={batch_size}, rate={rate}, "
                f"temperature={temperature}; give positive numbers, and batches of 2 or more"
            )
        optimizer = torch.optim.SparseAdam(self.bag.parameters(), lr=rate)
        losses: list[float] = []
        for epoch in range(epochs):
            rng = random.Random(derive_seed("pairs", seed, epoch))
            drawn = list(pairs(rng))
            if len(drawn) < 2:
                raise DataError(f"pairs to train an embedder: got {len(drawn)}; give two or more")
            rng.shuffle(drawn)
            total = 0.0
            for first in range(0, len(drawn), batch_size):
                queries, texts = zip(*drawn[first : first + batch_size], strict=True)
                loss = info_nce(self(queries), self(texts), temperature=temperature, names=texts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(queries)
            losses.append(total / len(drawn))
        return losses

    def save(self, path: Path) -> None:
        """Write the rows to the safetensors file at `path`."""
        from safetensors.torch import save_file

        save_file({"rows": self.bag.weight.detach()}, str(path))

    @classmethod
    def load(cls, path: Path) -> Embedder:
        """Return the embedder that `save` wrote to `path`.

        Raises:
            DataError: the file holds none.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            rows = load_file(str(path)).get("rows")
        except (OSError, SafetensorError) as error:
            raise DataError(f"embedder {path}: got {error}; give a file that was saved as one") from error
        if rows is None or rows.dim() != 2 or len(rows) != BUCKETS:
            got = "no rows" if rows is None else f"rows of {tuple(rows.shape)}"
            raise DataError(f"embedder {path}: got {got}; give a file that was saved as one")
        found = cls(width=rows.shape[1])
        with torch.no_grad():
            found.bag.weight.copy_(rows)
        return found

    def _rows(self, word: str) -> tuple[int, ...]:
        """Return the rows of `word` and of its trigrams; the word's own counts as much as all of these."""
        found = self._hashed.get(word)
        if found is None:
            marked = f"<{word}>"
            parts = [marked[start : start + 3] for start in range(len(marked) - 2)] if len(word) > 2 else []
            own = zlib.crc32(word.encode()) % BUCKETS
            rest = [zlib.crc32(part.encode()) % BUCKETS for part in parts]
            found = self._hashed[word] = (*rest, *[own] * max(len(rest), 1))
        return found


class Embeds(Protocol):
    """Makes points of texts: an `Embedder`, or one that `dare` trained (`quintain.models.embedder`)."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the points of `texts`, [len(texts), width], of length 1; one without words is 0."""
        ...


class Dense:
    """The points of some texts: ``Dense(texts, Embedder()).search("seat orbit", 3)``."""

    def __init__(self, texts: Sequence[str], embedder: Embeds) -> None:
        """Embed `texts`."""
        self.embedder = embedder
        self._points = embedder.embed(texts)

    def search(self, query: str, count: int) -> list[tuple[int, float]]:
        """Return the numbers and cosines of the `count` texts nearest to `query`; none for a query without words."""
        return self._nearest(self.embedder.embed([query])[0], count) if terms(query) else []

    def _nearest(self, point: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
        scores: NDArray[Any] = self._points @ point
        return highest(scores, count)

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return the numbers of the at most `count` texts that fit `query`, the best first."""
        return tuple(number for number, _ in self.search(query, count))


class Graph(Dense):
    """The same by a graph of near points (HNSW, arXiv 1603.09320; the package faiss): for millions of texts."""

    def __init__(self, texts: Sequence[str], embedder: Embeds) -> None:
        """Embed `texts` and link them.

        Raises:
            MissingExtra: faiss is not installed.
        """
        try:
            faiss: Any = importlib.import_module("faiss")
        except ImportError as error:
            raise MissingExtra.for_package("faiss", "faiss", "an index of kind hnsw") from error
        super().__init__(texts, embedder)
        self._graph: Any = faiss.IndexHNSWFlat(self._points.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self._graph.add(self._points)

    def _nearest(self, point: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
        self._graph.hnsw.efSearch = max(LOOKED_AT, 2 * count)
        scores, numbers = self._graph.search(point[None], count)
        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return sorted(((n, s) for n, s in found if n >= 0), key=lambda each: (-each[1], each[0]))


def cloze_pairs(texts: Sequence[str], *, words: int = 4) -> Callable[[random.Random], list[Pair]]:
    """Return what draws for each of `texts` a query of 2 to `words` of its words, in a new order."""
    told = [(list(dict.fromkeys(terms(text))), text) for text in texts]

    def draw(rng: random.Random) -> list[Pair]:
        return [
            (" ".join(rng.sample(own, rng.randint(min(2, len(own)), min(words, len(own))))), text)
            for own, text in told
            if own
        ]

    return draw

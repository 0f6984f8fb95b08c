"""Which entries of a bank help: Q(query, entry), learned from the outcomes of episodes (Memento, 2508.16153).

An episode that was told entries leaves a label for each of them: the query, the entry, the chance with which it was
drawn, and what came of the episode. All entries of an episode share its outcome. `kernel_values` is the paper's
non-parametric Q: of each entry the outcomes under queries like this one. `CaseValue` is the parametric one: two towers,
trained as a classifier of success by cross-entropy, whose Q is the chance of success.

Differences to the paper: towers over hashed words in the place of a pretrained encoder, whose product is taken where
the paper has a layer over both; and the kernel is given, not learned.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from quintain.memory.bank import Entry
from quintain.models.embedder import features
from quintain.models.seeding import draw_weights

UNKNOWN = 0.5
"""Q of an entry of which no label says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """An entry that was read, and what came of it: ``Label(query="open lamp", case=entry, chance=.3, outcome=1.0)``."""

    query: str
    case: Entry
    chance: float
    """with which it was drawn in its place"""
    outcome: float
    """1: the episode was solved, else 0"""


def kernel_values(
    query: str,
    entries: Sequence[Entry],
    labels: Sequence[Label],
    *,
    like: Callable[[str, str], float],
    width: float = 0.1,
) -> list[float]:
    """Return Q(s, c) = Σ k(s, s') r' / Σ k(s, s') over the labels of each entry, k = exp((like(s, s') - 1) / width).

    One of which there is no label has `UNKNOWN`.
    """
    weighed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for label in labels:
        weight = math.exp((like(query, label.query) - 1) / width)
        weighed[label.case.id].append((weight, weight * label.outcome))
    sums = {name: [sum(part) for part in zip(*found, strict=True)] for name, found in weighed.items()}
    return [paid / total for total, paid in (sums.get(each.id, [1.0, UNKNOWN]) for each in entries)]


def cross_entropy(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Return the mean of -r log σ(x) - (1 - r) log(1 - σ(x)) over `logits` and `outcomes` [N]."""
    return (nn.functional.softplus(logits) - outcomes * logits).mean()


class CaseValue(nn.Module):
    """Q as a classifier of success: ``value.fit(labels); value.values("open red lamp", bank.entries)``."""

    def __init__(self, *, size: int = 16, buckets: int = 1024, seed: int = 0) -> None:
        """Draw the weights from `seed`: two towers of `size` numbers over `buckets` of hashed words."""
        super().__init__()
        self.buckets, self.seed = buckets, seed
        self._towers: dict[str, NDArray[np.float32]] = {}
        """case, as it is described → what its tower makes of it, until the next training"""
        with draw_weights(seed):
            self.queries = nn.Linear(buckets, size, bias=False)
            self.cases = nn.Linear(buckets, size, bias=False)
            self.usual = nn.Linear(buckets, 1)
            for tower in (self.queries, self.cases):
                nn.init.normal_(tower.weight, std=0.1)
            nn.init.zeros_(self.usual.weight)

    def forward(self, queries: Tensor, cases: Tensor) -> Tensor:
        """Return the logits [N] of success of `queries` told `cases`, both counts of words [N, buckets]."""
        return (self.queries(queries) * self.cases(cases)).sum(-1) + self.usual(cases).squeeze(-1)

    def fit(
        self, labels: Sequence[Label], *, updates: int = 100, size: int = 128, rate: float = 1e-2
    ) -> float:
        """Train for `updates` batches of `size` labels, drawn from the seed; return the loss of the last one."""
        self._towers.clear()
        if not labels:
            return math.log(2)
        queries, asked = self._count([label.query for label in labels])
        cases, told = self._count([describe_case(label.case) for label in labels])
        outcomes = torch.tensor([label.outcome for label in labels])
        rng = np.random.default_rng(self.seed)
        optimizer = torch.optim.AdamW(self.parameters(), rate)
        loss = torch.zeros(())
        for _ in range(updates):
            rows = torch.from_numpy(rng.integers(0, len(labels), min(size, len(labels))))
            loss = cross_entropy(self(queries[asked[rows]], cases[told[rows]]), outcomes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    def values(self, query: str, entries: Sequence[Entry]) -> list[float]:
        """Return Q of each of `entries` for `query`, from 0 to 1."""
        if not entries:
            return []
        texts = [describe_case(entry) for entry in entries]
        new = [text for text in dict.fromkeys(texts) if text not in self._towers]
        with torch.no_grad():
            if new:
                counts, _ = self._count(new)
                self._towers |= dict(
                    zip(new, torch.cat((self.cases(counts), self.usual(counts)), -1).numpy(), strict=True)
                )
            asked = np.append(self.queries(self._count([query])[0])[0].numpy(), np.float32(1))
        logits = np.stack([self._towers[text] for text in texts]) @ asked
        return np.exp(-np.logaddexp(0.0, -logits)).tolist()  # σ, without an overflow

    def _count(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return counts of hashed words of the different ones of `texts` [D, buckets], and the row of each [N]."""
        rows = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        counts = torch.zeros(len(rows), self.buckets)
        for text, row in rows.items():
            for word in features(text):
                counts[row, zlib.crc32(word.encode()) % self.buckets] += 1
        return counts, torch.tensor([rows[text] for text in texts])


def describe_case(entry: Entry) -> str:
    """Return `entry` as the tower reads it: what was asked, whether it worked, what was done."""
    return f"{entry.key} {'worked' if entry.value > 0 else 'failed'}: {entry.text}"

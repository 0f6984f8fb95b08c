"""DARE: does what the data look like tell apart tools that do the same?

Two embedders learn from the same number of pairs; one is told the data that each tool is for, the other those of a tool
of the same group drawn at random, in training and in the queries that are measured. Both read the same words and
numbers. The number is how often the right tool comes first in its group, for groups of which nothing was learned. In
the null world the lines of a group are dealt out anew, so that what a tool is said to be for means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, Literal

from quintain.eval.ranking import ndcg
from quintain.methods.toolrl.contrast import Contrast, Contrastive, inside
from quintain.retrieval.dense import Dense
from quintain.types import derive_seed
from quintain.worlds.shelf.game import Shelf
from quintain.worlds.shelf.stock import ask, draw_numbers

Told = Literal["own", "permuted", "none"]


class Asked:
    """The shelf, where queries tell the data of the tool itself, of any of its group, or none."""

    def __init__(self, shelf: Shelf, told: Told, *, deals: Random | None = None) -> None:
        """Let `deals` deal the lines of each group out anew, where it is given."""
        self.shelf, self.told = shelf, told
        alike: dict[str, list[int]] = {}
        for number, tool in enumerate(shelf.stock):
            alike.setdefault(tool.does, []).append(number)
        self.groups = [alike[tool.does] for tool in shelf.stock]
        """of each tool, those that do the same"""
        self.lines = [tool.does if told == "none" else tool.line() for tool in shelf.stock]
        if deals is not None:
            for group in alike.values():
                for number, other in zip(group, deals.sample(group, len(group)), strict=True):
                    self.lines[number] = shelf.stock[other].line()

    def documents(self) -> Sequence[str]:
        """Return the lines of the tools."""
        return self.lines

    def query(self, document: int, rng: Random) -> str:
        """Return a need; what may be told is drawn alike for all."""
        other, drawn = rng.choice(self.groups[document]), Random(rng.random())
        source = other if self.told == "permuted" else document
        does = self.shelf.stock[document].does
        numbers = draw_numbers(self.shelf.stock[source].profile, drawn)
        return does if self.told == "none" else ask(does, numbers)

    def is_held_out(self, document: int) -> bool:
        """Whether nothing may be learned of the tool of this number."""
        return self.shelf.is_held_out(document)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return one replication: a shelf, and what each embedder makes of it."""
    shelf = Shelf(tools=int(options["tools"]), retriever="none", shelf=seed % (1 << 31))

    def found(told: Told, *, is_dealt: bool = False) -> dict[str, float]:
        deals = Random(derive_seed("dealt", seed)) if is_dealt else None
        return learned(Asked(shelf, told, deals=deals), options, seed)

    own, blind = found("own"), found("none")
    return [
        {
            "method": own["inside"],
            "control": found("permuted")["inside"],
            "null_method": found("own", is_dealt=True)["inside"],
            "null_control": found("permuted", is_dealt=True)["inside"],
            "extra.blind": blind["inside"],
            "extra.ndcg": own["ndcg"],
            "extra.ndcg_gap": own["ndcg"] - blind["ndcg"],
            "extra.untrained": own["untrained"],
        }
    ]


def learned(asked: Asked, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return how an embedder ranks the tools of held-out groups after learning from the others."""
    method = Contrastive(
        corpus=lambda _: asked,
        batch_size=int(options["batch_size"]),
        hard=int(options["hard"]),
        temperature=float(options["temperature"]),
    )
    contrast = Contrast(method, asked, seed=derive_seed("dare", seed), rate=float(options["rate"]))
    steps = int(options["steps"])
    for step in range(1, steps + 1):
        contrast.learn(step, scale=1 - (step - 1) / steps)
    ranked = contrast.rank(Dense(contrast.documents, contrast.embedder))
    before = contrast.rank(Dense(contrast.documents, contrast.start))
    # Where nothing tells the tools of a group apart, the question is which of them is the right one, by its number.
    wanted = [number for _, number in contrast.questions()]
    ranked = [(order, {number}) for (order, _), number in zip(ranked, wanted, strict=True)]
    before = [(order, {number}) for (order, _), number in zip(before, wanted, strict=True)]
    groups = [asked.groups[number] for number in wanted]
    return {
        "inside": inside(ranked, groups),
        "ndcg": fmean(ndcg(order, right) for order, right in ranked),
        "untrained": inside(before, groups),
    }

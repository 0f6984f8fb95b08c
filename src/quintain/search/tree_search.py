"""The search itself: trees that grow together, each by rules of its own, over one ground and within one budget.

A round picks a state in every tree, asks the ground for ways on from all of them at once, has these scored, and lets
each tree take them in. What differs between searches is said by values: the *ground* (`Ground`: steps of an environment
that is brought back, episodes that are taken up again, texts), the *trees* (`SearchTree`: which state is picked, and
what is backed up), the *score* and the *budget*. Where episodes are `played` on from what was expanded, their outcomes
are told to the trees as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quintain.search.tree import Node, Path

Score = Callable[[Sequence[Sequence[Path]]], Sequence[Sequence[float | None]]]
"""ways on from each of some states → what each of them is worth; None: nobody can say"""


class Ground(Protocol):
    """Where a search walks: it knows how a state is come to again, and what leads on from there."""

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        """Return ways on from each of `nodes`, all asked for at once, so that engines can batch."""
        ...


class SearchTree(Protocol):
    """A tree that grows: it picks its next state, and takes in what was found there."""

    def select(self) -> Node | None:
        """Return the state to go on from, or one that is over; None where nothing is left to search."""
        ...

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """Take in `paths` that go on from `node`, and what each is worth, for it and all above."""
        ...


Tree = TypeVar("Tree", bound=SearchTree)


@dataclass(slots=True, kw_only=True)
class Budget:
    """What a search may cost: ``Budget(rounds=8, steps=400)``; whichever is spent first ends it."""

    rounds: int | None = None
    """times that every tree grows"""
    steps: int | None = None
    """steps of environments; a ground counts them"""
    num_rounds: int = 0
    num_steps: int = 0

    @property
    def steps_left(self) -> int | None:
        """Return how many steps may still be taken; None where nothing bounds them."""
        return None if self.steps is None else max(self.steps - self.num_steps, 0)

    @property
    def is_spent(self) -> bool:
        """Return whether nothing more may be searched."""
        return self.steps_left == 0 or (self.rounds is not None and self.num_rounds >= self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSearch(Generic[Tree]):
    """A search for each of `trees`: ``TreeSearch(trees=trees, ground=ground, budget=Budget(rounds=8)).run()``."""

    trees: Sequence[Tree]
    ground: Ground
    budget: Budget
    score: Score = lambda found: [[None] * len(paths) for paths in found]
    play: Callable[[Sequence[tuple[Tree, Node]]], None] | None = None
    """plays on from the states that are picked after an expansion, and tells the trees what came of it"""

    def run(self) -> None:
        """Search until the budget is spent, or nothing is left."""
        for _ in self.grow():
            pass

    def grow(self) -> Iterator[int]:
        """Yield the number of each round once its trees have grown, so that what is known can be taken at any time."""
        while not self.budget.is_spent:
            picked = [(tree, node) for tree in self.trees if (node := tree.select()) is not None]
            if not picked:
                return
            self.expand([(tree, node) for tree, node in picked if not node.seen.is_over])
            if self.play is not None:
                self.play([(tree, node) for tree in self.trees if (node := tree.select()) and node.parent])
            self.budget.num_rounds += 1
            yield self.budget.num_rounds

    def expand(self, picked: Sequence[tuple[Tree, Node]]) -> None:
        """Let every tree take in the ways on from the state that it picked."""
        found = self.ground.expand([node for _, node in picked])
        for (tree, node), paths, scores in zip(picked, found, self.score(found), strict=True):
            tree.back_up(node, paths, scores)

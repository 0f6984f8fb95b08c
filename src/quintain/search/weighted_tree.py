"""A tree searched by MuZero's bound, whose back-ups weigh children by their visits: the search of x1.

x1 (Reasoning Language Models: A Blueprint, arXiv 2501.11223; the code that came with it was read) picks, from the root
down, the child c of the state s with the highest

    (Q(c) - low) / (high - low) + √(N(s) - 1) / (1 + n(c)) · (c1 + ln((N(s) - 1 + c2 + 1) / c2)),

where children begin with n = 1, and then lets every state above have Q(s) ← (1 - l)·Q(s) + l·Σ n(c)·γ·Q(c) / Σ n(c). A
new state has (1 - α)·V + α·(mean of what was played on from it), V alone where nothing was. Rewards lie in a range that
is declared.

Differences to that code: there the search ends when a state is picked that is over, and answers by the score with the
exploring term; here such a pick counts as a visit, the whole budget is spent, and the answer is the way that was
visited most.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import fmean

from quintain.errors import UsageError
from quintain.search.tree import LOST, SOLVED, Node, Path, Seen, Value, is_closed


class WeightedTree:
    """A search from one state: ``WeightedTree(root, value)``; see `quintain.search.tree_search.SearchTree`.

    Args:
        root: where it begins.
        value: the value model V, text of a state → a number between `low` and `high`.
        discount: γ, for each step.
        backup_rate: l, how much of what its children say a state takes in at a visit.
        simulation_weight: α, share of what was played in the value of a new state.
        c1: weight of exploration.
        c2: visits at which exploration begins to grow.
        low, high: the range of returns.

    Raises:
        UsageError: the range is empty.
    """

    def __init__(
        self,
        root: Seen,
        value: Value,
        *,
        discount: float = 0.96,
        backup_rate: float = 1.0,
        simulation_weight: float = 0.5,
        c1: float = 1.25,
        c2: float = 19652.0,
        low: float = LOST,
        high: float = SOLVED,
    ) -> None:
        if not low < high:
            raise UsageError(f"range of returns: got {low} to {high}; give a lowest below the highest")
        self.root = Node(seen=root, visits=1)
        self.value, self.discount, self.backup_rate = value, discount, backup_rate
        self.simulation_weight, self.c1, self.c2, self.low, self.high = simulation_weight, c1, c2, low, high

    def select(self) -> Node | None:
        """Return the state to go on from, or one that is over, whose visit is counted; None where all are known."""
        if is_closed(self.root):
            return None
        node = self.root
        while node.children:
            node = max(node.children.values(), key=self.bound)
        if node.seen.is_over:
            self._climb(node)
        return node

    def bound(self, child: Node) -> float:
        """Return the score by which a `child` is picked. Example: Q .5, N 10, n 3, range 0 to 1: .5 + .75·1.2505."""
        assert child.parent is not None, "the root is nobody's child"
        before = child.parent.visits - 1
        explored = self.c1 + log((before + self.c2 + 1) / self.c2)
        return (self.worth(child) - self.low) / (self.high - self.low) + sqrt(before) / (
            1 + child.visits
        ) * explored

    def worth(self, node: Node) -> float:
        """Return Q of `node`."""
        return node.value

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """See `SearchTree`: the first state of each path is a child of `node`, the rest was played on from it.

        Of several paths with the same first state it has the mean. A state from which nothing leads on is over.
        """
        found: dict[Hashable, list[Path]] = {}
        for path in paths:
            found.setdefault(path[0].key, []).append(path)
        for key, same in found.items():
            first = same[0][0]
            node.children[key] = Node(seen=first, parent=node, value=self._estimate(first, same), visits=1)
        if not found:
            node.seen = replace(node.seen, is_over=True)
        self._climb(node)

    def answer(self) -> list[Node]:
        """Return the way that was visited most, from the root on; of equal ones that of the higher Q."""
        node, way = self.root, list[Node]()
        while node.children:
            node = max(node.children.values(), key=lambda child: (child.visits, child.value))
            way.append(node)
        return way

    def advantages(self) -> list[tuple[Node, float]]:
        """Return γ·Q(s') - Q(s) of each state but the root, its parent before it."""
        found, waiting = list[tuple[Node, float]](), [self.root]
        for node in waiting:  # grows under way
            for child in node.children.values():
                found.append((child, self.discount * child.value - node.value))
                waiting.append(child)
        return found

    def targets(self) -> list[tuple[Seen, float]]:
        """Return Q of each state but the root that is over, or that was gone on from."""
        return [
            (node.seen, node.value) for node, _ in self.advantages() if node.seen.is_over or node.children
        ]

    def _estimate(self, seen: Seen, paths: Sequence[Path]) -> float:
        """Return the value of a new state: of the model, and of what was played on from it."""
        played = [self._say(path[-1]) for path in paths if len(path) > 1]
        if seen.is_over or not played:
            return self._say(seen)
        return (1 - self.simulation_weight) * self._say(seen) + self.simulation_weight * fmean(played)

    def _say(self, seen: Seen) -> float:
        if seen.is_over:
            return SOLVED if seen.is_solved else LOST
        return self.value(seen.text)

    def _climb(self, node: Node | None) -> None:
        """Count a visit of `node` and all above it, and let each take in what its children say."""
        while node is not None:
            node.visits += 1
            if node.children:
                weighted = sum(child.visits * self.discount * child.value for child in node.children.values())
                total = sum(child.visits for child in node.children.values())
                node.value = (1 - self.backup_rate) * node.value + self.backup_rate * weighted / total
            node = node.parent

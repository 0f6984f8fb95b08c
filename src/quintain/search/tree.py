"""Trees of states, how each kind picks and backs up, and what a tree says of its states.

In `ValueTree`, MCTS* (arXiv 2406.03816), values of states are those of a model, mixed with the best that a roll-out
saw. Afterwards the paths of a tree tell how far each state is from a solution (`process_values`), which is what the
model learns for the next search. In `GuidedTree` (Agent Q, 2408.07199) they are the mean outcome of the episodes that
went through a state, mixed with how a critic ranks it among its siblings. In `BestFirstTree` the state that ranks
lowest is gone on from, once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import log, sqrt
from typing import Any

SOLVED, LOST = 1.0, 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A state on a path: ``Seen(key="north", text="@$.")``."""

    key: Hashable
    """which way was taken to it from the state before"""
    text: str
    """what a value model reads of it"""
    is_over: bool = False
    is_solved: bool = False
    place: Any = None
    """what is needed to go on from here, for whoever goes on"""


Path = Sequence[Seen]
"""states one after the other, from a known one on"""
Value = Callable[[str], float]
"""text of a state → how near to a solution it is, 0 to 1"""


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """A state in a tree, with its mean value over its visits."""

    seen: Seen
    parent: Node | None = None
    value: float = 0.0
    visits: int = 0
    rank: float = 0.0
    """a critic's rank among its siblings, 0 to 1, where a critic ranks"""
    children: dict[Hashable, Node] = field(default_factory=dict[Hashable, "Node"])

    depth: int = field(init=False)
    """steps from the root"""

    def __post_init__(self) -> None:
        """Count the steps from the root."""
        self.depth = 0 if self.parent is None else self.parent.depth + 1

    @property
    def lineage(self) -> list[Node]:
        """Return this state and all above it but the root, itself first."""
        found, node = list[Node](), self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found


class ValueTree:
    """A search from one state: ``tree.grow(tree.select(), paths)`` until `select` returns None.

    Args:
        root: where it begins.
        value: the value model.
        exploration: c of value + c·√(2 ln N / n).
        mixing: α, the share of the best value of a roll-out in the value of a new state.
        gate: value of a new state at which the search ends.
    """

    def __init__(
        self, root: Seen, value: Value, *, exploration: float = 0.7, mixing: float = 0.5, gate: float = 0.9
    ) -> None:
        self.root = Node(seen=root)
        self.value, self.exploration, self.mixing, self.gate = value, exploration, mixing, gate
        self.is_done = False

    def select(self) -> Node | None:
        """Return the state to go on from: the best bound from the root down; None where the search has ended."""
        node = None if self.is_done else self.root
        while node is not None and node.children:
            open_ones = [child for child in node.children.values() if not is_closed(child)]
            above = node
            node = max(
                open_ones,
                key=lambda child: upper_bound(child.value, above.visits, child.visits, self.exploration),
                default=None,
            )
        return node

    def grow(self, node: Node, paths: Sequence[Path]) -> None:
        """Take in `paths` that go on from `node`: the first state of each is its child, the rest its roll-out."""
        for path in paths:
            first, *rest = path
            child = node.children.setdefault(first.key, Node(seen=first, parent=node))
            own = self._of(first)
            if rest:
                own = (1 - self.mixing) * own + self.mixing * max(map(self._of, rest))
            add_visit(child, own)
            self.is_done |= own >= self.gate
        if paths:
            back_up(node)

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """See `SearchTree`; what a path is worth says the value model."""
        self.grow(node, paths)

    def _of(self, seen: Seen) -> float:
        """Return the value of a state; where it is over, whether it is solved."""
        return (SOLVED if seen.is_solved else LOST) if seen.is_over else self.value(seen.text)


class GuidedTree:
    """MCTS by outcomes and a critic's ranks: `select` → `expand` → `choose` → play to the end → `tell`, again.

    Q(h, a) = α·Q̃(h, a) + (1-α)·Q̂(h, a): Q̃ is the mean outcome of the episodes through the state that a leads to, 0
    before the first, and Q̂ the critic's rank of a.

    Args:
        root: where it begins.
        exploration: c of Q + c·√(ln N(h) / (1 + N(h'))).
        mixing: α.
    """

    def __init__(self, root: Seen, *, exploration: float = 1.0, mixing: float = 0.5) -> None:
        self.root = Node(seen=root)
        self.exploration, self.mixing = exploration, mixing

    def select(self) -> Node:
        """Return the state that the next episode goes on from: it is over, or nothing is known of its ways on."""
        node = self.root
        while node.children:
            node = self.choose(node)
        return node

    def expand(self, node: Node, ways: Sequence[Seen], scores: Sequence[float | None]) -> None:
        """Let `ways` lead on from `node`, of which a critic says `scores`; of equal ways the first counts."""
        found: dict[Hashable, tuple[Seen, float | None]] = {}
        for way, score in zip(ways, scores, strict=True):
            found.setdefault(way.key, (way, score))
        placed = ranks([score for _, score in found.values()])
        for (way, _), rank in zip(found.values(), placed, strict=True):
            node.children[way.key] = Node(seen=way, parent=node, rank=rank)

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """See `SearchTree`."""
        self.expand(node, [path[0] for path in paths], scores)

    def choose(self, node: Node) -> Node:
        """Return the child of `node` with the best bound; of equal ones the first."""

        def bound(child: Node) -> float:
            return self.worth(child) + self.exploration * sqrt(log(max(node.visits, 1)) / (1 + child.visits))

        return max(node.children.values(), key=bound)

    def worth(self, node: Node) -> float:
        """Return Q of the way to `node`. Example: α .5, Q̃ 2/3, Q̂ .9: .7833."""
        return self.mixing * node.value + (1 - self.mixing) * node.rank

    def tell(self, node: Node, outcome: float) -> None:
        """Take in the outcome of an episode through `node`, for it and all above. Example: 1, 0, 1: 2/3."""
        for above in (*node.lineage, self.root):
            add_visit(above, outcome)

    def follow(self) -> Node:
        """Return where the visited children of the highest Q lead to, from the root on; of equal ones the first."""
        node = self.root
        while visited := [child for child in node.children.values() if child.visits]:
            node = max(visited, key=self.worth)
        return node

    def families(self) -> list[list[Node]]:
        """Return the visited children of each state that has two or more, from the root down."""
        found, waiting = list[list[Node]](), [self.root]
        for node in waiting:
            waiting += node.children.values()
            visited = [child for child in node.children.values() if child.visits]
            found += [visited] if len(visited) > 1 else []
        return found


class BestFirstTree:
    """A search that goes on from each state once, the lowest `rank` first; of equal ones the shallowest, the earliest.

    It ends with a solution. `best` is that, else the state of the highest score, the first one.
    """

    def __init__(self, root: Seen, rank: Callable[[Node], float]) -> None:
        self.root = self.best = Node(seen=root)
        self.rank, self._numbers = rank, count()
        self._waiting = [(0.0, 0, next(self._numbers), self.root)]

    def select(self) -> Node | None:
        """Return the state to go on from; None where the search has ended."""
        return heapq.heappop(self._waiting)[-1] if self._waiting and not self.best.seen.is_solved else None

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """See `SearchTree`."""
        for path, score in zip(paths, scores, strict=True):
            child = Node(seen=path[0], parent=node, value=score or 0.0)
            if child.seen.is_solved or child.value > self.best.value:
                self.best = child
            if not child.seen.is_over:
                heapq.heappush(self._waiting, (self.rank(child), child.depth, next(self._numbers), child))


def ranks(scores: Sequence[float | None]) -> list[float]:
    """Return the rank of each of `scores`: 1 for who is picked as the best first, evenly down to 0 for who is left.

    Equal ones share the mean of their places, so that a critic who cannot tell changes no order; one alone has .5.
    Whoever has no score (None) has .5 as well, the mean of all, and the others are ranked without it.
    Example: 3, 9, 3: .25, 1, .25.
    """
    known = [score for score in scores if score is not None]
    last = len(known) - 1
    return [
        0.5
        if score is None or not last
        else (sum(other < score for other in known) + (known.count(score) - 1) / 2) / last
        for score in scores
    ]


def add_visit(node: Node, value: float) -> None:
    """Let the mean value of `node` count one more visit, of `value`."""
    node.value = (node.value * node.visits + value) / (node.visits + 1)
    node.visits += 1


def is_closed(node: Node) -> bool:
    """Return whether there is nothing to go on from below `node`, or at it."""
    return node.seen.is_over or (bool(node.children) and all(map(is_closed, node.children.values())))


def upper_bound(value: float, parent_visits: int, visits: int, exploration: float = 0.7) -> float:
    """Return `value` + `exploration`·√(2 ln N / n). Example: .5, N 10, n 3: 1.3672819."""
    return value + exploration * sqrt(2 * log(parent_visits) / visits)


def back_up(node: Node | None) -> None:
    """Let `node` and all above it have the mean value of their children, weighted by visits, and as many visits.

    Example: children (.9, 2 visits) and (.3, 1 visit): .7.
    """
    while node is not None:
        node.visits = sum(child.visits for child in node.children.values())
        node.value = sum(child.value * child.visits for child in node.children.values()) / node.visits
        node = node.parent


def process_values(paths: Sequence[Path]) -> list[tuple[Seen, float]]:
    """Return the value of each state of a tree, given as all paths from its root (eq. 1 and 2).

    v = max(0, v' + (1 - v')/(m + 1)·(1 - 2r)): v' is that of the state before, 0 at the root; m the least number of
    steps from the state to a solution in the tree; r is 1 for a state with none below, which then has the m of the
    state before. What lies below such a state has no value, and a tree without a solution none at all.

    Example: one solved path of three states: 1/3, 2/3, 1; a wrong step in the place of the second: 1/9.
    """
    left: dict[tuple[Hashable, ...], int] = {}
    for path in paths:
        if path and path[-1].is_solved:
            keys = tuple(seen.key for seen in path)
            for num in range(len(keys) + 1):
                beginning = keys[:num]
                left[beginning] = min(left.get(beginning, len(keys)), len(keys) - num)
    values: dict[tuple[Hashable, ...], float] = {(): 0.0}
    found: list[tuple[Seen, float]] = []
    for path in paths:
        keys = tuple(seen.key for seen in path)
        for num, seen in enumerate(path, 1):
            own, before = keys[:num], keys[: num - 1]
            if own in values:
                continue
            if before not in left:
                break
            sign, steps = (1, left[own]) if own in left else (-1, left[before])
            values[own] = max(0.0, values[before] + sign * (1 - values[before]) / (steps + 1))
            found.append((seen, values[own]))
    return found

"""What methods share that prefer ways on from one state by a search: a tree is grown for each task of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

from quintain.errors import UsageError
from quintain.methods.method import Collector
from quintain.methods.rl.parts.measures import Decode
from quintain.methods.selftraining.rest_mcts import path_of, trees_of
from quintain.rollout.tree import GuidedTree, Node, Seen
from quintain.rollout.views import Prefix
from quintain.types import Group, Trajectory

Critic = Callable[[Sequence[Trajectory]], Sequence[float | None]]
"""ways on from one state, as episodes whose last turn they are → what a critic says of each; None: nothing"""


@dataclass(slots=True)
class Search:
    """Grows the trees of a round, and says what their children were found worth; see `GuidedTree`."""

    tasks: int
    branches: int
    episodes: int
    exploration: float
    mixing: float
    critic: Critic
    families: list[list[tuple[Trajectory, float]]] = field(
        default_factory=list["list[tuple[Trajectory, float]]"]
    )
    """children of one node, each as the first episode that went through it, up to its own turn, with its Q"""
    agreement: float | None = None
    """share of two children with different mean outcomes that the critic ranks as these do, equal ranks a half"""
    followed: float | None = None
    """share of the tasks that are solved by whoever follows its tree: always the visited child of the highest Q"""

    def collect(self, collector: Collector, step: int) -> list[Group]:
        """Return all episodes of the trees of a round, a group for each tree.

        Raises:
            UsageError: the agent speaks to itself, so that its turns are not all ways on.
        """
        played = list[Group]()
        tasks = collector.tasks(step, self.tasks)
        trees = [
            GuidedTree(
                Seen(key=task.id, text="", place=task), exploration=self.exploration, mixing=self.mixing
            )
            for task in tasks
        ]
        through: dict[Node, Trajectory] = {}
        again = 0
        for _ in range(self.episodes):
            leaves = [(tree, node) for tree in trees if not (node := tree.select()).seen.is_over]
            for depth in sorted({node.depth for _, node in leaves}):
                same = [(tree, node) for tree, node in leaves if node.depth == depth]
                found = self._ways(collector, step, [node for _, node in same], depth + 1, again)
                again += 1
                for (tree, node), group in zip(same, found, strict=True):
                    ways = group.scored
                    if any(turn.is_internal for way in ways for turn in way.turns):
                        raise UsageError(
                            "a tree of what an agent does: got turns in which it speaks to itself; take an agent that "
                            "acts in every turn, such as auto or react"
                        )
                    tree.expand(node, [path_of(way, depth)[0] for way in ways], self.critic(ways))
                played += found
            ends = [(tree, node) for tree in trees if (node := tree.select()).parent]
            left = [node for _, node in ends if not node.seen.is_over]
            rest = iter(self._played(collector, step, left, again) if left else ())
            again += 1
            for tree, node in ends:
                if node.seen.is_over:
                    episodes = [node.seen.place]
                else:
                    played.append(next(rest))
                    episodes = played[-1].scored
                for episode in episodes:
                    tree.tell(node, float(episode.is_success))
                    for above in lineage(node):
                        through.setdefault(above, episode)
        self._conclude(trees, through)
        return trees_of(played)

    def measure(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return how many trees hold a solution, how many lead to one, and how far the critic agrees with outcomes."""
        trees = trees_of(groups)
        solved = sum(any(t.is_success for t in tree.scored) for tree in trees) / max(len(trees), 1)
        more = {"mcts/agreement": self.agreement, "mcts/followed": self.followed}
        known = {name: value for name, value in more.items() if value is not None}
        return {"mcts/solved": solved, **known}

    def _ways(
        self, collector: Collector, step: int, nodes: Sequence[Node], turns: int, again: int
    ) -> list[Group]:
        """Return the policy's ways on from each of `nodes`, all as deep, as episodes of so many turns."""
        size = self.branches
        if turns == 1:
            return collector.sample(
                step, [node.seen.place for node in nodes], size=size, max_turns=1, again=again
            )
        return collector.continue_from(
            step,
            prefixes_of(collector, nodes),
            size=size,
            seed=collector.seed("ways", step, again),
            max_turns=turns,
            phase="train",
            again=again,
        )

    def _played(self, collector: Collector, step: int, nodes: Sequence[Node], again: int) -> list[Group]:
        """Return an episode from each of `nodes` to the end."""
        return collector.continue_from(
            step,
            prefixes_of(collector, nodes),
            size=1,
            seed=collector.seed("tree", step, again),
            phase="train",
            again=again,
        )

    def _conclude(self, trees: Sequence[GuidedTree], through: Mapping[Node, Trajectory]) -> None:
        """Write down the families of `trees`, where each leads, and how far the critic agrees with the outcomes."""
        families = [(tree, family) for tree in trees for family in tree.families()]
        self.families = [
            [
                (replace(through[child], turns=through[child].turns[: child.depth]), tree.worth(child))
                for child in family
            ]
            for tree, family in families
        ]
        agreed = [
            0.5 + 0.5 * ((better.rank > worse.rank) - (better.rank < worse.rank))
            for _, family in families
            for one, other in combinations(family, 2)
            for better, worse in [(one, other) if one.value > other.value else (other, one)]
            if one.value != other.value
        ]
        self.agreement = fmean(agreed) if agreed else None
        ends = [through[end] for tree in trees if (end := tree.follow()) in through]
        self.followed = fmean(float(end.is_success) for end in ends) if ends else None


def lineage(node: Node) -> list[Node]:
    """Return `node` and all above it but the root."""
    found = list[Node]()
    while node.parent is not None:
        found.append(node)
        node = node.parent
    return found


def prefixes_of(collector: Collector, nodes: Sequence[Node]) -> list[Prefix]:
    """Return the beginnings of episodes that lead to each of `nodes`."""
    walks = collector.walks([node.seen.place for node in nodes])
    return [walk.prefix(node.depth) for walk, node in zip(walks, nodes, strict=True)]

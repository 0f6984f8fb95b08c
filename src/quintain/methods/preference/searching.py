"""What methods share that prefer ways on from one state by a search: a tree is grown for each task of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from quintain.errors import UsageError
from quintain.methods.method import Collector
from quintain.search.episodes import Episodes, share_solved, trees_of
from quintain.search.tree import GuidedTree, Node, Path, Seen
from quintain.search.tree_search import Budget, TreeSearch
from quintain.types import Group, Trajectory

Critic = Callable[[Sequence[Trajectory]], Sequence[float | None]]
"""ways on from one state, as episodes whose last turn they are → what a critic says of each; None: nothing"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The trees of a round: ``search.grow(collector, step).families``."""

    groups: list[Group]
    """all episodes, a group for each tree"""
    families: list[list[tuple[Trajectory, float]]]
    """children of one node, each as the first episode that went through it, up to its own turn, with its Q"""
    metrics: Mapping[str, float]
    """how many trees hold a solution; the share of the tasks that are solved by whoever follows its tree, always to the
    visited child of the highest Q; the share of two children with different mean outcomes that the critic ranks as
    these do, equal ranks a half"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Grows the trees of a round, and says what their children were found worth; see `GuidedTree`."""

    tasks: int
    branches: int
    episodes: int
    exploration: float
    mixing: float
    critic: Critic

    def grow(self, collector: Collector, step: int) -> Searched:
        """Return the trees of a round.

        Raises:
            UsageError: the agent speaks to itself, so that its turns are not all ways on.
        """
        tasks = collector.tasks(step, self.tasks)
        trees = [
            GuidedTree(
                Seen(key=task.id, text="", place=task), exploration=self.exploration, mixing=self.mixing
            )
            for task in tasks
        ]
        ground = Episodes(player=collector, step=step, size=self.branches, turns=1, name="ways")
        through: dict[Node, Trajectory] = {}

        def play(ends: Sequence[tuple[GuidedTree, Node]]) -> None:
            rest = iter(ground.play_on([node for _, node in ends if not node.seen.is_over]))
            for tree, node in ends:
                episodes = [node.seen.place] if node.seen.is_over else next(rest).scored
                for episode in episodes:
                    tree.tell(node, float(episode.is_success))
                    for above in node.lineage:
                        through.setdefault(above, episode)

        budget = Budget(rounds=self.episodes)
        TreeSearch(trees=trees, ground=ground, budget=budget, score=self._score, play=play).run()
        return conclude(trees_of(ground.groups), trees, through)

    def _score(self, found: Sequence[Sequence[Path]]) -> list[Sequence[float | None]]:
        """Return what the critic says of each way on."""
        ways = [[path[0].place for path in paths] for paths in found]
        if any(turn.is_internal for own in ways for way in own for turn in way.turns):
            raise UsageError(
                "a tree of what an agent does: got turns in which it speaks to itself; take an agent that "
                "acts in every turn, such as auto or react"
            )
        return [self.critic(own) for own in ways]


def conclude(
    groups: list[Group], trees: Sequence[GuidedTree], through: Mapping[Node, Trajectory]
) -> Searched:
    """Return the families of `trees`, where each leads, and how far the critic agrees with the outcomes."""
    families = [(tree, family) for tree in trees for family in tree.families()]
    agreed = [
        0.5 + 0.5 * ((better.rank > worse.rank) - (better.rank < worse.rank))
        for _, family in families
        for one, other in combinations(family, 2)
        for better, worse in [(one, other) if one.value > other.value else (other, one)]
        if one.value != other.value
    ]
    ends = [through[end] for tree in trees if (end := tree.follow()) in through]
    return Searched(
        groups=groups,
        families=[
            [
                (replace(through[child], turns=through[child].turns[: child.depth]), tree.worth(child))
                for child in family
            ]
            for tree, family in families
        ],
        metrics={
            "mcts/solved": share_solved(groups),
            **({"mcts/agreement": fmean(agreed)} if agreed else {}),
            **({"mcts/followed": fmean(float(end.is_success) for end in ends)} if ends else {}),
        },
    )

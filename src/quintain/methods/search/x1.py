"""x1 (arXiv 2501.11223): searches by value, then learns the policy from advantages of the tree and the value from Q.

A(s, a) = γ·Q(s') - Q(s), Q(s) = Σ n(c)·γ·Q(c) / Σ n(c) over children; then the clipped policy gradient.

The system that the blueprint of reasoning language models came with. Phase 1: the policy imitates demonstrations, and
in the first `value_steps` steps trees are grown by it from which the value model alone learns. Phase 2: for each task
of a step a tree is grown by MuZero's bound (`quintain.search.weighted_tree`); of each state that the tree came to the
turn that led there is trained by its advantage, with an entropy bonus and a KL to the start, and the value model learns
Q of the states that were gone on from.

Differences to the code: the value model is a ridge regression on the words and signs of what is seen, as in
`rest_mcts`, where x1 has a second language model; a state is an observation, and a step a turn; a tree spends its whole
budget and answers by visits (there the search ends at the first state that is over, and answers by the score with the
exploring term); the KL is k3, where exp(log p0)·(log p0 - log p) on sampled tokens is no unbiased one; temperature 1,
where x1 samples at 0.9. Measured on `plan` by a script, where x1 has mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.layout import credit_of, repeat_over_tokens
from quintain.learning.train_config import OnPolicyConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.search.episodes import Episodes, path_of, share_solved, trees_of
from quintain.search.tree import Node, Path, Seen
from quintain.search.tree_search import Budget, Ground, TreeSearch
from quintain.search.values import TextValue
from quintain.search.weighted_tree import WeightedTree
from quintain.types import Credit, Group, Task, Trajectory, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyConfig):
    """Configuration of x1."""

    environment: str = "sokoban?view=grid"
    tasks: PositiveInt = 16
    """Tasks of a step, a tree each."""
    branches: PositiveInt = 2
    """Ways on from a state."""
    expansions: PositiveInt = 16
    """Times that a tree is grown, the first one from its root included."""
    rollout_turns: PositiveInt | None = 4
    """Turns that a way on goes beyond its first, which are the simulation; none: to the end."""
    value_steps: NonNegativeInt = 2
    """Steps in which the value model alone learns: phase 1."""
    discount: Share = 0.96
    """γ, for each turn."""
    backup_rate: Share = 1.0
    """l: how much of what its children say a state takes in at a visit."""
    simulation_weight: Share = 0.5
    """α: share of the simulation in the value of a new state."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.01
    """Weight of the entropy bonus in the loss."""


def method(config: Config) -> OnPolicy:
    """Return x1 as `config` describes it."""
    trees = SearchTrees(config)
    plain = OnPolicy(
        collect=trees.collect,
        credit=lambda groups, _: trees.credit(groups),
        update=Update(loss=clip_ratio(config.clip, config.clip)),
        needs=Needs(branches=True),
        state=CombinedState(trees),
        measure=lambda groups, _: trees.measure(groups),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)


@dataclass(slots=True)
class SearchTrees:
    """The trees of a step, and the value model that learned from those before: ``SearchTrees(Config())``.

    Both are a fold over recorded episodes: the trees of a step are grown again of what was recorded of it.
    """

    config: Config
    value: TextValue = field(default_factory=TextValue)
    trees: list[WeightedTree] = field(default_factory=list[WeightedTree])
    num_steps: int = 0

    def collect(self, collector: Collector, step: int) -> list[Group]:
        """Return what was played while a tree was grown for each task of `step`."""
        further = self.config.rollout_turns
        turns = None if further is None else 1 + further
        ground = Episodes(player=collector, step=step, size=self.config.branches, turns=turns)
        self.grow(collector.tasks(step, self.config.tasks), ground)
        return ground.groups

    def update(self, groups: Sequence[Group]) -> None:
        """Grow the trees of a step again of what was recorded, and let the value model learn from them."""
        self.trees = self.grow([group.task for group in trees_of(groups)], Recorded(groups))
        self.value.learn([(seen.text, value) for tree in self.trees for seen, value in tree.targets()])
        self.num_steps += 1

    def grow(self, tasks: Sequence[Task], ground: Ground) -> list[WeightedTree]:
        """Return a tree for each of `tasks`, grown over `ground`."""
        trees = [
            WeightedTree(
                Seen(key=task.id, text="", place=task),
                self.value,
                discount=self.config.discount,
                backup_rate=self.config.backup_rate,
                simulation_weight=self.config.simulation_weight,
            )
            for task in tasks
        ]
        TreeSearch(trees=trees, ground=ground, budget=Budget(rounds=self.config.expansions)).run()
        return trees

    def credit(self, groups: Sequence[Group]) -> Credit:
        """Give the turn that led to each state of a tree its advantage; in phase 1, and of others, none is trained."""
        trajectories = flatten_scored(groups)
        found = {
            node.seen.place.id: (node.depth - 1, advantage)
            for tree in self.trees
            for node, advantage in tree.advantages()
            if self.num_steps > self.config.value_steps
        }
        per_turn = [[0.0] * len(t.turns) for t in trajectories]
        trained = [[False] * len(t.turns) for t in trajectories]
        for index, trajectory in enumerate(trajectories):
            if trajectory.id in found:
                turn, advantage = found[trajectory.id]
                per_turn[index][turn], trained[index][turn] = advantage, True
        credit = credit_of(trajectories, repeat_over_tokens(trajectories, per_turn))
        return replace(credit, is_trained=tuple(map(tuple, trained)))

    def measure(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return how many trees hold a solution, how many answers are one, and how far the value was from Q."""
        targets = [target for tree in self.trees for target in tree.targets()]
        answers = [way[-1].seen.is_solved for tree in self.trees if (way := tree.answer())]
        return {
            "x1/solved": share_solved(trees_of(groups)),
            "x1/answered": fmean(map(float, answers)) if answers else 0.0,
            "x1/value_error": fmean([abs(self.value.before(s.text) - q) for s, q in targets] or [0.0]),
        }


class Recorded:
    """A ground of recorded episodes, group by group in the order in which they were played: ``Recorded(groups)``."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._left: dict[str, list[list[Trajectory]]] = {}
        """of each task what was played on from one state after the other"""
        by_name: dict[str, list[Trajectory]] = {}
        for t in flatten_scored(groups):
            if t.group not in by_name:
                self._left.setdefault(t.task.id, []).append(by_name.setdefault(t.group, []))
            by_name[t.group].append(t)

    def expand(self, nodes: Sequence[Node]) -> list[list[Path]]:
        """See `Ground`; nothing leads on from a state from which nothing was recorded."""
        return [[path for t in self._take(node) if (path := path_of(t, node.depth))] for node in nodes]

    def _take(self, node: Node) -> list[Trajectory]:
        """Return what comes next, if it was played on from `node`."""
        place: Task | Trajectory = node.seen.place
        waiting = self._left.get((place if isinstance(place, Task) else place.task).id, [])
        if not waiting:
            return []
        is_next = isinstance(place, Task) or begins_alike(waiting[0][0], place, node.depth)
        return waiting.pop(0) if is_next else []


def begins_alike(one: Trajectory, other: Trajectory, turns: int) -> bool:
    """Return whether the same was said in the first `turns` turns of both episodes."""
    said = [[turn.completion.token_ids for turn in t.turns[:turns]] for t in (one, other)]
    return said[0] == said[1]

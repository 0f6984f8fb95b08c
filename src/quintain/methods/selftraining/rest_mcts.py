"""Search trees under a value model give the traces that the policy imitates and the values that the model learns:
ReST-MCTS* (arXiv 2406.03816).

For each task of a round a tree is grown (`quintain.rollout.tree`): from the state with the best bound the policy goes
on several times, and a few steps further as a roll-out. What was solved, in fewest steps, is imitated; the
values that the tree implies of its states (`process_values`) teach the value model of the next round.

Differences to the paper: the value model is a ridge regression on the words and signs of what is seen, where the paper
fine-tunes a second language model; it begins knowing nothing, so that the first round searches by roll-outs
alone; all new states are rolled out, not the best one, by sampling and not greedily, and each sampled step counts;
whether a state is solved says the environment, and there is no reflection. Of its two ways to label a tree this is that
of all states; the policy imitates and makes no pairs. Measured on `sokoban`, where the paper has mathematics and
science.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.config.ranges import PositiveFloat, PositiveInt, Share
from quintain.data.pipeline import Pipeline, chosen
from quintain.learning.job import OnPolicyJob
from quintain.losses.imitation import imitation
from quintain.methods.method import Collector, Folds, Needs, Rounds, Update
from quintain.methods.selftraining.rft import accepted
from quintain.rollout.tree import Seen, Tree, Value, process_values
from quintain.types import Group, Stop, Task, Trajectory, as_text

WORD = re.compile(r"\w+|[^\w\s]")
SIZE = 2048
"""Features that texts are hashed to."""
RARE = 4
"""Most times that a sign stands in a picture of which the place counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyJob):
    """Configuration of ReST-MCTS*."""

    environment: str = "sokoban?view=grid"
    tasks: PositiveInt = 32
    """Tasks of a round, a tree each."""
    branches: PositiveInt = 3
    """Ways on from a state."""
    rollout_turns: PositiveInt | None = 2
    """Turns that a way on goes beyond its first; none: to the end."""
    expansions: PositiveInt = 8
    """Times that a tree is grown, the first one from its root included."""
    exploration: PositiveFloat = 0.7
    """c of value + c·√(2 ln N / n)."""
    mixing: Share = 0.5
    """α: share of the best of a roll-out in the value of a new state."""
    gate: PositiveFloat = 0.9
    """Value of a new state at which its tree is not grown further."""
    keep: PositiveInt = 2
    """Different solutions of a task that are imitated, those of fewest steps."""
    has_values: bool = True
    """Whether the value model learns; else trees are grown by roll-outs alone."""


def method(config: Config) -> Rounds:
    """Return ReST-MCTS* as `config` describes it."""
    model = TextValue()
    search = Search(config, model)
    return Rounds(
        collect=search.collect,
        build=Pipeline(
            chosen(
                "solutions",
                f"did not solve the task, repeats another, or is not among the {config.keep} shortest of it",
                lambda groups: [replace(g, trajectories=accepted(g, config.keep)) for g in trees_of(groups)],
            )
        ),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        needs=Needs(branches=True),
        state=Folds(model if config.has_values else None),
        measure=lambda groups, _: measured(groups, model.before),
    )


class Search:
    """Grows a tree for each task of a round: ``Search(config, model).collect(collector, step)``."""

    def __init__(self, config: Config, model: Value) -> None:
        self.config, self.model = config, model

    def collect(self, collector: Collector, step: int) -> list[Group]:
        """Return all episodes of the trees of a round, a group for each tree."""
        config, further = self.config, self.config.rollout_turns
        turns = None if further is None else 1 + further
        tasks = collector.tasks(step, config.tasks)
        trees = [self._tree(task) for task in tasks]
        groups = collector.sample(step, tasks, size=config.branches, max_turns=turns)
        for tree, group in zip(trees, groups, strict=True):
            tree.grow(tree.root, [path_of(t) for t in group.scored])
        again = 0
        for _ in range(1, config.expansions):
            selected = [(tree, node) for tree in trees if (node := tree.select()) is not None]
            for depth in sorted({node.depth for _, node in selected}):
                same = [(tree, node) for tree, node in selected if node.depth == depth]
                again += 1
                walks = collector.walks([node.seen.place for _, node in same])
                found = collector.continue_from(
                    step,
                    [walk.prefix(depth) for walk in walks],
                    size=config.branches,
                    seed=collector.seed("tree", step, again),
                    max_turns=None if turns is None else depth + turns,
                    phase="train",
                    again=again,
                )
                for (tree, node), group in zip(same, found, strict=True):
                    tree.grow(node, [path_of(t, depth) for t in group.scored])
                groups += found
        return trees_of(groups)

    def _tree(self, task: Task) -> Tree:
        config = self.config
        return Tree(
            Seen(key=task.id, text=""),
            self.model,
            exploration=config.exploration,
            mixing=config.mixing,
            gate=config.gate,
        )


def path_of(trajectory: Trajectory, begin: int = 0) -> list[Seen]:
    """Return the states after each turn of `trajectory`, from turn number `begin` on.

    The last one is over unless it was the search that stopped there.
    """
    turns, last = trajectory.turns, len(trajectory.turns) - 1
    shown = [*(turn.observation for turn in turns[1:]), trajectory.final_observation]
    return [
        Seen(
            key=turns[number].completion.token_ids,
            text=as_text(shown[number]),
            is_over=number == last and trajectory.stop is not Stop.CUT,
            is_solved=number == last and trajectory.is_success,
            place=trajectory,
        )
        for number in range(begin, len(turns))
    ]


def trees_of(groups: Sequence[Group]) -> list[Group]:
    """Return the episodes of `groups` by their task, in the order of the first of each."""
    found: dict[str, list[Trajectory]] = {}
    for group in groups:
        found.setdefault(group.task.id, []).extend(group.trajectories)
    return [Group(task=own[0].task, trajectories=tuple(own)) for own in found.values() if own]


def targets_of(tree: Group) -> list[tuple[Seen, float]]:
    """Return the value that the episodes of a tree imply of each of its states."""
    return process_values([path_of(trajectory) for trajectory in tree.scored])


def measured(groups: Sequence[Group], value: Value) -> Mapping[str, float]:
    """Return how many trees hold a solution, how many values they imply, and how far `value` is from these.

    To judge what a search went by, `value` is what the model said before it learned from these trees.
    """
    trees = trees_of(groups)
    targets = [target for tree in trees for target in targets_of(tree)]
    errors = [abs(value(seen.text) - implied) for seen, implied in targets]
    return {
        "mcts/solved": sum(any(t.is_success for t in tree.scored) for tree in trees) / max(len(trees), 1),
        "mcts/targets": float(len(targets)),
        "mcts/value_error": sum(errors) / max(len(errors), 1),
    }


class TextValue:
    """A value model that reads what is seen: ridge regression on words and pairs of neighbours.

    In a text of several lines, a picture, signs that stand in few places count by place, and two by how they lie.

    A text that nothing was learned of is worth 0. What it knows is a fold over recorded groups.
    """

    def __init__(self, *, size: int = SIZE, ridge: float = 1.0) -> None:
        self._moment = ridge * np.eye(size)
        self._cross = np.zeros(size)
        self._weights = self._older = np.zeros(size)

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the trees of a round."""
        self.learn([(seen.text, value) for tree in trees_of(groups) for seen, value in targets_of(tree)])

    def learn(self, samples: Sequence[tuple[str, float]]) -> None:
        """Take in texts with their values, beside all that came before."""
        self._older = self._weights
        if not samples:
            return
        rows = np.stack([self.features(text) for text, _ in samples])
        self._moment += rows.T @ rows
        self._cross += rows.T @ np.array([value for _, value in samples])
        self._weights = np.linalg.solve(self._moment, self._cross)

    def __call__(self, text: str) -> float:
        """Return the value of `text`, from 0 to 1."""
        return self._under(self._weights, text)

    def before(self, text: str) -> float:
        """Return the value that `text` had before what was learned last."""
        return self._under(self._older, text)

    def _under(self, weights: NDArray[np.floating[Any]], text: str) -> float:
        return float(np.clip(self.features(text) @ weights, 0.0, 1.0))

    def features(self, text: str) -> NDArray[np.float64]:
        """Return how often each feature occurs in `text`, [size], the first of them always once."""
        words = WORD.findall(text.lower())
        named = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
        lines = text.splitlines()
        if len(lines) > 1:
            signs = [(sign, x, y) for y, line in enumerate(lines) for x, sign in enumerate(line)]
            often = Counter(sign for sign, _, _ in signs)
            rare = [found for found in signs if often[found[0]] <= RARE]
            named += [f"{sign} {x},{y}" for sign, x, y in rare]
            named += [f"{a}{b} {x - u},{y - v}" for (a, u, v), (b, x, y) in combinations(rare, 2)]
        found = np.zeros(len(self._cross))
        found[0] = 1.0
        for name in named:
            found[1 + zlib.crc32(name.encode()) % (len(found) - 1)] += 1.0
        return found

"""ReST-MCTS* (arXiv 2406.03816): trees under a value model give traces to imitate and values.

For each task of a round a tree is grown (`quintain.search`): from the state with the best bound the policy goes
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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from quintain.config.ranges import PositiveFloat, PositiveInt, Share
from quintain.data.filters import shortest_successes
from quintain.data.pipeline import Pipeline, filter_stage
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.search.episodes import Episodes, trees_of
from quintain.search.tree import Seen, Value, ValueTree
from quintain.search.tree_search import Budget, TreeSearch
from quintain.search.values import TextValue, measure_trees
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of ReST-MCTS*."""

    renamed: ClassVar[Mapping[str, str]] = {"mixing": "rollout_weight"}
    """earlier names of options"""

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
    rollout_weight: Share = 0.5
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
    return Rounds(
        collect=partial(search, config, model),
        build=Pipeline(
            filter_stage(
                "solutions",
                f"did not solve the task, repeats another, or is not among the {config.keep} shortest of it",
                lambda groups: [
                    replace(g, trajectories=shortest_successes(g, config.keep)) for g in trees_of(groups)
                ],
            )
        ),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        needs=Needs(branches=True),
        state=CombinedState(model if config.has_values else None),
        measure=lambda groups, _: measure_trees(groups, model.before),
    )


def search(config: Config, value: Value, collector: Collector, step: int) -> list[Group]:
    """Return all episodes of the trees of a round, a group for each tree."""
    further = config.rollout_turns
    trees = [
        ValueTree(
            Seen(key=task.id, text="", place=task),
            value,
            exploration=config.exploration,
            mixing=config.rollout_weight,
            gate=config.gate,
        )
        for task in collector.tasks(step, config.tasks)
    ]
    turns = None if further is None else 1 + further
    ground = Episodes(player=collector, step=step, size=config.branches, turns=turns)
    TreeSearch(trees=trees, ground=ground, budget=Budget(rounds=config.expansions)).run()
    return trees_of(ground.groups)

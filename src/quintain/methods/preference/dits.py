"""DITS (arXiv 2502.00955): trains on those pairs of a search that would teach the most.

pairs with the best Q + γ·I, I(z) = success after one update on z - success before.

For each task of a round a tree is grown by MCTS on outcomes (`quintain.search.tree.GuidedTree` without a critic); two
visited children of a node whose mean outcomes differ by more than `margin` are a pair of turns. The pairs are shuffled
and cut into blocks of `block`. For each block the policy takes one update on it, plays the validation tasks, and is put
back; by how much more of them it solves is the influence of all pairs of the block. Influences are laid out from 0 to 1
over the blocks, times γ are added to the chosen side's mean outcome, and the best `keep_fraction` of pairs is trained
on. Seats of an environment share the policy, and a pair trains the turn of one of them.

Differences to the paper: no imitation before the pairs of a round (`--demonstrations` comes once, before the first);
the reference is the start in all rounds; influence chooses pairs and does not steer the search as well. Validation
tasks are training tasks that no round comes to, played from the same seeds before and after, where the code asks 100
questions once more. The influence of a block is a difference, as in the paper's formula; the code leaves out what was
before, which changes no order. Equal influences count 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import siblings
from quintain.errors import ConfigError
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.methods.loops.rounds import Collected, Influence, Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.searching import Search
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.types import Pair, Trajectory

UNREACHED = 1_000_000
"""A round that no run comes to: its tasks are those of validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of DITS."""

    renamed: ClassVar[Mapping[str, str]] = {"share": "keep_fraction"}
    """earlier names of options"""

    environment: str = "twocards?facts=1"
    tasks: PositiveInt = 32
    """Tasks of a round, a tree each."""
    branches: PositiveInt = 4
    """Ways on that the policy says at a new state."""
    episodes: PositiveInt = 8
    """Episodes of a tree."""
    exploration: NonNegativeFloat = 1.0
    """c of Q + c·√(ln N(h) / (1 + N(h')))."""
    margin: NonNegativeFloat = 0.2
    """Difference of mean outcomes above which two children are a pair."""
    block: PositiveInt = 5
    """Pairs of which the influence is measured together."""
    validation: PositiveInt = 32
    """Tasks by which influence is measured."""
    influence: NonNegativeFloat = 1.0
    """γ: weight of influence beside the value of the chosen side; 0 measures none."""
    keep_fraction: Share = 0.5
    """Share of the pairs that is trained on."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the start."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the chosen side as well (RPO)."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        if self.branches < 2:
            raise ConfigError(
                f"branches: got {self.branches}, of which no two could be compared; give 2 or more"
            )
        if not self.keep_fraction:
            raise ConfigError(
                "keep_fraction: got 0, with which nothing is trained on; give a number above 0, up to 1"
            )
        if self.influence and self.learner_ranks:
            raise ConfigError(
                f"learner_ranks: got {self.learner_ranks}, where an update cannot be undone; give 0, or influence=0"
            )


def method(config: Config) -> Rounds:
    """Return DITS as `config` describes it."""
    search = Search(
        tasks=config.tasks,
        branches=config.branches,
        episodes=config.episodes,
        exploration=config.exploration,
        mixing=1.0,
        critic=lambda ways: [0.0] * len(ways),
    )

    def collect(collector: Collector, step: int) -> Collected:
        found = search.grow(collector, step)

        def choose(influence: Influence, pairs: Sequence[Pair]) -> tuple[Sequence[Pair], Mapping[str, float]]:
            return choose_pairs(pairs, found.families, config, influence, collector, step)

        pairs = siblings(found.families, margin=config.margin)
        return Collected(groups=found.groups, data=[pairs], metrics=found.metrics, choose=choose)

    return Rounds(
        collect=collect,
        update=update_on_pairs(dpo_or_rpo(config.beta, config.imitation_weight)),
        needs=Needs(branches=True, reference=True),
    )


def choose_pairs(
    pairs: Sequence[Pair],
    families: Sequence[Sequence[tuple[Trajectory, float]]],
    config: Config,
    influence: Influence,
    collector: Collector,
    step: int,
) -> tuple[Sequence[Pair], Mapping[str, float]]:
    """Return those of `pairs` that are trained on, how many, and the mean and the spread of the influences.

    The `families` say what the chosen side of each was found worth.
    """
    if not pairs:
        return pairs, {"dits/chosen": 0.0}
    blocks = blocks_of(len(pairs), config.block, collector.seed("blocks", step))
    found: list[float] = []
    if config.influence:
        tasks = collector.tasks(UNREACHED, config.validation)
        found = influence([[pairs[place] for place in block] for block in blocks], tasks)
    worth = {id(way): value for family in families for way, value in family}
    values = [worth[id(pair.chosen)] for pair in pairs]
    scores = mix_values(values, blocks, found or [0.0] * len(blocks), config.influence)
    chosen = best_of(scores, config.keep_fraction)
    told = {"dits/influence": fmean(found), "dits/spread": max(found) - min(found)} if found else {}
    return [pairs[place] for place in chosen], {"dits/chosen": float(len(chosen)), **told}


def blocks_of(num: int, size: int, seed: int) -> list[list[int]]:
    """Return the places 0 … `num` - 1 in blocks of `size`, drawn by `seed`; the last may be smaller."""
    places = Random(seed).sample(range(num), num)
    return [places[begin : begin + size] for begin in range(0, num, size)]


def mix_values(
    values: Sequence[float], blocks: Sequence[Sequence[int]], influences: Sequence[float], weight: float
) -> list[float]:
    """Return Q + γ·I of each pair: its value, and the influence of its block from 0 to 1 over all blocks.

    Example: values .5 and .4 in blocks of their own with influences -.1 and .3, γ 1: .5 and 1.4.
    """
    low, high = min(influences, default=0.0), max(influences, default=0.0)
    found = list(values)
    for block, influence in zip(blocks, influences, strict=True):
        for place in block:
            found[place] += weight * (influence - low) / (high - low) if high > low else 0.0
    return found


def best_of(scores: Sequence[float], share: float) -> list[int]:
    """Return the places of the `share` with the highest `scores`, at least one, in order; of equal ones the first."""
    count = max(1, math.floor(share * len(scores) + 1e-9))
    return sorted(sorted(range(len(scores)), key=lambda place: -scores[place])[:count])

"""ETO (arXiv 2403.02502): prefers an expert's success to the policy's own failure at the task.

L = -log σ(β [log π/π_ref (better) - log π/π_ref (worse)]).

In every round the policy explores the round's tasks, and the expert shows them. Where the outcomes differ, the higher
is preferred: mostly the expert's, over a failure of the policy's own. The reference is the policy as it was when the
round began; β is .1 in the first round and .5 later. A rejected episode keeps five turns more than the expert's.

Differences to the paper: tasks are new in every round, where the paper explores those that it imitated; episodes are
sampled at `--temperature`, where the paper takes the most likely actions; outcomes are the environment's on both
sides, where the code sets the expert's to 1 in two worlds; the learning rate is not halved after the first round;
episodes that a limit of tokens or time cut are in no pair, and a side without trained tokens is refused and counted,
where the code keeps the pair and trains one side. The preferred side is imitated as well (RPO, 2404.19733), unless
`imitation_weight` is 0 as published: both sides tend to become unlikely.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from quintain.data.seats import split_seats
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.methods.preference.exploring import Later, contrast_episodes, explore_shown
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.types import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of ETO."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "group_size"}
    """earlier names of options"""

    tasks: PositiveInt = 128
    group_size: PositiveInt = 1
    """Episodes that the policy makes of each task."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the reference in the first round."""
    later_beta: PositiveFloat = 0.5
    """The same in later rounds, whose reference is the policy that the round before made."""
    margin: NonNegativeFloat = 0.0
    """Difference of outcomes above which two episodes are a pair."""
    extra_turns: NonNegativeInt | None = 5
    """Turns that a rejected episode keeps beyond those of the expert's; none: all."""
    counts_turn_limit: bool = True
    """Whether running out of the task's own turns is a failure to learn from."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well; 0 is as published."""


def method(config: Config) -> Rounds:
    """Return ETO as `config` describes it."""
    later = Later(loss_of(config.beta, config), loss_of(config.later_beta, config))

    def collect(collector: Collector, step: int) -> Collected:
        groups, experts = explore_shown(collector, step, config.tasks, config.group_size)
        pairs = contrast_episodes(
            split_seats(groups),
            experts,
            margin=config.margin,
            extra_turns=config.extra_turns,
            counts_turn_limit=config.counts_turn_limit,
        )
        return Collected(groups=groups, data=[pairs])

    return Rounds(
        collect=collect,
        update=update_on_pairs(later.loss),
        needs=Needs(expert=True, reference=True, renews_reference=1),
        state=CombinedState(later),
    )


def loss_of(beta: float, config: Config) -> Loss:
    """Return DPO with `beta`, with the likelihood of the better side where that is asked for."""
    return dpo_or_rpo(beta, config.imitation_weight)

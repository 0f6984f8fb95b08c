"""M-DPO, or M-KTO (arXiv 2409.02392): preference learning over the agent's turns alone, in rounds.

L = -log σ(β Σ_h [log π/π_ref (a_h won) - log π/π_ref (a_h lost)]).

Building math agents with multi-turn iterative preference learning (arXiv 2409.02392): what tools and worlds answer is
chance that the policy has no part in, so it cancels in Δ only where it is left out of both sums. In every round each
task is tried `group_size` times, and one that was solved is paired with one that was not, drawn at random; the
reference is the policy as it was when the round began, or the starting policy. ``loss="kto"`` takes the same episodes
one by one (M-KTO): 1 - σ(β(u - z)) of those that solved their task, 1 - σ(β(z - u)) of the others.

Differences to the paper: all episodes of a round are of the newest policy, where the paper mixes in the one before;
`max_turns` leaves out longer episodes, where the code also asks for a call in every turn; z is estimated over the whole
step on prompts that are not the episodes' own (2402.01306), where the paper leaves it open. The better side is imitated
as well (RPO, 2404.19733), unless `imitation_weight` is 0 as published: without, success falls first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import Pairs, pair_wins_with_losses
from quintain.learning.train_config import GroupRoundsConfig
from quintain.learning.update import Update
from quintain.losses.preference import kto
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Needs, sample_groups
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupRoundsConfig):
    """Configuration of M-DPO and M-KTO."""

    steps: int = 3
    """Rounds."""
    learning_rate: float = 1e-4
    eval_every: int = 1
    num_minibatches: PositiveInt = 4
    tasks: PositiveInt = 32
    """Tasks of a round."""
    group_size: int = 16
    """Episodes of a task."""
    pairs: PositiveInt = 1
    """Pairs of a task; no episode is in two."""
    loss: Literal["dpo", "kto"] = "dpo"
    """Compare the sides of a pair, or take them one by one."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the reference."""
    reference: Literal["previous", "first"] = "previous"
    """The policy as it was when the round began, or when the run began."""
    desirable: NonNegativeFloat = 1.0
    """Weight of episodes that solved their task, with loss kto."""
    undesirable: NonNegativeFloat = 1.0
    """Weight of the others, with loss kto."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well, with loss dpo; 0 is as published."""
    max_turns: PositiveInt | None = None
    """Turns of an episode that may be in a pair."""


def method(config: Config) -> Rounds:
    """Return M-DPO or M-KTO as `config` describes it."""
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=lambda groups: pair_episodes(groups, config.pairs, config.max_turns),
        update=update_of(config),
        needs=Needs(reference=True, renews_reference=config.reference == "previous"),
    )


def update_of(config: Config) -> Update:
    """Return how the policy learns from a round's pairs."""
    if config.loss == "kto":
        loss = kto(config.beta, desirable=config.desirable, undesirable=config.undesirable)
    else:
        loss = dpo_or_rpo(config.beta, config.imitation_weight)
    return replace(update_on_pairs(loss), aggregation="sequence_mean", has_kl=config.loss == "kto")


def pair_episodes(groups: Sequence[Group], count: int, max_turns: int | None) -> Pairs:
    """Return `count` pairs of each group of a solved and an unsolved episode, none longer than `max_turns`."""
    short = [
        replace(
            group,
            trajectories=tuple(
                each for each in group.trajectories if max_turns is None or len(each.turns) <= max_turns
            ),
        )
        for group in groups
    ]
    return pair_wins_with_losses(short, count)

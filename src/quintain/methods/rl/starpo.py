"""StarPO-S of RAGEN (arXiv 2504.20073): whole trajectories, uncertain groups only, bi-level advantages.

Of the groups of a step only the share with the widest outcomes is trained on; turns whose format is broken cost
`format_penalty`; a critic, whose estimates run over turn ends and then over the tokens of each turn; the upper clip
is wider than the lower; no KL. Signals of collapse (the "echo trap") are logged, see `CollapseSigns`. With `keep` 1
it is StarPO.

Differences to the official code: turn ends are the turns' own, so a turn without reward keeps its boundary; what is
trained is what was sampled, token by token; advantages are whitened over the tokens that are kept. The filter reads
outcomes after the format penalty; a step has 8 groups of 8, of which half are kept, instead of 8 of 16 and a
quarter; γ between turns is .95, where the paper's plain PPO has γ = λ = 1; a turn is one action, and no thought is
forced. Measured on Sokoban from a start that imitated, where the paper also has bandits and FrozenLake.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import NonNegativeFloat, PositiveShare, Share
from quintain.credit.bilevel import gae_bilevel
from quintain.credit.whiten import whiten
from quintain.data.filters import most_uncertain
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.methods.rl.parts.measures import CollapseSigns
from quintain.rewards.conduct import environment_reward, format_penalty
from quintain.rewards.terms import apply_all
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of StarPO-S."""

    keep: PositiveShare = 0.5
    """Share of the groups that are trained on: those whose outcomes differ most (the paper: 0.25 to 0.5)."""
    format_penalty: NonNegativeFloat = 0.1
    """Reward lost by a turn that cannot be read."""
    turn_discount: Share = 0.95
    """γ between turns; 1 between the tokens of a turn."""
    entropy_coef: NonNegativeFloat = 0.001
    """Weight of the entropy bonus."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return StarPO-S as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return whiten(gae_bilevel(groups, estimates.critic, turn_discount=config.turn_discount))

    loss = combine((clip_ratio(0.2, 0.28), 1.0), (value(), 0.5), (entropy_bonus(), config.entropy_coef))
    signs = CollapseSigns()
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=partial(apply_all, terms=(environment_reward(), format_penalty(config.format_penalty))),
        keep=partial(most_uncertain, share=config.keep),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True),
        state=CombinedState(signs),
        measure=signs,
    )

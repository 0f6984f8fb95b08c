"""GSPO (arXiv 2507.18071): one ratio for a whole answer, clipped once for all its tokens.

s(θ) = (π(y | x) / π_old(y | x))^(1/|y|).

The reward is for a sequence, so the ratio is for a sequence: the geometric mean over its tokens. Advantages are
GRPO's. With `unit` "turn" each turn has its own ratio, which suits advantages that differ by turn.

The paper's bounds, 3e-4 and 4e-4, are for answers of thousands of tokens. A mean of n log-ratios scatters by 1/√n, and
ratios here are to the log-probs at sampling, which an engine may round otherwise: noise of .005 a token alone takes the
gradient from 38 % of sequences of 20 tokens, and from none of 2,000. So the bounds of a sequence of n tokens are
`clip_low`·√(`bound_tokens`/n) and `clip_high`·√(`bound_tokens`/n); with `bound_tokens` 0 they are as published.

Differences to the paper: the bounds follow the length; a sequence is a token stream of an episode with many turns; with
one update every ratio is 1 and this is GRPO.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig, check_ratios
from quintain.learning.update import Update
from quintain.losses.policy import gspo
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of GSPO."""

    unit: Literal["sequence", "turn"] = "sequence"
    """What has one ratio."""
    clip_low: PositiveFloat = 3e-4
    """The ratio is clipped below at 1 - this."""
    clip_high: PositiveFloat = 4e-4
    """The ratio is clipped above at 1 + this."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL (k3) to the starting policy in the loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""
    bound_tokens: NonNegativeInt = 2000
    """Tokens of a sequence for which both bounds are meant; for n they are √(this/n) times as wide. 0: never."""
    num_minibatches: int = 4

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        check_ratios(self)


def method(config: Config) -> OnPolicy:
    """Return GSPO as `config` describes it."""
    loss = gspo(config.clip_low, config.clip_high, unit=config.unit, bound_tokens=config.bound_tokens)
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=loss, aggregation="sequence_mean"),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)

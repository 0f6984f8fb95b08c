"""s(θ) = (π(y | x) / π_old(y | x))^(1/|y|), clipped once per sequence: GSPO (arXiv 2507.18071).

The reward is for a sequence, so the ratio is for a sequence: the geometric mean over its tokens. Advantages are
GRPO's. With `unit` "turn" each turn has its own ratio, which suits advantages that differ by turn.

Differences to the paper: a sequence is a token stream of an episode with many turns; with
one update every ratio is 1 and this is GRPO.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import group_relative
from quintain.losses.policy import gspo
from quintain.methods.method import OnPolicy, Update, grouped, hold
from quintain.training.job import GroupJob, check_ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
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
    num_minibatches: int = 4

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupJob.check(self)
        check_ratios(self)


def method(config: Config) -> OnPolicy:
    """Return GSPO as `config` describes it."""
    loss = gspo(config.clip_low, config.clip_high, unit=config.unit)
    plain = OnPolicy(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=loss, aggregation="sequence_mean"),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=config.entropy_coef)

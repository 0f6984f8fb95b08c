"""Lite PPO (arXiv 2508.08221): a group's mean, the batch's deviation, a mean over tokens, no critic.

A_i = (R_i - mean of the group) / std of the batch.

The two tricks that "Tricks or Traps?" found to be enough: the deviation over the batch does not blow up groups that
are nearly all right or all wrong, and a mean over all tokens lets long episodes speak.

Differences to the paper: many turns; two updates on the whole batch. Measured on BabyAI and on sums of single
digits that may be mended, where the paper has mathematics.
"""

from dataclasses import dataclass

from quintain.config.ranges import PositiveFloat
from quintain.credit.normaliser import Over, normalise_over
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of Lite PPO."""

    mean: Over = "group"
    """What an outcome is compared with: the mean of its group, of the batch, or none."""
    std: Over = "batch"
    """Whose standard deviation it is divided by."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return Lite PPO as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: normalise_over(groups, mean=config.mean, std=config.std),
        update=Update(loss=clip_ratio(config.clip, config.clip)),
    )

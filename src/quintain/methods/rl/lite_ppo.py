"""A_i = (R_i - mean of the group) / std of the *batch*, a mean over tokens, no critic: Lite PPO (arXiv 2508.08221).

The two tricks that "Tricks or Traps?" found to be enough: the deviation over the batch does not blow up groups that
are nearly all right or all wrong, and a mean over all tokens lets long episodes speak.

Differences to the paper: many turns; two updates on the whole batch. Measured on BabyAI and on sums of single
digits that may be mended, where the paper has mathematics.
"""

from dataclasses import dataclass

from quintain.credit.normaliser import Over, normalise_over
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of Lite PPO."""

    mean: Over = "group"
    """What an outcome is compared with: the mean of its group, of the batch, or none."""
    std: Over = "batch"
    """Whose standard deviation it is divided by."""
    clip: float = 0.2
    """The ratio is clipped to 1 ± this."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""


def method(config: Config) -> Method:
    """Return Lite PPO as `config` describes it."""
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: normalise_over(groups, mean=config.mean, std=config.std),
        update=policy_update(clipped(config.clip, config.clip), Plan(updates=config.updates)),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

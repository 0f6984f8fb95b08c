"""s(θ) = (π(y | x) / π_old(y | x))^(1/|y|), clipped once per sequence: GSPO (arXiv 2507.18071).

The reward is for a sequence, so the ratio is for a sequence: the geometric mean over its tokens. Advantages are
GRPO's. With `unit` "turn" each turn has its own ratio, which suits advantages that differ by turn.

Differences to the paper: a sequence is a token stream of an episode with many turns; four updates on the whole
batch instead of four mini-batches (with one update every ratio is 1 and this is GRPO).
"""

from dataclasses import dataclass
from typing import Literal

from quintain.credit.group import group_relative
from quintain.errors import ConfigError
from quintain.losses.policy import gspo
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of GSPO."""

    unit: Literal["sequence", "turn"] = "sequence"
    """What has one ratio."""
    clip_low: float = 3e-4
    """The ratio is clipped below at 1 - this."""
    clip_high: float = 4e-4
    """The ratio is clipped above at 1 + this."""
    updates: int = 4
    """Optimizer steps on the episodes of a step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupJob.check(self)
        if self.updates < 2:
            raise ConfigError(
                f"updates: got {self.updates}, with which every ratio is 1 and nothing is clipped; "
                "give 2 or more, or use grpo"
            )


def method(config: Config) -> Method:
    """Return GSPO as `config` describes it."""
    loss = gspo(config.clip_low, config.clip_high, unit=config.unit)
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(loss, Plan(aggregation="sequence_mean", updates=config.updates)),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

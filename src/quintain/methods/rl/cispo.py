"""L = -Σ sg[min(ρ_t, 1 + ε)] A_t log π(y_t): the weight is clipped, never the token: CISPO (arXiv 2506.13585).

A clipped ratio of PPO takes the gradient away from the very tokens that change most (such as a rare "however");
here each token keeps its gradient, with a bounded weight.

Differences to the paper: many turns; the upper bound is 1.28; two updates on the whole batch of a step; the means
over tokens are over those of all groups of the step.
"""

from dataclasses import dataclass

from quintain.credit.group import group_relative
from quintain.errors import ConfigError
from quintain.losses.policy import cispo
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of CISPO."""

    clip_high: float = 0.28
    """The weight of a token is at most 1 + this."""
    updates: int = 2
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
    """Return CISPO as `config` describes it."""
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(cispo(config.clip_high), Plan(updates=config.updates)),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

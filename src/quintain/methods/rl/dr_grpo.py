"""A_i = R_i - mean of the group, summed over tokens and divided by a constant: Dr. GRPO (arXiv 2503.20783).

Two biases of GRPO go: dividing by the deviation of a group weighs nearly solved and nearly hopeless tasks up, and
dividing by an episode's own length makes long failures cheap. The constant is the token budget of an episode.

Differences to the paper: many turns; one update per step.
"""

from dataclasses import dataclass

from quintain.credit.group import group_relative
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of Dr. GRPO."""

    clip: float = 0.2
    """The ratio is clipped to 1 ± this."""
    constant: float = 64.0
    """Tokens that the sum over an episode is divided by, whatever its length."""


def method(config: Config) -> Method:
    """Return Dr. GRPO as `config` describes it."""
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: group_relative(groups, std="none"),
        update=policy_update(
            clipped(config.clip, config.clip), Plan(aggregation="constant", constant=config.constant)
        ),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

"""VinePPO (arXiv 2410.01679): values of states are means of episodes continued from them.

A_k = r_k + V(s_{k+1}) - V(s_k).

The environment is brought back to the state before a turn (`Snapshot`), and the policy plays on from there a
few times. That is a value without a critic and its errors, at the price of more episodes, which count in a
budget. The value of the first state is the mean of the group.

Differences to the paper: steps are turns, not lines of reasoning; REINFORCE-like weights go through PPO's clip.
"""

from dataclasses import dataclass

from quintain.config.ranges import PositiveInt
from quintain.credit.step_value import step_value
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.continuations import continue_turns, state_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of VinePPO."""

    tasks: PositiveInt = 4
    """Tasks of a step."""
    group_size: int = 4
    """Episodes of a task."""
    rollouts: PositiveInt = 3
    """Episodes that are continued from each state."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return VinePPO as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        branch=continue_turns(config.rollouts),
        credit=lambda groups, estimates: step_value(groups, state_values(groups, estimates.branches)),
        update=Update(loss=clip_ratio()),
        needs=Needs(branches=True, snapshots=True),
    )

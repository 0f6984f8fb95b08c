"""Episodes of at most h_1 < h_2 < … turns, longer by stages: ScalingInter-RL of AgentGym-RL (arXiv 2509.08755).

Short episodes first teach what to do; longer ones then leave room to explore, without the collapse of starting
long. The limit is a function of the step and of nothing else, so a resumed run is in the stage it was in.

Differences to the paper: group-relative credit; evaluations keep the environment's own limit; an episode that the
limit cuts is marked as truncated and counts with the reward it has, or with `cut=left_out` not at all, but is not
bootstrapped. Stages have 30 steps instead of 100. Measured on keys and doors (`keydoor`) and on BabyAI, which is
one of the paper's five families of worlds.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.credit.group import group_relative
from quintain.data.filters import without_truncated
from quintain.errors import ConfigError
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method, unchanged
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped, within_turns
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of ScalingInter-RL."""

    turns: tuple[int, ...] = (5, 10, 20)
    """Most turns of an episode, stage by stage."""
    stage_steps: int = 30
    """Steps of a stage; the last one lasts."""
    cut: Literal["scored", "left_out"] = "scored"
    """What an episode is that the limit cut: scored with the reward it has, or left out of the step."""
    clip_high: float = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupJob.check(self)
        if not self.turns or min(self.turns) < 1:
            raise ConfigError(f"turns: got {self.turns}; give the turns of each stage, 1 or more")
        if list(self.turns) != sorted(self.turns):
            raise ConfigError(f"turns: got {self.turns}, which shrink; give them in rising order")


def horizon(config: Config, step: int) -> int:
    """Return the most turns of an episode of `step`, counted from 1."""
    return config.turns[min((step - 1) // config.stage_steps, len(config.turns) - 1)]


def method(config: Config) -> Method:
    """Return ScalingInter-RL as `config` describes it."""
    collect = grouped(config.tasks, config.group_size)
    return Method(
        collect=within_turns(collect, lambda step: horizon(config, step)),
        keep=without_truncated if config.cut == "left_out" else unchanged,
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(clipped(0.2, config.clip_high), Plan(aggregation="sequence_mean")),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

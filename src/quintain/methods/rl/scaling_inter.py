"""ScalingInter-RL of AgentGym-RL (arXiv 2509.08755): episodes of few turns first, longer by stages.

h_1 < h_2 < … turns.

Short episodes first teach what to do; longer ones then leave room to explore, without the collapse of starting
long. The limit is a function of the step and of nothing else, so a resumed run is in the stage it was in.

Differences to the paper: group-relative credit; evaluations keep the environment's own limit; an episode that the
limit cuts is marked as truncated and counts with the reward it has, or with `cut=left_out` not at all, but is not
bootstrapped. Stages have 30 steps instead of 100. Measured on keys and doors (`keydoor`) and on BabyAI, which is
one of the paper's five families of worlds.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import PositiveInt
from quintain.credit.group import group_relative
from quintain.data.filters import without_truncated
from quintain.errors import ConfigError
from quintain.learning.train_config import ClipHigherConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import same_groups, sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of ScalingInter-RL."""

    turns: tuple[int, ...] = (5, 10, 20)
    """Most turns of an episode, stage by stage."""
    stage_steps: PositiveInt = 30
    """Steps of a stage; the last one lasts."""
    cut: Literal["scored", "left_out"] = "scored"
    """What an episode is that the limit cut: scored with the reward it has, or left out of the step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ClipHigherConfig.check(self)
        if not self.turns or min(self.turns) < 1:
            raise ConfigError(f"turns: got {self.turns}; give the turns of each stage, 1 or more")
        if list(self.turns) != sorted(self.turns):
            raise ConfigError(f"turns: got {self.turns}, which shrink; give them in rising order")


def horizon(config: Config, step: int) -> int:
    """Return the most turns of an episode of `step`, counted from 1."""
    return config.turns[min((step - 1) // config.stage_steps, len(config.turns) - 1)]


def method(config: Config) -> OnPolicy:
    """Return ScalingInter-RL as `config` describes it."""
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size, max_turns=lambda step: horizon(config, step)),
        keep=without_truncated if config.cut == "left_out" else same_groups,
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high), aggregation="sequence_mean"),
    )

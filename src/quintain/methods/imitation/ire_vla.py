"""iRe-VLA (arXiv 2501.16664): reinforces a light head with the trunk at rest, then imitates.

PPO (clip .2, GAE) on all of a large policy is unstable, and forgets what it could. So in the first stage only the head
learns by PPO: the last `head_layers` layers, the norm behind them and the critic; nothing below changes, and neither
does what the optimizer keeps of it. Every `every` steps the second stage imitates: the expert's episodes D_e and all
successes of the run so far, D_RL, by all weights; at least half of every batch is of D_e. Then the first stage again.
While nothing has succeeded the second stage is `sft` on D_e. With `known` so many tasks of D_e are played before the
first step, and before and after each second stage, to see what the one forgets and the other brings back.

Differences to the paper: actions are tokens, so that the head is the end of a language model, whose output embedding
rests with the input's where they are tied; the second stage trains all weights, not LoRA of the trunk, unless the run
has `--lora-rank`. D_e may be of other tasks than those of the run: demonstrations name a file or a run of theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.data.pipeline import Pipeline
from quintain.data.stages import keep_solved
from quintain.errors import ConfigError
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.imitation.imitation_phase import ImitationPhase
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.loops.rounds import OptimizerSteps
from quintain.methods.method import Collector, Needs, sample_groups
from quintain.types import Credit, Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of iRe-VLA."""

    renamed: ClassVar[Mapping[str, str]] = {"rehearsal_rate": "rehearsal_lr_scale"}
    """earlier names of options"""

    learning_rate: float = 1e-3
    demonstrations: int | str | None = 128
    """D_e: the expert's episodes, or conversations; they are imitated first, and in every second stage."""
    num_epochs: int = 2
    head_layers: PositiveInt = 1
    """Layers at the end of the policy that learn in the first stage."""
    every: PositiveInt = 8
    """Steps of the first stage before each second stage."""
    updates: PositiveInt = 40
    """Optimizer steps of a second stage."""
    batch_size: PositiveInt = 16
    """Episodes of an optimizer step in the second stage."""
    rehearsal_lr_scale: PositiveFloat = 1.0
    """Factor on the learning rate in the second stage."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the critic's loss."""
    known: NonNegativeInt = 0
    """Demonstrated tasks that are played once before the first step and around every second stage, which says what was
    forgotten; 0: none."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        EpisodesConfig.check(self)
        if self.demonstrations == 0:
            raise ConfigError("demonstrations: got 0, and the second stage imitates them; give 1 or more")
        if self.known and isinstance(self.demonstrations, str) and Path(self.demonstrations).is_file():
            raise ConfigError(
                f"known: got {self.known} with the conversations {self.demonstrations}, whose tasks cannot be played; "
                "give a run as demonstrations, or leave it at 0"
            )
        if self.batch_size < 2:
            raise ConfigError(
                f"batch_size: got {self.batch_size}, half of which is the expert's; give 2 or more"
            )


def method(config: Config) -> OnPolicy:
    """Return iRe-VLA as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return whiten(gae_tokens(groups, estimates.critic, discount=1.0, gae_lambda=config.gae_lambda))

    def experts(collector: Collector) -> list[Trajectory]:
        return [t for t in collector.demonstrations() if t.is_success]

    loss = combine((clip_ratio(config.clip, config.clip), 1.0), (value(), config.vf_coef))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True, head_layers=config.head_layers),
        companion=ImitationPhase(
            every=config.every,
            build=Pipeline(keep_solved()),
            base=experts,
            update=Update(loss=imitation(), is_on_policy=False),
            steps=OptimizerSteps(count=lambda _: config.updates, batch_size=config.batch_size),
            rate=config.rehearsal_lr_scale,
            known=config.known,
        ),
        needs=Needs(critic=True),
    )

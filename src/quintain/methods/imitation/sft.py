"""L = -Σ log π(a_t | h_t) over the agent's tokens: imitation of whole episodes (behaviour cloning).

Prompts, observations and tool results are context and carry no loss (the mask is 1 on sampled tokens only).
This is the supervised step of FireAct (arXiv 2310.05915) and AgentTuning (2310.12823).

Differences to these papers: the teacher is the environment's expert, not a larger model; its failed episodes
are left out unless they are asked for; loss is the mean over the tokens of a step; the learning rate falls
linearly to 0.
"""

from dataclasses import dataclass

from quintain.config.ranges import PositiveInt
from quintain.errors import ConfigError, DataError
from quintain.losses.imitation import imitation
from quintain.methods.method import Collector, Offline, Update
from quintain.training.job import Job
from quintain.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Job):
    """Configuration of supervised fine-tuning."""

    steps: int = 200
    learning_rate: float = 1e-3
    demonstrations: int = 400
    """Episodes of the expert to imitate."""
    examples: int | None = None
    """How many of them are imitated, the first ones; none for all."""
    failures: bool = False
    """Whether episodes that failed are imitated, too."""
    eval_every: int = 50
    batch_size: PositiveInt = 32
    """Episodes of a step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        Job.check(self)
        if not self.demonstrations:
            raise ConfigError("demonstrations: got 0, which leaves nothing to imitate; give 1 or more")
        if self.examples is not None and not 1 <= self.examples <= self.demonstrations:
            raise ConfigError(
                f"examples: got {self.examples} of {self.demonstrations} demonstrations; give 1 or more, or none"
            )


def method(config: Config) -> Offline:
    """Return supervised fine-tuning as `config` describes it."""

    def demonstrations(collector: Collector) -> list[Trajectory]:
        shown = collector.demonstrations()[: config.examples]
        kept = [trajectory for trajectory in shown if config.failures or trajectory.is_success]
        if not kept:
            raise DataError(
                f"imitating {config.demonstrations} demonstrations: got none that solved its task; "
                "raise demonstrations, or give the environment an expert_action"
            )
        return kept

    return Offline(
        data=demonstrations,
        update=Update(loss=imitation(), is_on_policy=False),
        batch_size=config.batch_size,
        lr_schedule=lambda step: 1 - (step - 1) / config.steps,
        has_warm_start=False,
    )

"""L = -Σ log π(a_t | h_t) over the agent's tokens: imitation of whole episodes (behaviour cloning).

Prompts, observations and tool results are context and carry no loss (the mask is 1 on sampled tokens only).
This is the supervised step of FireAct (arXiv 2310.05915) and AgentTuning (2310.12823).

Differences to these papers: the teacher is the environment's expert unless conversations of others are given
(``demonstrations=chats.jsonl``); failed episodes are left out unless they are asked for; loss is the mean over the
tokens of a step; the learning rate falls linearly to 0.
"""

import math
from dataclasses import dataclass

from quintain.config.ranges import Share
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation.supervised import supervised
from quintain.methods.method import Collector, Offline
from quintain.training.job import ImitationJob
from quintain.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationJob):
    """Configuration of supervised fine-tuning."""

    environment: str = ""
    """Where it acts: a name, as for all methods; none, or empty with conversations of a file, for the loss alone."""
    examples: int | None = None
    """How many of them are imitated, the first ones; none for all."""
    failures: bool = False
    """Whether episodes that failed are imitated, too."""
    held_out: Share = 0.1
    """Share of conversations that is not imitated; their loss is measured at every evaluation. Not of the expert's."""
    eval_every: int = 50

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationJob.check(self)
        if self.demonstrations == 0:
            raise ConfigError("demonstrations: got 0, which leaves nothing to imitate; give 1 or more")
        most = self.demonstrations if isinstance(self.demonstrations, int) else math.inf
        if self.examples is not None and not 1 <= self.examples <= most:
            raise ConfigError(
                f"examples: got {self.examples} of {self.demonstrations} demonstrations; give 1 or more, or none"
            )


def method(config: Config) -> Offline:
    """Return supervised fine-tuning as `config` describes it."""

    is_taught = not isinstance(config.demonstrations, str)

    def demonstrations(collector: Collector) -> list[Trajectory]:
        shown = collector.demonstrations()[: config.examples]
        kept = [trajectory for trajectory in shown if config.failures or trajectory.is_success]
        if not kept:
            what = "demonstrations" if is_taught else f"conversations of {config.demonstrations}"
            raise DataError(
                f"imitating {len(shown)} {what}: got none that solved its task; "
                + (
                    "raise demonstrations, or give the environment an expert_action"
                    if is_taught
                    else "set failures"
                )
            )
        return kept

    return supervised(
        config,
        demonstrations,
        batch_size=config.batch_size,
        held_out=0.0 if is_taught else config.held_out,
    )

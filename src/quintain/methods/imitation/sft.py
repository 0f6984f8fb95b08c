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
from quintain.data.pipeline import Chosen, Pipeline, Stage
from quintain.data.stages import solved
from quintain.errors import ConfigError
from quintain.learning.job import ImitationJob
from quintain.methods.imitation.supervised import chosen_of, supervised
from quintain.methods.method import Collector, Offline


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
    return supervised(
        config,
        lambda collector: imitated(config, collector),
        batch_size=config.batch_size,
        held_out=config.held_out if isinstance(config.demonstrations, str) else 0.0,
    )


def imitated(config: Config, collector: Collector, *stages: Stage) -> Chosen:
    """Return what is left of demonstrations that solved their task, unless `config` takes failures, after `stages`.

    Raises:
        DataError: nothing is left.
    """
    shown = collector.demonstrations()[: config.examples]
    pipeline = Pipeline(*([] if config.failures else [solved()]), *stages)
    if isinstance(config.demonstrations, str):
        what, cure = f"conversations of {config.demonstrations}", "set failures"
    else:
        what, cure = "demonstrations", "raise demonstrations, or give the environment an expert_action"
    return chosen_of(shown, pipeline, f"imitating {len(shown)} {what}", {"solved": cure})

"""L = -Σ log π(a_t | h_t) over the agent's tokens: imitation of whole episodes (behaviour cloning).

Prompts, observations and tool results are context and carry no loss (the mask is 1 on sampled tokens only).
This is the supervised step of FireAct (arXiv 2310.05915) and AgentTuning (2310.12823).

Differences to these papers: the teacher is the environment's expert, not a larger model; its failed episodes
are left out unless they are asked for; loss is the mean over the tokens of a step; the learning rate falls
linearly to 0.
"""

from dataclasses import dataclass

import numpy as np

from quintain.data.samples import imitation_samples
from quintain.errors import ConfigError, DataError
from quintain.losses.imitation import imitation
from quintain.store.run import Run
from quintain.training.job import Job
from quintain.training.work import opened


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
    batch_size: int = 32
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


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    with opened(config, run, has_warm_up=False) as work:
        shown = work.demonstrations()[: config.examples]
        kept = [trajectory for trajectory in shown if config.failures or trajectory.is_success]
        if not kept:
            raise DataError(
                f"imitating {config.demonstrations} demonstrations: got none that solved its task; "
                "raise demonstrations, or give the environment an expert_action"
            )
        samples = imitation_samples(kept)
        for step in work.steps():
            chosen = [samples[i] for i in _batch(len(samples), config.batch_size, step, work.seed("order"))]
            scale = 1 - (step - 1) / config.steps
            report = work.learner.step(work.batches(chosen), imitation(), rate_scale=scale)
            work.commit(step, (), report)


def _batch(total: int, size: int, step: int, seed: int) -> list[int]:
    """Return the places of the samples of `step`: every epoch in an order of its own."""
    size = min(size, total)
    epoch, place = divmod(step - 1, max(total // size, 1))
    return np.random.default_rng((seed, epoch)).permutation(total)[place * size : (place + 1) * size].tolist()

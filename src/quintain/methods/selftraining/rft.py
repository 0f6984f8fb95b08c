"""RFT (arXiv 2308.01825; ReST, 2308.08998): samples, keeps what succeeded, imitates it, and again.

Each step samples several episodes per task with the current policy, keeps the different ones that solved the
task (at most `keep` per task, so that easy tasks do not crowd out hard ones), and imitates them.

Differences to the papers: both alternate between large collections and training from the base model; by default one
step is a small collection and one update of the running policy (the on-line limit of ReST's grow and improve), and
`starts_over`, `num_epochs` and `num_minibatches` make it theirs. A step in which nothing succeeded takes no optimizer
step.
"""

from dataclasses import dataclass, replace

from quintain.config.ranges import PositiveInt
from quintain.data.filters import shortest_successes
from quintain.data.pipeline import Pipeline, filter_stage
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of rejection sampling fine-tuning."""

    tasks: PositiveInt = 16
    """Tasks of a step."""
    group_size: PositiveInt = 4
    """Episodes of a task."""
    keep: PositiveInt = 2
    """Successful episodes of a task that are imitated, shortest first."""
    starts_over: bool = False
    """Train every round from the starting policy, on what all rounds so far kept, as the papers do."""


def method(config: Config) -> Rounds:
    """Return rejection sampling fine-tuning as `config` describes it."""
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=Pipeline(
            filter_stage(
                "accepted",
                f"did not solve the task, repeats another, or is not among the {config.keep} shortest of it",
                lambda groups: [
                    replace(group, trajectories=shortest_successes(group, config.keep)) for group in groups
                ],
            )
        ),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
        memory=None if config.starts_over else 1,
    )

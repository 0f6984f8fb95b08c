"""Imitate, of each proposed task, the shortest fifth of the episodes that an evaluator accepts: PAE (arXiv 2412.13194).

A proposer names tasks, some of which nobody can solve; the policy tries each several times; an evaluator that errs
says 0 or 1. Of a task with more than one accepted episode those remain whose turns are at or below the 20th percentile
of its accepted ones; a single one always remains. Data of the newest rounds is trained on again.

Differences to the paper: tasks are those that the environment draws, not proposed by a language model, and the
evaluator is the environment's outcome, above 0; give it a judge's, or one that errs, in its place. What is seen
before an action is the agent's to say (one observation there), and gradients are clipped, as everywhere here.
Measured on a table over an open sokoban, with tasks that cannot be solved and an evaluator that errs.
"""

from dataclasses import dataclass

from quintain.config.ranges import PositiveInt, Share
from quintain.data.pipeline import Pipeline, Stage
from quintain.data.stages import shortest, threshold
from quintain.losses.imitation import imitation
from quintain.methods.method import Rounds, Update, grouped
from quintain.training.job import OnPolicyJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyJob):
    """Configuration of PAE."""

    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    shortest: Share = 0.2
    """Accepted episodes of a task are imitated up to this quantile of their turns; 1 imitates all."""
    memory: PositiveInt = 4
    """Steps whose data is trained on, the newest ones."""


def method(config: Config) -> Rounds:
    """Return PAE as `config` describes it."""
    return Rounds(
        collect=grouped(config.tasks, config.group_size),
        build=Pipeline(accepted(), shortest(config.shortest)),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        memory=config.memory,
    )


def accepted() -> Stage:
    """Return the stage that keeps what the evaluator pays for."""
    return threshold(0.0, name="accepted")

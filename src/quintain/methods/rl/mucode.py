"""muCode (arXiv 2502.20380): imitates, in every visited state, the best answer of any episode.

Where one turn can solve a task from any state, a single-step reward is enough. A verifier learns to tell right
answers from wrong ones; the best answer of a task (right first, then the verifier) stands in for the last answer
of episodes that failed; episodes that succeeded are imitated as they are. Which turns answer says the environment,
by the reward term ``answer``.

Differences to the paper: the running policy is trained a little at every step, not the base model anew at each of
two iterations; the verifier is linear in hashed tokens; a task that nothing solved teaches nothing (the code
imitates the verifier's favourite). To the code: a right answer comes first by the label, which is said here, not
hidden in a bonus of 100. At test time one answer a turn is sampled: neither public tests nor the verifier choose
among several. Measured on sums of single digits that may be mended, and on synthetic questions, where the paper
writes programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeInt
from quintain.credit.outcome import outcome_return
from quintain.credit.verifier import Verifier
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.methods.rl.parts.relabelling import is_right_answer, relabel_groups
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of muCode."""

    relabel: NonNegativeInt = 3
    """Failed episodes of a task whose last answer is replaced; 0 imitates the successes alone."""
    has_verifier: bool = True
    """Let the verifier choose among right answers; else the shortest of them is taken."""


def method(config: Config) -> OnPolicy:
    """Return muCode as `config` describes it."""
    verifier = Verifier(is_right_answer)

    def choose(groups: Sequence[Group]) -> Sequence[Group]:
        return relabel_groups(groups, verifier.score if config.has_verifier else None, count=config.relabel)

    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        keep=choose,
        credit=lambda groups, _: outcome_return(groups),
        update=Update(loss=imitation(), keeps_zeros=True, is_on_policy=False),
        needs=Needs(answers=True),
        state=CombinedState(verifier),
    )

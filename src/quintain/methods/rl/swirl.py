"""SWiRL (arXiv 2504.04736): single steps on recorded contexts, each judged by itself.

J = E_{s in data, a ~ π(· | s)} [R(a | s)].

Episodes of a teacher, who may err (`expert_noise`), are cut into their steps; a step is the context up to it and one
action sampled by the policy, which is judged by itself. Nothing is carried out while learning. Steps are kept by the
process (was the teacher's step sound?), not by the outcome, so that episodes that failed teach, too.

Differences to the paper: the judge is agreement with what the environment's expert would do in that state, field by
field where tools are called, and no language model; steps are kept one by one, not by whole episodes; the baseline
is the mean of several actions on the same context, and what is left is divided by their deviation; the teacher is
the expert, with mistakes strewn in. Measured on synthetic questions of one
hop, where the paper has HotPotQA and GSM8K.
"""

from dataclasses import dataclass
from functools import partial

from quintain.config.ranges import PositiveInt
from quintain.credit.group import group_relative
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs
from quintain.methods.rl.parts.contexts import Contexts, Keep, agreement
from quintain.rewards.terms import Term, apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of SWiRL."""

    tasks: PositiveInt = 16
    """Contexts of a step."""
    group_size: int = 4
    """Actions sampled on each context."""
    keep: Keep = "process"
    """Which steps of the teacher are learned from: the sound ones (process), those of successful episodes (outcome),
    both at once, or all."""


def method(config: Config) -> OnPolicy:
    """Return SWiRL as `config` describes it."""
    contexts = Contexts(config.keep)

    return OnPolicy(
        prepare=contexts.prepare,
        collect=partial(contexts.collect, tasks=config.tasks, size=config.group_size),
        reward=partial(apply_all, terms=(Term(name="step", measure=contexts.measure(agreement)),)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=reinforce(), aggregation="sequence_mean"),
        needs=Needs(environment=False, branches=True, expert=True),
    )

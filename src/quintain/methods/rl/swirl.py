"""J = E_{s in data, a ~ π(· | s)} [R(a | s)]: single steps on recorded contexts, judged one by one: SWiRL (arXiv
2504.04736).

Episodes of a teacher, who may err (`mistakes`), are cut into their steps; a step is the context up to it and one
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

from quintain.credit.group import group_relative
from quintain.losses.policy import reinforce
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.contexts import Contexts, Keep, agreement
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.terms import Term, apply_all
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of SWiRL."""

    tasks: int = 16
    """Contexts of a step."""
    group_size: int = 4
    """Actions sampled on each context."""
    keep: Keep = "process"
    """Which steps of the teacher are learned from: the sound ones (process), those of successful episodes (outcome),
    both at once, or all."""


def method(config: Config) -> Method:
    """Return SWiRL as `config` describes it."""
    contexts = Contexts(config.keep)

    return Method(
        prepare=contexts.prepare,
        collect=partial(contexts.collect, tasks=config.tasks, size=config.group_size),
        reward=partial(apply_all, terms=(Term(name="step", measure=contexts.measure(agreement)),)),
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(reinforce(), Plan(aggregation="sequence_mean")),
        needs=Needs(expert=True),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

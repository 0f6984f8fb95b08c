"""The on-policy loop: collect → reward → keep → credit → update, with the policy as it is at every step.

What is a method's own is in its file, as the fields of `OnPolicy`. Nothing here asks which method it is.
"""

from collections.abc import Sequence

from quintain.data.filters import whole
from quintain.data.pairs import all_ids
from quintain.data.samples import imitation_samples
from quintain.data.seats import split_seats
from quintain.errors import DataError
from quintain.eval.reward_model import refuse_constant
from quintain.learning.job import Job, OnPolicyJob
from quintain.learning.policies import Policies, scored
from quintain.learning.signals import SignalRecorder
from quintain.learning.updating import Corpus, learn, learn_all
from quintain.methods.loops.comparing import ComparedReward
from quintain.methods.loops.recall import remember, tell
from quintain.methods.loops.rehearsal import Rehearsed
from quintain.methods.loops.requirements import (
    begun,
    refuse_credit_without_critic,
    refuse_without_turn_rewards,
)
from quintain.methods.loops.statistics import measure_rewards, measure_task_kinds
from quintain.methods.method import Branches, Collector, Estimates, Folds, Needs, OnPolicy
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Credit, Group


def train_on_policy(method: OnPolicy, job: Job, run: Run) -> None:
    """Train by `method` until ``job.steps``, continuing where `run` was left."""
    needs = method.needs
    with begun(needs, job, run, cold_start=method.cold_start) as context:
        refuse_without_turn_rewards(context, needs, method.reward)
        method.prepare(context.collector)
        refuse_credit_without_critic(method)
        rehearsed = Rehearsed(method.rehearsal, context) if method.rehearsal is not None else None
        corpus = corpus_of(method, context.collector)
        compared = ComparedReward(method.compared, context) if method.compared is not None else None
        state = method.state if rehearsed is compared is None else Folds(method.state, rehearsed, compared)
        remember(run, state)
        for step in context.steps():
            groups = method.collect(context.collector, step)
            state.update(groups)
            played = split_seats(groups)
            paid, labelled = (played, {}) if compared is None else compared.pay(step, played)
            rewarded = method.reward(paid)
            is_strict = isinstance(job, OnPolicyJob) and job.whole_groups
            kept = method.keep(whole(rewarded) if is_strict else rewarded)
            branches = method.branch(context.collector, step, kept)
            credit = method.credit(kept, estimate(context.policies, kept, needs, branches))
            signals = SignalRecorder() if job.records_signals else None
            report = learn_all(
                context.policies,
                credit,
                method.update,
                job,
                step=step,
                seed=context.seed("update", step),
                signals=signals,
                corpus=corpus,
            )
            critic = learn_critic(method, context, credit, step)
            rehearsal = rehearsed.learn(step) if rehearsed is not None else {}
            row = context.measure(
                groups,
                report,
                {
                    **credit.metrics,
                    **critic,
                    **rehearsal,
                    **labelled,
                    **measure_rewards(played, rewarded, most=context.rollout.limits.max_failure_share),
                    **measure_task_kinds(kept, credit),
                    **method.measure(groups, context.collector.decode),
                },
            )
            row |= context.serve_weights()
            row |= context.clock()
            row |= context.evaluate(step) if context.is_due(step) else {}
            row |= context.judge(step, row)
            uses = signals.uses(credit, context.collector.recorded) if signals else None
            context.record(step, row, rehearsed.uses(uses) if rehearsed is not None else uses)
            tell(state, step, row)
            if context.is_due(step):
                context.save(step)
            context.show(step, row)


def estimate(policies: Policies, groups: Sequence[Group], needs: Needs, branches: Branches) -> Estimates:
    """Return what the policies say of the scored episodes of `groups`, as far as the method reads it.

    Raises:
        ModelError: the reward model gives different episodes one and the same score.
    """
    trajectories = scored(groups)
    scores = None
    if needs.reward_model is not None:
        scores = policies["reward_model"].episode_scores(trajectories)
        if len(set(map(all_ids, trajectories))) == len(trajectories):
            refuse_constant(scores, of="reward model of this run")
    return Estimates(
        values=policies[needs.critic_policy].token_values(trajectories) if needs.critic else None,
        reference=policies["reference"].token_logprobs(trajectories) if needs.reference_logprobs else None,
        scores=scores,
        branches=branches,
    )


def corpus_of(method: OnPolicy, collector: Collector) -> Corpus | None:
    """Return what every update of `method` imitates besides, where there is something.

    Raises:
        DataError: there is to be, and there is nothing.
    """
    if method.mixing is None or not method.mixing.weight:
        return None
    base = method.mixing.base(collector)
    if not base:
        raise DataError(
            "corpus that updates are mixed with: got nothing; name a file or run, or give the environment an expert"
        )
    return Corpus(imitation_samples(base), method.mixing.batch_size, method.mixing.weight)


def learn_critic(method: OnPolicy, context: TrainingContext, credit: Credit, step: int) -> dict[str, float]:
    """Let the critic that is a policy of its own learn from the returns of a step; return what that did."""
    if method.critic is None:
        return {}
    name = method.needs.critic_policy
    report = learn(
        context.policies, credit, method.critic, context.job,
        step=step, seed=context.seed("critic", step), policy=name,
    )  # fmt: skip
    if report is None:
        return {}
    return {f"{name}/{key}": number for key, number in {**report.metrics, "loss": report.loss}.items()}

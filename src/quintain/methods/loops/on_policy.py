"""The on-policy loop: collect → reward → keep → credit → update, with the policy as it is at every step.

What is a method's own is in its file, as the fields of `OnPolicy`. Nothing here asks which method it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from quintain.credit.layout import Critic
from quintain.credit.whiten import KEYS, NormaliseBy, whiten
from quintain.data.filters import whole
from quintain.data.pairs import all_ids
from quintain.data.seats import split_seats
from quintain.errors import ConfigError, UsageError
from quintain.eval.reward_model import refuse_constant
from quintain.learning.train_config import (
    ColdStart,
    OnPolicyConfig,
    RoundsConfig,
    TrainConfig,
    require_config,
)
from quintain.learning.update import Corpus, Update, learn_all
from quintain.methods.method import (
    Collect,
    CombinedState,
    Measure,
    Needs,
    State,
    Traits,
    TransformGroups,
    no_metrics,
    same_groups,
    unread_counts,
)
from quintain.types import NOTHING, Credit, Group, Use, flatten_scored

if TYPE_CHECKING:
    from quintain.credit.layout import TokenArrays
    from quintain.learning.policies import Policies
    from quintain.methods.method import Collector
    from quintain.runs.context import TrainingContext
    from quintain.store.run import Run

Branches = Mapping[tuple[int, int], Group]
"""(number of the scored trajectory, number of its turn) → episodes that were continued from before that turn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What is known of the kept episodes of a step when credit is assigned, in the order of `scored` trajectories."""

    values: Critic | None = None
    """of the critic, before it is trained on them; None without ``Needs(critic=True)``"""
    reference: TokenArrays | None = None
    """log-probs of the sampled tokens under the reference; None without ``Needs(reference_logprobs=True)``"""
    scores: Sequence[float] | None = None
    """of the reward model; None without ``Needs(reward_model=…)``"""
    branches: Branches = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """what `OnPolicy.branch` returned"""

    @property
    def critic(self) -> Critic:
        """The values of the critic; an error names the field that asks for one."""
        if self.values is None:
            raise UsageError("values of a critic: got none; say needs=Needs(critic=True) in the method")
        return self.values

    @property
    def judged(self) -> Sequence[float]:
        """The scores of the reward model; an error names the field that asks for one."""
        if self.scores is None:
            raise UsageError(
                "scores of a reward model: got none; say needs=Needs(reward_model=…) in the method"
            )
        return self.scores


Branch = Callable[["Collector", int, Sequence[Group]], Branches]
"""(collector, step, kept groups) → episodes that continue theirs"""


Assign = Callable[[Sequence[Group], Estimates], Credit]
"""(kept groups, estimates) → how much each sampled token mattered"""


def no_preparation(_: Collector) -> None:
    """Do nothing before the first step."""


def no_branches(_: Collector, __: int, ___: Sequence[Group]) -> Branches:
    """Continue no episode."""
    return {}


class Companion:
    """What one method does beside the loop's own stages in every step of a run; this one does nothing.

    It may have `update` and `observe`, too: what it remembers is a `State`.
    """

    corpus: Corpus | None = None
    """what is imitated in every update, in the same gradient"""

    def pay(self, step: int, groups: Sequence[Group]) -> tuple[Sequence[Group], Mapping[str, float]]:
        """Return the groups of `step` paid otherwise than by the environment, where that is so, and metrics."""
        return groups, {}

    def learn(self, step: int, credit: Credit) -> Mapping[str, float]:
        """Learn besides, after the update of `step` by `credit`; return metrics."""
        return {}

    def uses(self, uses: Sequence[Use] | None) -> Sequence[Use] | None:
        """Return the `uses` of episodes in a step with those of its own."""
        return uses


class CompanionPlan(Protocol):
    """What makes a `Companion` when a run begins, also one that is resumed."""

    @property
    def own_rates(self) -> Collection[str]:
        """Policies whose learning rate does not depend on the model's."""
        ...

    @property
    def has_teacher(self) -> bool:
        """Whether the policy learns from somebody else's episodes, too."""
        ...

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> Companion:
        """Return the companion of a run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicy:
    """Sample with the policy as it is, learn from it, again: ``OnPolicy(collect=…, credit=…, update=Update(…))``."""

    collect: Collect
    credit: Assign
    update: Update
    reward: TransformGroups = same_groups
    keep: TransformGroups = same_groups
    branch: Branch = no_branches
    needs: Needs = Needs()
    cold_start: ColdStart | None = None
    """what is imitated before the first step; None: the configuration's demonstrations as they come"""
    prepare: Callable[[Collector], None] = no_preparation
    """is called once before the first step, also by a resumed run"""
    companion: CompanionPlan | None = None
    """what the method does beside the loop's own stages in every step"""
    state: State = field(default_factory=CombinedState)
    measure: Measure = no_metrics

    @property
    def traits(self) -> Traits:
        """What it is, beside what it needs."""
        return Traits(
            is_on_policy=True,
            unread=unread_counts([self.update]),
            own_rates=() if self.companion is None else self.companion.own_rates,
            has_own_start=self.cold_start is not None,
        )

    def train(self, run: Run, config: TrainConfig) -> None:
        """Train until ``config.steps``, continuing where `run` was left."""
        rounds = config if isinstance(config, RoundsConfig) else None
        train_on_policy(self, rounds or require_config(config, OnPolicyConfig, "OnPolicyConfig"), run)


def train_on_policy(method: OnPolicy, config: OnPolicyConfig | RoundsConfig, run: Run) -> None:
    """Train by `method` until ``config.steps``, continuing where `run` was left.

    A method that is one of rounds by another of its options has no `whole_groups` and no `train_branches`.
    """
    from quintain.learning.signals import SignalRecorder
    from quintain.methods.loops.recall import remember, tell
    from quintain.methods.loops.requirements import begin_run, refuse_without_turn_rewards
    from quintain.methods.loops.statistics import measure_rewards, measure_task_kinds

    needs = method.needs
    own = config if isinstance(config, OnPolicyConfig) else OnPolicyConfig()
    method = normalise_credit(method, own.normalise_by)
    is_prepared = method.prepare is not no_preparation
    if not is_prepared:
        refuse_credit(method)  # before anything is imitated
    with begin_run(needs, config, run, cold_start=method.cold_start) as context:
        refuse_without_turn_rewards(context, needs, method.reward)
        method.prepare(context.collector)
        if is_prepared:
            refuse_credit(method)
        plan = method.companion
        companion = Companion() if plan is None else plan.start(context, own)
        state = CombinedState(method.state, companion) if hasattr(companion, "update") else method.state
        remember(run, state)
        for step in context.steps():
            groups = method.collect(context.collector, step)
            state.update(groups)
            played = split_seats(groups)
            paid, labelled = companion.pay(step, played)
            rewarded = method.reward(paid)
            kept = method.keep(whole(rewarded) if own.whole_groups else rewarded)
            branches = method.branch(context.collector, step, kept)
            credit = method.credit(kept, estimate(context.policies, kept, needs, branches))
            signals = SignalRecorder() if config.records_signals else None
            report = learn_all(
                context.policies,
                credit,
                method.update,
                config,
                step=step,
                seed=context.collector.seed("update", step),
                train_branches=own.train_branches,
                has_versions=config.max_staleness > 0,
                signals=signals,
                corpus=companion.corpus,
            )
            learned = companion.learn(step, credit)
            row = context.measure(
                groups,
                report,
                {
                    **credit.metrics,
                    **learned,
                    **labelled,
                    **measure_rewards(played, rewarded, most=context.rollout.limits.max_failure_share),
                    **measure_task_kinds(kept, credit),
                    **method.measure(groups, context.collector.decode),
                },
            )
            uses = signals.uses(credit, context.collector.recorded) if signals else None
            context.finish_step(step, row, companion.uses(uses))
            tell(state, step, row)


def estimate(policies: Policies, groups: Sequence[Group], needs: Needs, branches: Branches) -> Estimates:
    """Return what the policies say of the scored episodes of `groups`, as far as the method reads it.

    Raises:
        ModelError: the reward model gives different episodes one and the same score.
    """
    trajectories = flatten_scored(groups)
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


def refuse_credit(method: OnPolicy) -> None:
    """Raise a `UsageError` when the credit of `method` is none, or reads a critic that it did not say it needs.

    Credit is assigned to no episodes at all, which costs nothing and which any credit must bear: a step whose
    episodes all failed is the same.
    """
    needs = method.needs
    estimates = Estimates(
        values=Critic(values=[], final=[]) if needs.critic else None,
        reference=[] if needs.reference_logprobs else None,
        scores=[] if needs.reward_model is not None else None,
    )
    assigned = cast(object, method.credit((), estimates))
    if not isinstance(assigned, Credit):
        raise UsageError(
            f"credit of the method: got {type(assigned).__name__} for no episodes; return a Credit, which credit_of of "
            "quintain.credit.layout makes (docs/own-method.md)"
        )


def normalise_credit(method: OnPolicy, by: NormaliseBy) -> OnPolicy:
    """Return `method` whose advantages are whitened over the tokens of each environment, or seat, apart.

    In a mixed batch the environment whose rewards are largest would otherwise have most of the gradient.

    Raises:
        ConfigError: its credit weighs what is imitated; less their mean, weights would push away from it.
    """
    if by == "none":
        return method
    if not method.update.is_on_policy:
        raise ConfigError(
            f"normalise_by: got {by} with credit that selects what is imitated, whose weights are positive; leave it "
            "out"
        )
    return replace(
        method, credit=lambda groups, estimates: whiten(method.credit(groups, estimates), by=KEYS[by])
    )


def hold(method: OnPolicy, *, kl_coef: float, entropy_coef: float) -> OnPolicy:
    """Return `method` with the KL (k3) to its start and the entropy in the loss; with both 0 it stays as it is.

    Both also learn from groups without a difference, which the method leaves out otherwise.
    """
    if not kl_coef and not entropy_coef:
        return method
    from quintain.losses.compose import combine
    from quintain.losses.entropy import entropy_bonus
    from quintain.losses.kl import kl_penalty

    terms = [(kl_penalty("k3"), kl_coef)] if kl_coef else []
    terms += [(entropy_bonus(), entropy_coef)] if entropy_coef else []
    update = replace(
        method.update,
        loss=combine((method.update.loss, 1.0), *terms),
        keeps_zeros=True,
        has_reference=kl_coef > 0,
    )
    return replace(method, update=update, needs=replace(method.needs, reference=kl_coef > 0))

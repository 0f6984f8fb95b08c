"""A critic that is a policy of its own, and learns after the policy from the returns of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quintain.learning.update import Corpus, Update, learn
from quintain.methods.loops.on_policy import Companion
from quintain.methods.method import CRITIC

if TYPE_CHECKING:
    from quintain.learning.train_config import OnPolicyConfig
    from quintain.methods.method import Collector
    from quintain.runs.context import TrainingContext
    from quintain.types import Credit


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticPlan:
    """A critic that is a policy of its own, and what updates of the policy imitate: ``CriticPlan(update=…)``."""

    update: Update
    """how the critic learns from the returns of a step, after the policy"""
    imitates: Callable[[Collector], Corpus | None] | None = None
    """what the policy imitates besides, where it does"""

    @property
    def own_rates(self) -> tuple[str, ...]:
        """The critic learns at the rate of its model."""
        return ()

    @property
    def has_teacher(self) -> bool:
        """Conversations teach, where there are some."""
        return self.imitates is not None

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> CriticPhase:
        """Return what the critic of a run does."""
        found = CriticPhase(self.update, context, config)
        found.corpus = None if self.imitates is None else self.imitates(context.collector)
        return found


class CriticPhase(Companion):
    """What the critic of a run does: ``CriticPhase(update, context, config).learn(step, credit)``."""

    def __init__(self, update: Update, context: TrainingContext, config: OnPolicyConfig) -> None:
        self.plan, self.context, self.config = update, context, config

    def learn(self, step: int, credit: Credit) -> dict[str, float]:
        """Let it learn from the returns of `step`; return what that did."""
        report = learn(
            self.context.policies, credit, self.plan, self.config,
            step=step, seed=self.context.seed("critic", step), policy=CRITIC,
            train_branches=self.config.train_branches, has_versions=self.config.max_staleness > 0,
        )  # fmt: skip
        if report is None:
            return {}
        return {f"{CRITIC}/{key}": number for key, number in {**report.metrics, "loss": report.loss}.items()}

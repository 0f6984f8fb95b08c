"""Imitation by the whole policy between steps of RL: a base, and what the run itself did well so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quintain.data.pipeline import as_example, example_samples
from quintain.data.seats import split_seats
from quintain.errors import DataError
from quintain.learning.train_config import OnPolicyConfig
from quintain.learning.update import Update, epoch_batch, learn_from
from quintain.methods.loops.on_policy import Companion
from quintain.methods.loops.rounds import OptimizerSteps
from quintain.types import Credit, Example, Group, Trajectory, Use
from quintain.types.plain import mean_of

if TYPE_CHECKING:
    from quintain.data.pipeline import PipelineResult
    from quintain.methods.method import Collector
    from quintain.runs.context import TrainingContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationPhase:
    """Imitation by the whole policy between steps of RL (iRe-VLA): ``ImitationPhase(every=8, build=…, base=…)``.

    Half of every batch, or more, is of the base, so that what was known before is not forgotten.
    """

    every: int
    """steps from one to the next"""
    build: Callable[[Sequence[Group]], PipelineResult]
    """episodes of a step → what is imitated of them, in every rehearsal from then on"""
    base: Callable[[Collector], Sequence[Trajectory]]
    """episodes that every batch has; called once, also by a resumed run"""
    update: Update
    steps: OptimizerSteps
    """optimizer steps of a rehearsal, by its number from 1"""
    rate: float = 1.0
    """factor on the learning rate"""
    known: int = 0
    """tasks of the base that are played before and after each rehearsal, to see what was forgotten; 0: none"""

    @property
    def own_rates(self) -> tuple[str, ...]:
        """No policy of its own."""
        return ()

    @property
    def has_teacher(self) -> bool:
        """The base teaches."""
        return True

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> Rehearsed:
        """Return what a run has to rehearse."""
        return Rehearsed(self, context, records_signals=config.records_signals)


class Rehearsed(Companion):
    """What a run has to rehearse, a `State`: ``Rehearsed(plan, context).learn(step, credit)``.

    Raises:
        DataError: there is no base.
    """

    def __init__(
        self, plan: ImitationPhase, context: TrainingContext, *, records_signals: bool = True
    ) -> None:
        from quintain.learning.signals import Imitated
        from quintain.methods.imitation.forgetting import Retention

        self.plan, self.context = plan, context
        self.base = [as_example(trajectory) for trajectory in plan.base(context.collector)]
        if not self.base:
            raise DataError(
                "rehearsal: got no episode as its base; raise demonstrations, or give the environment an expert"
            )
        self.retention = (
            Retention([example.trajectory.task for example in self.base], plan.known, context)
            if plan.known
            else None
        )
        self.found: list[Example] = []
        self._imitated = Imitated(context.run, is_on=records_signals)

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step."""
        self.found += self.plan.build(split_seats(groups)).examples

    def learn(self, step: int, credit: Credit) -> dict[str, float]:
        """Rehearse after `step`, where it is due; return what came of it."""
        number, rest = divmod(step, self.plan.every)
        if rest:
            return {}
        before = {} if self.retention is None else self.retention.lost("rl")
        seed, losses = self.context.seed("rehearsal", step), list[float]()
        for update in range(self.plan.steps.count(number)):
            batch = rehearsal_batch(self.base, self.found, self.plan.steps.batch_size, update, seed)
            report = learn_from(
                self.context.policies,
                example_samples(batch),
                self.plan.update,
                rate_scale=self.plan.rate,
                observe=self._imitated.watch(batch),
            )
            losses.append(report.loss)
        told = (
            {"rehearsal/loss": mean_of(losses), "rehearsal/found": float(len(self.found))} if losses else {}
        )
        return {**told, **before, **({} if self.retention is None else self.retention.lost("known"))}

    def uses(self, uses: Sequence[Use] | None) -> Sequence[Use] | None:
        """Return the `uses` of a step with those of its rehearsal; an episode of both has those of the step."""
        own = self._imitated.uses()
        if uses is None or own is None:
            return None if uses is None else list(uses)
        return list({use.episode: use for use in (*own, *uses)}.values())


def rehearsal_batch(
    base: Sequence[Example], found: Sequence[Example], size: int, number: int, seed: int
) -> list[Example]:
    """Return batch `number` (from 0) of a rehearsal: at least half of it of the `base`, the rest of what was `found`.

    Both are gone through in epochs. With nothing found it is of the base alone.
    """
    num_base = size - size // 2 if found else size
    ours = epoch_batch(len(base), min(num_base, len(base)), number, (seed, "base"))
    if not found or size < 2:
        return [base[place] for place in ours]
    others = epoch_batch(len(found), min(size // 2, len(found)), number, (seed, "found"))
    return [*(base[place] for place in ours), *(found[place] for place in others[: len(ours)])]

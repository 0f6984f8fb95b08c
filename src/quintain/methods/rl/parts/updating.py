"""From credit to new weights: streams, micro-batches, optimizer steps.

Streams whose advantages are all zero have no policy gradient and are left out; a step of only such streams
takes no optimizer step. The one rule: the log-probs of the first of several updates must be those at sampling,
which the learner checks.
"""

from dataclasses import dataclass, replace

from quintain.data.pack import Aggregation
from quintain.data.samples import samples_from
from quintain.methods.loops.method import Update
from quintain.methods.rl.parts.informative import informative
from quintain.methods.rl.parts.rate import warming
from quintain.training.learner import StepReport
from quintain.training.work import Work
from quintain.types import Batch, Credit, Loss, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a step's tokens are averaged and how often they are trained on.

    Example: ``Plan(aggregation="constant", constant=256.0, updates=2)``.
    """

    aggregation: Aggregation = "token_mean"
    constant: float | None = None
    updates: int = 1
    """optimizer steps on the same episodes"""
    keeps_zeros: bool = False
    """also train on streams without an advantage: a critic, a KL or entropy term learns from them"""
    keeps_values: bool = False
    """let the batches carry the critic's values before the first update, which clipping them needs"""
    is_on_policy: bool = True
    """the tokens were sampled by the policy as it is; False for data that was edited or chosen from elsewhere"""
    most_kl: float | None = None
    """stop updating a step once the mean KL estimate of the policy from the sampler is above this"""


def policy_update(loss: Loss, plan: Plan | None = None, *, has_reference: bool = False) -> Update:
    """Return the update by `loss`; with `has_reference` its batches carry the reference's log-probs."""
    plan = plan or Plan()

    def update(work: Work, step: int, credit: Credit) -> StepReport | None:
        batches = batched(work, samples_from(credit), plan)
        if has_reference:
            batches = [work.learner.with_reference(batch) for batch in batches]
        if plan.keeps_values:
            batches = [with_values(work, batch) for batch in batches]
        report: StepReport | None = None
        for number in range(plan.updates if batches else 0):
            report = work.learner.step(
                batches, loss, rate_scale=warming(step), is_on_policy=plan.is_on_policy and number == 0
            )
            if plan.most_kl is not None and report.metrics.get("policy/approx_kl", 0.0) > plan.most_kl:
                break
        return report

    return update


def critic_first(update: Update, loss: Loss, *, steps: int, updates: int = 8) -> Update:
    """Return `update`, but for the first `steps` steps `updates` steps of the value head alone by `loss`.

    The policy's weights rest meanwhile (value pre-training: VC-PPO, arXiv 2503.01491).
    """

    def guarded(work: Work, step: int, credit: Credit) -> StepReport | None:
        if step > steps:
            return update(work, step, credit)
        batches = batched(work, samples_from(credit), Plan(keeps_zeros=True))
        trained = [p for p in work.learner.model.parameters() if p.requires_grad]
        report: StepReport | None = None
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            for _ in range(updates if batches else 0):
                report = work.learner.step(batches, loss)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
        return report

    return guarded


def with_values(work: Work, batch: Batch) -> Batch:
    """Return `batch` with what the critic says of it now."""
    return replace(batch, extra=replace(batch.extra, values=work.learner.infer(batch).values))


def batched(work: Work, samples: list[Sample], plan: Plan) -> list[Batch]:
    """Return the micro-batches of `samples` that `plan` asks for; none where nothing can be learned."""
    chosen = samples if plan.keeps_zeros else informative(samples)
    return work.batches(chosen, aggregation=plan.aggregation, constant=plan.constant) if chosen else []

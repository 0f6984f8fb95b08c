"""From credit to new weights: token streams, minibatches, epochs, optimizer steps.

Streams whose advantages are all zero have no policy gradient and are left out, unless a critic, a KL or an entropy
term learns from them; a step of only such streams takes no optimizer step. They leave the mean of a step as well,
unless `Update.denominator` counts what was sampled. The log-probs of the first of several updates must be those at
sampling, which the learner checks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import cos, pi
from typing import TYPE_CHECKING, Literal

import numpy as np

from quintain.curriculum.schedules import linear
from quintain.data.leaves import LeafRule, keep_leaves
from quintain.data.pack import Aggregation, PassSize, micro_batches
from quintain.data.samples import samples_from, unrelated_samples
from quintain.learning.train_config import MAIN
from quintain.losses.imitation import imitation
from quintain.types import Batch, Credit, Loss, LossReport, Outputs, Sample, derive_seed
from quintain.types.plain import mean_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from quintain.learning.learner import Learner, StepReport
    from quintain.learning.policies import Policies, Policy
    from quintain.learning.sections import Schedule, UpdateSection
    from quintain.learning.signals import SignalRecorder
    from quintain.types import Trajectory

    Probe = Callable[[Learner, Sequence[Batch], Loss, Sequence[Trajectory]], None]
    """(learner, micro-batches of all that is learned from, loss, the trajectories that they number or none) → nothing;
    it leaves no gradient"""

Denominator = Literal["kept", "sampled"]
PROBE: ContextVar[Probe | None] = ContextVar("probe", default=None)
"""What looks at all that the main policy learns from before it does, as where a recorded step is examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """How a policy learns from credit: ``Update(loss=clipped(), num_epochs=2, num_minibatches=4)``.

    A minibatch is a share of the step's episodes, drawn anew in every epoch, and takes one optimizer step; its tokens
    are averaged as `aggregation` says, over the minibatch.
    """

    loss: Loss
    aggregation: Aggregation = "token_mean"
    constant: float | None = None
    """tokens that the sum over an episode is divided by, with aggregation ``constant``"""
    denominator: Denominator = "kept"
    """what `aggregation` averages over: the streams with an advantage, or all that were sampled, so that groups whose
    episodes agree make the step shorter in place of leaving it"""
    num_epochs: int | None = None
    """times that the episodes of a step are gone through; None: as the configuration says, else once"""
    num_minibatches: int | None = None
    """optimizer steps of an epoch; None: as the configuration says, else one"""
    has_candidates: bool = False
    """let the candidates of a turn that was drawn from some be streams as well, for `losses.actions.by_action`"""
    keeps_zeros: bool = False
    """also train on streams without an advantage: a critic, a KL or entropy term learns from them"""
    has_reference: bool = False
    """let the batches carry log-probs of the policy ``reference``, for a KL in the loss"""
    is_own_reference: bool = False
    """the reference is the policy itself as the step's epochs begin, and no other is kept (Self-Rewarding LM)"""
    has_values: bool = False
    """let the batches carry the critic's values before the first update, which clipping them needs"""
    has_kl: bool = False
    """let the batches carry an estimate of the policy's KL from the policy ``reference``, which KTO subtracts"""
    is_on_policy: bool = True
    """the tokens were sampled by the policy as it is; False for data that was edited or chosen from elsewhere"""
    target_kl: float | None = None
    """stop updating a step once the mean KL estimate of the policy from the sampler is above this"""
    target_kl_unit: Literal["token", "episode"] = "token"
    """what `target_kl` is the KL of (nats); that of an episode is the mean of its tokens times their number"""
    head_layers: int | None = None
    """only the last so many layers, the norm behind them and a value head learn; 0: a value head alone; None: all"""
    lr_warmup: int = 10
    """steps over which the learning rate rises, of those in which the policy learns: the first ones of a fresh Adam are
    the least informed"""
    critic_steps: int = 0
    """first steps in which only the value head learns, by `critic_loss`, `critic_epochs` times (VC-PPO, 2503.01491)"""
    critic_epochs: int = 8
    critic_loss: Loss | None = None

    def trains(self, sample: Sample) -> bool:
        """Whether anything is learned from `sample`."""
        return self.keeps_zeros or bool(sample.advantages.any())

    def counts(self, sample: Sample) -> bool:
        """Whether `sample` counts in the mean of a step, be it trained on or not."""
        return self.denominator == "sampled" or self.trains(sample)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Streams with what is said of them before the first update, [tokens of the stream] each."""

    samples: Sequence[Sample]
    reference: Sequence[Tensor] | None
    values: Sequence[Tensor] | None

    def batches(
        self, chosen: Sequence[int], update: Update, size: PassSize, *, kl: float | None = None
    ) -> list[Batch]:
        """Return the micro-batches of what is `trained` of `chosen`, weighted over all of these, with `kl` on each.

        They have the `size` of the policy's passes, and of ranks each gets its part.
        """
        from torch import cat  # here, so that a method can be read without torch

        trained = self.trained(chosen, update)
        if not trained:
            return []
        left_out = set(chosen) - set(trained)
        batches = micro_batches(
            [self.samples[i] for i in trained],
            max_tokens=size.max_tokens,
            num_parts=size.num_parts,
            aggregation=update.aggregation,
            constant=update.constant,
            left_out=[self.samples[i] for i in sorted(left_out)],
        )
        extras = {"reference_logprobs": self.reference, "values": self.values}
        found: list[Batch] = []
        place = 0
        for batch in batches:
            own = trained[place : place + len(batch.lengths)]
            place += len(own)
            said = {name: cat([parts[i] for i in own]) for name, parts in extras.items() if parts is not None}
            found.append(replace(batch, extra=replace(batch.extra, kl=kl, **said)))
        return found

    def trained(self, chosen: Sequence[int], update: Update) -> list[int]:
        """Return the numbers among `chosen` whose streams `update` learns from; others count in its mean alone."""
        if update.denominator == "kept":
            return list(chosen)
        return [i for i in chosen if update.trains(self.samples[i])]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Conversations that updates imitate besides, in the same gradient: ``Corpus(samples, 16, weight=1.0)``."""

    samples: Sequence[Sample]
    batch_size: int
    """conversations beside each update"""
    weight: float
    """of the mean negative log-likelihood of their own trained tokens"""

    def draw(self, seed: int, max_tokens: int, num_parts: int = 1) -> list[Batch]:
        """Return the micro-batches that stand beside the update of `seed`."""
        num = len(self.samples)
        chosen = np.random.default_rng(seed).choice(num, min(self.batch_size, num), replace=False)
        return micro_batches(
            [self.samples[place] for place in sorted(chosen.tolist())],
            max_tokens=max_tokens,
            num_parts=num_parts,
        )

    def loss(self, outputs: Outputs, batch: Batch) -> LossReport:
        """Return `weight` times the negative log-likelihood, which is measured as ``mixing/nll`` (nats per token)."""
        report = imitation()(outputs, batch)
        return LossReport(
            loss=self.weight * report.loss, metrics={"mixing/nll": report.metrics["imitation/nll"]}
        )


def learn_all(
    policies: Policies,
    credit: Credit,
    update: Update,
    config: UpdateSection,
    *,
    step: int,
    seed: int,
    train_branches: LeafRule = "used",
    has_versions: bool = False,
    signals: SignalRecorder | None = None,
    corpus: Corpus | None = None,
) -> StepReport | None:
    """Update every trained policy that acts, each by the credit of the episodes that it sampled.

    The main one imitates the `corpus` besides. The report is that of the main policy; metrics of the others stand in it
    under their names.
    """
    reports = {
        name: learn(
            policies,
            part,
            update,
            config,
            step=step,
            seed=derive_seed(seed, name),
            train_branches=train_branches,
            has_versions=has_versions,
            policy=name,
            signals=signals,
            corpus=corpus if name == MAIN else None,
        )
        for name, part in by_policy(credit).items()
        if name in policies.trained
    }
    others = {
        f"{name}/{key}": value
        for name, report in reports.items()
        if report is not None and name != MAIN
        for key, value in {
            **report.metrics,
            "train/loss": report.loss,
            "train/grad_norm": report.grad_norm,
        }.items()
    }
    main = reports.get(MAIN)
    if main is None:
        found = [report for report in reports.values() if report is not None]
        return replace(found[0], metrics=others) if found else None
    return replace(main, metrics={**main.metrics, **others}) if others else main


def by_policy(credit: Credit) -> dict[str, Credit]:
    """Return the part of `credit` that belongs to each policy: the one that sampled the trajectory's first turn."""
    places: dict[str, list[int]] = {}
    for place, trajectory in enumerate(credit.trajectories):
        name = trajectory.turns[0].completion.policy if trajectory.turns else MAIN
        places.setdefault(name, []).append(place)
    if set(places) <= {MAIN}:
        return {MAIN: credit}
    return {name: credit.take(own) for name, own in places.items()}


def learn(
    policies: Policies,
    credit: Credit,
    update: Update,
    config: UpdateSection,
    *,
    step: int,
    seed: int,
    train_branches: LeafRule = "used",
    has_versions: bool = False,
    policy: str = MAIN,
    signals: SignalRecorder | None = None,
    rate: float = 1.0,
    num_learned: int | None = None,
    corpus: Corpus | None = None,
) -> StepReport | None:
    """Update `policy` by `credit`; return what was done, None where nothing can be learned.

    Each update imitates some of the `corpus` besides. `signals` takes in what the tokens are trained with.
    `train_branches` says which streams of an episode are trained; with `has_versions` each token says by which
    weights it was sampled. `rate` is a factor on the learning rate, and `num_learned` as in `learn_in_epochs`.
    """
    if step <= update.critic_steps:
        update = replace(update, keeps_zeros=True)
    samples = samples_from(credit, has_versions=has_versions, has_candidates=update.has_candidates)
    left_out: Mapping[tuple[int, int], str] = {}
    if train_branches != "all":
        samples, left_out = keep_leaves(samples, credit.trajectories, train_branches)
    samples = [sample for sample in samples if update.counts(sample)]
    observe = None if signals is None else partial(signals.observe, credit.trajectories)
    report = learn_in_epochs(
        policies, samples, update, config,
        step=step, seed=seed, policy=policy, observe=observe, rate=rate, num_learned=num_learned, corpus=corpus,
        trajectories=credit.trajectories,
    )  # fmt: skip
    if report is None or not left_out:
        return report
    return replace(report, metrics={**report.metrics, "data/streams_left_out": float(len(left_out))})


def learn_in_epochs(
    policies: Policies,
    samples: Sequence[Sample],
    update: Update,
    config: UpdateSection,
    *,
    step: int,
    seed: int,
    policy: str = MAIN,
    observe: Callable[[Sequence[Sample], Batch, Outputs], None] | None = None,
    rate: float = 1.0,
    num_learned: int | None = None,
    corpus: Corpus | None = None,
    trajectories: Sequence[Trajectory] = (),
) -> StepReport | None:
    """Update `policy` in epochs of minibatches of `samples`; return the mean over the steps of the last epoch.

    `rate` is a factor on the learning rate beside its schedule. That rises over the first steps in which the policy
    learns, of which there were `num_learned` before; None: all but those of its critic alone. `observe` gets the
    streams of each batch of the first epoch with what the learner says of them; `trajectories` are what streams number.
    """
    if not samples or (update.denominator == "sampled" and not any(map(update.trains, samples))):
        return None
    own = policies[policy]
    learner = own.learner
    assert learner is not None, "only policies with an optimizer are updated"
    by_head = {}
    if own.rests and update.head_layers == 0:
        samples, by_head["passes"] = own.head_passes(samples)
    prepared = prepare(policies, own, samples, update)
    if step <= update.critic_steps:
        return learn_values(own, prepared, update)
    if (probe := PROBE.get()) is not None and policy == MAIN and not by_head:
        every = range(len(samples))
        kl = estimate_kl(policies, own, prepared.samples, update)
        probe(learner, prepared.batches(every, update, own.pass_size, kl=kl), update.loss, trajectories)
    risen = step - update.critic_steps if num_learned is None else num_learned + 1
    num_epochs, num_minibatches = counts(update, config)
    reports: list[StepReport] = []
    compared: Mapping[str, float] = {}
    """what the first update of all says of engine and learner"""
    still = resting_parameters(learner, update)
    for epoch in range(num_epochs):
        reports = []
        for number, chosen in enumerate(
            minibatches(prepared.samples, num_minibatches, derive_seed(seed, epoch))
        ):
            part = [prepared.samples[i] for i in prepared.trained(chosen, update)]
            if not part:
                continue
            streams = iter(part)

            def watch(batch: Batch, outputs: Outputs, streams: Iterator[Sample] = streams) -> None:
                assert observe is not None
                observe(list(islice(streams, len(batch.lengths))), batch, outputs)

            kl = estimate_kl(policies, own, part, update)
            with resting(still):
                report = learner.step(
                    prepared.batches(chosen, update, own.pass_size, kl=kl),
                    update.loss,
                    observe=watch if observe is not None and epoch == 0 else None,
                    rate_scale=rate
                    * scale_at(
                        step,
                        config.steps,
                        schedule=config.lr_schedule,
                        by_method=linear(risen, first=(0, 0.0), last=(max(update.lr_warmup, 1), 1.0)),
                        warmup=config.lr_warmup,
                    ),
                    is_on_policy=update.is_on_policy and epoch == number == 0,
                    beside=None
                    if corpus is None
                    else (
                        corpus.draw(
                            derive_seed(seed, "corpus", epoch, number), own.max_tokens, own.num_parts
                        ),
                        corpus.loss,
                    ),
                    **by_head,
                )
            policies.follow(policy)
            reports.append(report)
            compared = compared or {
                key: report.metrics[key] for key in report.metrics if key.startswith("gap/")
            }
            if (
                update.target_kl is not None
                and measure_move(report, prepared, chosen, update) > update.target_kl
            ):
                return with_metrics(mean_report(reports), compared)
    return with_metrics(mean_report(reports), compared)


def with_metrics(report: StepReport, metrics: Mapping[str, float]) -> StepReport:
    """Return `report` with more `metrics`."""
    return replace(report, metrics={**report.metrics, **metrics}) if metrics else report


def resting_parameters(learner: Learner, update: Update) -> list[nn.Parameter]:
    """Return what does not learn in `update`: all but its last layers, or with none of them all but the value head."""
    if update.head_layers is None:
        return []
    from quintain.models.families import trunk  # here, so that a method can be read without torch

    return (
        trunk(learner.model, update.head_layers) if update.head_layers else list(learner.model.parameters())
    )


def measure_move(report: StepReport, prepared: Prepared, chosen: Sequence[int], update: Update) -> float:
    """Return the KL estimate of `report` in the unit of ``update.target_kl``; its step trained on the `chosen` streams.

    That of an episode is the mean over tokens times the sampled tokens of the mean episode.
    """
    per_token = report.metrics.get("policy/approx_kl", 0.0)
    if update.target_kl_unit == "token":
        return per_token
    streams = [prepared.samples[i] for i in chosen]
    tokens = sum(int((stream.turn_id >= 0).sum()) for stream in streams)
    return per_token * tokens / len({stream.trajectory for stream in streams})


def learn_from(
    policies: Policies,
    samples: Sequence[Sample],
    update: Update,
    *,
    rate_scale: float,
    observe: Callable[[Sequence[Sample], Batch, Outputs], None] | None = None,
) -> StepReport:
    """Take one optimizer step of the main policy on `samples`; `observe` gets what the learner says of them."""
    own = policies.main
    assert own.learner is not None, "only policies with an optimizer are updated"
    prepared = prepare(policies, own, samples, update)
    kl = estimate_kl(policies, own, prepared.samples, update)
    batches = prepared.batches(range(len(samples)), update, own.pass_size, kl=kl)
    streams = iter(prepared.samples)
    if (probe := PROBE.get()) is not None:
        probe(own.learner, batches, update.loss, ())

    def watch(batch: Batch, outputs: Outputs) -> None:
        assert observe is not None
        observe(list(islice(streams, len(batch.lengths))), batch, outputs)

    report = own.learner.step(
        batches, update.loss, rate_scale=rate_scale, observe=None if observe is None else watch
    )
    policies.follow(MAIN)
    return report


def counts(update: Update, config: UpdateSection) -> tuple[int, int]:
    """Return epochs and minibatches of a step: those of `update`, else of the configuration, else one."""
    return update.num_epochs or config.passes, update.num_minibatches or config.parts


def learn_values(own: Policy, prepared: Prepared, update: Update) -> StepReport | None:
    """Train the value head alone, while the policy's weights rest (value pre-training: VC-PPO, arXiv 2503.01491)."""
    assert update.critic_loss is not None, "critic_steps come with a critic_loss"
    learner = own.learner
    assert learner is not None, "only policies with an optimizer are updated"
    batches = prepared.batches(range(len(prepared.samples)), update, own.pass_size)
    report: StepReport | None = None
    with resting(learner.model.parameters()):
        for _ in range(update.critic_epochs):
            report = learner.step(batches, update.critic_loss)
    return report


@contextmanager
def resting(parameters: Iterable[nn.Parameter]) -> Generator[None]:
    """Let `parameters` have no gradient meanwhile: neither they nor what the optimizer keeps of them change."""
    own = [p for p in parameters if p.requires_grad]
    try:
        for parameter in own:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in own:
            parameter.requires_grad_(True)


def prepare(policies: Policies, policy: Policy, samples: Sequence[Sample], update: Update) -> Prepared:
    """Return `samples`, both sides of a pair together, with what reference and critic say before the first update."""
    max_tokens = policy.max_tokens
    if any(sample.pair >= 0 for sample in samples):
        samples = sorted(samples, key=lambda sample: sample.pair)

    def logprobs_by(other: Policy, name: str) -> list[Tensor]:
        found: list[Tensor] = []
        for batch, outputs in other.infer_each(micro_batches(samples, max_tokens=max_tokens)):
            numbers: Tensor = getattr(outputs, name)
            found += numbers.cpu().split(batch.lengths)
        return found

    def reference() -> Policy:
        return policy if update.is_own_reference else policies["reference"]

    return Prepared(
        samples,
        logprobs_by(reference(), "logprobs") if update.has_reference else None,
        logprobs_by(policy, "values") if update.has_values else None,
    )


def estimate_kl(
    policies: Policies, policy: Policy, samples: Sequence[Sample], update: Update
) -> float | None:
    """Return the mean over episodes of log π/π_ref after prompts of others (`unrelated_samples`), or None.

    It may be below 0, as an estimate can be. Two forward passes of all `samples`, one by each policy.
    """
    if not update.has_kl:
        return None
    streams = [replace(sample, pair=-1) for sample in unrelated_samples(samples)]
    total = 0.0
    for batch in micro_batches(streams, max_tokens=policy.max_tokens):
        said = [other.infer(batch).logprobs.cpu().double() for other in (policy, policies["reference"])]
        total += float((said[0] - said[1]).sum())
    return total / len({sample.trajectory for sample in streams})


def minibatches(samples: Sequence[Sample], count: int, seed: int) -> list[list[int]]:
    """Return the numbers of `samples` in `count` parts, drawn by `seed`; one part keeps them in order.

    All streams of a trajectory, and both sides of a pair, are in one part. There are no more parts than trajectories.
    """
    if count == 1:
        return [list(range(len(samples)))]
    units: dict[int, list[int]] = {}
    for number, sample in enumerate(samples):
        units.setdefault(sample.trajectory if sample.pair < 0 else sample.pair, []).append(number)
    order = np.random.default_rng(seed).permutation(len(units))
    parts = np.array_split(order, min(count, len(units)))
    members = list(units.values())
    return [[number for unit in part.tolist() for number in members[unit]] for part in parts]


def mean_report(reports: Sequence[StepReport]) -> StepReport:
    """Return the mean of `reports`, of one step each; tokens and seconds are sums."""
    if len(reports) == 1:
        return reports[0]
    names = dict.fromkeys(name for report in reports for name in report.metrics)
    metrics: Mapping[str, float] = {
        name: mean_of(report.metrics[name] for report in reports if name in report.metrics) for name in names
    }
    return replace(
        reports[0],
        loss=mean_of(report.loss for report in reports),
        grad_norm=mean_of(report.grad_norm for report in reports),
        num_tokens=sum(report.num_tokens for report in reports),
        seconds=sum(report.seconds for report in reports),
        is_skipped=any(report.is_skipped for report in reports),
        metrics=metrics,
        lr_scale=mean_of(report.lr_scale for report in reports),
    )


def num_batches(total: int, size: int) -> int:
    """Return how many batches of about `size` an epoch over `total` samples has, at least 1."""
    return max(1, round(total / size))


def epoch_batch(total: int, size: int, number: int, seed: tuple[int | str, ...]) -> list[int]:
    """Return the places of the samples of batch `number` (from 0): every epoch in an order of its own."""
    epoch, part = divmod(number, num_batches(total, size))
    order = np.random.default_rng(derive_seed(*seed, epoch)).permutation(total)
    return order[part :: num_batches(total, size)].tolist()


def scale_at(step: int, last: int, *, schedule: Schedule, by_method: float, warmup: int = 0) -> float:
    """Return the factor on the learning rate at `step`, from 1 to `last`.

    constant stays at 1, linear falls to 0 after the last step, cosine the same way along half a wave; the first
    `warmup` steps rise to it. method leaves everything to the method, which says `by_method`.
    """
    if schedule == "method":
        return by_method
    rise = min(1.0, step / warmup) if warmup else 1.0
    gone = min(max((step - 1 - warmup) / max(last - warmup, 1), 0.0), 1.0)
    return rise * {"constant": 1.0, "linear": 1 - gone, "cosine": (1 + cos(pi * gone)) / 2}[schedule]

"""The offline loop: a data set of episodes or preference pairs that is there before the first step → updates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from quintain.data.comparisons import Comparisons, comparison_samples
from quintain.data.pairs import Pairs
from quintain.data.pipeline import PipelineResult, as_example, example_samples, num_trained
from quintain.data.samples import pair_samples
from quintain.errors import DataError
from quintain.learning.train_config import SignalsConfig, TrainConfig, list_unread_options, require_config
from quintain.learning.update import Update, epoch_batch, estimate_kl, learn_from, prepare, scale_at
from quintain.methods.method import Needs, Traits, learns_by
from quintain.types import NOTHING, Comparison, Example, Pair, Sample, Trajectory

if TYPE_CHECKING:
    from quintain.learning.policies import Policies
    from quintain.methods.method import Collector
    from quintain.store.run import Run

Data = Sequence[Example] | Sequence[Pair] | Sequence[Comparison]
"""what an offline data set holds"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Learn from a data set that is there before the first step: ``Offline(data=…, update=Update(…))``."""

    data: Callable[[Collector], PipelineResult | Sequence[Trajectory] | Sequence[Pair] | Sequence[Comparison]]
    """the data set: what a pipeline made, whole episodes, preferences or comparisons; called once, also by a resumed
    run"""
    update: Update
    """its epochs and minibatches are not read: a step is one batch of `batch_size`, in an order of each epoch's own"""
    batch_size: int = 32
    """trajectories, or pairs, of a step"""
    odds: Callable[[Sequence[Example]], Sequence[float]] | None = None
    """how likely each example is to be the next sample of a step, which is then drawn anew and may repeat; None: all of
    them in turn"""
    draws_anew: bool = False
    """draw every step's batch from all the data, instead of going through it in epochs"""
    lr_schedule: Callable[[int], float] = lambda _: 1.0
    """factor on the learning rate at a step, from 1"""
    needs: Needs = Needs()
    metrics: Callable[[Data], Mapping[str, float]] = lambda _: NOTHING
    has_warm_start: bool = True
    """whether the demonstrations are imitated before training, where the configuration says so"""
    is_first: bool = False
    """whether it begins with the model as it is in comparisons, too, where others begin with a policy that imitated"""
    held_out: float = 0.0
    """share of the data that is not learned from; its loss is measured at every evaluation"""
    examine: Callable[[Policies, Data], Mapping[str, float]] = lambda _, __: NOTHING
    """(policies, what is held out) → what every evaluation measures of them besides"""

    @property
    def traits(self) -> Traits:
        """What it is, beside what it needs."""
        return Traits(
            acts=False,
            learns=learns_by(self.update.loss),
            has_warm_start=self.has_warm_start,
            unread=list_unread_options(SignalsConfig),
            has_own_start=self.is_first,
        )

    def train(self, run: Run, config: TrainConfig) -> None:
        """Train until ``config.steps``, continuing where `run` was left."""
        train_offline(self, require_config(config, SignalsConfig, "Config"), run)


def train_offline(method: Offline, config: SignalsConfig, run: Run) -> None:
    """Train by `method` until ``config.steps``, continuing where `run` was left."""
    from quintain.learning.signals import Imitated
    from quintain.methods.loops.requirements import begin_run
    from quintain.models.families import longest_stream

    with begin_run(
        method.needs,
        config,
        run,
        has_warm_start=method.has_warm_start,
        plays=method.traits.learns != "critic",  # who is trained to score and not to act plays nothing
    ) as context:
        made = method.data(context.collector)
        funnel = made.funnel.metrics if isinstance(made, PipelineResult) else {}
        funnel = made.metrics if isinstance(made, Pairs | Comparisons) else funnel
        data, held_out = split(examples_of(made), method.held_out)
        longest = longest_stream(context.model)
        samples = make_samples(data, longest)
        odds = odds_of(method, data)
        of_data = {**funnel, **method.metrics(data)}
        if held_out:
            beside = [sample for streams in make_samples(held_out, longest) for sample in streams]
            context.measure_besides(lambda: measure_held_out(context.policies, beside, method.update))
        context.measure_besides(lambda: method.examine(context.policies, held_out))
        imitated = Imitated(run, is_on=config.records_signals)
        for step in context.steps():
            chosen = choose(
                method, len(samples), step, context.seed("pairs", step), context.seed("order"), odds
            )
            report = learn_from(
                context.policies,
                [s for i in chosen for s in samples[i]],
                method.update,
                observe=imitated.watch(data),
                rate_scale=scale_at(
                    step,
                    config.steps,
                    schedule=config.lr_schedule,
                    by_method=method.lr_schedule(step),
                    warmup=config.lr_warmup,
                ),
            )
            row = context.measure((), report, of_data)
            context.finish_step(step, row, imitated.uses())


def examples_of(made: PipelineResult | Sequence[Trajectory] | Sequence[Pair] | Sequence[Comparison]) -> Data:
    """Return what a method's data set holds: pairs and comparisons as they are, whole episodes as examples of them."""
    if isinstance(made, PipelineResult):
        return made.examples
    pairs = [each for each in made if isinstance(each, Pair)]
    comparisons = [each for each in made if isinstance(each, Comparison)]
    return pairs or comparisons or [as_example(each) for each in made if isinstance(each, Trajectory)]


def split(data: Data, share: float) -> tuple[Data, Data]:
    """Return what of `data` is learned from, and the `share` of it that is held out, at least one conversation.

    Which ones is a matter of what they say: the same conversation, or the same prompt of preferences, is on one side
    however often and wherever it stands.

    Raises:
        DataError: there are not two different ones.
    """
    if not share:
        return data, ()
    keys = [beginning(each) for each in data]
    order = sorted(set(keys))
    if len(order) < 2:
        raise DataError(
            f"holding out {share:.0%} of the data: got {len(data)} conversations that are all the same; give more, or "
            "set held_out to 0"
        )
    apart = set(order[: min(max(1, round(share * len(order))), len(order) - 1)])
    return (
        cast("Sequence[Example]", [each for each, key in zip(data, keys, strict=True) if key not in apart]),
        cast("Sequence[Example]", [each for each, key in zip(data, keys, strict=True) if key in apart]),
    )


def beginning(each: Example | Pair | Comparison) -> str:
    """Return a digest of a conversation's tokens; of answers that are compared, up to the first trained one.

    Ranked episodes of an environment are told apart by their tasks as well, whose openings may all be the same.
    """
    task = b""
    if not isinstance(each, Example):
        ids = (each.chosen if isinstance(each, Pair) else each.answers[0]).turns[0].prompt_ids
    else:
        turns = each.trajectory.turns
        ids = tuple(i for turn in turns for i in (*turn.prompt_ids, *turn.completion.token_ids))
    if isinstance(each, Comparison) and not each.answers[0].task.data.get("file"):
        task = each.answers[0].task.id.encode()
    return hashlib.sha256(np.array(ids, np.int64).tobytes() + task).hexdigest()


def measure_held_out(policies: Policies, samples: Sequence[Sample], update: Update) -> dict[str, float]:
    """Return ``eval/loss`` of `samples` that are not learned from, and what the loss says beside it, as ``eval/…``."""
    policy = policies.main
    policy.activate()
    prepared = prepare(policies, policy, samples, update)
    kl = estimate_kl(policies, policy, prepared.samples, update)
    found: dict[str, float] = {}
    for batch in prepared.batches(range(len(prepared.samples)), update, policy.pass_size, kl=kl):
        report = update.loss(policy.infer(batch), batch)
        found["eval/loss"] = found.get("eval/loss", 0.0) + float(report.loss)
        for name, value in report.metrics.items():
            found[f"eval/{name}"] = found.get(f"eval/{name}", 0.0) + value
    return found


def make_samples(data: Data, max_length: int | None = None) -> list[list[Sample]]:
    """Return the token streams of each trajectory, or of all sides of each pair or comparison, numbered over `data`.

    Answers that are compared are scored after their end, where `max_length` leaves room.
    """
    pairs = [each for each in data if isinstance(each, Pair)]
    comparisons = [each for each in data if isinstance(each, Comparison)]
    if comparisons:
        samples = comparison_samples(comparisons, max_length=max_length)
    else:
        samples = pair_samples(pairs) if pairs else label_streams([e for e in data if isinstance(e, Example)])
    found: list[list[Sample]] = [[] for _ in data]
    for sample in samples:
        found[sample.trajectory if sample.pair < 0 else sample.pair].append(sample)
    return [streams for streams in found if streams]


def label_streams(examples: Sequence[Example]) -> list[Sample]:
    """Return the token streams of `examples`, those of solved tasks as what is to be preferred, for losses that ask."""
    return [
        replace(sample, is_chosen=examples[sample.trajectory].trajectory.is_success)
        for sample in example_samples(examples)
    ]


def odds_of(method: Offline, data: Data) -> NDArray[np.float64] | None:
    """Return how likely each of `data` is to be drawn, None where they come in turn.

    Raises:
        DataError: in one of them nothing was sampled, so it cannot be drawn.
    """
    if method.odds is None:
        return None
    examples = [each for each in data if isinstance(each, Example)]
    if empty := [example for example in examples if not num_trained(example)]:
        raise DataError(
            f"odds of {empty[0].sources[0]}: got an example in which no token counts; leave it out"
        )
    found = np.array(method.odds(examples), np.float64)
    return found / found.sum()


def choose(
    method: Offline,
    total: int,
    step: int,
    drawn_by: int,
    ordered_by: int,
    odds: NDArray[np.float64] | None = None,
) -> list[int]:
    """Return the places of the data that `step` learns from; drawn by `odds` where they are given."""
    if odds is not None:
        return np.random.default_rng(drawn_by).choice(total, method.batch_size, p=odds).tolist()
    if method.draws_anew:
        return np.random.default_rng(drawn_by).permutation(total)[: method.batch_size].tolist()
    return epoch_batch(total, method.batch_size, step - 1, (ordered_by,))

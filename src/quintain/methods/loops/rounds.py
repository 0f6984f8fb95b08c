"""The loop of rounds: collect with the policy → build data sets of it → train on each offline → evaluate, again.

A step of the run is a round. A round that starts over trains from the starting weights. Data of earlier rounds, where
a method trains on it again, is built again from the journal by a resumed run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from quintain.data.pairs import Pairs
from quintain.data.pipeline import PipelineResult, as_example, example_samples
from quintain.data.samples import pair_samples
from quintain.data.seats import split_seats
from quintain.learning.train_config import (
    MAIN,
    RoundsConfig,
    SignalsConfig,
    TrainConfig,
    list_unread_options,
    require_config,
)
from quintain.learning.update import Update, epoch_batch, learn_from, learn_in_epochs, mean_report, scale_at
from quintain.methods.method import (
    CombinedState,
    Measure,
    Needs,
    State,
    Traits,
    TransformGroups,
    learns_by,
    no_metrics,
    rates_of,
    same_groups,
    unread_counts,
)
from quintain.types import NOTHING, Example, Group, Pair, Sample, Task, Trajectory

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.learning.learner import StepReport
    from quintain.learning.signals import Imitated
    from quintain.methods.method import Collector
    from quintain.runs.context import TrainingContext
    from quintain.store.run import Run


class Influence(Protocol):
    """What training on data alone would change: each time one update is made, measured and undone."""

    def __call__(self, blocks: Sequence[Sequence[Pair]], tasks: Sequence[Task]) -> list[float]:
        """Return for each of `blocks` by how much one update on it raises the share of `tasks` that is solved."""
        ...


Choose = Callable[[Influence, Sequence[Pair]], tuple[Sequence[Pair], Mapping[str, float]]]
"""(influence, pairs) → those that are trained on, and metrics of the choice"""
Built = PipelineResult | Sequence[Pair]
Data = Sequence[Example | Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The episodes of a round, and what was found out while they were collected: ``Collected(groups=…, data=[pairs])``.

    What is found out goes from here to where it is used, and nowhere else. It is of one round: data of earlier ones can
    be trained on only where it is built of their episodes.
    """

    groups: list[Group]
    data: Sequence[Built]
    """what each training of the round learns from, in the place of what it builds"""
    metrics: Mapping[str, float] = NOTHING
    choose: Choose | None = None
    """picks of the pairs of the first training those that are learned from, by what they would change; None: all"""


def as_collected(found: list[Group] | Collected) -> Collected:
    """Return what a collection `found`, episodes alone with nothing beside them."""
    return found if isinstance(found, Collected) else Collected(groups=found, data=())


def build_nothing(_: Sequence[Group]) -> Sequence[Pair]:
    """Build no data: the collection has it."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Improve:
    """One training on the episodes of a round: ``Improve(build=Pipeline(threshold(0.5)), rate=0.5)``."""

    build: Callable[[Sequence[Group]], Built]
    """episodes of the round → what is imitated (a `Pipeline`), or pairs of which one side is preferred"""
    rate: float = 1.0
    """factor on the learning rate"""
    update: Update | None = None
    """how it learns; None: as the rounds do"""
    policy: str = MAIN
    """who learns; another one than the main policy is among ``needs.others`` and learns in epochs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSteps:
    """How long a round trains where it is not by epochs: ``OptimizerSteps(count=lambda round: 40, batch_size=8)``."""

    count: Callable[[int], int]
    """number of the round, from 1 → optimizer steps"""
    batch_size: int
    """episodes of a step"""
    falls: bool = False
    """whether the rate falls over the steps of a round, from its whole at the first to the last part at the last"""


def no_demonstrations(_: Collector) -> Sequence[Trajectory]:
    """Imitate nothing beside what the rounds make."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Collect with the policy, build a data set of it, train on that, again: ``Rounds(collect=…, build=…, update=…)``.

    A step of the run is a round.
    """

    collect: Callable[[Collector, int], list[Group] | Collected]
    update: Update
    build: Callable[[Sequence[Group]], Built] = build_nothing
    """episodes of the round → what is imitated (a `Pipeline`), or pairs of which one side is preferred"""
    steps: OptimizerSteps | None = None
    """optimizer steps of each training; None: epochs and minibatches of `update`, or of the configuration"""
    later: Sequence[Improve] = ()
    """trainings that follow that of `build` on the same episodes, each from where the one before it ended (ReST)"""
    base: Callable[[Collector], Sequence[Trajectory]] = no_demonstrations
    """episodes that every training imitates beside what was built (AgentEvol); called once, also by a resumed run"""
    merges_base: bool = True
    """whether `base` is imitated in every training; else only before the first round, without a warm start"""
    memory: int | None = 1
    """rounds whose data is trained on, the newest ones, this one included; None: all of them"""
    starts_over: bool = False
    """whether each round trains from the starting weights (STaR, AgentEvol)"""
    has_warm_start: bool = True
    """whether the demonstrations are imitated before the run starts; else its starting weights are those of the model,
    and `base` is imitated once before the first round"""
    trains: bool = True
    """whether anything is trained; else what is remembered of the rounds is all that they make"""
    evaluated: Callable[[Agent], Agent] | None = None
    """what evaluations put around the harness, such as what the rounds have made to be told; None: nothing"""
    needs: Needs = Needs()
    reward: TransformGroups = same_groups
    state: State = field(default_factory=CombinedState)
    measure: Measure = no_metrics

    @property
    def improves(self) -> tuple[Improve, ...]:
        """The trainings of a round, in order."""
        return (Improve(build=self.build), *self.later) if self.trains else ()

    @property
    def traits(self) -> Traits:
        """What it is, beside what it needs."""
        updates = [] if self.steps is not None else [each.update or self.update for each in self.improves]
        return Traits(
            learns=learns_by(self.update.loss),
            has_warm_start=self.has_warm_start,
            unread=unread_counts(updates) | list_unread_options(RoundsConfig),
            rates=rates_of((each.policy, each.rate) for each in self.improves),
        )

    def train(self, run: Run, config: TrainConfig) -> None:
        """Train for ``config.steps`` rounds, continuing where `run` was left."""
        train_in_rounds(self, require_config(config, SignalsConfig, "Config"), run)


class Material:
    """What the trainings of each round imitate: what they built of the newest rounds, and the base.

    Args:
        method: whose stages build.
        base: episodes that every training imitates as well.
    """

    def __init__(self, method: Rounds, base: Sequence[Trajectory] = ()) -> None:
        self.method = method
        self.base = [as_example(trajectory) for trajectory in base]
        self._built: list[deque[Data]] = [deque(maxlen=method.memory) for _ in method.improves]

    def take(self, groups: Sequence[Group], data: Sequence[Built] = ()) -> list[tuple[Built, Data]]:
        """Build of the episodes of the next round; return for each training what it made, and all that it learns from.

        What it made is its part of `data`, where that is given. The second is empty where the rounds made nothing for
        it: such a training is left out.
        """
        paid = self.method.reward(split_seats(groups))
        found: list[tuple[Built, Data]] = []
        given = data or [None] * len(self._built)
        for improve, built, known in zip(self.method.improves, self._built, given, strict=True):
            made = improve.build(paid) if known is None else known
            built.append(made.examples if isinstance(made, PipelineResult) else made)
            every = [each for data in built for each in data]
            base = self.base if self.method.merges_base and isinstance(made, PipelineResult) else []
            found.append((made, [*base, *every] if every else []))
        return found


def samples_of(data: Data) -> list[Sample]:
    """Return the token streams of examples, or of both sides of pairs."""
    pairs = [each for each in data if isinstance(each, Pair)]
    return pair_samples(pairs) if pairs else example_samples([e for e in data if isinstance(e, Example)])


def train_in_rounds(method: Rounds, config: SignalsConfig, run: Run) -> None:
    """Train by `method` for ``config.steps`` rounds, continuing where `run` was left."""
    from quintain.learning.signals import Imitated
    from quintain.methods.loops.recall import recall, remember, tell
    from quintain.methods.loops.requirements import begin_run
    from quintain.methods.loops.statistics import measure_task_kinds
    from quintain.runs.empty_rounds import warn_if_repeated

    with begin_run(method.needs, config, run, has_warm_start=method.has_warm_start) as context:
        context.evaluates_with = method.evaluated
        material = Material(method, method.base(context.collector))
        if method.memory == 1:
            remember(run, method.state)
        else:
            for _, past in recall(run, method.state):
                material.take(past)
        if material.base and not method.has_warm_start and run.next_step == 0:
            _learn(context, material.base, method, method.improves[0], step=1, number=-1)
        imitated = Imitated(run, is_on=config.records_signals)
        rows: list[Mapping[str, Any]] = [*run.metrics()]
        for step in context.steps():
            found = as_collected(method.collect(context.collector, step))
            groups, chosen = found.groups, dict[str, float]()
            context.compare_engine(groups)
            method.state.update(groups)
            parts = material.take(groups, found.data)
            if found.choose is not None:
                parts, chosen = choose_pairs(context, method, found.choose, parts)
            if method.needs.is_renewed_at(step):
                context.policies["reference"].follow(context.policies.main, polyak=1.0)
            if method.starts_over and any(data for _, data in parts):
                context.policies.main.start_over()
            reports = [
                (
                    improve.policy,
                    _learn(context, data, method, improve, step=step, number=number, imitated=imitated),
                )
                for number, (improve, (_, data)) in enumerate(zip(method.improves, parts, strict=True))
                if data
            ]
            row = context.measure(
                groups,
                next((report for policy, report in reversed(reports) if policy == MAIN), None),
                {
                    **{
                        f"{policy}/{key}": value
                        for policy, report in reports
                        if policy != MAIN and report is not None
                        for key, value in {**report.metrics, "train/loss": report.loss}.items()
                    },
                    **funnels([made for made, _ in parts]),
                    **measure_task_kinds(groups),
                    **found.metrics,
                    **chosen,
                    **method.measure(groups, context.collector.decode),
                },
            )
            context.finish_step(step, row, imitated.uses() if reports else [])
            tell(method.state, step, row)
            rows.append(row)
            if note := warn_if_repeated(rows):
                context.display.say(f"note: {note}")


def choose_pairs(
    context: TrainingContext, method: Rounds, choose: Choose, parts: Sequence[tuple[Built, Data]]
) -> tuple[list[tuple[Built, Data]], dict[str, float]]:
    """Return `parts` with those pairs of the first training that `choose` picks, and metrics of the choice."""
    from quintain.methods.loops.trials import Trials

    (made, data), *rest = parts
    pairs = [each for each in data if isinstance(each, Pair)]
    trials = Trials(context, method.improves[0].update or method.update)
    picked, metrics = choose(trials.influence, pairs)
    return [(made, picked), *rest], dict(metrics)


def funnels(made: Sequence[Built]) -> dict[str, float]:
    """Return what the stages of each training of a round did; those after the first as ``data/2/…``, ``data/3/…``.

    Of pairs it says how many there are, ``data/pairs``, and how many were refused.
    """
    return {
        key if number == 1 else key.replace("data/", f"data/{number}/", 1): value
        for number, each in enumerate(made, 1)
        for key, value in (
            each.funnel.metrics
            if isinstance(each, PipelineResult)
            else each.metrics
            if isinstance(each, Pairs)
            else {"data/pairs": float(len(each))}
        ).items()
    }


def _learn(
    context: TrainingContext,
    data: Data,
    method: Rounds,
    improve: Improve,
    *,
    step: int,
    number: int,
    imitated: Imitated | None = None,
) -> StepReport | None:
    """Train on `data`; `number` says which training of the round it is, and `imitated` takes in what is used.

    What other policies than the main one learn from is not recorded: they may have been shown something else.
    """
    observe = None if imitated is None or improve.policy != MAIN else imitated.watch(data)
    update, rate = improve.update or method.update, improve.rate
    samples, seed = samples_of(data), context.seed("round", step, *([number] if number else []))
    if method.steps is None:
        return learn_in_epochs(
            context.policies, samples, update, context.config,
            step=step, seed=seed, rate=rate, observe=observe, policy=improve.policy,
        )  # fmt: skip
    assert improve.policy == MAIN, "other policies learn in epochs"
    config = context.config
    scale = rate * scale_at(
        step, config.steps, schedule=config.lr_schedule, by_method=1.0, warmup=config.lr_warmup
    )
    count, falls = method.steps.count(step), method.steps.falls
    return mean_report(
        [
            learn_from(
                context.policies,
                batch,
                update,
                rate_scale=scale * (1 - number / count) if falls else scale,
                observe=observe,
            )
            for number, batch in enumerate(step_batches(samples, method.steps, step, seed))
        ]
    )


def step_batches(
    samples: Sequence[Sample], steps: OptimizerSteps, round_number: int, seed: int
) -> Iterator[list[Sample]]:
    """Yield the streams of each optimizer step of a round: its data over and over, each time in another order."""
    streams: dict[int, list[Sample]] = {}
    for sample in samples:
        streams.setdefault(sample.trajectory if sample.pair < 0 else sample.pair, []).append(sample)
    units = list(streams.values())
    for number in range(steps.count(round_number)):
        places = epoch_batch(len(units), min(steps.batch_size, len(units)), number, (seed,))
        yield [sample for place in places for sample in units[place]]

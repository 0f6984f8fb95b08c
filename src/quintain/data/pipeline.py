"""How data is made, as a list of stages that can be read: episodes → filters → masks → splices → samples.

A stage is a pure function from examples to examples with a name and, in words, why it leaves some out. A `Pipeline`
runs stages in order and counts: the `Funnel` says how many went into each stage, how many came out, and which were
lost. A method of imitation or self-training *is* its pipeline.

There are three kinds of stage. `filter_stage` and `check_stage` keep or drop, `filter_stage` by any filter of
`quintain.data.filters`; `weigh_stage` says which sampled tokens count; `remade` puts other episodes in the place of an
example (a splice, a shorter text), which name what they were made of. None of them changes what it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quintain.data.samples import imitation_samples
from quintain.errors import DataError, InvariantError
from quintain.types import NOTHING, Example, Group, Sample, Trajectory, Turn, flatten_scored

FIRST, LAST, TOKENS = "data/in", "data/kept", "data/tokens"
"""Metrics of a pipeline beside those of its stages."""
OTHERS = ("data/streams_left_out", "data/pairs", "data/comparisons", "data/ties")
"""Metrics of data that no stage has."""
Weights = Sequence[float | NDArray[np.floating]]
"""Of the turns of an episode: one number for all sampled tokens of a turn, or one for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline: ``Stage(name="solved", says="did not solve the task", apply=…)``."""

    name: str
    """one word or several with underscores; metrics are called by it"""
    says: str
    """what is true of the examples that it leaves out, or what it does to those that it keeps"""
    apply: Callable[[Sequence[Example]], Sequence[Example]]
    counts: Counter[str] | None = None
    """what it counted when it was applied last, by what is told of it beside `says`; None where it counts nothing"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """What a stage did: ``StageReport(stage="solved", says="did not solve the task", num_in=64, num_out=21)``."""

    stage: str
    says: str
    num_in: int
    num_out: int
    num_tokens: int = 0
    """sampled tokens with a weight in what came out of it"""
    lost: tuple[str, ...] = ()
    """names of the episodes of which nothing came out"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """What every stage did, in order."""

    passages: tuple[StageReport, ...]
    num_in: int
    """examples that went in; without stages they come out as well"""
    num_tokens: int
    """sampled tokens with a weight in what came out"""

    @property
    def metrics(self) -> dict[str, float]:
        """``data/in``, ``data/kept``, ``data/tokens`` and ``data/STAGE`` (what came out of it)."""
        last = self.passages[-1].num_out if self.passages else self.num_in
        return {
            FIRST: float(self.num_in),
            **{f"data/{p.stage}": float(p.num_out) for p in self.passages},
            LAST: float(last),
            TOKENS: float(self.num_tokens),
        }

    def __str__(self) -> str:
        """Return one line a stage: name, examples in → out, tokens that still count, and what it says of the rest."""
        width = max((len(p.stage) for p in self.passages), default=0)
        return "\n".join(
            f"{p.stage:<{width}}  {p.num_in:>6} → {p.num_out:<6} {p.num_tokens:>9,} tokens  {p.says}"
            for p in self.passages
        )


def is_stage(name: str) -> bool:
    """Whether a metric counts what a stage of the only or the first pipeline left."""
    return name.startswith("data/") and name.count("/") == 1 and name not in (FIRST, LAST, TOKENS, *OTHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """What a pipeline made: ``PipelineResult(examples=(…,), funnel=Funnel(…))``."""

    examples: tuple[Example, ...]
    funnel: Funnel


class Pipeline:
    """Stages in order: ``Pipeline(keep_solved(), shortest(0.2))``; names of stages differ.

    Raises:
        DataError: two stages have one name.
    """

    def __init__(self, *stages: Stage) -> None:
        names = [stage.name for stage in stages]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise DataError(f"stages of a pipeline: got {double[0]} twice; give each a name of its own")
        self.stages = stages

    def __call__(self, groups: Sequence[Group]) -> PipelineResult:
        """Return what comes out of the scored episodes of `groups`."""
        return self.run([as_example(trajectory) for trajectory in flatten_scored(groups)])

    def run(self, examples: Sequence[Example]) -> PipelineResult:
        """Return what comes out of `examples`, and what every stage did."""
        passages: list[StageReport] = []
        num_in = len(examples)
        for stage in self.stages:
            after = tuple(stage.apply(examples))
            left = {name for example in after for name in example.sources}
            lost = dict.fromkeys(name for e in examples for name in e.sources if name not in left)
            passages.append(
                StageReport(
                    stage=stage.name,
                    says=describe_stage(stage),
                    num_in=len(examples),
                    num_out=len(after),
                    num_tokens=sum(map(num_trained, after)),
                    lost=tuple(lost),
                )
            )
            examples = after
        num_tokens = passages[-1].num_tokens if passages else sum(map(num_trained, examples))
        funnel = Funnel(passages=tuple(passages), num_in=num_in, num_tokens=num_tokens)
        return PipelineResult(examples=tuple(examples), funnel=funnel)


def describe_stage(stage: Stage) -> str:
    """Return what `stage` says of what it left out, and what it counted: ``has no way out (3 lead to no success)``."""
    counts = stage.counts or {}
    return stage.says + (f" ({', '.join(f'{num} {what}' for what, num in counts.items())})" if counts else "")


def refuse_empty(made: PipelineResult, what: str, cures: Mapping[str, str] = NOTHING) -> None:
    """Raise where nothing came out of a pipeline.

    Raises:
        DataError: nothing came out; it names the stage that kept none, what it says of them, and what to do, which for
            some stages `cures` knows better.
    """
    if made.examples:
        return
    for passage in made.funnel.passages:
        if not passage.num_out:
            raise DataError(
                f"{what}: got {passage.num_in} episodes into {passage.stage} and none out of it, because each "
                f"{passage.says}; {cures.get(passage.stage, f'loosen {passage.stage}, or collect more')}"
            )
    raise DataError(f"{what}: got no episodes; collect some first")


def as_example(trajectory: Trajectory) -> Example:
    """Return `trajectory` as it was, every sampled token counting 1."""
    return Example(trajectory=trajectory, sources=(name_of(trajectory),))


def name_of(trajectory: Trajectory) -> str:
    """Return the journal's name of `trajectory`; group and index where it was not recorded."""
    return trajectory.id or f"{trajectory.group}#{trajectory.index}"


def num_trained(example: Example) -> int:
    """Count the sampled tokens of `example` that have a weight."""
    if example.weights is None:
        return example.trajectory.num_sampled
    return sum(int(np.count_nonzero(weights)) for weights in example.weights)


def filter_stage(name: str, says: str, keep: Callable[[Sequence[Group]], Sequence[Group]]) -> Stage:
    """Return the stage that keeps what the filter `keep` of groups keeps, in the order in which it came.

    Examples of one group (`Trajectory.group`) are seen as a group, in the order of the first of each.
    """

    def apply(examples: Sequence[Example]) -> list[Example]:
        kept = {id(t) for group in keep(as_groups(examples)) for t in group.trajectories}
        return [example for example in examples if id(example.trajectory) in kept]

    return Stage(name=name, says=says, apply=apply)


def check_stage(name: str, says: str, is_kept: Callable[[Example], bool]) -> Stage:
    """Return the stage that keeps the examples of which `is_kept` is true, each seen by itself."""
    return Stage(name=name, says=says, apply=lambda examples: [e for e in examples if is_kept(e)])


def weigh_stage(name: str, says: str, weigh: Callable[[Trajectory], Weights]) -> Stage:
    """Return the stage that multiplies the weights of each example by `weigh`; one in which nothing counts goes."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        found = [weigh_turns(example, weigh(example.trajectory)) for example in examples]
        return [example for example in found if num_trained(example)]

    return Stage(name=name, says=says, apply=apply)


def remade(
    name: str,
    says: str,
    make: Callable[[Example], Iterable[Example]],
    *,
    counts: Counter[str] | None = None,
) -> Stage:
    """Return the stage that puts what `make` makes of an example in its place; none drops it.

    What is made names its sources itself: at least those of the example that it replaces. `counts` is what `make` adds
    to; it begins anew whenever the stage is applied.
    """

    def apply(examples: Sequence[Example]) -> list[Example]:
        if counts is not None:
            counts.clear()
        return [made for example in examples for made in make(example)]

    return Stage(name=name, says=says, apply=apply, counts=counts)


def weigh_turns(example: Example, weights: Weights) -> Example:
    """Return `example` with its weights multiplied by `weights`, one entry a turn.

    Raises:
        InvariantError: they do not fit its turns, or are negative or not finite.
    """
    turns = example.trajectory.turns
    if len(weights) != len(turns):
        raise InvariantError(
            f"weights of an episode of {len(turns)} turns: got {len(weights)}; give one a turn"
        )
    before = example.weights or tuple(map(_ones, turns))
    try:
        after = tuple(
            (own * np.asarray(weight, np.float32)).reshape(len(own))
            for own, weight in zip(before, weights, strict=True)
        )
    except ValueError as wrong:
        raise InvariantError(f"weights of the tokens of a turn: {wrong}; give one a sampled token") from None
    if any((own < 0).any() or not np.isfinite(own).all() for own in after):
        raise InvariantError("weights of tokens: got one that is negative or not finite; give 0 or more")
    return replace(example, weights=after)


def as_groups(examples: Sequence[Example]) -> list[Group]:
    """Return the episodes of `examples` as groups, by `Trajectory.group`, in the order of the first of each."""
    found: dict[tuple[str, str], list[Trajectory]] = {}
    for example in examples:
        t = example.trajectory
        found.setdefault((t.group, t.task.id), []).append(t)
    return [Group(task=own[0].task, trajectories=tuple(own)) for own in found.values()]


def example_samples(examples: Sequence[Example]) -> list[Sample]:
    """Return the token streams of `examples` with their weights; `Sample.trajectory` is the place in `examples`.

    Streams in which no token counts go. The loss is normalised by the tokens that count (`quintain.data.pack`).

    Raises:
        DataError: no token counts.
    """
    samples = imitation_samples([example.trajectory for example in examples])
    found: list[Sample] = []
    for sample in samples:
        weights = examples[sample.trajectory].weights
        if weights is not None:
            sample = replace(sample, loss_weight=_lay_weights(sample, weights))
        if sample.loss_weight.any():
            found.append(sample)
    if not found:
        raise DataError(
            f"samples to imitate: got {len(examples)} examples in which no token counts; loosen the masks"
        )
    return found


def _lay_weights(sample: Sample, weights: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return `weights` [turn][sampled token] along the tokens of `sample`, 0 where nothing was sampled."""
    laid = np.zeros(len(sample.token_ids), np.float32)
    for turn in np.unique(sample.turn_id[sample.turn_id >= 0]).tolist():
        laid[sample.turn_id == turn] = weights[turn]
    return laid


def _ones(turn: Turn) -> NDArray[np.float32]:
    return np.ones(len(turn.completion.token_ids), np.float32)

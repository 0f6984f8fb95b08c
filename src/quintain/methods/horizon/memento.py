"""Memento (arXiv 2508.16153): learns which earlier cases to tell a model, whose weights stay as they are.

μ(c|s, M) ∝ exp(Q(s, c) / α); Q by cross-entropy on whether the episode that was told c was solved.

Every episode leaves a case, solved or not: the task, what was done, what came of it. New episodes are told a few of
them, solved ones and failed ones apart. Training draws cases by μ, so that every case gets labels; all cases of an
episode share its outcome. Q is trained anew on all labels before each step. Evaluations read the cases with the best Q,
none of a held-out task, and leave nothing. Cases and labels stand in the run's folder ``cases``, for `cased?cases=…`.

Differences to the paper: no planner and executor of their own, the harness of the run is told the cases; training draws
by μ as the formula says, where the published code reads the best; towers over hashed words whose product is taken; Q is
a kernel over labels with ``reads=kernel``, and ``reads=likeness`` learns nothing. Measured on errands whose cases a
script follows, where the paper has research on the web.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quintain.agents.cased import By, CaseMemory, tell_cases
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState
from quintain.types import Group

FOLDER = "cases"
"""Where a run keeps its cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of Memento."""

    tasks: PositiveInt = 32
    """Tasks of a step, each played once."""
    count: PositiveInt = 4
    """Cases that an episode is told."""
    reads: By = "value"
    """What cases are read by: value (two towers), kernel (over labels) or likeness (of words, nothing is learned)."""
    spread: PositiveFloat = 0.1
    """α: how evenly training draws cases."""
    cases: PositiveInt = 500
    """Most cases that are kept; the oldest make room."""


def method(config: Config) -> Rounds:
    """Return Memento as `config` describes it."""
    memory = CaseMemory(count=config.count, by=config.reads, spread=config.spread, size=config.cases)
    keep: list[Callable[[], None]] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        keep[:] = [lambda: memory.save(collector.run.folder / FOLDER)]
        told = partial(tell_cases, memory=memory)
        return collector.sample(step, collector.tasks(step, config.tasks), size=1, agent=told)

    def measure(_groups: Sequence[Group], _decode: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
        for save in keep:
            save()
        worked = sum(entry.value > 0 for entry in memory.bank.entries)
        return {
            "memento/cases": float(len(memory.bank)),
            "memento/solved_cases": float(worked),
            "memento/labels": float(len(memory.labels)),
        }

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=partial(tell_cases, memory=memory),
        state=CombinedState(memory),
        measure=measure,
    )

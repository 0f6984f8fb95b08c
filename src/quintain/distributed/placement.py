"""What each part of a run needs on a cluster, as a file says it, and whether the machines that are there have it.

The recipe of a run does not change with its placement::

    wait = 600                 # seconds in which machines may still join
    [workers]                  # environments: no GPU
    min = 2
    max = 64
    episodes = 8
    resources = {data = 1}     # a machine that holds their data, started with --resources='{"data": 8}'
    [engines]
    replicas = 4
    gpus = 1
    [policies.reward_model]    # an actor of its own, or several
    gpus = 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quintain.config import build, check_ranges, read_file
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from quintain.errors import ConfigError, UsageError

CPU, GPU = "CPU", "GPU"
"""What Ray calls them."""
SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers that play episodes: ``Workers(min=2, max=64)``."""

    min: PositiveInt = 1
    """Workers that are always there."""
    max: PositiveInt = 8
    """Workers that there may be while episodes wait."""
    episodes: PositiveInt = 8
    """Episodes that one plays at once, in a thread each."""
    cpus: PositiveFloat = 1.0
    """Cores of one."""
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    """Custom resources of one, by which it comes to lie near its data."""
    idle: NonNegativeFloat = 60.0
    """Seconds without an episode after which one above min is ended."""
    losses: PositiveInt = 8
    """Times that an episode is played again whose worker was lost, before it counts as a failure of its environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What samples from each policy that acts: ``Engines(replicas=4, gpus=1)``."""

    replicas: PositiveInt = 1
    """Copies of a policy's engine; an episode stays with one of them."""
    cpus: PositiveFloat = 1.0
    """Cores of one."""
    gpus: NonNegativeFloat = 0.0
    """GPUs of one."""
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    """Custom resources of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerRanks:
    """The ranks of the learner, where a configuration has some (`learner_ranks`): ``LearnerRanks(gpus=1)``."""

    cpus: PositiveFloat = 1.0
    """Cores of one."""
    gpus: NonNegativeFloat = 0.0
    """GPUs of one."""
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    """Custom resources of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRanks(LearnerRanks):
    """Ranks of a policy that does not compute with the learner: ``PolicyRanks(gpus=1)`` is one actor on a card."""

    ranks: PositiveInt = 1
    """Over how many it is sharded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which part of a run needs what: ``Placement(workers=Workers(max=64))``."""

    workers: Workers = field(default_factory=Workers)
    engines: Engines = field(default_factory=Engines)
    learner: LearnerRanks = field(default_factory=LearnerRanks)
    policies: Mapping[str, PolicyRanks] = field(default_factory=dict[str, PolicyRanks])
    """Policies beside the main one (reference, critic, reward_model…) that compute on the cluster, apart from it."""
    wait: NonNegativeInt = 0
    """Seconds in which machines may still join before a placement that does not fit is refused."""
    start_timeout: PositiveFloat = 600.0
    """Seconds that an actor may take to start."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that cannot be."""
        check_ranges(self)
        if self.workers.max < self.workers.min:
            raise ConfigError(
                f"workers.max of a placement: got {self.workers.max}, below workers.min {self.workers.min}; raise it"
            )


def load_placement(path: str) -> Placement:
    """Return the placement in the file `path`; the usual one where it is empty.

    Raises:
        UsageError: there is no such file. ConfigError: it holds what is no placement.
    """
    return build(Placement, read_file(Path(path)), path) if path else Placement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What one actor needs: ``Bundle(part="worker", needs={"CPU": 1.0})``."""

    part: str
    needs: Mapping[str, float]


def bundle(part: str, wants: Workers | Engines | LearnerRanks) -> Bundle:
    """Return what one actor of a `part` needs."""
    gpus = 0.0 if isinstance(wants, Workers) else wants.gpus
    needs = {CPU: wants.cpus, GPU: gpus, **wants.resources}
    return Bundle(part=part, needs={name: amount for name, amount in needs.items() if amount})


def bundles(placement: Placement, *, num_policies: int = 1, num_ranks: int = 0) -> list[Bundle]:
    """Return what a run needs at least: engines of so many policies, ranks, policies beside, and the fewest workers."""
    return [
        *[bundle("engine", placement.engines)] * (placement.engines.replicas * num_policies),
        *[bundle("learner rank", placement.learner)] * num_ranks,
        *[bundle(name, wants) for name, wants in placement.policies.items() for _ in range(wants.ranks)],
        *[bundle("worker", placement.workers)] * placement.workers.min,
    ]


def find_unplaced(asked: Iterable[Bundle], machines: Sequence[Mapping[str, float]]) -> Bundle | None:
    """Return the first of `asked` that finds no room when the largest are put first, or None.

    `machines` are what each has in all. First fit: where room is very tight, Ray may find a way that this does not.
    """
    free = [dict(machine) for machine in machines]
    for each in sorted(asked, key=lambda one: (-one.needs.get(GPU, 0.0), -sum(one.needs.values()))):
        room = next((m for m in free if _fits(each, m)), None)
        if room is None:
            return each
        for name, amount in each.needs.items():
            room[name] -= amount
    return None


def refuse_unplaced(asked: Sequence[Bundle], machines: Sequence[Mapping[str, float]]) -> None:
    """Raise where `asked` do not fit on `machines`.

    Raises:
        UsageError: they do not; it says what was asked and what is there.
    """
    lost = find_unplaced(asked, machines)
    if lost is None:
        return
    counts = Counter((each.part, _words(each.needs)) for each in asked)
    wanted = ", ".join(f"{count} × {part} ({needs})" for (part, needs), count in counts.items())
    there = "; ".join(_words(machine) or "nothing" for machine in machines) or "none"
    raise UsageError(
        f"placement: got {wanted}, and no room for one {lost.part} on the machines of the cluster ({there}); ask for "
        "less in the placement file, add machines, or give wait = SECONDS where an autoscaler adds them"
    )


def count_workers(num_episodes: int, workers: Workers) -> int:
    """Return how many workers there should be while `num_episodes` are played or wait."""
    return min(workers.max, max(workers.min, -(-num_episodes // workers.episodes)))


def _fits(asked: Bundle, machine: Mapping[str, float]) -> bool:
    return all(machine.get(name, 0.0) + SLACK >= amount for name, amount in asked.needs.items())


def _words(amounts: Mapping[str, float]) -> str:
    """Return amounts in words, without what Ray notes of a machine beside what can be asked for."""
    return " ".join(
        f"{amount:g} {name}"
        for name, amount in amounts.items()
        if name not in ("memory", "object_store_memory")
        and not name.startswith(("node:", "accelerator_type:"))
    )

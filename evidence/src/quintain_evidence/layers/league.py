"""Layer 3: a method beside its baseline, at equal budget: runs of `quintain_evidence.trials` by seed, and a verdict.

A seed draws its own training and held-out tasks. Both arms learn at one rate, the best for the baseline over tuning
seeds. Arms with the same baseline are one comparison: an additive model of arm and seed with one residual, and bounds
that hold for all of them at once. Seeds come in a sequence (6, 10, 16) that spends an error of .05: the last look has
what the others left of it, and so has the last one that was reached. Nothing stops because it looks bad. What is found
better must be so at half and at double the rate as well, or it is unresolved; until those runs are there it is called
not worse. What is worse is worse. Which comparisons are none at all, `quintain_evidence.layers.comparison` says.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from quintain.errors import UsageError, suggestion
from quintain.types import NOTHING
from quintain_evidence.layers.inference import (
    LOOKS,
    Bound,
    Estimate,
    Look,
    dunnett_bounds,
    estimate,
    looks,
)
from quintain_evidence.layers.objective import REFUSING
from quintain_evidence.layers.records import append, lines, provenance, version_of
from quintain_evidence.layers.spec import League, Signature
from quintain_evidence.layers.worlds import ON
from quintain_evidence.sweep import workers
from quintain_evidence.trials import ENOUGH, Arm, Benchmark, Trial, arm_of, is_done, perform, trial, warm

LAYER = "league"
HELD_OUT = 512
"""Held-out episodes of an evaluation."""
TRIED = 256
"""Held-out episodes of runs on tuning tasks."""
ENDS_ONLY = 1_000_000
"""Steps between evaluations where the last alone is compared, so that there are two: of the start and of the end."""
TASKS_APART = 100_000
"""Tasks between those of one seed and of the next."""
TUNING = (1000, 1001, 1002)
"""Seeds, and with them tasks, on which the learning rate is chosen and tried at half and double; their runs start from
the policies of the first seeds."""
AGAIN = 500
"""What is added to a seed where the baseline runs against itself: same start and tasks, other samples."""
FACTORS = (0.5, 2.0)
MARGIN = 0.05
METHOD, BASELINE, REPEAT = "method", "baseline", "again"
CLAIMED = ("better", "worse")
"""Verdicts that are asked for at other rates, and beside the noise of a baseline against itself."""
VERDICTS = ("better", "not worse", "unresolved", "worse", "unfinished")
ALPHA = 0.05
"""Error of a whole sequence, on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A comparison of the league: ``Entry(row="gigpo", benchmark=Benchmark(…), seeds=10)``."""

    row: str
    benchmark: Benchmark
    seeds: int = 10
    """most seeds of its sequence"""
    axis: str = "steps"
    reward: str = ""
    """what the method's reward adds, where that is the idea"""
    settings: Mapping[str, Any] = NOTHING
    """settings of both arms over those of the comparison"""

    @property
    def margin(self) -> float:
        """Return how much less is still "not worse"."""
        found = self.benchmark.no_worse_by
        return MARGIN if found is None else found

    def digest(self) -> str:
        """Return the SHA-256 of what is compared; names are no part of it."""
        # `is_primary` stays in, with one value, for the lines that were recorded with it.
        told = {**asdict(self), "row": "", "reward": "", "is_primary": False}
        # `enough` is told where it is not as usual, so that entries from before it keep their digest; so do those that
        # say what a default was before it became another.
        silent = {"name", "former", "baseline_former"}
        silent |= set() if self.benchmark.enough != ENOUGH else {"enough"}
        told["benchmark"] = {k: v for k, v in asdict(self.benchmark).items() if k not in silent}
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()

    def baseline_key(self) -> str:
        """Return what entries share that are compared with the same runs."""
        b = self.benchmark
        told = (
            b.baseline,
            b.environment,
            dict(b.shared),
            dict(b.baseline_settings),
            b.measure,
            b.at,
            b.rates,
            b.enough,
            *([dict(b.baseline_former)] if b.baseline_former else []),
        )
        return json.dumps([told, dict(self.settings)], sort_keys=True, default=str)

    def trial(self, arm: str, seed: int, rate: float | None) -> Trial:
        """Return the run of an arm; the one of `REPEAT` is the baseline's with other samples."""
        values: dict[str, Any] = {
            "eval_episodes": TRIED if seed in TUNING else HELD_OUT,
            "task_offset": seed * TASKS_APART,
            **({"eval_every": ENDS_ONLY} if self.benchmark.at == "end" else {}),
            **({"eval_start": False} if self.benchmark.at == "end" and seed in TUNING else {}),
            **self.settings,
            **({} if rate is None else {"learning_rate": rate}),
        }
        if arm == REPEAT:
            return trial(self.benchmark, BASELINE, seed=seed + AGAIN, overrides=values).from_start(seed)
        found = trial(self.benchmark, arm, seed=seed, overrides=values)
        if seed not in TUNING:
            return found
        first = TUNING.index(seed)
        return found.from_start(first, first * TASKS_APART)


def entry_of(signature: Signature) -> Entry | None:
    """Return the comparison that a registered row names; None where it names none.

    Settings of the world are those of `ON`, where it stands there.
    """
    if signature.league is None:
        return None
    league, budget = signature.league, budget_of(signature.league)
    return Entry(
        row=signature.row,
        benchmark=Benchmark(
            name=signature.row,
            recipe=league.recipe or signature.method,
            baseline=league.baseline,
            environment=league.world,
            shared={**ON.get(league.world, {}), **budget, **league.shared},
            settings=league.settings,
            baseline_settings=league.baseline_settings,
            former=league.former,
            baseline_former=league.baseline_former,
            measure=league.measure,
            at=league.at,
            is_lower_better=league.direction == "lower",
            no_worse_by=league.margin,
            rates=league.rates,
            enough=league.enough,
        ),
        seeds=league.seeds,
        axis=league.axis,
        reward=league.reward,
    )


def budget_of(league: League) -> dict[str, Any]:
    """Return the settings that end a run when its budget is spent."""
    none = {"max_env_steps": None, "max_sampled_tokens": None}
    if league.axis == "tokens":
        return {**none, "max_sampled_tokens": league.budget}
    if league.axis == "updates":
        return {**none, "steps": league.budget}
    return {**none, "max_env_steps": league.budget}


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What came of a comparison as it was registered before: ``Earlier(version=1, mean=0.02, num=10, refused=())``."""

    version: int
    mean: float
    """difference in favour of the method"""
    num: int
    """seeds that both arms have run"""
    refused: tuple[str, ...]
    verdict: str = "unfinished"
    """by its values alone, of which the whole error is spent; its settings are not stored, so that no gate is asked"""
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the league says of a row: ``Outcome(row="gigpo", verdict="better", bound=Bound(…), …)``."""

    row: str
    verdict: str
    """one of `VERDICTS`"""
    bound: Bound | None = None
    look: Look | None = None
    arms: Mapping[str, Estimate] = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """mean of each arm with its 95 % t interval"""
    used: Mapping[str, Mapping[str, float]] = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """what each arm used on average: environment steps, sampled tokens, updates, seconds"""
    rate: float | None = None
    signs: Mapping[float, float] = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """factor on the rate → mean difference on tuning tasks, in favour of the method"""
    again: Estimate | None = None
    """the baseline against itself"""
    refused: tuple[str, ...] = ()
    """alarms that refuse an arm, for they held when a run of it ended"""
    version: int = 1
    earlier: tuple[Earlier, ...] = ()
    """versions of the comparison before this one"""
    seconds: Mapping[str, float] = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """recorded runs of this version, with what each took: of the processor, or of the clock where that is all that is
    known"""
    command: str = ""
    is_complete: bool = False
    """whether the sequence came to its end; else what is left of its error is spent on what there is"""
    is_claimed: bool = False
    """whether the sequence says better or worse, which is asked for at other rates, too"""


Values = dict[tuple[str, float, int], dict[str, Any]]
"""(arm, factor on the rate, seed) → line"""


def known(entry: Entry, folder: Path, spec: str = "") -> Values:
    """Return the lines of the entry as it is now, or was when its digest was `spec`, by what they are of."""
    wanted = spec or entry.digest()
    return {
        (line["arm"], line["factor"], line["seed"]): line
        for line in lines(folder, entry.row, LAYER)
        if line["spec"] == wanted
    }


def rates_of(own: Values) -> list[float | None]:
    """Return the learning rate of each recorded run at the rate that was chosen: one rate, run by run."""
    return [line["rate"] for (_, factor, _), line in own.items() if factor == 1.0]


def earlier_versions(entry: Entry, folder: Path) -> tuple[Earlier, ...]:
    """Return what came of the versions of the entry before the one that it has now."""
    have = lines(folder, entry.row, LAYER)
    before = list(dict.fromkeys(line["spec"] for line in have))[: version_of(have, entry.digest()) - 1]
    found: list[Earlier] = []
    for number, spec in enumerate(before, 1):
        own = known(entry, folder, spec)
        pairs = [
            (value_of(entry, line), value_of(entry, own[BASELINE, 1.0, seed]))
            for (arm, factor, seed), line in own.items()
            if arm == METHOD and factor == 1.0 and (BASELINE, 1.0, seed) in own
        ]
        if not pairs:
            continue
        mean = sum(value - base for value, base in pairs) / len(pairs)
        told: dict[str, Any] = {"version": number, "mean": mean, "num": len(pairs), "refused": raised_by(own)}
        if len(pairs) > 1:
            values, base = zip(*pairs, strict=True)
            bound = dunnett_bounds({METHOD: values, BASELINE: base}, BASELINE, 1 - ALPHA)[METHOD]
            told |= {"verdict": verdict_of(bound, entry.margin), "p_value": bound.p_value}
        found.append(Earlier(**told))
    return tuple(found)


def raised_by(own: Values) -> tuple[str, ...]:
    """Return the alarms that refuse an arm, for they held when a run of it ended."""
    raised = {
        f"{arm}: {name}"
        for (arm, factor, _), line in own.items()
        if factor == 1.0 and arm != REPEAT
        for name in line.get("alarms_at_end", line["alarms"])
        if name in REFUSING
    }
    return tuple(sorted(raised))


def value_of(entry: Entry, line: Mapping[str, Any]) -> float:
    """Return what is compared of a run, turned so that more is better."""
    sign = -1.0 if entry.benchmark.is_lower_better else 1.0
    return sign * float(line["value" if entry.benchmark.at == "end" else "area"])


def sequence(most: int) -> tuple[Look, ...]:
    """Return the places where a comparison of at most `most` seeds may end; the last has what is left of `ALPHA`."""
    *places, last = looks(most)
    return (*places, Look(num=last.num, alpha=ALPHA - sum(look.alpha for look in places)))


def verdict_of(bound: Bound, margin: float) -> str:
    """Return what the bounds of a difference say."""
    if bound.low > 0:
        return "better"
    if bound.high < 0:
        return "worse"
    return "not worse" if bound.low > -margin else "unresolved"


def outcome_of(entry: Entry, rivals: Sequence[Entry], folder: Path) -> Outcome:
    """Return what the results in `folder` say of `entry`; `rivals` are all registered entries, itself among them."""
    key = entry.baseline_key()
    group = {found.row: (found, known(found, folder)) for found in rivals if found.baseline_key() == key}
    own = group[entry.row][1]

    def bound_at(look: Look) -> Bound | None:
        """Return the bounds after the seeds of `look` with its share of the error; None where a run is missing."""
        table = {
            row: values
            for row, (found, have) in group.items()
            if (values := column(found, have, METHOD, look.num)) is not None
        }
        base = column(entry, own, BASELINE, look.num)
        if base is None or entry.row not in table:
            return None
        return dunnett_bounds({**table, "": base}, "", 1 - look.alpha, len(group))[entry.row]

    bound: Bound | None = None
    reached: Look | None = None
    spent, is_complete = 0.0, False
    for look in sequence(entry.seeds):
        found = bound_at(look)
        if found is None:
            break
        bound, reached = found, look
        is_complete = look.num == entry.seeds or found.low > 0 or found.high < 0
        if is_complete:
            break
        spent += look.alpha
    if reached is not None and not is_complete:
        reached = Look(num=reached.num, alpha=ALPHA - (spent - reached.alpha))
        bound = bound_at(reached)
    verdict = "unfinished" if bound is None else verdict_of(bound, entry.margin)
    is_claimed = is_complete and verdict in CLAIMED
    if verdict == "better" and any(mean <= 0 for mean in signs_of(entry, own).values()):
        verdict = "unresolved"
    elif verdict == "better" and entry.benchmark.rates and any(run not in own for run in elsewhere()):
        verdict = "not worse"
    return described(entry, own, verdict, bound, reached, folder, is_complete, is_claimed)


def described(
    entry: Entry,
    own: Values,
    verdict: str,
    bound: Bound | None,
    look: Look | None,
    folder: Path,
    is_complete: bool,
    is_claimed: bool,
) -> Outcome:
    """Return the outcome with means, budgets, signs at other rates, and the baseline against itself."""
    sign = -1.0 if entry.benchmark.is_lower_better else 1.0
    num = look.num if look else 0
    arms, used = dict[str, Estimate](), dict[str, Mapping[str, float]]()
    for arm in (METHOD, BASELINE):
        if (values := column(entry, own, arm, num)) and num > 1:
            arms[arm] = estimate([[sign * value for value in values]])
            seen = [own[arm, 1.0, seed] for seed in range(num)]
            used[arm] = {
                name: sum(float(line[name]) for line in seen) / num
                for name in ("turns", "tokens", "updates", "seconds")
            }
    repeats = [
        value_of(entry, own[REPEAT, 1.0, seed]) - value_of(entry, own[BASELINE, 1.0, seed])
        for seed in range(LOOKS[0].num)
        if (REPEAT, 1.0, seed) in own and (BASELINE, 1.0, seed) in own
    ]
    some = next(iter(own.values()), None)
    return Outcome(
        row=entry.row,
        verdict=verdict,
        bound=bound,
        look=look,
        arms=arms,
        used=used,
        rate=own[METHOD, 1.0, 0]["rate"] if (METHOD, 1.0, 0) in own else None,
        signs=signs_of(entry, own),
        again=estimate([repeats]) if len(repeats) > 1 else None,
        refused=raised_by(own),
        version=version_of(lines(folder, entry.row, LAYER), entry.digest()),
        earlier=earlier_versions(entry, folder),
        seconds={line["run"]: float(line.get("processor_seconds", line["seconds"])) for line in own.values()},
        command=some["command"] if some else "",
        is_complete=is_complete,
        is_claimed=is_claimed,
    )


def elsewhere() -> list[tuple[str, float, int]]:
    """Return the runs at other rates that a claim needs: (arm, factor on the rate, seed)."""
    return [(arm, factor, seed) for arm in (METHOD, BASELINE) for seed in TUNING for factor in FACTORS]


def signs_of(entry: Entry, own: Values) -> dict[float, float]:
    """Return the mean difference in favour of the method on tuning tasks, by the factor on the rate."""
    found: dict[float, float] = {}
    for factor in FACTORS:
        pairs = [
            value_of(entry, own[METHOD, factor, seed]) - value_of(entry, own[BASELINE, factor, seed])
            for seed in TUNING
            if (METHOD, factor, seed) in own and (BASELINE, factor, seed) in own
        ]
        if pairs:
            found[factor] = sum(pairs) / len(pairs)
    return found


def column(entry: Entry, have: Values, arm: str, num: int) -> list[float] | None:
    """Return the values of an arm on the first `num` seeds, or None where one is missing."""
    if any((arm, 1.0, seed) not in have for seed in range(num)):
        return None
    return [value_of(entry, have[arm, 1.0, seed]) for seed in range(num)]


class Season:
    """Runs what the verdicts of entries lack, and appends each run to the results."""

    def __init__(
        self, root: Path, folder: Path, jobs: int, command: Callable[[str], str], registered: Sequence[Entry]
    ) -> None:
        """Runs are kept under `root`, results in `folder`; `registered` are all entries of the league."""
        self.root, self.folder, self.jobs, self.command = root, folder, jobs, command
        self.registered = registered
        self._processor: dict[str, float] = {}
        root.mkdir(parents=True, exist_ok=True)

    def __call__(self, chosen: Sequence[Entry]) -> dict[str, Outcome]:
        """Run what is missing and return the outcomes of `chosen`, by row."""
        rates = self._tuned(chosen)
        while wanted := [
            (entry, arm, seed) for entry in chosen for arm, seed in self._missing(entry, self.outcome(entry))
        ]:
            self._run([(entry, arm, seed, 1.0, rates[entry.row]) for entry, arm, seed in wanted], "runs")
        claimed = [entry for entry in chosen if self.outcome(entry).is_claimed]
        others = [
            (entry, arm, seed, factor, rate * factor)
            for entry in claimed
            if (rate := rates[entry.row]) is not None
            for arm, factor, seed in elsewhere()
        ]
        repeats = [
            (entry, REPEAT, seed, 1.0, rates[entry.row]) for entry in claimed for seed in range(LOOKS[0].num)
        ]
        self._run([*others, *repeats], "runs at other rates and of baselines against themselves")
        return {entry.row: self.outcome(entry) for entry in chosen}

    def outcome(self, entry: Entry) -> Outcome:
        """Return what is known of `entry`."""
        return outcome_of(entry, self.registered, self.folder)

    def _missing(self, entry: Entry, outcome: Outcome) -> list[tuple[str, int]]:
        """Return the runs up to the next look of an unfinished sequence."""
        if outcome.is_complete:
            return []
        have = known(entry, self.folder)
        for look in looks(entry.seeds):
            if found := [
                (arm, seed)
                for arm in (METHOD, BASELINE)
                for seed in range(look.num)
                if (arm, 1.0, seed) not in have
            ]:
                return found
        return []

    def _tuned(self, chosen: Sequence[Entry]) -> dict[str, float | None]:
        """Return the rate of each entry: that of its recorded runs, else the baseline's best over the tuning seeds;
        None: that of its settings.
        """
        rates = {entry.row: found[0] for entry in chosen if (found := rates_of(known(entry, self.folder)))}
        plans = {
            entry.row: {
                rate: [entry.trial(BASELINE, seed, rate) for seed in TUNING] for rate in entry.benchmark.rates
            }
            for entry in chosen
            if entry.row not in rates
            and "learning_rate" not in entry.settings
            and len(entry.benchmark.rates) > 1
        }
        every = [found for rates in plans.values() for trials in rates.values() for found in trials]
        for _ in self._performed(every, "runs for learning rates"):
            pass
        for entry in chosen:
            if entry.row in rates:
                continue
            if entry.row not in plans:
                rates[entry.row] = entry.benchmark.rates[0] if entry.benchmark.rates else None
                continue
            means = {
                rate: sum(
                    value_of(entry, asdict(arm_of(entry.benchmark, self.root / t.name))) for t in trials
                )
                for rate, trials in plans[entry.row].items()
            }
            rates[entry.row] = max(means, key=lambda rate: means[rate])
        return rates

    def _run(self, plan: Sequence[tuple[Entry, str, int, float, float | None]], what: str) -> None:
        """Run the trials of `plan` (entry, arm, seed, factor, rate) and record those that are not recorded yet."""
        trials = {
            (entry.row, arm, factor, seed): (entry, entry.trial(arm, seed, rate), rate)
            for entry, arm, seed, factor, rate in plan
            if (arm, factor, seed) not in known(entry, self.folder)
        }
        by_name: dict[str, list[tuple[str, str, float, int]]] = {}
        for key, (_, found, _) in trials.items():
            by_name.setdefault(found.name, []).append(key)
        for name in self._performed([found for _, found, _ in trials.values()], what):
            for key in by_name[name]:
                row, arm, factor, seed = key
                entry, found, rate = trials[key]
                result = arm_of(entry.benchmark, self.root / found.name)
                append(self.folder, row, self._line(entry, arm, factor, seed, rate, result))

    def _line(
        self, entry: Entry, arm: str, factor: float, seed: int, rate: float | None, result: Arm
    ) -> dict[str, Any]:
        """Return how a run is recorded."""
        spec = entry.digest()
        return {
            "layer": LAYER,
            "row": entry.row,
            "spec": spec,
            "version": version_of(lines(self.folder, entry.row, LAYER), spec),
            "arm": arm,
            "factor": factor,
            "seed": seed,
            "rate": rate,
            **asdict(result),
            **({"processor_seconds": self._processor[result.run]} if result.run in self._processor else {}),
            **provenance(self.command(entry.row)),
        }

    def _performed(self, trials: Sequence[Trial], what: str) -> Iterator[str]:
        """Yield the names of trials, each once, as they are done; policies to start from are made before."""
        every = {found.name: found for found in trials}
        left = [found for found in every.values() if not is_done(found, self.root)]
        yield from every.keys() - {found.name for found in left}
        started = time.monotonic()
        for number, (name, seconds) in enumerate(self._played(left), 1):
            self._processor[name] = seconds
            minutes = (time.monotonic() - started) / number * (len(left) - number) / 60
            told = f"{name}: {number}/{len(left)} {what} done, about {minutes:.0f} min left"
            print(told, file=sys.stderr, flush=True)
            yield name

    def _played(self, left: Sequence[Trial]) -> Iterator[tuple[str, float]]:
        """Run the trials `left`, in this process or in several, and yield what `timed` says of each."""
        if self.jobs == 1 or len(left) < 2:
            for found in left:
                yield timed(found, self.root)
            return
        with workers(self.jobs) as pool:
            starts = {found.start: found for found in left}
            for _ in as_completed([pool.submit(warm, found, self.root) for found in starts.values()]):
                pass
            for future in as_completed([pool.submit(timed, found, self.root) for found in left]):
                yield future.result(timeout=0)


def timed(chosen: Trial, root: Path) -> tuple[str, float]:
    """Run `chosen` and return its name and the seconds of the processor that it took, with the policy to start from
    where that had to be made.
    """
    began = time.process_time()
    return perform(chosen, root).name, round(time.process_time() - began, 3)


def entries(family: str | None, signatures: Mapping[str, Signature]) -> list[Entry]:
    """Return the league of a family, or of all: rows that are registered with one."""
    return [
        entry
        for found in signatures.values()
        if family in (None, found.family) and (entry := entry_of(found))
    ]


def chosen_entries(registered: Sequence[Entry], only: str | None, settings: Mapping[str, Any]) -> list[Entry]:
    """Return the entries that `only` names (all without), with `settings` of both arms over theirs.

    Raises:
        UsageError: there is none of that name.
    """
    every = (
        [replace(found, settings=dict(settings)) for found in registered] if settings else list(registered)
    )
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    known_names = {found.row for found in every}
    for name in names:
        if name not in known_names:
            raise UsageError(f"--only: got {name!r}; {suggestion(name, known_names)}")
    return [found for found in every if not names or found.row in names]

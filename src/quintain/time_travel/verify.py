"""Does each step of a run follow from the one before it and from the episodes that it recorded?

Steps are made again from the newest checkpoint before the first of them, or from the start. Episodes, what was used of
them, advantages, metrics and the fingerprint of the weights are compared step by step, checkpoints where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quintain.config.trust import find_names
from quintain.errors import UsageError
from quintain.rollout.progress import Display
from quintain.store.machine import machine
from quintain.store.manifest import in_words
from quintain.store.run import DRIFT, Run
from quintain.time_travel.differences import Difference, DifferenceFound
from quintain.time_travel.rederivation import (
    Comparison,
    Part,
    RederivedRun,
    find_base,
    find_extents,
    make_again,
    open_original,
    set_threads,
)

NOT_ASKED = ("engine", "cluster", "teacher", "agent", "environment", "eval_environment", "track")
"""Fields that name what plays episodes or computes, which recorded ones and this process stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of it: ``print(quintain.verify("runs/grpo-1"))``."""

    run: str
    first: int
    last: int
    base: int | None
    """step of the checkpoint that was begun with; None: the start"""
    num_steps: int
    """steps that follow"""
    num_weights: int
    """of them those whose weights were compared by their fingerprint"""
    num_recalled: int
    """episodes that were taken from the journal; others were played again, as those that no journal has"""
    resampled: bool
    difference: Difference | None
    """the first thing that does not follow"""
    notes: tuple[str, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether every step does."""
        return self.difference is None

    def __str__(self) -> str:
        """Return it in lines."""
        begun = "the start" if self.base is None else f"the checkpoint of step {self.base}"
        how = f"learned again from {self.num_recalled} recorded episodes"
        how = "sampled and learned again" if self.resampled else how
        lines = [f"{self.run}: steps {self.first} to {self.last}, {how}, from {begun}"]
        lines += [f"note: {note}" for note in self.notes]
        weights = (
            f", the weights of {self.num_weights} of them by their fingerprint" if self.num_weights else ""
        )
        if self.difference is None:
            lines.append(f"all {self.num_steps} follow{weights}")
        else:
            lines.append(f"{self.num_steps} follow{weights}")
            found = self.difference
            lines.append(f"step {found.step} does not follow: {found.what}: {found.text}")
        return "\n".join(lines)


def verify_run(
    folder: Path,
    *,
    step: int | None = None,
    since: int | None = None,
    resamples: bool = False,
    is_trusted: bool = False,
    display: Display | None = None,
) -> Verification:
    """Make steps of the run in `folder` again and compare: all of them, one `step`, or those from `since` on.

    What was computed elsewhere is compared up to rounding, from each checkpoint to the next.

    Raises:
        UsageError: there is no such step, or it `resamples` what was sampled elsewhere. ConfigError: the run is
            somebody else's, and not trusted. StoreError: there is no room for a copy.
    """
    with open_original(folder, is_trusted=is_trusted, to="verifying") as run:
        first, last = _range_of(run, step, since)
        comparison = Comparison(run)
        with set_threads(run, first):
            is_exact = all(comparison.is_exact(each) for each in comparison.commits if first <= each <= last)
            here = machine()
        if resamples and not is_exact:
            where = next(each.machine for each in comparison.commits.values() if each.machine != here)
            raise UsageError(
                f"--resample: got steps that were sampled by {where or 'a machine that was not noted'}, and this is "
                f"{here}, which rounds otherwise; verify them there, or without --resample"
            )
        notes = list(_notes(run))
        if display is not None:
            display.phase("steps", last - first + 1)
        parts = list(_parts(run, first, last, is_exact=is_exact))
        found: Difference | None = None
        apart, num_recalled = 0.0, 0

        def compare(made: RederivedRun, each: int) -> None:
            nonlocal num_recalled
            num_recalled, made.num_recalled = num_recalled + made.num_recalled, 0
            if each >= first:
                comparison.compare(made, each)
                if display is not None:
                    display.advance()

        def compare_checkpoints(made: RederivedRun) -> None:
            nonlocal apart
            for each in sorted(each.step for each in made.checkpoints()):
                if each >= part.first:
                    apart = max(apart, comparison.compare_checkpoint(made, each))

        try:
            for part in parts:
                make_again(run, part, resamples=resamples, on_step=compare, on_end=compare_checkpoints)
        except DifferenceFound as difference:
            found = difference.found
        for where in comparison.machines:
            notes.append(
                f"computed by {where or 'a machine that was not noted'}, and here by {here}: numbers are compared up "
                f"to rounding (largest {comparison.largest_rounding:.2g} of a metric, {apart:.2g} of weights)"
            )
        base = parts[0].base
        return Verification(
            run=run.name, first=first, last=last, base=None if base is None else base.step,
            num_steps=comparison.num_steps, num_weights=comparison.num_weights, num_recalled=num_recalled,
            resampled=resamples, difference=found, notes=tuple(notes),
        )  # fmt: skip


def _range_of(run: Run, step: int | None, since: int | None) -> tuple[int, int]:
    """Return the first and the last step that are asked for."""
    last = run.last_step or 0
    for name, value in (("--step", step), ("--from", since)):
        if value is not None and not 1 <= value <= last:
            raise UsageError(
                f"{name}: got {value} for {run.folder}, whose steps are 1 to {last}; name one of them"
            )
    if step is not None and since is not None:
        raise UsageError(f"--step and --from: got both, {step} and {since}; give one of them")
    return (step, step) if step is not None else (since or 0, last)


def _parts(run: Run, first: int, last: int, *, is_exact: bool) -> Iterator[Part]:
    """Yield the steps in goes: one, or from checkpoint to checkpoint where rounding would add up."""
    kept = sorted(each.step for each in run.checkpoints() if first <= each.step < last)
    ends = [last] if is_exact else [*kept, last]
    for end in ends:
        base = find_base(run, max(first, 1) if first else 0)
        yield Part(base=base, first=0 if base is None else base.step + 1, last=end)
        first = end + 1


def _notes(run: Run) -> Iterator[str]:
    """Yield what is to be known of the run before what came of it."""
    if changes := run.find_changes():
        yield f"files of the run are not what it wrote or began with: {in_words(changes)}"
    for named in find_names(run.config):
        if named.kind == "address" and named.field not in NOT_ASKED:
            yield f"{named} is asked again, and need not say the same"
    for event in run.notices():
        if event["kind"] == DRIFT:
            yield event["message"]
    if len(known := find_extents(run)) > 1:
        told = ", ".join(f"{steps} from step {first} on" for first, steps in known[1:])
        yield f"the run was extended: to {told}"

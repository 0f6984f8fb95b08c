"""What a run came to: its best step, and whether training made the policy better, worse, or neither beyond luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

from quintain.store.best import LOSS, RETURN, SUCCESS, best_row, measure_of
from quintain.types.terminal import write_command

WHICH, WHY = "docs/which-method.md", "docs/it-does-not-learn.md"
"""The pages that a run names which gained nothing."""
SURE = 1.96
"""Standard errors from which the difference of two success rates is no luck."""
SAME = 0.005
"""Share of a loss, or of a rank, by which two are the same."""
FULL = 0.95
"""Success at the start from which there is little to gain."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What training came to: ``Outcome(measure="eval/success", first=…, last=…, best=…)``, each a row of the curve."""

    measure: str
    first: Row
    last: Row
    best: Row

    @property
    def gain(self) -> float:
        """How much better the last evaluation is than the first."""
        found = float(self.last[self.measure]) - float(self.first[self.measure])
        return -found if self.measure == LOSS else found

    @property
    def luck(self) -> float:
        """Difference from the first to the last evaluation up to which there may be none."""
        if self.measure != SUCCESS:
            return SAME * abs(float(self.first[self.measure]))
        return SURE * sqrt(sum(_variance(row) for row in (self.first, self.last)))

    @property
    def is_worse(self) -> bool:
        """Whether training made the policy worse, beyond luck."""
        return self.gain < 0 and -self.gain > self.luck

    @property
    def is_better(self) -> bool:
        """Whether training made the policy better, beyond luck."""
        return self.gain > self.luck

    def __str__(self) -> str:
        """Return what training came to, with what helps where it gained nothing; empty where it did gain."""
        if self.first["step"] == self.last["step"] or self.is_better:
            return ""
        numbers = (
            f"{format_measure(self.first, self.measure)} → {format_measure(self.last, self.measure)} held out"
        )
        if self.is_worse:
            return f"training made the model worse: {numbers}; {pages()}"
        if self.measure == SUCCESS and float(self.first[SUCCESS]) >= FULL:
            return f"training gained nothing, and there was little to gain: {numbers}; take harder tasks"
        returns = [row.get(RETURN) for row in (self.first, self.last)]
        rose = f" (return {returns[0]:.3g} → {returns[1]:.3g})" if _has_risen(returns) else ""
        return f"training gained nothing beyond luck: {numbers}{rose}; {pages()}"


def outcome(rows: Sequence[Row]) -> Outcome | None:
    """Return what the curve `rows` came to; None where nothing was held out."""
    measure, best = measure_of(rows), best_row(rows)
    if measure is None or best is None:
        return None
    measured = [row for row in rows if row.get(measure) is not None]
    return Outcome(measure=measure, first=measured[0], last=measured[-1], best=best)


def format_measure(row: Row, measure: str) -> str:
    """Return the held-out number of `row` for people: ``51.2 %`` of success, or a loss or rank as it is."""
    value = float(row[measure])
    return f"{100 * value:.1f} %" if measure == SUCCESS else f"{value:.3f}"


def best_line(found: Outcome, folder: Path) -> str:
    """Return which step was best, with its score and the command that measures it anew.

    Where a loss on held-out data was measured nothing can be played, and the command serves the model, to be asked.
    """
    row = found.best
    score = format_measure(row, found.measure)
    if found.measure == SUCCESS and "eval/low" in row and "eval/high" in row:
        score += f" [{100 * float(row['eval/low']):.1f}, {100 * float(row['eval/high']):.1f}]"
    elif found.measure == LOSS:
        score = f"held-out loss {score}"
    step = f"step {int(row['step'])}{', the last,' if row['step'] == found.last['step'] else ''}"
    verb, other = ("serve", "eval --environment") if found.measure == LOSS else ("eval", "serve")
    command = write_command("quintain", verb, f"{folder}@best")
    return f"{step} with {score}: {command}   (also --model, {other}, export; @STEP for another)"


def is_all_warmup(rows: Sequence[Row]) -> bool:
    """Whether the learning rate was still rising at every training step of `rows`, of which there are several."""
    scales = [float(row["train/lr_scale"]) for row in rows if row.get("train/lr_scale") is not None]
    return len(scales) > 1 and scales[-1] <= 1 and all(one < other for one, other in pairwise(scales))


def warmup_line(rows: Sequence[Row]) -> str:
    """Return that the whole run was warm-up of its learning rate, and what helps."""
    steps = sum(row.get("train/lr_scale") is not None for row in rows)
    return (
        f"all {steps} steps were in the warm-up of the learning rate, which was still rising: more --steps, or "
        "--lr-schedule constant"
    )


def pages() -> str:
    """Return where it stands what to do about a run that gained nothing."""
    return f"why: {WHY}, another method: {WHICH}"


def _variance(row: Row) -> float:
    """Return the variance of the success of `row`, as of one more task solved and one more not, so that 0 has some."""
    num, rate = float(row.get("eval/episodes") or 1.0), float(row[SUCCESS])
    centre = (rate * num + 1) / (num + 2)
    return centre * (1 - centre) / (num + 2)


def _has_risen(returns: Sequence[Any]) -> bool:
    before, after = returns
    return before is not None and after is not None and after > before

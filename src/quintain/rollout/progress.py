"""What a person sees while a run trains: bars with success, reward, tokens per second and time left.

On a terminal two bars move, the steps of the run and the episodes of the step; elsewhere a line is printed now and
then. What is shown is read from the metrics that are stored.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from quintain.types.terminal import spell_out, spell_out_line

LINE_SECONDS = 10.0
"""Least time between two lines where there is no terminal."""
SHOWN = {
    "train/success": "success {:.0%}",
    "train/reward": "reward {:.2f}",
    "train/loss": "loss {:.3f}",
    "eval/success": "held-out {:.0%}",
    "eval/worst_success": "worst environment {:.0%}",
    "eval/loss": "held-out loss {:.3f}",
    "tokens_per_second": "{:,.0f} tok/s",
}
"""Metrics on the bar and how they are written."""


def described(metrics: Mapping[str, float]) -> str:
    """Return the shown metrics in words: ``success 72% reward 0.72``."""
    return "  ".join(form.format(metrics[name]) for name, form in SHOWN.items() if name in metrics)


class Display:
    """Progress of one run; use it as a context manager."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.console = Console(file=sys.stderr)
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._steps = self._bars.add_task(
            escape(spell_out_line(title)), total=total, completed=done, shown=""
        )
        self._inner = self._bars.add_task("", total=None, shown="", visible=False)
        self._title, self._total = title, total
        self._last_line = 0.0
        self._metrics: dict[str, float] = {}
        self._phase, self._units, self._num_done, self._phase_started = "", 0, 0, 0.0

    def __enter__(self) -> Self:
        """Start drawing."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._bars.stop()

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Show the inner bar for `total` units of `name`, of which `done` are done."""
        self._bars.reset(
            self._inner,
            total=total,
            completed=done,
            description=escape(spell_out_line(name)),
            visible=True,
            shown="",
        )
        self._phase, self._units, self._num_done = name, total, done
        self._phase_started = time.monotonic()

    def advance(self, units: int = 1) -> None:
        """Move the inner bar by `units`; without a terminal, a long phase prints a line now and then."""
        self._bars.advance(self._inner, units)
        self._num_done += units
        now = time.monotonic()
        if not self.console.is_terminal and now - max(self._last_line, self._phase_started) >= LINE_SECONDS:
            self._last_line = now
            left = (now - self._phase_started) * (self._units - self._num_done) / self._num_done
            self.say(
                f"{self._title}: {self._phase} {self._num_done}/{self._units}, about {max(left, 0):.0f} s left"
            )

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show that `step` is done, with its `metrics`; the last held-out success stays on the bar."""
        self._metrics = {**self._metrics, **metrics}
        text = described(self._metrics)
        self._bars.update(self._steps, completed=step, shown=text)
        self._bars.update(self._inner, visible=False)
        now = time.monotonic()
        is_due = (
            now - self._last_line >= LINE_SECONDS
            or not metrics.keys().isdisjoint(("eval/success", "eval/loss"))
            or step == self._total
        )
        if not self.console.is_terminal and is_due:
            self._last_line = now
            self.say(f"{self._title}: step {step}/{self._total}  {text}")

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(spell_out(text), highlight=False, markup=False, soft_wrap=True)

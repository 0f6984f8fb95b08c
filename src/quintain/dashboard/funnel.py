"""The data funnel of a run: how many examples went into the pipeline, what every stage left, what was trained."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from quintain.dashboard.page import escape
from quintain.dashboard.series import Rows
from quintain.dashboard.transcript import Decode, transcript_html
from quintain.data.pipeline import FIRST, TOKENS, is_stage
from quintain.types import Trajectory, Use

NUM_SHOWN = 8
"""Episodes that are listed of a step."""
NUM_PAIRS = 4
"""Pairs of a step that are shown."""
WIDTH = 320
"""Pixels of the longest bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """What a step's pipeline did: ``Funnel(step=3, counts=(("in", 64.0), ("solved", 21.0)), tokens=812.0)``."""

    step: int
    """0 for what a cold start imitated"""
    counts: tuple[tuple[str, float], ...]
    """what went in, then what each stage left, in order"""
    tokens: float
    """that were trained"""

    @property
    def when(self) -> str:
        """The step in words."""
        return f"step {self.step}" if self.step else "before the first step"

    @property
    def most(self) -> float:
        """The largest count: a splice may make more than went in."""
        return max((count for _, count in self.counts), default=0.0)

    def lines(self) -> Iterator[str]:
        """Yield it for a terminal, a bar of 30 characters at most for each stage."""
        width = max(len(name) for name, _ in self.counts)
        for name, count in self.counts:
            bar = "#" * round(30 * count / self.most) if self.most else ""
            yield f"  {name:<{width}} {count:>8,.0f}  {bar}".rstrip()


def funnels(rows: Rows) -> list[Funnel]:
    """Return the funnel of each step of `rows` that has one, in order; of a step with several trainings the first."""
    found: list[Funnel] = []
    for row in rows:
        if row.get(FIRST) is None:
            continue
        names = [name for name in row if is_stage(name)]
        counts = [
            ("in", float(row[FIRST])),
            *((name.partition("/")[2], float(row[name] or 0)) for name in names),
        ]
        found.append(Funnel(step=int(row["step"]), counts=tuple(counts), tokens=float(row.get(TOKENS) or 0)))
    return found


def funnel_html(rows: Rows) -> str:
    """Return the section of the report: bars of the last step, and the sum over all steps where they differ."""
    found = funnels(rows)
    if not found:
        return ""
    last = found[-1]
    kept = last.counts[-1][1]
    total = sum(each.counts[0][1] for each in found)
    summed = sum(each.counts[-1][1] for each in found)
    says = f"{last.when.capitalize()}: {kept:,.0f} of {last.counts[0][1]:,.0f} examples"
    says += f", {last.tokens:,.0f} tokens to train."
    if len({each.counts for each in found}) > 1:
        says += f" All {len(found)} steps: {summed:,.0f} of {total:,.0f} examples."
    says += " A bar is what a stage of the method left of what came to it, in the order in which they are applied."
    before = (last.counts[0][1], *(count for _, count in last.counts))
    lines = "".join(
        _bar(name, count, last.most, count - earlier)
        for (name, count), earlier in zip(last.counts, before, strict=False)
    )
    return f'<h2>Data</h2><p class="soft">{escape(says)}</p><table>{lines}</table>'


def render_trained(uses: Sequence[Use]) -> str:
    """Return a table of the episodes that a step imitated: tokens that counted, and their share of the loss."""
    rows = [
        (use.episode, int((use.signals.weights > 0).sum()), float(use.signals.weights.sum()))
        for use in uses
        if use.signals is not None and use.signals.weights is not None
    ]
    if not rows:
        return ""
    rows.sort(key=lambda row: -row[2])
    total = sum(weight for _, _, weight in rows) or 1.0
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td>{tokens:,}</td><td>{weight / total:.1%}</td></tr>"
        for name, tokens, weight in rows[:NUM_SHOWN]
    )
    says = f"{len(rows)} episodes carried the loss of that step, by the journal"
    says += f"; the {NUM_SHOWN} with the most of it:" if len(rows) > NUM_SHOWN else ":"
    head = "<tr><th>episode</th><th>tokens</th><th>of the loss</th></tr>"
    return f'<p class="soft">{escape(says)}</p><table>{head}{lines}</table>'


def pairs_html(uses: Sequence[Use], find: Callable[[str], Trajectory | None], decode: Decode | None) -> str:
    """Return pairs that a step compared, each side by side; `find` returns an episode by its name."""
    pairs = [use for use in uses if use.rejected]
    blocks: list[str] = []
    for number, use in enumerate(pairs[:NUM_PAIRS], start=1):
        sides = [
            (name, find(episode)) for name, episode in (("chosen", use.episode), ("rejected", use.rejected))
        ]
        cells = "".join(
            f"<td>{transcript_html(side, decode, heading=f'{name} {side.id}', is_open=number == 1)}</td>"
            for name, side in sides
            if side is not None
        )
        blocks.append(f'<table class="pair"><tr>{cells}</tr></table>')
    if not blocks:
        return ""
    more = f"; the first {NUM_PAIRS}" if len(pairs) > NUM_PAIRS else ""
    says = f"{len(pairs)} pairs were compared in that step, by the journal{more}:"
    return f'<h2>Pairs</h2><p class="soft">{escape(says)}</p>{"".join(blocks)}'


def _bar(name: str, count: float, most: float, change: float) -> str:
    """Return a row of the funnel; `change` is how many came out more (a splice makes some) or fewer than went in."""
    length = round(WIDTH * count / most) if most else 0
    drawing = (
        f'<svg width="{WIDTH}" height="12" viewBox="0 0 {WIDTH} 12">'
        f'<rect x="0" y="1" width="{length}" height="10" fill="#4c72b0"/></svg>'
    )
    told = f"{change:+,.0f}" if change else ""
    return f"<tr><th>{escape(name)}</th><td>{count:,.0f}</td><td>{told}</td><td>{drawing}</td></tr>"


def funnel_text(rows: Rows) -> Sequence[str]:
    """Return the last funnel of `rows` as lines for a terminal, none where there is none."""
    found = funnels(rows)
    if not found:
        return []
    last = found[-1]
    return [f"data {'of ' if last.step else ''}{last.when}:", *last.lines()]

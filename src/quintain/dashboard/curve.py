"""The learning curve as a picture and as text for the terminal.

Both show held-out success, which a run is judged by; the picture adds its 95 % interval, the success in training and
that of each environment of a mixed run. The same rows give the same curve, whatever machine draws it.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from quintain.credit.scores import GOLD, PROXY
from quintain.dashboard.series import Point, Rows, by_task, points, success
from quintain.eval.pictures import BLUE, GREY, SOFT, TASKS, add_legend, empty_axes, png_of, svg_of
from quintain.store.files import replace_file
from quintain.types.terminal import spell_out, spell_out_line

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell by [row][column]."""
MEASURED: Mapping[str, Any] = {
    "marker": "o",
    "markersize": 4,
    "linewidth": 2.2,
    "clip_on": False,
    "zorder": 3,
}
"""How a curve of measured points is drawn."""

LONGEST_LABEL = 60
"""Characters of the name of a curve, which comes from the settings of a run."""


def learning_curve_png(rows: Rows, path: Path) -> Path:
    """Draw success over steps to the PNG file `path` and return it."""
    replace_file(path, png_of(_draw(rows, 8, 4)))
    return path


def learning_curve_svg(rows: Rows) -> str:
    """Return success over steps as an SVG element for a page."""
    return svg_of(_draw(rows, 8, 3.4))


def draw_comparison(arms: Mapping[str, Sequence[Rows]], path: Path, *, num_tasks: int = 0) -> Path:
    """Draw held-out success over steps of several arms into one PNG file `path`, and return it.

    An arm of one run is a curve with its 95 % intervals, one of several (of other seeds) the mean of them, with each
    as a thin line. With `num_tasks` it is said on how many held-out tasks.
    """
    axes = empty_axes(8, 4)
    for (name, runs), color in zip(arms.items(), cycle((BLUE, *TASKS))):
        curves = [success(rows).main for rows in runs]
        common = sorted(set.intersection(*({step for step, _ in curve} for curve in curves)))
        values = [dict(curve) for curve in curves]
        mean = [(step, sum(each[step] for each in values) / len(values)) for step in common]
        shown = spell_out_line(name)
        shown = shown if len(shown) <= LONGEST_LABEL else f"{shown[: LONGEST_LABEL - 1]}…"
        label = f"{shown} ({len(runs)} seeds)" if len(runs) > 1 else shown
        axes.plot(*_percent(mean), color=color, label=label, **MEASURED)
        if len(runs) > 1:
            for curve in curves:
                axes.plot(*_percent(curve), color=color, linewidth=1, alpha=0.4, clip_on=False)
        elif band := success(runs[0]).band:
            steps, low, high = zip(*band, strict=True)
            between = ([100 * v for v in low], [100 * v for v in high])
            axes.fill_between(steps, *between, color=color, alpha=0.13, linewidth=0)
    told = f"held-out success ({num_tasks} tasks)" if num_tasks else "held-out success"
    axes.set(xlabel="step", ylabel=told, ylim=(0, 105), xlim=(0, None))
    axes.set_yticks(range(0, 101, 25), [f"{percent}%" for percent in range(0, 101, 25)])
    axes.xaxis.get_major_locator().set_params(integer=True)
    add_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2)
    replace_file(path, png_of(axes))
    return path


def reward_model_svg(rows: Rows) -> str:
    """Return what a reward model said and what the environment paid over steps as an SVG element; empty without both.

    Each has an axis of its own, the score the right one, for the two have no common unit: what is to be seen is whether
    one falls while the other rises (arXiv 2009.01325, figure 5).
    """
    gold, score = points(rows, GOLD), points(rows, PROXY)
    if not gold or not score:
        return ""
    axes = empty_axes(8, 2.8)
    right = axes.twinx()
    right.tick_params(length=0, pad=6, labelcolor=SOFT)
    right.spines[["top", "right", "left", "bottom"]].set_visible(False)
    style: dict[str, Any] = {"linewidth": 1.8}
    (meant,) = axes.plot(
        *zip(*gold, strict=True), color=BLUE, label="environment's reward", gid="gold", **style
    )
    (paid,) = right.plot(
        *zip(*score, strict=True), color=TASKS[0], label="reward model's score", gid="score", **style
    )
    axes.set(xlabel="step", ylabel="reward")
    right.set_ylabel("score", color=SOFT)
    axes.xaxis.get_major_locator().set_params(integer=True)
    add_legend(axes, handles=[meant, paid], loc="upper left", bbox_to_anchor=(0, -0.18), ncols=2)
    return svg_of(axes)


def terminal_curve(rows: Rows, width: int = 60, height: int = 8) -> str:
    """Return success over steps as braille text of `height` lines and two for the axis.

    `width` and `height` count the characters of the plot; labels take 6 columns more.
    """
    found = success(rows)
    if not found.main:
        return "no success was recorded yet"
    cells = _braille(_across(found.main, found.last_step, width, height), width, height)
    labels = {0: "100 %", height - 1: "0 %"} | ({height // 2: "50 %"} if height % 2 else {})
    lines = [f"{labels.get(i, ''):>5} │{line}" for i, line in enumerate(cells)]
    name = "held-out success" if found.held_out else "success in training"
    first, last = found.main[0][1], found.main[-1][1]
    right = f"step {found.last_step}"
    return "\n".join([
        f"{'':>5}  {name}: {100 * first:.0f} % → {100 * last:.0f} %",
        *lines,
        f"{'':>5} └{'─' * width}",
        f"{'':>5}  0{right:>{width - 1}}",
    ])  # fmt: skip


def _draw(rows: Rows, width: float, height: float) -> Any:
    """Return axes with the curves of `rows`: held out with its interval, in training, and of each environment."""
    axes, found = empty_axes(width, height), success(rows)
    if found.held_out:
        axes.plot(*_percent(found.held_out), color=BLUE, label="held out", gid="eval", **MEASURED)
    if found.training:
        name = "in training (smoothed)"
        axes.plot(*_percent(found.training), color=GREY, linewidth=1.2, label=name, gid="train")
    if len(found.band) > 1:
        steps, low, high = zip(*found.band, strict=True)
        band = ([100 * v for v in low], [100 * v for v in high])
        axes.fill_between(steps, *band, color=BLUE, alpha=0.15, linewidth=0, label="95% interval", gid="band")
    for number, (name, curve) in enumerate(by_task(rows).items()):
        label = f"{spell_out(name)} {100 * curve[-1][1]:.0f}%"
        color = TASKS[number % len(TASKS)]
        axes.plot(*_percent(curve), color=color, linewidth=1.4, label=label, gid=f"task-{number}")
    if found.main:
        step, value = found.main[-1][0], 100 * found.main[-1][1]
        end: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "annotation_clip": False}
        color = BLUE if found.held_out else SOFT
        axes.annotate(f"{value:.0f}%", (step, value), ha="center", color=color, weight="bold", **end)
        add_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=3)
    axes.set(xlabel="step", ylabel="success", ylim=(0, 105), xlim=(0, found.last_step * 1.02))
    axes.set_yticks(range(0, 101, 25), [f"{percent}%" for percent in range(0, 101, 25)])
    axes.xaxis.get_major_locator().set_params(integer=True)
    return axes


def _percent(curve: Sequence[Point]) -> tuple[list[int], list[float]]:
    """Return the steps of `curve` and its values in percent."""
    return [step for step, _ in curve], [100 * min(max(value, 0.0), 1.0) for _, value in curve]


def _across(curve: tuple[Point, ...], last_step: int, width: int, height: int) -> list[int | None]:
    """Return the dot row (0 is the top) of each dot column, interpolated; None outside of the curve."""
    num_columns, top = 2 * width, 4 * height - 1
    rows: list[int | None] = [None] * num_columns
    places = [
        (round(step / last_step * (num_columns - 1)), min(max(value, 0.0), 1.0)) for step, value in curve
    ]
    for (column, value), (to_column, to_value) in zip(places, [*places[1:], places[-1]], strict=True):
        for place in range(column, to_column + 1):
            share = (place - column) / max(1, to_column - column)
            rows[place] = round((1 - value - share * (to_value - value)) * top)
    return rows


def _braille(rows: list[int | None], width: int, height: int) -> list[str]:
    """Return the dots, joined vertically where the curve is steep, as lines of braille."""
    cells = [[0x2800] * width for _ in range(height)]
    before: int | None = None
    for column, row in enumerate(rows):
        if row is not None:
            start = row if before is None or before == row else before + (1 if row > before else -1)
            for dot in range(min(start, row), max(start, row) + 1):
                cells[dot // 4][column // 2] |= _DOTS[dot % 4][column % 2]
        before = row
    return ["".join(map(chr, line)) for line in cells]

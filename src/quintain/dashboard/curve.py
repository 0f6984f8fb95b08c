"""The learning curve as a picture file and as text for the terminal.

Both show held-out success, which a run is judged by; the picture adds its 95 % interval and the success in
training. The one rule: the same rows give the same curve, whatever machine draws it.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

from quintain.dashboard.series import Point, Rows, by_task, success
from quintain.store.files import replace_file

INK, BLUE, GREY = "#1f2430", "#2a6fdb", "#9aa3b2"
TASKS = ("#d1495b", "#2e8b57", "#b7791f", "#7b4fb5", "#008b94", "#c05299", "#6b7f00", "#8a5a44")
"""Colours of the environments of a mixed run, over and over."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell by [row][column]."""


def learning_curve_png(rows: Rows, path: Path) -> Path:
    """Draw success over steps to the PNG file `path` and return it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(8, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    _draw(axes, rows)
    picture = BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": "quintain"})
    replace_file(path, picture.getvalue())
    return path


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


def _draw(axes: Any, rows: Rows) -> None:
    found = success(rows)
    if found.training:
        steps, values = zip(*found.training, strict=True)
        axes.plot(steps, [100 * v for v in values], color=GREY, linewidth=1.2, label="in training (smoothed)")
    if found.band:
        steps, low, high = zip(*found.band, strict=True)
        band = ([100 * v for v in low], [100 * v for v in high])
        axes.fill_between(steps, *band, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
    if found.held_out:
        steps, values = zip(*found.held_out, strict=True)
        style: dict[str, Any] = {
            "marker": "o",
            "markersize": 4,
            "linewidth": 2.2,
            "color": BLUE,
            "clip_on": False,
        }
        axes.plot(steps, [100 * v for v in values], label="held out", **style)
        end: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "annotation_clip": False}
        percent = 100 * values[-1]
        axes.annotate(f"{percent:.0f} %", (steps[-1], percent), ha="center", color=BLUE, weight="bold", **end)
    for number, (name, curve) in enumerate(by_task(rows).items()):
        steps, values = zip(*curve, strict=True)
        color = TASKS[number % len(TASKS)]
        axes.plot(steps, [100 * v for v in values], color=color, linewidth=1.4, label=name)
    if found.main:
        axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    axes.set(xlabel="step", ylabel="success (%)", ylim=(0, 105), xlim=(0, found.last_step * 1.02))
    axes.set_yticks(range(0, 101, 25))
    axes.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)


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

"""The learning curve as inline SVG, styled by the page.

The one rule: only numbers that were formatted here reach the markup, and names through `escape`.
"""

from collections.abc import Sequence

from quintain.dashboard.page import escape
from quintain.dashboard.series import Point, Rows, by_task, success

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 46, 30, 18, 34
BLUE, GREY, SOFT, PALE = "#2a6fdb", "#9aa3b2", "#667085", "#e3e7ee"
"""For viewers that do not apply the page's style, which has a dark variant of each."""
TASKS = ("#d1495b", "#2e8b57", "#b7791f", "#7b4fb5", "#008b94", "#c05299", "#6b7f00", "#8a5a44")
"""Colours of the environments of a mixed run, over and over; they can be read on light and dark."""


def curve_svg(rows: Rows) -> str:
    """Return success over steps: held-out with its 95 % interval, and smoothed in training."""
    found = success(rows)
    if not found.main:
        return '<p class="soft">No success was recorded yet.</p>'
    last = found.last_step
    parts = [_grid(last)]
    if len(found.band) > 1:
        edge = [(step, high) for step, _, high in found.band]
        edge += [(step, low) for step, low, _ in reversed(found.band)]
        parts.append(
            f'<polygon class="band" fill="{BLUE}" fill-opacity="0.15" points="{_path(edge, last)}"/>'
        )
    if found.training:
        parts.append(_line("train", GREY, 1.3, _path(found.training, last)))
    tasks = [
        (name, TASKS[number % len(TASKS)], curve)
        for number, (name, curve) in enumerate(by_task(rows).items())
    ]
    parts += [_line("task", color, 1.5, _path(curve, last)) for _, color, curve in tasks]
    if found.held_out:
        parts.append(_line("eval", BLUE, 2.5, _path(found.held_out, last)))
        places = [_place(point, last) for point in found.held_out]
        parts += [f'<circle class="dot" fill="{BLUE}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
    x, y = _place(found.main[-1], last)
    parts.append(_text(x, max(y - 10, 12), "middle", f"{100 * found.main[-1][1]:.0f}%", name="last"))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12" font-family="sans-serif"'
    return (
        f'<svg {size} role="img" aria-label="Success over steps">{"".join(parts)}</svg>'
        '<p class="soft">Success over steps: held-out tasks in blue with their 95 % interval, '
        f"training in grey.{_legend(tasks)}</p>"
    )


def _legend(tasks: Sequence[tuple[str, str, Sequence[Point]]]) -> str:
    """Return the names of the environments (name, colour, curve), each after a line of its colour."""
    if not tasks:
        return ""
    keys = [
        f'<svg viewBox="0 0 14 8" width="14" height="8"><path stroke="{color}" stroke-width="2" d="M0 4H14"/></svg> '
        f"{escape(name)} {100 * curve[-1][1]:.0f}%"
        for name, color, curve in tasks
    ]
    return f" By environment: {', '.join(keys)}."


def _place(point: Point, last: int) -> tuple[float, float]:
    """Return the pixel of (step, success)."""
    step, value = point
    x = LEFT + step / last * (WIDTH - LEFT - RIGHT)
    return x, TOP + (1 - min(max(value, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)


def _path(points: Sequence[Point], last: int) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(point, last) for point in points))


def _line(name: str, color: str, width: float, path: str) -> str:
    return f'<polyline class="{name}" fill="none" stroke="{color}" stroke-width="{width}" points="{path}"/>'


def _text(x: float, y: float, anchor: str, text: str, *, name: str = "label") -> str:
    return f'<text class="{name}" fill="{SOFT}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _grid(last: int) -> str:
    lines: list[str] = []
    for percent in range(0, 101, 25):
        _, y = _place((0, percent / 100), last)
        ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        lines.append(f'<line class="grid" stroke="{PALE}" {ends}/>')
        lines.append(_text(LEFT - 8, y + 4, "end", f"{percent}%"))
    for step in sorted({0, last // 2, last}):
        lines.append(_text(_place((step, 0), last)[0], HEIGHT - 12, "middle", str(step)))
    return "".join(lines)

"""What the credit laboratory found, on paper: a table for the terminal, a picture, and a file for other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain.credit_lab.credit import FLOOR, Report, as_row
from quintain.eval.pictures import BLUE, GREY, INK, LINE, SOFT
from quintain.store.files import replace_file

JSON, PICTURE = "lab.json", "lab.png"
COLUMNS = ("credit", "cosine", "95 %", "− group", "noise", "effective", "norm", "s/part")


def write_lab(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write ``lab.json`` and ``lab.png`` into `folder` and return both."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / JSON, (json.dumps(as_row(report), indent=2) + "\n").encode())
    replace_file(folder / PICTURE, draw(report))
    return folder / JSON, folder / PICTURE


def headline(report: Report) -> str:
    """Return what was looked at, in two lines."""
    return (
        f"{report.source} · {report.environment} · {report.parameters:,} parameters\n"
        f"{report.episodes} episodes in {report.groups} groups, {100 * report.success:.0f} % solved, "
        f"{100 * report.mixed:.0f} % of the groups mixed; {report.turns} turns, {report.tokens} tokens; "
        f"{report.parts} parts"
    )


def idea_cells(report: Report) -> list[list[str]]:
    """Return the cells of `COLUMNS`, a row for each idea, the best first."""
    return [
        [
            row.name,
            f"{row.cosine:+.3f}",
            f"{row.low:+.2f} … {row.high:+.2f}",
            "" if row.name == "group" else f"{row.gain:+.3f} ± {row.gain_error:.3f}",
            "∞" if row.noise is None else f"{row.noise:.1f}",
            f"{100 * row.effective:.0f} %",
            f"{row.norm:.2f}",
            f"{row.seconds:.3f}",
        ]
        for row in report.ideas
    ]


def loss_cells(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return columns and cells of the cosines of the second update, by idea and loss."""
    names = list(next(iter(report.losses.values()), {}))
    rows = [
        [row.name, *[f"{report.losses[row.name][loss]:+.3f}" for loss in names]]
        for row in report.ideas
        if row.name in report.losses
    ]
    return ["credit", *names], rows


def notes(report: Report) -> list[str]:
    """Return what is to be known for reading the tables, in lines."""
    lines = [
        "cosine: with the gradient of success in the other parts, higher is better; 95 %: of its mean over parts",
        "− group: difference from group, part by part, ± standard error; noise: parts whose mean is half noise",
        "effective: share of the episodes that the gradient is made of; norm: against group's",
        f"{FLOOR}: group's credit on other episodes of the group, the floor",
    ]
    for name, other in report.same.items():
        lines.append(f"{name}: the same credit as {other} on these episodes")
    best, floor = report.ideas[0], report.row(FLOOR)
    if best.name != "group" and best.gain > 2 * best.gain_error:
        lines.append(f"here {best.name} points {best.gain:+.3f} nearer to success than group")
    elif -floor.gain <= 2 * floor.gain_error:
        lines.append(
            "group is not told from the floor: more episodes, or tasks of other difficulty, would tell"
        )
    else:
        lines.append("no idea is told from group by more than two standard errors")
    return lines


def draw(report: Report) -> bytes:
    """Return the picture as a PNG: cosines with their intervals, and a map of ideas by losses."""
    from io import BytesIO

    from matplotlib.figure import Figure

    rows = list(reversed(report.ideas))
    columns, cells = loss_cells(report)
    height = 1.3 + 0.34 * len(rows)
    figure: Any = Figure(figsize=(11 if cells else 6, height), dpi=150, layout="constrained")
    axes: Any = figure.subplots(1, 2 if cells else 1, squeeze=False)[0]
    draw_ideas(axes[0], report, [row.name for row in rows])
    if cells:
        numbers = [[float(cell) for cell in own[1:]] for own in reversed(cells)]
        draw_losses(axes[1], report, columns[1:], numbers, [own[0] for own in reversed(cells)])
    picture = BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": "quintain"})
    return picture.getvalue()


def draw_ideas(axes: Any, report: Report, names: Sequence[str]) -> None:
    """Draw the cosine of each idea with its interval, from the lowest up."""
    for place, name in enumerate(names):
        row = report.row(name)
        color = GREY if name == FLOOR else BLUE
        axes.plot([row.low, row.high], [place, place], color=color, linewidth=2, solid_capstyle="round")
        axes.plot([row.cosine], [place], "o", color=color, markersize=6)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.axvline(report.row("group").cosine, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("cosine with the gradient of success (95 %)")
    finish(axes)


def draw_losses(
    axes: Any, report: Report, losses: Sequence[str], numbers: Sequence[Sequence[float]], names: Sequence[str]
) -> None:
    """Draw the map of cosines of the second update."""
    limit = max(abs(number) for own in numbers for number in own) or 1.0
    axes.imshow(numbers, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", origin="lower")
    for row, own in enumerate(numbers):
        for column, number in enumerate(own):
            color = "white" if abs(number) > 0.6 * limit else INK
            axes.text(column, row, f"{number:.2f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(losses)), losses, rotation=35, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(
        f"the second update, by loss ({100 * report.outside:.0f} % of the tokens outside 0.8 … 1.2)"
    )
    finish(axes)


def finish(axes: Any) -> None:
    """Give `axes` the looks of the other pictures."""
    axes.tick_params(length=0, labelcolor=SOFT, labelsize=8)
    axes.xaxis.label.set_color(SOFT)
    axes.xaxis.label.set_fontsize(8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)

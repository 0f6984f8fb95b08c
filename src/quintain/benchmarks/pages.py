"""Results of benchmarks as documentation: a table and a curve in the page of each method, and one table of all.

What is written stands between two marks in a page and is replaced as a whole. The one rule: every number comes
from the file of results; nothing here is written by hand.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from quintain.eval.pictures import BLUE, GREY, add_legend, empty_axes, svg_of

START_MARK = "<!-- measured: written by `quintain bench methods --pages`, do not edit -->"
END_MARK = "<!-- end of measured -->"
BEFORE = "**What to look for.**"
"""What the block stands in front of in a page that has none yet."""
TIMES = {"end": "at the end", "run": "over the run"}
COLORS = {"method": BLUE, "baseline": GREY}
Points = Sequence[tuple[float, float]]
Row = Mapping[str, Any]


def write_pages(results: Mapping[str, Row], pages: Mapping[str, str], docs: Path, family: str) -> list[Path]:
    """Write what `results` (name → row) say into the pages below `docs` and return the files that were written.

    `pages` has the page of each recipe, below ``docs/methods``.
    """
    written = [docs / "methods" / f"{family}-results.md"]
    of_page: dict[str, list[str]] = {}
    for name, row in results.items():
        picture = docs / "images" / family / f"{name}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(curve_svg(row), encoding="utf-8")
        of_page.setdefault(pages[row["method"]], []).append(section(name, row, family))
        written.append(picture)
    written[0].write_text(overview(results, pages, family), encoding="utf-8")
    for page, sections in of_page.items():
        file = docs / "methods" / page
        text = file.read_text(encoding="utf-8")
        block = "\n\n".join([START_MARK, *sections, END_MARK])
        file.write_text(with_block(text, block), encoding="utf-8")
        written.append(file)
    return written


def with_block(text: str, block: str) -> str:
    """Return the page `text` with `block` in place of the one it has, or before "What to look for", or at its end."""
    if START_MARK in text and END_MARK in text:
        before, _, rest = text.partition(START_MARK)
        return before + block + rest.partition(END_MARK)[2]
    if BEFORE in text:
        return text.replace(BEFORE, f"{block}\n\n{BEFORE}", 1)
    return f"{text.rstrip()}\n\n{block}\n"


def section(name: str, row: Row, family: str) -> str:
    """Return what the page of a method says of the benchmark `name`."""
    method, baseline = titles(row)
    what, model = row["measure"].removeprefix("eval/"), row["shared"].get("model", "tiny")
    at, other = ("end", "run") if row["at"] == "end" else ("run", "end")
    gains = {"end": row["gain_at_end"], "run": row["gain_in_area"]}
    elsewhere = row["shared"].get("eval_environment", "")
    where = f"`{row['environment']}`" + (f", evaluated on `{elsewhere}`," if elsewhere else "")
    lines = [
        f"**Measured** on {row['date']} on {where} with the model `{model}`, "
        f"{len(row['seeds'])} seeds, each arm with the same start and budget{rates(row)}. {verdict(row)}",
        "",
        f"| | {method} | {baseline} |",
        "|---|---|---|",
        f"| {what} {TIMES[at]}, 95 % interval "
        f"| {interval(row['method_result'])} | {interval(row['baseline_result'])} |",
    ]
    for title, key, form in (
        (f"{what} {TIMES[other]}", "area" if other == "run" else "value", ".3f"),
        ("environment steps", "turns", ",.0f"),
        ("sampled tokens", "tokens", ",.0f"),
        ("seconds of a run", "seconds", ".0f"),
    ):
        cells = [f"{mean(row, arm, key):{form}}" for arm in ("method", "baseline")]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} |")
    lines += [
        "",
        f"Difference in favour of the method: {interval(gains[at], '+')} {TIMES[at]}, "
        f"{interval(gains[other], '+')} {TIMES[other]}; better in {row['gain']['wins']} of {len(row['seeds'])} seeds.",
        "",
        f"![{what} of {name} and its baseline over environment steps](../images/{family}/{name}.svg)",
        "",
        f"```\n{row['command']}\n```",
    ]
    return "\n".join(lines)


def rates(row: Row) -> str:
    """Return which learning rates were chosen, as the end of a sentence; nothing where there was no choice."""
    found = row.get("rates", {})
    if not found.get("tried"):
        return ""
    tried = ", ".join(f"{rate:g}" for rate in found["tried"])
    return (
        f" and the learning rate that was best on a seed of its own (of {tried}: {found['method']:g} and "
        f"{found['baseline']:g})"
    )


def titles(row: Row) -> tuple[str, str]:
    """Return how method and baseline are called: the baseline with what it is set to, where it is the same recipe."""
    settings = ", ".join(f"{key} {value}" for key, value in sorted(row["baseline_settings"].items()))
    is_same = row["baseline"] == row["method"]
    return f"`{row['method']}`", f"`{row['baseline']}`" + (f" ({settings})" if is_same and settings else "")


def verdict(row: Row) -> str:
    """Return whether the claim held, and what was tried where it did not."""
    if row["is_better"]:
        doubt = "" if row["gain"]["low"] > 0 else ", though the interval of the difference includes 0"
        return f"The claim held{doubt}: {row['claim']}"
    tried = f" {row['tried']}" if row["tried"] else ""
    return f"The claim did not hold here: {row['claim']}{tried}"


def mean(row: Row, arm: str, key: str) -> float:
    """Return the mean of `key` over the seeds of `arm`."""
    values = [part[key] for part in row[f"{arm}_result"]["by_seed"]]
    return sum(values) / len(values)


def interval(part: Mapping[str, float], sign: str = "") -> str:
    """Return a mean with its interval: ``0.812 [0.771, 0.854]``."""
    return f"{part['mean']:{sign}.3f} [{part['low']:{sign}.3f}, {part['high']:{sign}.3f}]"


def overview(results: Mapping[str, Row], pages: Mapping[str, str], family: str) -> str:
    """Return the page with all results of the family."""
    held = sum(row["is_better"] for row in results.values())
    lines = [
        f"# Results of the family `{family}`",
        "",
        "Every method against its baseline, from the same start, with the same budget of environment steps and sampled "
        "tokens: means over seeds with 95 % intervals. Most arms learn at the rate that was best on a seed that is "
        "not compared; the pages say which. A gain is in favour of the method where it is above 0; "
        f"{held} of {len(results)} claims held (a positive mean, and better in two thirds of the seeds; where nothing "
        "is to be lost, a mean within what is allowed). Models have a few hundred thousand parameters and budgets are "
        "small, so a claim that did not hold here is not refuted. The "
        f"numbers, with every seed and the time it took, are in [`{family}.json`](../results/{family}.json).",
        "",
        "| benchmark | world | measure | method | baseline | gain | seeds won | held |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        method, baseline = titles(row)
        cells = (
            f"[{name}]({pages[row['method']]})",
            f"`{row['environment']}`",
            row["measure"].removeprefix("eval/") + (" over the run" if row["at"] == "run" else ""),
            f"{method} {interval(row['method_result'])}",
            f"{baseline} {interval(row['baseline_result'])}",
            interval(row["gain"], "+"),
            f"{row['gain']['wins']} of {len(row['seeds'])}",
            "yes" if row["is_better"] else "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def curve_svg(row: Row) -> str:
    """Return the curves of all seeds of both arms over environment steps, and their means, as an SVG picture."""
    axes = empty_axes(8, 3.4)
    for arm, name in reversed(list(zip(COLORS, titles(row), strict=True))):
        curves: list[Points] = [part["curve"] for part in row[f"{arm}_result"]["by_seed"]]
        style: dict[str, Any] = {"color": COLORS[arm], "solid_capstyle": "round"}
        for number, curve in enumerate(curves):
            axes.plot(*zip(*curve, strict=True), linewidth=1, alpha=0.35, gid=f"{arm}-{number}", **style)
        if mean := mean_curve(curves):
            label = name.replace("`", "")
            axes.plot(*zip(*mean, strict=True), linewidth=2.5, label=label, gid=f"{arm}-mean", **style)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), 1.05 if 0.5 < high <= 1.1 else high)
    axes.set_xlim(left=0)
    axes.set(xlabel="environment steps", ylabel=row["measure"].removeprefix("eval/"))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    add_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, reverse=True)
    return svg_of(axes) + "\n"


def mean_curve(curves: Sequence[Points], num: int = 24) -> list[tuple[float, float]]:
    """Return the mean height of `curves` at `num` + 1 places up to where the first of them ends."""
    if not curves or not all(curves):
        return []
    end = min(curve[-1][0] for curve in curves)
    places = [end * k / num for k in range(num + 1)]
    return [(x, sum(height(curve, x) for curve in curves) / len(curves)) for x in places]


def height(curve: Points, x: float) -> float:
    """Return how high the line through `curve` is at `x`; its ends go on level."""
    for (x1, y1), (x2, y2) in pairwise(curve):
        if x <= x2:
            share = min(max((x - x1) / (x2 - x1), 0.0), 1.0) if x2 > x1 else 1.0
            return y1 + share * (y2 - y1)
    return curve[-1][1]

"""Evidence as documentation: what each row stands on, the league, and a section in the page of each method.

Every number and every word of a verdict comes from the results; nothing here is written by hand. What stands between
two marks in a page is replaced as a whole. Comparisons that were run before the standard are kept as what they are:
few seeds, exploratory.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from quintain.benchmarks.evidence.inference import Estimate, estimate
from quintain.benchmarks.evidence.league import Earlier, Outcome
from quintain.benchmarks.evidence.standing import Standing
from quintain.benchmarks.evidence.verdict import Check
from quintain.eval.pictures import BLUE, GREY, add_legend, empty_axes, svg_of

START_MARK = "<!-- measured: written by `quintain bench methods --pages`, do not edit -->"
END_MARK = "<!-- end of measured -->"
BEFORE = "**What to look for.**"
"""What the block stands in front of in a page that has none yet."""
TIMES = {"end": "at the end", "run": "over the run"}
COLORS = {"method": BLUE, "baseline": GREY}
Points = Sequence[tuple[float, float]]
Row = Mapping[str, Any]


def write(standings: Mapping[str, Standing], folder: Path) -> list[Path]:
    """Write the pages of results in `folder` and the sections of methods beside it, and return the files.

    `folder` is ``docs/results``; earlier comparisons are in its ``rl.json``, and methods in ``docs/methods``.
    """
    docs = folder.parent
    written = [folder / "index.md", folder / "league.md"]
    folder.mkdir(parents=True, exist_ok=True)
    written[0].write_text(overview(standings), encoding="utf-8")
    written[1].write_text(league_page(standings), encoding="utf-8")
    sections: dict[str, list[str]] = {row: [evidence(found)] for row, found in standings.items()}
    for file in sorted(folder.glob("rl.json")):
        family, results = file.stem, json.loads(file.read_text(encoding="utf-8"))
        for name, row in results.items():
            picture = docs / "images" / family / f"{name}.svg"
            picture.parent.mkdir(parents=True, exist_ok=True)
            if not picture.exists():
                picture.write_text(curve_svg(row), encoding="utf-8")
                written.append(picture)
            sections.setdefault(row["method"], []).append(section(name, row, family))
        earlier = docs / "methods" / f"{family}-results.md"
        earlier.parent.mkdir(parents=True, exist_ok=True)
        earlier.write_text(earlier_page(results, family), encoding="utf-8")
        written.append(earlier)
    for row, texts in sections.items():
        page = docs / "methods" / f"{row}.md"
        if page.exists():
            block = "\n\n".join([START_MARK, *texts, END_MARK])
            page.write_text(with_block(page.read_text(encoding="utf-8"), block), encoding="utf-8")
            written.append(page)
    return written


def overview(standings: Mapping[str, Standing]) -> str:
    """Return the page of all rows: what each layer says, and what is missing."""
    lines = [
        "# Evidence",
        "",
        "A row *works* when four layers say so: its worlds pay for what is measured (objective), its formulas compute "
        "what the paper says (formula), its mechanism does what it is said to do, against a matched control and not in "
        "a null world (signature), and it is not worse than the baseline of its paper at equal budget (league). "
        "*Better here*, *not worse* and *unresolved* are what the league says. Whatever lacks one of these is *not "
        "shown*. Every line of every run, failures and earlier versions of a claim included, is in the file of its "
        "row.",
        "",
        "```",
        "quintain bench methods --family rl --layer objective|formula|signature|league",
        "quintain bench methods --pages && python docs/tables.py",
        "```",
        "",
        "| row | state | objective | formula | signature | league | missing |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, found in standings.items():
        cells = (
            f"`{row}`",
            found.word,
            passed(found.objective),
            passed(found.formula),
            "; ".join(claim_cell(found, k) for k in range(len(found.claims))),
            found.badge or "-",
            ", ".join(found.missing) or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *taken(standings)]) + "\n"


def taken(standings: Mapping[str, Standing]) -> list[str]:
    """Return a table of what the measurements that stand took, in minutes of one process, by family."""
    lines = [
        "What the recorded measurements took, in minutes of one process with one thread: of processor time where lines "
        "carry it (`processor_seconds`; making the policy to start from is in it where that was needed), else of the "
        "clock, on a machine that others used too, which is more than they need. A run that several rows share counts "
        "once. Runs for learning rates are not recorded and not in it.",
        "",
        "| family | signatures | league | runs of the league |",
        "|---|---|---|---|",
    ]
    for family in dict.fromkeys(found.family for found in standings.values()):
        own = [found for found in standings.values() if found.family == family]
        claims = sum(state.seconds for found in own for state in found.claims)
        runs = {
            run: seconds for found in own if found.league for run, seconds in found.league.seconds.items()
        }
        lines.append(f"| {family} | {claims / 60:.0f} | {sum(runs.values()) / 60:.0f} | {len(runs)} |")
    return lines


def passed(checks: Sequence[Check] | None) -> str:
    """Return how many checks passed."""
    return "-" if checks is None else f"{sum(check.has_passed for check in checks)} of {len(checks)}"


def claim_cell(found: Standing, place: int) -> str:
    """Return what was measured of a claim: ``shown, +0.07 [0.05, 0.09] correlation, version 1 (gigpo.jsonl)``."""
    state = found.claims[place]
    effect = state.verdict().effect
    told = "" if effect is None else f", {with_interval(effect, '+')} {state.signature.unit}"
    row = state.signature.row
    source = f", version {state.version} ([{row}.jsonl]({row}.jsonl))" if state.num_lines else ""
    return f"{state.word()}{told}{source}"


def league_page(standings: Mapping[str, Standing]) -> str:
    """Return the league: one table that can be sorted by any column."""
    lines = [
        "# The league",
        "",
        "Each method against the baseline that its paper compares with, on the world of its row, at equal budget, from "
        "one start and at one learning rate: where several are registered, the baseline's best over three tuning "
        "seeds. A seed draws its own training and held-out tasks (512). Seeds come in a sequence of 6, 10 and 16 that "
        "spends an error of .05; intervals are simultaneous (Dunnett) in an additive model of arm and seed. *Better* "
        "stands when it survives the correction over rows (Benjamini-Hochberg, 5 %), with the same sign at half and at "
        "double the rate; until both were run it is called *not worse*. *Refused*: an alarm for hacking or length held "
        "in an arm when a run of it ended. What was registered anew, on another world or with other settings, is a new "
        "version, and those before it stand beside it. Click on a heading to sort.",
        "",
        "| method | baseline | world | model | budget | verdict | difference | seeds | at ½ and 2× the rate | against "
        "itself | earlier versions | used by the method | used by the baseline | command |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row, found in standings.items():
        claim = next((state.signature for state in found.claims if state.signature.league is not None), None)
        if found.league is None or claim is None or claim.league is None:
            continue
        league, outcome = claim.league, found.league
        cells = (
            f"[`{row}`](../methods/{row}.md)",
            f"`{league.baseline}`",
            f"`{league.world}`",
            str(league.shared.get("model", "mini")),
            f"{league.budget:,} {league.axis}",
            found.badge + ("" if outcome.has_headroom else ", without headroom"),
            difference(outcome),
            "-" if outcome.bound is None else str(outcome.bound.num),
            ", ".join(f"{mean:+.3f}" for _, mean in sorted(outcome.signs.items())) or "-",
            "-" if outcome.again is None else with_interval(outcome.again, "+"),
            "; ".join(map(version_cell, outcome.earlier)) or "-",
            spent(outcome, "method"),
            spent(outcome, "baseline"),
            f"`{outcome.command}`" if outcome.command else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def difference(outcome: Outcome) -> str:
    """Return the difference with its simultaneous one-sided bounds."""
    bound = outcome.bound
    return "-" if bound is None else f"{bound.mean:+.3f} [{bound.low:+.3f}, {bound.high:+.3f}]"


def version_cell(found: Earlier) -> str:
    """Return what came of an earlier version: ``version 1: +0.022, 10 seeds (refused, method: length)``."""
    told = f" (refused, {', '.join(found.refused)})" if found.refused else ""
    return f"version {found.version}: {found.mean:+.3f}, {found.num} seeds{told}"


def spent(outcome: Outcome, arm: str) -> str:
    """Return what an arm used on average, on all four axes."""
    if arm not in outcome.used:
        return "-"
    used = outcome.used[arm]
    return (
        f"{used['turns']:,.0f} steps, {used['tokens']:,.0f} tokens, {used['updates']:,.0f} updates, "
        f"{used['seconds']:,.0f} s"
    )


def with_interval(found: Estimate, sign: str = "") -> str:
    """Return a mean with its interval: ``0.812 [0.771, 0.854]``."""
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def evidence(found: Standing) -> str:
    """Return what the page of a method says of its row: the state, every claim with its checks, and the league."""
    missing = f" Missing: {', '.join(found.missing)}." if found.missing else ""
    lines = [f"**Evidence: {found.word}.**{missing} See [all rows](../results/index.md)."]
    for state in found.claims:
        claim = state.signature
        lines += [
            "",
            f"*{claim.row}*, registered {claim.registered}, version {state.version} of the claim, "
            f"{state.num_lines} lines of results: {claim.number}, in `{claim.world}`. Control: {claim.control}. Null "
            f"world: {claim.null}."
            + (f" Departs from what was proposed: {claim.departs}." if claim.departs else "")
            + (" Measured with an earlier form of the experiment." if state.is_stale else ""),
        ]
        lines += ["", *bullets(state.verdict().checks)] if state.blocks else []
        lines += ["", *(f"    {command}" for command in state.commands)] if state.commands else []
    for title, checks in (("Objective", found.objective), ("Formula", found.formula)):
        if checks:
            lines += ["", f"{title}:", "", *bullets(checks)]
    return "\n".join(lines)


def bullets(checks: Sequence[Check]) -> list[str]:
    """Return a line for each check."""
    return [f"- {'✓' if check.has_passed else '✗'} {check.name}: {check.detail}" for check in checks]


def with_block(text: str, block: str) -> str:
    """Return the page `text` with `block` in place of the one it has, or before "What to look for", or at its end."""
    if START_MARK in text and END_MARK in text:
        before, _, rest = text.partition(START_MARK)
        return before + block + rest.partition(END_MARK)[2]
    if BEFORE in text:
        return text.replace(BEFORE, f"{block}\n\n{BEFORE}", 1)
    return f"{text.rstrip()}\n\n{block}\n"


def section(name: str, row: Row, family: str) -> str:
    """Return what the page of a method says of the earlier comparison `name`."""
    method, baseline = titles(row)
    what, model = row["measure"].removeprefix("eval/"), row["shared"].get("model", "tiny")
    at, other = ("end", "run") if row["at"] == "end" else ("run", "end")
    gains = {"end": gain(row, "value"), "run": gain(row, "area")}
    elsewhere = row["shared"].get("eval_environment", "")
    where = f"`{row['environment']}`" + (f", evaluated on `{elsewhere}`," if elsewhere else "")
    compared = "value" if at == "end" else "area"
    lines = [
        f"**Earlier, exploratory:** {row['date']}, {where} with the model `{model}`, {len(row['seeds'])} seeds, the "
        f"same held-out tasks for all of them{rates(row)}; intervals are t intervals over seeds. Too few seeds for a "
        f"verdict. Asked was: {row['claim']}{' Seen here: ' * bool(row['tried'])}{row['tried']}",
        "",
        f"| | {method} | {baseline} |",
        "|---|---|---|",
        f"| {what} {TIMES[at]} | {with_interval(spread(row, 'method', compared))} "
        f"| {with_interval(spread(row, 'baseline', compared))} |",
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
        f"Difference in favour of the method: {with_interval(gains[at], '+')} {TIMES[at]}, "
        f"{with_interval(gains[other], '+')} {TIMES[other]}.",
        "",
        f"![{what} of {name} and its baseline over environment steps](../images/{family}/{name}.svg)",
    ]
    return "\n".join(lines)


def spread(row: Row, arm: str, key: str) -> Estimate:
    """Return the mean of an arm over seeds with its t interval."""
    return estimate([[float(part[key]) for part in row[f"{arm}_result"]["by_seed"]]])


def gain(row: Row, key: str) -> Estimate:
    """Return the paired difference over seeds, in favour of the method, with its t interval."""
    first, second = (
        [float(part[key]) for part in row[f"{arm}_result"]["by_seed"]] for arm in ("baseline", "method")
    )
    # Which way the measure points is not stored: the sign of the stored mean says it.
    known = row["gain_at_end" if key == "value" else "gain_in_area"]["mean"]
    differences = [b - a for a, b in zip(first, second, strict=True)]
    sign = -1.0 if known * sum(differences) < 0 else 1.0
    return estimate([[sign * difference for difference in differences]])


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


def mean(row: Row, arm: str, key: str) -> float:
    """Return the mean of `key` over the seeds of `arm`."""
    values = [part[key] for part in row[f"{arm}_result"]["by_seed"]]
    return sum(values) / len(values)


def earlier_page(results: Mapping[str, Row], family: str) -> str:
    """Return the page of comparisons that were run before the standard."""
    lines = [
        f"# Earlier comparisons of the family `{family}`",
        "",
        "Each method against a baseline, with the same budget of environment steps and sampled tokens, over three "
        "seeds (some six), on held-out tasks that all seeds share. Most arms learned at the rate that was best on one "
        "seed, each at its own. Arms that act through different harnesses, and some that imitate, do not share their "
        "start. That is too little for a verdict, and none is drawn here: intervals are t intervals over seeds, "
        "most include 0, and nobody should choose a method by them. What is shown, and how, stands in "
        "[the evidence](../results/index.md); the numbers, with every seed, in "
        f"[`{family}.json`](../results/{family}.json).",
        "",
        "| comparison | world | measure | method | baseline | difference | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        method, baseline = titles(row)
        key = "value" if row["at"] == "end" else "area"
        cells = (
            f"[{name}]({row['method']}.md)",
            f"`{row['environment']}`",
            row["measure"].removeprefix("eval/") + (" over the run" if row["at"] == "run" else ""),
            f"{method} {with_interval(spread(row, 'method', key))}",
            f"{baseline} {with_interval(spread(row, 'baseline', key))}",
            with_interval(gain(row, key), "+"),
            str(len(row["seeds"])),
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

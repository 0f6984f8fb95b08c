"""Evidence as documentation: what each row stands on, the league, and a section in the page of each method.

Every number and every word of a verdict comes from the results; nothing here is written by hand. What stands between
two marks in a page is replaced as a whole.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain_evidence.layers.inference import Estimate
from quintain_evidence.layers.league import Earlier, Outcome
from quintain_evidence.layers.standing import Standing
from quintain_evidence.layers.verdict import Check

START_MARK = "<!-- measured: written by `quintain bench methods --pages`, do not edit -->"
END_MARK = "<!-- end of measured -->"
BEFORE = "**What to look for.**"
"""What the block stands in front of in a page that has none yet."""


def write(standings: Mapping[str, Standing], results: Path, docs: Path) -> list[Path]:
    """Write ``results`` of the documentation in `docs` and the sections of its ``methods``, and return the files.

    `results` is the folder of the lines that rows link to.
    """
    folder = docs / "results"
    written = [folder / "index.md", folder / "league.md"]
    folder.mkdir(parents=True, exist_ok=True)
    link = Path(os.path.relpath(results.resolve(), folder.resolve())).as_posix()
    written[0].write_text(overview(standings, link), encoding="utf-8")
    written[1].write_text(league_page(standings), encoding="utf-8")
    for row, found in standings.items():
        page = docs / "methods" / f"{row}.md"
        if page.exists():
            block = f"{START_MARK}\n\n{evidence(found)}\n\n{END_MARK}"
            page.write_text(with_block(page.read_text(encoding="utf-8"), block), encoding="utf-8")
            written.append(page)
    return written


def overview(standings: Mapping[str, Standing], link: str) -> str:
    """Return the page of all rows: what each layer says, and what is missing; `link` leads to their results."""
    lines = [
        "# Evidence",
        "",
        "A row *works* when four layers say so: its worlds pay for what is measured (objective), its formulas compute "
        "what the paper says (formula), its mechanism does what it is said to do, against a matched control and not in "
        "a null world (signature), and it is not worse than the baseline of its paper at equal budget (league). "
        "*Better here*, *not worse* and *unresolved* are what the league says. Whatever lacks one of these is *not "
        "shown*. *Before a change*: something of the method was changed after it was measured, as its page says. "
        "Every line of every run, failures and earlier versions of a claim included, is in the file of its "
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
            found.word + ", before a change" * any(state.signature.outdated for state in found.claims),
            passed(found.objective),
            passed(found.formula),
            "; ".join(claim_cell(found, k, link) for k in range(len(found.claims))),
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


def claim_cell(found: Standing, place: int, link: str) -> str:
    """Return what was measured of a claim: ``shown, +0.07 [0.05, 0.09] correlation, version 1 (gigpo.jsonl)``."""
    state = found.claims[place]
    effect = state.verdict.effect
    told = "" if effect is None else f", {with_interval(effect, '+')} {state.signature.unit}"
    row = state.signature.row
    source = f", version {state.version} ([{row}.jsonl]({link}/{row}.jsonl))" if state.num_lines else ""
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
    lines += [
        f"\n**Measured before a change, and not measured again yet.** {state.signature.outdated}"
        for state in found.claims
        if state.signature.outdated
    ]
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
        lines += ["", *bullets(state.verdict.checks)] if state.blocks else []
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

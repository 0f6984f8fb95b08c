"""Evidence as documentation: what is known of each row, the league, and a section in the page of each method.

Every number and every word of a column comes from the results; nothing here is written by hand. What stands between
two marks in a page is replaced as a whole. What a page has no room for, every check and what was tried before, is in
``history/<row>.md`` beside the results.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from quintain_evidence.layers.comparison import Comparison
from quintain_evidence.layers.inference import Estimate
from quintain_evidence.layers.league import Earlier, Outcome
from quintain_evidence.layers.mechanism import SHOWN
from quintain_evidence.layers.promises import Promise
from quintain_evidence.layers.standing import Claim, Standing
from quintain_evidence.layers.verdict import Check

START_MARK = "<!-- measured: written by `quintain bench methods --pages`, do not edit -->"
END_MARK = "<!-- end of measured -->"
BEFORE = "**What to look for.**"
"""What the block stands in front of in a page that has none yet."""
BEHIND, REINFORCED = ("unresolved", "worse"), ("critic", "rl", "toolrl")
"""Verdicts that do not speak for a method, and families that learn by reinforcement."""
HISTORY = "history"
"""Folder of the histories, beside the distribution's own."""


def write(standings: Mapping[str, Standing], results: Path, docs: Path, history: Path) -> list[Path]:
    """Write ``results`` of the documentation in `docs`, the sections of its ``methods`` and the measured part of every
    file in `history`, and return the files that were others before.

    `results` is the folder of the lines that rows link to.
    """
    folder = docs / "results"
    changed: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    link = Path(os.path.relpath(results.resolve(), folder.resolve())).as_posix()
    changed += write_changed(folder / "index.md", overview(standings, link))
    changed += write_changed(folder / "league.md", league_page(standings))
    history.mkdir(parents=True, exist_ok=True)
    for row, found in standings.items():
        page = docs / "methods" / f"{row}.md"
        past = history / f"{row}.md"
        if page.exists():
            beside = Path(os.path.relpath(past.resolve(), page.parent.resolve())).as_posix()
            changed += replace_block(page, evidence(found, beside))
        if not past.exists():
            past.write_text(f"# {found.title}: what was tried\n", encoding="utf-8")
        changed += replace_block(past, past_of(found))
    return changed


def write_changed(file: Path, text: str) -> list[Path]:
    """Write `text` into `file` where it holds another, or is none, and return the file then."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return []
    file.write_text(text, encoding="utf-8")
    return [file]


def replace_block(page: Path, text: str) -> list[Path]:
    """Put `text` between the marks of `page`, and return the page where that changes it."""
    block = f"{START_MARK}\n\n{text}\n\n{END_MARK}"
    return write_changed(page, with_block(page.read_text(encoding="utf-8"), block))


def overview(standings: Mapping[str, Standing], link: str) -> str:
    """Return the page of all rows: three columns and a promise, and why; `link` leads to their results."""
    lines = [
        "# Evidence",
        "",
        "Three columns and a promise, each computed from what is stored; none is typed by hand, and none stands for "
        "another.",
        "",
        "- **Formula**: does it compute what the paper says? It *holds* where it equals a second version, plainly "
        "written, and wrong ones are found; it *departs* where the page says in what.",
        "- **Mechanism**: does it do what the paper says, for the reason that it says? *Shown* needs a registered "
        "claim that holds against its matched control and vanishes in a null world, **and** the same effect over the "
        "nearest rival that lacks the idea alone; at the method's defaults; in one of two versions of the claim; as "
        "the method is now. A *property* must hold always. All else is *not shown*, with the reason.",
        "- **Comparison**: is it better than what its paper compares it with, here, at equal budget? *Better*, *not "
        "worse* (than by the margin), *unresolved* or *worse*. It is *none* where the arms differ in more than the "
        "idea or where nothing could be told apart: starts further apart than .03; another world, model, reward or "
        "teacher in one arm; optimizer steps a quarter apart; a warm-up of more than a tenth of an arm; settings that "
        "are not the method's defaults; a baseline that gains less than .05; values that no seed changes; a third "
        "version. What cannot be computed from what is stored counts as a reason, too. What the values alone say "
        "stands beside it, and the worst that those of any version say.",
        "- **Real model**: was it seen to train SmolLM2-135M-Instruct end to end, a few updates by LoRA, resumed once?",
        "",
        "*Done* is a row whose formula holds, whose mechanism is shown or a property, and which runs on a real model. "
        "P-values are corrected over all versions of all rows (Benjamini-Hochberg, 5 %). Every line of every run, "
        "failures and earlier versions of a claim included, is in the file of its row.",
        "",
        "```",
        "quintain bench methods --family rl --layer objective|formula|signature|league",
        "quintain bench promise --only gigpo",
        "quintain bench methods --pages && python docs/tables.py",
        "```",
        "",
        counted(standings),
        "",
        count_behind(standings),
        "",
        list_behind(standings),
        "",
        "| row | done | formula | mechanism | over the rival | comparison | by its values | real model | why not |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, found in standings.items():
        cells = (
            f"[`{row}`](../methods/{row}.md)",
            "yes" if found.is_done else "no",
            found.formula,
            "; ".join(claim_cell(each, link) for each in found.claims),
            "; ".join(lead_cell(each) for each in found.claims),
            found.compared,
            value_cell(found.comparison),
            promise_cell(found),
            ". ".join(why_not(found)) or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *taken(standings)]) + "\n"


def counted(standings: Mapping[str, Standing]) -> str:
    """Return how many rows have each value, in a sentence."""
    rows = list(standings.values())

    def told(values: Sequence[str], seen: Sequence[str]) -> str:
        return ", ".join(f"{seen.count(value)} *{value}*" for value in values if value in seen)

    return (
        f"Of {len(rows)} rows: formula {told(('holds', 'departs', 'not run'), [r.formula for r in rows])}; mechanism "
        f"{told((SHOWN, 'property', 'not shown'), [r.mechanism for r in rows])}; comparison "
        f"{told(('better', 'not worse', 'unresolved', 'worse', 'none'), [r.compared for r in rows])}; "
        f"{sum(r.has_promise for r in rows)} on a real model; {sum(r.is_done for r in rows)} done."
    )


def count_behind(standings: Mapping[str, Standing]) -> str:
    """Return how many comparisons that are not decided for the method are behind the baseline, in two sentences."""
    found = {
        row: (each.family, each.comparison.by_values, each.comparison.outcome.bound.mean)
        for row, each in standings.items()
        if each.comparison is not None and each.comparison.outcome.bound is not None
    }
    undecided = {row: told for row, told in found.items() if told[1] in BEHIND}
    others = {row: told for row, told in undecided.items() if told[0] not in REINFORCED}

    def told(rows: Mapping[str, tuple[str, str, float]]) -> str:
        return f"{sum(mean < 0 for _, _, mean in rows.values())} of {len(rows)}"

    return (
        "By its values, whatever else forbids a verdict, a comparison is *unresolved* or *worse* in "
        f"{len(undecided)} of {len(found)} rows; {told(undecided)} have a mean **below the baseline's**, and "
        f"{told(others)} outside of "
        f"{', '.join(f'`{name}`' for name in REINFORCED)}. *Unresolved* says that few seeds do not exclude 0, not that "
        "nothing is lost."
    )


def list_behind(standings: Mapping[str, Standing]) -> str:
    """Return every row whose mean is below its baseline's where its values say unresolved or worse, the worst first."""
    found = [
        (each.comparison.outcome.bound.mean, row)
        for row, each in standings.items()
        if each.comparison is not None
        and each.comparison.outcome.bound is not None
        and each.comparison.by_values in BEHIND
    ]
    told = [f"[`{row}`](../methods/{row}.md) {mean:+.3f}" for mean, row in sorted(found) if mean < 0]
    return f"Behind: {', '.join(told)}." if told else ""


def why_not(found: Standing) -> list[str]:
    """Return the reasons of what a row lacks, each a sentence without its end."""
    told: list[str] = []
    if found.departs:
        told.append(f"Formula: {found.departs.rstrip('.')}")
    for each in found.claims:
        if each.mechanism.reasons:
            told.append(f"{each.state.signature.row}: {'; '.join(each.mechanism.reasons)}")
    if found.comparison is not None and found.comparison.reasons:
        told.append(f"Comparison: {'; '.join(found.comparison.reasons)}")
    return told


def value_cell(found: Comparison | None) -> str:
    """Return what the values of a comparison say, whatever else forbids a verdict."""
    if found is None or found.outcome.bound is None:
        return "-"
    worst = "" if found.worst == found.by_values else f", a version before {found.worst}"
    return f"{found.by_values} {difference(found.outcome)}{worst}"


def promise_cell(found: Standing) -> str:
    """Return since when a row is known to run on a real model."""
    if found.promise is None:
        return "no"
    return f"yes, {found.promise.date}" if found.has_promise else f"no, tried {found.promise.date}"


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
        claims = sum(each.state.seconds for found in own for each in found.claims)
        runs = {
            run: seconds
            for found in own
            if found.comparison
            for run, seconds in found.comparison.outcome.seconds.items()
        }
        lines.append(f"| {family} | {claims / 60:.0f} | {sum(runs.values()) / 60:.0f} | {len(runs)} |")
    return lines


def claim_cell(found: Claim, link: str) -> str:
    """Return what was measured of a claim: ``shown, +0.07 [0.05, 0.09] correlation, version 1 (gigpo.jsonl)``."""
    state = found.state
    effect = state.verdict.effect
    told = "" if effect is None else f", {with_interval(effect, '+')} {state.signature.unit} over the control"
    row = state.signature.row
    source = f", version {state.version} ([{row}.jsonl]({link}/{row}.jsonl))" if state.num_lines else ""
    return f"{found.mechanism.value}{told}{source}"


def lead_cell(found: Claim) -> str:
    """Return the lead over the rival that lacks the idea alone."""
    lead = found.mechanism.lead
    return "-" if lead is None else with_interval(lead.effect, "+")


def league_page(standings: Mapping[str, Standing]) -> str:
    """Return the league: one table that can be sorted by any column."""
    lines = [
        "# The league",
        "",
        "Each method beside the baseline that its paper compares with, on the world of its row, at one learning rate: "
        "where several are registered, the baseline's best over three tuning seeds. A seed draws its own training and "
        "held-out tasks (512). Seeds come in a sequence of 6, 10 and 16 that spends an error of .05, all that is left "
        "of it at the last look; intervals are simultaneous (Dunnett) in an additive model of arm and seed. *Better* "
        "needs the correction over all versions of all rows (Benjamini-Hochberg, 5 %) and the same sign at half and "
        "at double the rate; until both were run it is called *not worse*. *Power* is the chance that a loss of twice "
        "the margin would have been found. *Verdict* is *none* where a gate says why ([all gates](index.md)); what the "
        "values alone say stands beside it. What was registered anew is a new version, and those before it stay. "
        "Click on a heading to sort.",
        "",
        "| method | baseline | world | model | budget | verdict | by values | difference | seeds | power | why none | "
        "at ½ and 2× the rate | against itself | earlier versions | used by the method | used by the baseline | "
        "command |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row, found in standings.items():
        told = found.comparison
        league = next(
            (each.state.signature.league for each in found.claims if each.state.signature.league), None
        )
        if told is None or league is None:
            continue
        outcome = told.outcome
        cells = (
            f"[`{row}`](../methods/{row}.md)",
            f"`{told.baseline}`",
            f"`{told.world}`",
            told.model,
            f"{league.budget:,} {league.axis}",
            told.verdict,
            told.by_values,
            difference(outcome),
            "-" if outcome.bound is None else str(outcome.bound.num),
            "-" if told.power is None else f"{told.power:.2f} of {told.loss:g}",
            "; ".join(told.reasons) or "-",
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
    """Return what came of an earlier version: ``version 1: worse, -0.122, 10 seeds (alarms: method: length)``."""
    told = f" (alarms: {', '.join(found.refused)})" if found.refused else ""
    return f"version {found.version}: {found.verdict}, {found.mean:+.3f}, {found.num} seeds{told}"


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


def evidence(found: Standing, history: str) -> str:
    """Return what the page of a method says of its row: three columns, the promise, and where the rest stands."""
    lines = [
        f"**Known of it.** {'Done' if found.is_done else 'Not done'}: see [all rows](../results/index.md), and "
        f"[every check and what was tried]({history}).",
        "",
        "| | |",
        "|---|---|",
        f"| formula | *{found.formula}*{formula_words(found)} |",
    ]
    for each in found.claims:
        system = f", {each.state.signature.title}" if len(found.claims) > 1 else ""
        lines.append(f"| mechanism{system} | {mechanism_words(each)} |")
    lines.append(f"| comparison | {comparison_words(found.comparison)} |")
    lines += promise_lines(found.promise)
    commands = [command for each in found.claims for command in each.state.commands]
    if found.comparison is not None and found.comparison.outcome.command:
        commands.append(found.comparison.outcome.command)
    if commands:
        lines += ["", *(f"    {command}" for command in dict.fromkeys(commands))]
    return "\n".join(lines)


def formula_words(found: Standing) -> str:
    """Return what the column of the formula stands on."""
    checks = found.checks or ()
    told = f"; {sum(check.has_passed for check in checks)} of {len(checks)} checks pass" if checks else ""
    return f": {found.departs}{told}" if found.departs else told


def mechanism_words(found: Claim) -> str:
    """Return what the column of a mechanism stands on."""
    claim, verdict, lead = found.state.signature, found.state.verdict, found.mechanism.lead
    told = f"*{found.mechanism.value}*: {claim.number}, in {claim.world}"
    if verdict.effect is not None:
        told += f". {with_interval(verdict.effect, '+')} {claim.unit} over the control ({claim.control})"
    else:
        told += "".join(f". {check.detail}" for check in verdict.checks[:1])
    if claim.rival is not None:
        ahead = "" if lead is None else f", {with_interval(lead.effect, '+')}"
        told += f". The rival that lacks the idea alone: {claim.rival.says}{ahead}"
    if found.mechanism.reasons:
        told += f". **Not shown**, for: {'; '.join(found.mechanism.reasons)}"
    return f"{told}.".replace("|", "\\|")


def comparison_words(found: Comparison | None) -> str:
    """Return what the column of the comparison stands on."""
    if found is None:
        return "*none* was made"
    place = f"with `{found.baseline}` in `{found.world}`, {found.model}"
    outcome = found.outcome
    if outcome.bound is None:
        return f"*{found.verdict}*, {place}: {'; '.join(found.reasons)}"
    told = f"*{found.verdict}*, {place}: {difference(outcome)}, {outcome.bound.num} seeds"
    if found.power is not None:
        told += f" (a loss of {found.loss:g} would have been found with a chance of {found.power:.0%})"
    if found.reasons:
        told += f". By its values {found.by_values}, and none, for: {'; '.join(found.reasons)}"
    if found.worst != found.by_values:
        told += f". The worst that the values of a version say: {found.worst}"
    return f"{told}.".replace("|", "\\|")


def promise_lines(found: Promise | None) -> list[str]:
    """Return what the promise stands on; of checks named ``SYSTEM: what``, a line for each system."""
    if found is None or not found.checks:
        return ["| real model | *no*, it was not tried |"]
    systems: dict[str, list[Check]] = {}
    for check in found.checks:
        system, mark, name = check.name.partition(": ")
        systems.setdefault(f", {system}" * bool(mark), []).append(
            replace(check, name=name) if mark else check
        )
    lines: list[str] = []
    for system, checks in systems.items():
        failed = [check for check in checks if not check.has_passed]
        told = "; ".join(f"{check.name}{':' * bool(failed)} {check.detail}" for check in failed or checks)
        word = f"no, tried {found.date}" if failed else f"yes, {found.date}"
        text = f"*{word}* (`{found.command}`): {told}".replace("|", "\\|")
        lines.append(f"| real model{system} | {text} |")
    return lines


def past_of(found: Standing) -> str:
    """Return every check of a row, and what its claims say of how they came to be as they are."""
    lines: list[str] = []
    for each in found.claims:
        state = each.state
        claim = state.signature
        lines += [
            f"## The claim *{claim.row}*",
            "",
            f"Registered {claim.registered}, version {state.version}, {state.num_lines} lines of results: "
            f"{claim.number}, in `{claim.world}`. Control: {claim.control}. Null world: {claim.null}."
            + (" Measured with another form of the experiment or of the method." if state.is_stale else ""),
        ]
        lines += ["", f"Changed since: {claim.outdated}"] if claim.outdated else []
        lines += ["", f"Departs from what was proposed: {claim.departs}."] if claim.departs else []
        lines += ["", *bullets(state.verdict.checks)] if state.blocks else []
        lines.append("")
    for title, checks in (("Objective", found.objective), ("Formula", found.checks)):
        if checks:
            lines += [f"## {title}", "", *bullets(checks), ""]
    if found.comparison is not None and found.comparison.outcome.earlier:
        lines += ["## Earlier comparisons", ""]
        lines += [f"- {version_cell(each)}" for each in found.comparison.outcome.earlier] + [""]
    return "\n".join(lines).rstrip()


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

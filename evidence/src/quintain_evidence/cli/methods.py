"""``quintain bench methods --layer LAYER``: the evidence of methods, layer by layer, with what is missing run.

What was measured is appended to ``results/<row>.jsonl``; what stands there is not run again.
"""

import json
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quintain.cli.tables import show
from quintain.errors import UsageError
from quintain_evidence.layers.records import RESULTS, append, lines, provenance

if TYPE_CHECKING:
    from quintain_evidence.layers.league import Entry, Outcome
    from quintain_evidence.layers.runner import State
    from quintain_evidence.layers.spec import Signature
    from quintain_evidence.layers.verdict import Check

LAYERS = ("objective", "formula", "signature", "league")
COLUMN_LAYERS = {"mechanism": "signature", "comparison": "league"}
"""column of the tables → layer that its results are of, where the two have different names"""
LEAGUE = ("row", "by its values", "method", "baseline", "difference", "seeds", "at other rates")
COLUMNS = ("row", "version", "verdict", "effect", "p", "null world", "blocks", "minutes")


class Bar:
    """Progress over blocks on standard error: a bar on a terminal, a line a block elsewhere."""

    def __init__(self, title: str) -> None:
        """Begin without anything to do."""
        from rich.console import Console
        from rich.progress import Progress

        self.console = Console(stderr=True)
        self._progress = Progress(console=self.console, disable=not self.console.is_terminal)
        self._bar = self._progress.add_task(title, total=0)
        self._done = self._total = 0

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._progress.stop()

    def total(self, num: int) -> None:
        """Say that `num` more blocks are to be run."""
        self._total += num
        self._progress.update(self._bar, total=self._total)

    def advance(self, text: str) -> None:
        """Say that a block is done."""
        self._done += 1
        self._progress.advance(self._bar)
        self.console.print(f"{self._done}/{self._total}  {text}", highlight=False, soft_wrap=True)


def results_of(given: str | None) -> Path:
    """Return the folder that results are added to: `given`, or the package's own in a checkout.

    Raises:
        UsageError: the package is installed, and no folder is given.
    """
    if given is not None:
        return Path(given)
    if not (RESULTS.parents[2] / "pyproject.toml").exists():
        raise UsageError(
            f"--results: got nothing, and those of the installed package are not added to; name a folder, such as "
            f"a copy of {RESULTS}"
        )
    return RESULTS


def run_layer(layer: str, arguments: Namespace, jobs: int) -> int:
    """Run what a layer lacks and print what it says; 0 where every run went through."""
    return {
        "objective": run_objective,
        "formula": run_formula,
        "signature": run_signatures,
        "league": run_league,
    }[layer](arguments, jobs)


def run_signatures(arguments: Namespace, jobs: int) -> int:
    """Measure what is missing of the registered claims, and print what they say."""
    from quintain_evidence.layers.runner import run
    from quintain_evidence.layers.spec import chosen

    folder = results_of(arguments.results)
    found = chosen(arguments.family, arguments.only, specs_of(arguments))

    def command(signature: "Signature") -> str:
        return words(arguments.family, "signature", signature.row)

    with Bar("blocks") as bar:
        states = run(found, folder, jobs, command, bar)
    if arguments.json:
        print(json.dumps({row: as_json(state) for row, state in states.items()}, indent=2))
        return 0
    show(COLUMNS, [cells(state) for state in states.values()], f"{folder}: registered claims")
    print_lines({row: state.verdict.checks for row, state in states.items()})
    return 0


def run_objective(arguments: Namespace, _jobs: int) -> int:
    """Audit what the worlds of rows pay, and whether both arms are paid alike."""
    from quintain_evidence.layers.audits import audit_objective
    from quintain_evidence.layers.records import OBJECTIVE, record

    found: dict[str, Sequence[Check]] = {}
    folder = results_of(arguments.results)
    for entry in league(arguments)[1]:
        found[entry.row] = audit_objective(entry)
        command = words(arguments.family, "objective", entry.row)
        record(folder, entry.row, OBJECTIVE, entry.digest(), found[entry.row], command)
    return print_checks(found, arguments)


def run_formula(arguments: Namespace, _jobs: int) -> int:
    """Check formulas against references, and that wrong ones are found."""
    from quintain_evidence.layers.formulas import check_formulas
    from quintain_evidence.layers.records import FORMULA, formulas_key, record
    from quintain_evidence.layers.spec import chosen

    rows: dict[str, dict[str, None]] = {}
    folder = results_of(arguments.results)
    for signature in chosen(arguments.family, arguments.only, specs_of(arguments)):
        rows.setdefault(signature.method, {}).update(dict.fromkeys(signature.formulas))
    found: dict[str, Sequence[Check]] = {}
    for row, names in rows.items():
        found[row] = check_formulas(tuple(names))
        command = words(arguments.family, "formula", row)
        record(folder, row, FORMULA, formulas_key(names), found[row], command)
    return print_checks(found, arguments)


def run_league(arguments: Namespace, jobs: int) -> int:
    """Run what the league lacks and print its outcomes."""
    from quintain_evidence.layers.league import Season

    folder = results_of(arguments.results)
    registered, found = league(arguments)

    def command(row: str) -> str:
        return words(arguments.family, "league", row)

    outcomes = Season(Path(arguments.runs), folder, jobs, command, registered)(found)
    if arguments.json:
        print(json.dumps({row: asdict(outcome) for row, outcome in outcomes.items()}, indent=2))
    else:
        show(LEAGUE, [standing_cells(outcome) for outcome in outcomes.values()], f"{folder}: league")
    return 0


def league(arguments: Namespace) -> "tuple[list[Entry], list[Entry]]":
    """Return all registered entries, for rows of other families share baselines, and those of the family that are asked
    for; with settings over their own.
    """
    from quintain_evidence.layers.league import chosen_entries, entries
    from quintain_evidence.layers.spec import signatures
    from quintain_evidence.sweep import overrides

    found = signatures(specs_of(arguments))
    settings = overrides(arguments.set)
    registered = chosen_entries(entries(None, found), None, settings)
    return registered, chosen_entries(entries(arguments.family, found), arguments.only, settings)


def specs_of(arguments: Namespace) -> Path:
    """Return the folder of registered claims."""
    from quintain_evidence.layers.spec import FOLDER

    return Path(arguments.signatures) if arguments.signatures else FOLDER


def write_pages(arguments: Namespace) -> int:
    """Write what is known into the documentation, and print the files that it changed."""
    from quintain_evidence.layers.spec import signatures
    from quintain_evidence.layers.standing import standings
    from quintain_evidence.pages import write

    folder = RESULTS if arguments.results is None else Path(arguments.results)
    docs = Path(arguments.docs)
    history = Path(arguments.history) if arguments.history else docs.parent / "evidence" / "history"
    for file in write(standings(signatures(specs_of(arguments)), folder), folder, docs, history):
        print(file)
    return 0


def keep_promises(arguments: Namespace, seconds: int, start: int) -> int:
    """Try rows on a real model or real input one after the other, and record what came; 1 where one did not go well."""
    from quintain.errors import suggestion
    from quintain.methods.table import MODULES
    from quintain_evidence.promises import find_rows, try_row
    from quintain_evidence.real_model import record, try_method

    names = [name.strip() for name in arguments.only.split(",") if name.strip()]
    jobs = find_rows()
    for name in names:
        if name not in MODULES and name not in jobs:
            raise UsageError(f"--only: got {name!r}; {suggestion(name, [*MODULES, *jobs])}")
    folder, has_failed = results_of(arguments.results), False
    for name in names:
        runs = Path(arguments.runs)
        found = (
            try_row(name, runs)
            if name in jobs
            else try_method(name, Path(arguments.docs), runs, float(seconds), start)
        )
        record(folder, name, found)
        print_lines({name: found.checks})
        has_failed = has_failed or not all(check.has_passed for check in found.checks)
    return int(has_failed)


def record_renames(arguments: Namespace) -> int:
    """Write a line to the results of each row whose experiment, or whose method's file, is the same but for names; 1
    where one that was measured is another.
    """
    from quintain_evidence.layers.spec import signatures

    folder, names = results_of(arguments.results), Path(arguments.names)
    command = shlex.join(
        ["quintain", "bench", "rename", "--since", arguments.since, "--names", arguments.names]
    )
    before = count_renames(folder)
    others = [
        f"{row}: its {field} is another, whatever its names; its results stay as they were"
        for row, signature in signatures(specs_of(arguments)).items()
        for field in changed_fields(signature, folder, names, arguments.since, command)
    ]
    for line in others:
        print(line)
    print(f"rows carried over: {count_renames(folder) - before}; rows that are another: {len(others)}")
    return int(bool(others))


def count_renames(folder: Path) -> int:
    """Return how many lines of the results in `folder` carry results over."""
    from quintain_evidence.renames import LAYER

    return sum(
        line.get("layer") == LAYER for file in folder.glob("*.jsonl") for line in lines(folder, file.stem)
    )


def changed_fields(
    signature: "Signature", folder: Path, names_file: Path, since: str, command: str
) -> "Iterator[str]":
    """Yield what of a measured claim is another file by now, and record what is the same but for names."""
    from quintain.methods.table import MODULES
    from quintain_evidence.layers.runner import LAYER, source_at
    from quintain_evidence.layers.spec import module_of
    from quintain_evidence.renames import LAYER as RENAMES
    from quintain_evidence.renames import (
        digest_of,
        earlier_digests,
        find_source,
        normalize,
        read_names,
        read_options,
        unify_options,
    )

    names, options, row = read_names(names_file), read_options(names_file), signature.row
    modules = {"experiment": module_of(signature), "method": MODULES.get(signature.method, "")}
    for field, module in modules.items():
        known = lines(folder, row)
        of_field = [line for line in known if line.get("layer") == LAYER and line.get(field)]
        if not module or not of_field:
            continue
        before, after = find_source(module, names, since, Path.cwd()), source_at(module)
        old, new = digest_of(before), digest_of(after)
        earlier = earlier_digests([line for line in known if line.get("layer") == RENAMES], old)
        if old == new or not any(line[field] in earlier for line in of_field):
            continue
        was, became = (unify_options(each, options, before=before) for each in (before, after))
        if normalize(was, names) != normalize(became, {}):
            yield field
        elif not any(line.get("layer") == RENAMES and line["after"] == new for line in known):
            told = {"layer": RENAMES, "row": row, "before": old, "after": new, "names": names_file.name}
            append(folder, row, {**told, **provenance(command)})
            print(f"{row}\t{old} → {new}")


def print_checks(found: "Mapping[str, Sequence[Check]]", arguments: Namespace) -> int:
    """Print what audits found."""
    if arguments.json:
        print(
            json.dumps({row: [asdict(check) for check in checks] for row, checks in found.items()}, indent=2)
        )
    else:
        print_lines(found)
    return 0


def print_lines(found: "Mapping[str, Sequence[Check]]") -> None:
    """Print a line for each check."""
    for row, checks in found.items():
        for check in checks:
            print(f"{row}\t{'✓' if check.has_passed else '✗'} {check.name}\t{check.detail}")


def standing_cells(outcome: "Outcome") -> tuple[str, ...]:
    """Return an outcome as texts, one for each of `LEAGUE`."""
    arms = [outcome.arms[name] for name in ("method", "baseline") if name in outcome.arms]
    bound = outcome.bound
    return (
        outcome.row,
        outcome.verdict,
        *(f"{arm.mean:.3f} [{arm.low:.3f}, {arm.high:.3f}]" for arm in arms),
        *("" for _ in range(2 - len(arms))),
        "" if bound is None else f"{bound.mean:+.3f} [{bound.low:+.3f}, {bound.high:+.3f}]",
        "" if bound is None else str(bound.num),
        ", ".join(f"{mean:+.3f} at {factor:g}×" for factor, mean in outcome.signs.items()),
    )


def words(family: str | None, layer: str, row: str) -> str:
    """Return the command that measures one row again; `family` is None where the row alone was named."""
    of_family = [] if family is None else ["--family", family]
    return shlex.join(["quintain", "bench", "methods", *of_family, "--layer", layer, "--only", row])


def cells(state: "State") -> tuple[str, ...]:
    """Return what is known of a claim as texts, one for each of `COLUMNS`."""
    verdict = state.verdict

    def interval(found: Any) -> str:
        return "" if found is None else f"{found.mean:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"

    return (
        state.signature.row,
        str(state.version),
        state.word(),
        interval(verdict.effect),
        "" if verdict.p_value is None else f"{verdict.p_value:.2g}",
        interval(verdict.null),
        f"{len(state.blocks)}" + (f", {state.num_failed} failed" if state.num_failed else ""),
        f"{state.seconds / 60:.1f}",
    )


def as_json(state: "State") -> dict[str, Any]:
    """Return what is known of a claim as plain data."""
    return {
        "row": state.signature.row,
        "version": state.version,
        "verdict": state.word(),
        **asdict(state.verdict),
        "failed": state.num_failed,
        "seconds": state.seconds,
        "commands": list(state.commands),
    }

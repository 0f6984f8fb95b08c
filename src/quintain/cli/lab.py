"""``quintain lab RUN|RECIPE``: which credit and which loss point to success on a batch of your own environment."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import TRUST, Parser, resolve_folder, split_names, whole_number
from quintain.cli.tables import show
from quintain.cli.training import ROOT_HELP, RUNS, free_name
from quintain.errors import UsageError, suggestion
from quintain.methods.table import MODULES, method_entry_points
from quintain.store.creation import JOURNAL
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.credit_lab.credit import Report

USAGE = (
    "usage: quintain lab RUN    [--step N] [--ideas A,B] [--losses A,B] [--parts K]\n"
    "       quintain lab RECIPE [--groups N] [--size N] [--ideas A,B] [--losses A,B] [--parts K] [--flags]"
)


def lab(argv: Sequence[str]) -> int:
    """Compare every idea of credit and every loss on one batch."""
    if not argv or argv[0] in ("-h", "--help"):
        write_line(
            f"{USAGE}\n\nWhich idea of credit, and which loss, points to success on a batch of your environment."
        )
        return 0 if argv else UsageError.exit_code
    target, *rest = argv
    if target.startswith("-"):
        raise UsageError(
            f"quintain lab needs a run or a recipe first: got {target!r}; {USAGE.splitlines()[0]}"
        )
    return of_recipe(target, rest) if is_recipe(target, rest) else of_run(target, rest)


def is_recipe(target: str, rest: Sequence[str]) -> bool:
    """Return whether `target` names a method; a run of the same name goes first.

    Raises:
        UsageError: it names neither.
    """
    roots = [after for before, after in pairwise(rest) if before == "--runs"] or [RUNS]
    if any((folder / JOURNAL).exists() for folder in (Path(target), Path(roots[0]) / target)):
        return False
    if target in MODULES or target.endswith(".py") or ":" in target:
        return True
    if any(point.name == target for point in method_entry_points()):
        return True
    if "/" in target or Path(target).exists():
        raise UsageError(f"run: got {target!r}, which has no journal; name the folder of a run")
    raise UsageError(
        f"run or recipe: got {target!r}, and there is no such run; {suggestion(target, MODULES)}"
    )


def lab_parser(command: str, description: str) -> Parser:
    """Return the arguments that both forms take."""
    parser = Parser(command, description)
    parser.flag("--ideas", "ideas of credit, separated by commas (default: all that fit)", "NAMES")
    parser.flag("--losses", "losses, separated by commas; none for no losses (default: all)", "NAMES")
    parser.flag("--parts", "parts that the batch is dealt into (default 8)", "K", "8")
    parser.flag("--out", "folder of lab.json and lab.png (default: the run's)", "FOLDER")
    parser.flag("--runs", ROOT_HELP, "ROOT", RUNS)
    parser.switch("--trust-run", TRUST)
    parser.switch("--json", "print JSON")
    return parser


def of_run(target: str, argv: Sequence[str]) -> int:
    """Look at a batch that a run has recorded."""
    parser = lab_parser("lab RUN", "Compare ideas of credit and losses on a batch that a run has recorded.")
    parser.flag("--step", "step whose batch is looked at (default: the newest whose weights are kept)", "N")
    arguments = parser.read(argv)
    step = None if arguments.step is None else whole_number(arguments.step, "--step", least=1)
    folder = resolve_folder(target, arguments.runs)

    from quintain import api as launch

    return tell(launch.lab(folder, step=step, **read_choices(arguments)), folder, arguments)


def of_recipe(target: str, argv: Sequence[str]) -> int:
    """Collect a batch by the start of a recipe and look at it."""
    from quintain.cli.flags import add_flags, read_configuration
    from quintain.config import options
    from quintain.methods.find import find_method
    from quintain.store.names import run_folder

    found = find_method(target)
    parser = lab_parser(
        f"lab {found.label}",
        "Collect a batch by the start of a recipe; compare ideas of credit and losses on it.",
    )
    parser.flag("--groups", "groups of the batch, each of another task (default 48)", "N", "48")
    parser.flag("--size", "episodes of a group (default 8)", "N", "8")
    parser.flag("--config", "configuration file, .json or .toml; flags go over it", "FILE")
    parser.flag("--run", "name of the run that records the batch (default: lab-RECIPE and a number)", "NAME")
    add_flags(parser, options(found.config_class))
    arguments = parser.read(argv)
    values = read_configuration(found.spec, found.config_class, arguments.config, arguments)
    root = Path(arguments.runs)
    name = arguments.run or free_name(root, f"lab-{found.label}")

    from quintain import api as launch

    report = launch.lab(
        target,
        groups=whole_number(arguments.groups, "--groups", least=2),
        size=whole_number(arguments.size, "--size", least=1),
        run=name,
        root=root,
        config=values,
        **read_choices(arguments),
    )
    return tell(report, run_folder(root, name), arguments)


def read_choices(arguments: Any) -> dict[str, Any]:
    """Return what both forms were asked for."""

    def names(text: str | None) -> list[str] | None:
        if text is None:
            return None
        return [name for name in split_names(text) if name != "none"]

    return {
        "ideas": names(arguments.ideas),
        "losses": names(arguments.losses),
        "parts": whole_number(arguments.parts, "--parts", least=2),
        "out": None if arguments.out is None else Path(arguments.out),
        "trust_run": arguments.trust_run,
    }


def tell(report: "Report", folder: Path, arguments: Any) -> int:
    """Print what was found and say where the files are."""
    from quintain.credit_lab.credit import as_row
    from quintain.credit_lab.report import (
        COLUMNS,
        JSON,
        PICTURE,
        headline,
        idea_cells,
        loss_cells,
        notes,
    )

    if arguments.json:
        write_line(json.dumps(as_row(report), indent=2))
        return 0
    write_line(f"{headline(report)}\n")
    show(COLUMNS, idea_cells(report), "each credit's gradient against the gradient of success")
    if report.losses:
        write_line("")
        columns, rows = loss_cells(report)
        title = f"its second update, by loss ({100 * report.outside:.0f} % of the tokens outside 0.8 … 1.2)"
        show(columns, rows, title)
    write_line("")
    for name, reason in report.left_out.items():
        write_line(f"left out {name}: {reason}")
    for line in notes(report):
        write_line(line)
    place = folder if arguments.out is None else Path(arguments.out)
    write_line(f"{place / JSON} · {place / PICTURE}")
    return 0

"""``quintain train METHOD`` and ``quintain resume RUN``.

Everything that can be wrong with what was asked is found before a run folder is made.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from quintain.cli.arguments import TRUST, Parser, resolve_folder, whole_number
from quintain.errors import INTERRUPTED_EXIT_CODE, UsageError, suggestion
from quintain.methods.table import MODULES, TABLE, method_entry_points
from quintain.types import NOTHING
from quintain.types.terminal import write_command, write_line

if TYPE_CHECKING:
    from quintain.config import Option

RUNS = "runs"
FIRST_RUNS = "First runs"
"""What the methods of no section are for."""
ROOT_HELP = "folder that holds the runs (default runs)"


def train(argv: Sequence[str]) -> int:
    """Train by a method."""
    if not argv or argv[0] in ("-h", "--help"):
        write_line(overview())
        return 0 if argv else UsageError.exit_code
    spec, *rest = argv
    if spec.startswith("-"):
        raise UsageError(
            f"quintain train needs a method first: got {spec!r}; choose from {', '.join(MODULES)}, or give a file.py"
        )
    if (
        spec not in MODULES
        and not spec.endswith(".py")
        and ":" not in spec
        and spec not in entry_point_names()
    ):
        raise UsageError(f"method: got {spec!r}; {suggestion(spec, MODULES)}, or give a file.py")

    from quintain.cli.flags import read_configuration, section_asked
    from quintain.config import options, sections
    from quintain.methods.find import find_method

    found = find_method(spec)
    about = {name: each.about for name, each in sections(found.config_class).items()}
    shown = section_asked(rest, about)
    parser = train_parser(found.label, found.summary, options(found.config_class), about, shown)
    if shown:
        parser.print_help()
        return 0
    arguments = parser.read(rest)
    values = read_configuration(found.spec, found.config_class, arguments.config, arguments)
    name = free_name(Path(arguments.runs), found.label) if arguments.run is None else arguments.run

    from quintain import api as launch
    from quintain.store import run_folder

    folder = run_folder(Path(arguments.runs), name)
    try:
        launch.train(
            spec, run=name, root=arguments.runs, replace=arguments.replace, config=values,
            trust_run=arguments.trust_run,
        )  # fmt: skip
    except KeyboardInterrupt:
        return report_interrupt(folder)
    return 0


def entry_point_names() -> list[str]:
    """Return the names of the methods that installed packages bring."""
    return [point.name for point in method_entry_points()]


def train_parser(
    method: str,
    description: str,
    found: "Sequence[Option]",
    sections: Mapping[str, str] = NOTHING,
    shown: str = "",
) -> Parser:
    """Return the arguments of ``quintain train METHOD``, with a flag for each of the options `found`.

    They stand in `sections`, one or all of which are `shown` by the help; see `add_flags`.
    """
    from quintain.cli.flags import add_flags

    parser = Parser(f"train {method}", "" if shown else description)
    parser.flag("--config", "configuration file, .json or .toml; flags go over it", "FILE")
    parser.flag("--run", "name of the run (default: the method and a number)", "NAME")
    parser.flag("--runs", ROOT_HELP, "ROOT", RUNS)
    parser.switch("--replace", "start anew a run of that name")
    parser.switch("--trust-run", TRUST)
    add_flags(parser, found, sections, shown)
    parser.stray = guess_environment
    return parser


def guess_environment(text: str) -> str:
    """Return the flag that `text`, which stands alone, may have lacked: an environment is named by one."""
    from quintain.environments.specs import names_of_environments

    name = re.split("[?/]", text)[0]
    is_one = name in names_of_environments() or ".py:" in text or text.endswith(".py")
    return f"did you mean '--environment {text}'?" if is_one else ""


def resume(argv: Sequence[str]) -> int:
    """Continue a run."""
    parser = Parser(
        "resume", "Continue a run after its newest intact checkpoint, with the configuration it has."
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--runs", ROOT_HELP, "ROOT", RUNS)
    parser.flag("--steps", "steps that the run is to have, where it is to go on for more", "N")
    parser.add_argument(
        "--learner-ranks",
        metavar="N",
        type=int,
        help="processes to learn in, where they are to be others than before (0: this one)",
    )
    parser.flag(
        "--cluster", "Ray cluster to go on with, where it is to be another (none: this process)", "ADDRESS"
    )
    parser.flag("--placement", "file that says what each part needs on the cluster", "FILE")
    parser.switch("--trust-run", TRUST)
    parser.switch(
        "--accept-changes",
        "go on with files that are not what the run wrote or began with; the report shows it",
    )
    arguments = parser.read(argv)
    folder = resolve_folder(arguments.run, arguments.runs)
    steps = None if arguments.steps is None else whole_number(arguments.steps, "--steps", least=1)

    from quintain.store.calls import CALLS

    if (folder / CALLS).exists():
        return end_recording(folder)

    from quintain import api as launch

    try:
        launch.resume(
            folder,
            steps=steps,
            learner_ranks=arguments.learner_ranks,
            cluster="" if arguments.cluster == "none" else arguments.cluster,
            placement="" if arguments.cluster == "none" else arguments.placement,
            trust_run=arguments.trust_run,
            accept_changes=arguments.accept_changes,
        )
    except KeyboardInterrupt:
        return report_interrupt(folder)
    return 0


def end_recording(folder: Path) -> int:
    """Record what a served model's clients had asked when it was killed, and say how much that is."""
    from quintain.cli.episodes import recover_recording

    num = recover_recording(folder)
    write_line(
        f"{folder}: {num} episodes were under way when the server ended, and are recorded now, not scored"
    )
    return 0


def overview() -> str:
    """Return what ``quintain train --help`` prints."""
    brought = entry_point_names()
    lines = [
        "usage: quintain train METHOD|FILE.py [--config FILE] [--run NAME] [--runs ROOT] [--replace] [--flags]",
        "",
        "Train an agent by a published method, or by one of your own. Its flags: quintain train METHOD --help",
        "",
        *method_lines(),
        *(["", "methods of installed packages:", *(f"  {name}" for name in brought)] if brought else []),
    ]
    return "\n".join(lines)


def method_lines() -> list[str]:
    """Return each method with what it is in plain words, under the section that it stands in."""
    entries = [entry for entry in sorted(TABLE, key=lambda entry: entry.name) if entry.name in MODULES]
    lines: list[str] = []
    for section in dict.fromkeys(entry.section for entry in TABLE if entry.name in MODULES):
        lines += [f"{section or FIRST_RUNS}:"]
        lines += [
            fill(f"{entry.name:<23} {entry.about}", 100, initial_indent="  ", subsequent_indent=" " * 26)
            for entry in entries
            if entry.section == section
        ]
        lines.append("")
    return lines[:-1]


def free_name(root: Path, method: str) -> str:
    """Return the first of ``grpo-1``, ``grpo-2``, … that names no folder under `root`."""
    number = 1
    while (root / f"{method}-{number}").exists():
        number += 1
    return f"{method}-{number}"


def report_interrupt(folder: Path) -> int:
    """Say how to go on after Ctrl-C and return the exit status."""
    if folder.is_dir():
        command = write_command("quintain", "resume", folder)
        write_line(f"quintain: interrupted; continue with: {command}", is_error=True)
    else:
        write_line("quintain: interrupted before the run began; nothing was written", is_error=True)
    return INTERRUPTED_EXIT_CODE

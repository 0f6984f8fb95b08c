"""``quintain train RECIPE`` and ``quintain resume RUN``.

The one rule: everything that can be wrong with what was asked is found before a run folder is made.
"""

import ast
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.cli.arguments import Parser, named_folder
from quintain.errors import INTERRUPTED_EXIT_CODE, UsageError, suggestion
from quintain.methods.names import RECIPES, recipe_module

if TYPE_CHECKING:
    from quintain.config import Option

RUNS = "runs"
ROOT_HELP = "folder that holds the runs (default runs)"


def train(argv: Sequence[str]) -> int:
    """Train by a recipe."""
    if not argv or argv[0] in ("-h", "--help"):
        print(overview())
        return 0 if argv else UsageError.exit_code
    recipe, *rest = argv
    if recipe.startswith("-"):
        raise UsageError(
            f"quintain train needs a recipe first: got {recipe!r}; choose from {', '.join(RECIPES)}"
        )
    if recipe not in RECIPES:
        raise UsageError(f"recipe: got {recipe!r}; {suggestion(recipe, RECIPES)}")

    from quintain.cli.flags import read_configuration
    from quintain.config import options

    module = recipe_module(recipe)
    arguments = train_parser(recipe, first_line(module.__doc__), options(module.Config)).read(rest)
    values = read_configuration(recipe, module.Config, arguments.config, arguments)
    name = free_name(Path(arguments.runs), recipe) if arguments.run is None else arguments.run

    from quintain import api as launch
    from quintain.store import run_folder

    folder = run_folder(Path(arguments.runs), name)
    try:
        launch.train(recipe, run=name, root=arguments.runs, replace=arguments.replace, config=values)
    except KeyboardInterrupt:
        return interrupted(folder)
    return 0


def train_parser(recipe: str, description: str, found: "Sequence[Option]") -> Parser:
    """Return the arguments of ``quintain train RECIPE``, with a flag for each of the options `found`."""
    from quintain.cli.flags import add_flags

    parser = Parser(f"train {recipe}", description)
    parser.flag("--config", "configuration file, .json or .toml; flags go over it", "FILE")
    parser.flag("--run", "name of the run (default: the recipe and a number)", "NAME")
    parser.flag("--runs", ROOT_HELP, "ROOT", RUNS)
    parser.switch("--replace", "start anew a run of that name")
    add_flags(parser, found)
    return parser


def resume(argv: Sequence[str]) -> int:
    """Continue a run."""
    parser = Parser(
        "resume", "Continue a run after its newest intact checkpoint, with the configuration it has."
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--runs", ROOT_HELP, "ROOT", RUNS)
    arguments = parser.read(argv)
    folder = named_folder(arguments.run, arguments.runs)

    from quintain import api as launch

    try:
        launch.resume(folder)
    except KeyboardInterrupt:
        return interrupted(folder)
    return 0


def overview() -> str:
    """Return what ``quintain train --help`` prints."""
    lines = [
        "usage: quintain train RECIPE [--config FILE] [--run NAME] [--runs ROOT] [--replace] [--flags]",
        "",
        "Train an agent. The flags of a recipe: quintain train RECIPE --help",
        "",
        "recipes:",
        *(f"  {name:<20}{summary(home)}" for name, home in RECIPES.items()),
    ]
    return "\n".join(lines)


def summary(home: str) -> str:
    """Return the first line of the docstring of module `home`, without running it."""
    found = importlib.util.find_spec(home)
    assert found is not None and found.origin is not None, f"a test checks that {home} is there"
    return first_line(ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))))


def first_line(document: str | None) -> str:
    """Return the first line of a module's docstring."""
    return (document or "").strip().partition("\n")[0]


def free_name(root: Path, recipe: str) -> str:
    """Return the first of ``grpo-1``, ``grpo-2``, … that names no folder under `root`."""
    number = 1
    while (root / f"{recipe}-{number}").exists():
        number += 1
    return f"{recipe}-{number}"


def interrupted(folder: Path) -> int:
    """Say how to go on after Ctrl-C and return the exit status."""
    if folder.is_dir():
        print(f"quintain: interrupted; continue with: quintain resume {folder}", file=sys.stderr)
    else:
        print("quintain: interrupted before the run began; nothing was written", file=sys.stderr)
    return INTERRUPTED_EXIT_CODE

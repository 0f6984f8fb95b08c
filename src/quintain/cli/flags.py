"""The flags of a method, one for each option of its `Config`, and what a configuration file and the flags come to."""

from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from quintain.cli.arguments import Parser
from quintain.config import Option, build, merge, read_file, read_flags, rename, show, words
from quintain.config.fields import NAME, parts_of
from quintain.environments.task_files import is_tasks_file, tasks_spec, with_tasks
from quintain.errors import ConfigError

PREFIX = "setting:"
"""Keeps an option called ``name`` apart from the command's own flags."""
METAVARS: dict[object, str] = {int: "N", float: "X", str: "TEXT", bool: "true|false", Path: "PATH"}
TASKS = "tasks"
TASKS_HELP = "tasks to train on and to hold out, .jsonl, .json, .csv or .parquet (docs/your-agent.md)"
KEYS_OF_A_RUN = ["config", "created", "name", "recipe", "schema"]
"""What stands in the ``config.json`` of a run."""


def add_flags(parser: Parser, found: Sequence[Option]) -> None:
    """Add flags for the options `found`: the method's own first, then those of its tables, then what all methods share.

    A switch takes ``--x``, ``--x false`` and ``--no-x``.
    """

    def title(option: Option) -> str:
        method = parser.prog.rpartition(" ")[2]
        table = option.name.rpartition(".")[0]
        return f"options of {table or ('every method' if option.is_shared else method)}"

    parser.usage = f"{parser.prog} [--OPTION VALUE ...]"
    if all(option.name != TASKS for option in found):
        group = parser.add_argument_group("options of every method")
        group.add_argument(f"--{TASKS}", help=TASKS_HELP, dest=PREFIX + TASKS, metavar="FILE")
        parser.flags.append(f"--{TASKS}")
    for name, members in groupby(sorted(found, key=lambda o: (o.is_shared, "." in o.name)), key=title):
        group = parser.add_argument_group(name)
        for option in members:
            group.add_argument(option.flag, help=document(option), **takes(option, option.flag))
            parser.flags.append(option.flag)
            for flag in ("--" + old.replace("_", "-") for old in option.old_names):
                parser.add_argument(flag, help=SUPPRESS, **takes(option, flag))
            if NAME in option.flag:
                parser.admit(option.flag.replace(NAME, r"[\w/-]+"), partial(takes, option))
            if bool in parts_of(option.annotation):
                negative = f"--no-{option.flag.removeprefix('--')}"
                parser.flags.append(negative)
                group.add_argument(
                    negative, dest=PREFIX + option.name, action="store_const", const="false", help=SUPPRESS
                )


def document(option: Option) -> str:
    """Return the help of `option` with what it takes and its default."""
    notes = [words(option.annotation)] if metavar(option) in ("N", "X") else []
    if bool in parts_of(option.annotation):
        notes.append(f"--no-{option.flag.removeprefix('--')} for false")
    if not option.name.endswith(NAME):
        notes.append("required" if option.is_required else f"default {show(option.default) or 'empty'}")
    more = f" Or a file: {TASKS_HELP}" if option.name == TASKS else ""
    return f"{option.help} ({', '.join(notes)}){more}".strip().replace("%", "%%")


def takes(option: Option, flag: str) -> dict[str, Any]:
    """Return how argparse is to read `flag`, which sets `option`."""
    switch = {"nargs": "?", "const": "true"} if bool in parts_of(option.annotation) else {}
    return {"dest": PREFIX + flag.removeprefix("--").replace("-", "_"), "metavar": metavar(option), **switch}


def metavar(option: Option) -> str:
    """Return the placeholder for the value of `option` in its help."""
    part = parts_of(option.annotation)[0]
    if get_origin(part) is Literal:
        return "|".join(map(str, get_args(part)))
    return METAVARS.get(part, "VALUE")


def read_configuration(
    method: str, config_class: type[Any], file: str | None, arguments: Namespace
) -> dict[str, Any]:
    """Return the values that the configuration file and the flags in `arguments` give to `config_class`.

    The ``config.json`` of a run is a configuration file, too. Flags go over the file.

    Raises:
        ConfigError: they do not fit together, or do not fit the method.
    """
    values: dict[str, Any] = {}
    if file is not None:
        table = read_file(Path(file))
        is_stored = sorted(table) == KEYS_OF_A_RUN
        if is_stored and table["recipe"] != method:
            raise ConfigError(
                f"configuration file {file} must be one of {method}: got one of {table['recipe']}; use that"
            )
        stored: dict[str, Any] = table["config"] if is_stored else dict(table)
        values = rename(config_class, stored, file, is_stored=is_stored)
    given = cast("dict[str, str | None]", vars(arguments))
    texts = {
        name.removeprefix(PREFIX): text
        for name, text in given.items()
        if name.startswith(PREFIX) and text is not None
    }
    tasks = texts.pop(TASKS) if is_tasks_file(texts.get(TASKS)) else None
    values = with_tasks(merge(values, read_flags(config_class, texts)))
    if tasks is not None:
        values["environment"] = tasks_spec(str(values.get("environment") or ""), tasks)
    build(config_class, values, file or "the command line")
    return values

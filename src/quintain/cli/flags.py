"""The flags of a method, one for each option of its `Config`, and what a configuration file and the flags come to."""

from argparse import SUPPRESS, Namespace
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, cast, get_args, get_origin

from quintain.agents.catalog import is_outside
from quintain.cli.arguments import Parser, one_of
from quintain.config import Option, build, merge, read_file, read_flags, rename, show, words
from quintain.config.fields import NAME, parts_of
from quintain.environments.guarding import GUARD, default_environment, with_guard
from quintain.environments.task_files import is_tasks_file, tasks_spec, with_tasks
from quintain.errors import ConfigError
from quintain.types import NOTHING

PREFIX = "setting:"
"""Keeps an option called ``name`` apart from the command's own flags."""
METAVARS: dict[object, str] = {int: "N", float: "X", str: "TEXT", bool: "true|false", Path: "PATH"}
HELP_SECTION, ALL = "--help-section", "all"
TASKS = "tasks"
TASKS_HELP = "tasks to train on and to hold out, .jsonl, .json, .csv or .parquet (docs/your-agent.md)"
GUARD_HELP = "policy that says which tool calls are carried out, in training and evaluation (docs/guards.md)"
KEYS_OF_A_RUN = ["config", "created", "name", "recipe", "schema"]
"""What stands in the ``config.json`` of a run."""


def add_flags(
    parser: Parser, found: Sequence[Option], sections: Mapping[str, str] = NOTHING, shown: str = ""
) -> None:
    """Add flags for the options `found`; a switch takes ``--x``, ``--x false`` and ``--no-x``.

    The help tells the method's own options, and of the `sections` (name → what it is about) the names; with `shown`,
    the name of one or ``all``, it tells those instead. Without `sections` it tells everything.
    """
    method = parser.prog.rpartition(" ")[2]
    parser.usage = f"{parser.prog} [--OPTION VALUE ...]" + " [--help-section NAME|all]" * bool(sections)
    parser.add_argument(f"--{GUARD}", help=GUARD_HELP, dest=PREFIX + GUARD, metavar="POLICY.json")
    parser.flags.append(f"--{GUARD}")
    if all(option.name != TASKS for option in found):
        parser.add_argument(f"--{TASKS}", help=TASKS_HELP, dest=PREFIX + TASKS, metavar="FILE")
        parser.flags.append(f"--{TASKS}")

    def title(option: Option) -> str:
        table = option.name.rpartition(".")[0]
        if table:
            return f"options of {table}"
        about = sections.get(option.section)
        return f"{option.section}: {about}" if about else option.section or f"options of {method}"

    order = list(dict.fromkeys(["", *sections, *(option.section for option in found)]))
    by_section = sorted(found, key=lambda option: (order.index(option.section), "." in option.name))
    for name, members in groupby(by_section, key=title):
        group = parser.add_argument_group(name)
        for option in members:
            is_told = not sections or option.section == shown or (shown == ALL and bool(option.section))
            group.add_argument(
                option.flag, help=document(option) if is_told else SUPPRESS, **takes(option, option.flag)
            )
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
    if not shown:
        parser.more = describe_sections(found, sections)


def describe_sections(found: Sequence[Option], sections: Mapping[str, str]) -> str:
    """Return what each of `sections` is about, with its options among those `found`."""
    lines = [f"sections, each with --help-section NAME, or all of them with --help-section {ALL}:"] * bool(
        sections
    )
    for name, about in sections.items():
        flags = dict.fromkeys(
            option.flag.partition(NAME)[0] + "…" * (NAME in option.flag)
            for option in found
            if option.section == name
        )
        lines += [
            f"  {name}: {about}",
            fill(
                " ".join(flags), 78, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            ),
        ]
    return "\n".join(lines)


def section_asked(argv: Sequence[str], sections: Collection[str]) -> str:
    """Return the section that ``--help-section`` asks for in `argv`; empty where it is not there.

    Raises:
        UsageError: there is no such section.
    """
    tokens = [part for token in argv for part in token.split("=", 1)]
    if HELP_SECTION not in tokens:
        return ""
    name = " ".join([*tokens, ""][tokens.index(HELP_SECTION) + 1 :][:1])
    return one_of(name.replace("_", "-"), HELP_SECTION, [*sections, ALL])


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
    policy = texts.pop(GUARD, None)
    tasks = texts.pop(TASKS) if is_tasks_file(texts.get(TASKS)) else None
    values = with_tasks(merge(values, read_flags(config_class, texts)))
    if tasks is not None:
        values["environment"] = tasks_spec(str(values.get("environment") or ""), tasks)
    values = with_guard(
        values if policy is None else {**values, GUARD: policy},
        default_environment(config_class),
        is_outside=is_outside,
    )
    build(config_class, values, file or "the command line")
    return values

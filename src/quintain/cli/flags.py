"""The flags of a recipe, one for each knob of its `Config`, as ``--help`` shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from quintain.cli.arguments import Parser
from quintain.config.knobs import Knob, parts_of
from quintain.config.wording import shown, words

PREFIX = "setting:"
"""Keeps a field called ``name`` apart from the command's own flags."""
METAVARS: dict[object, str] = {int: "N", float: "X", str: "TEXT", bool: "true|false", Path: "PATH"}


def add_flags(parser: Parser, found: Sequence[Knob]) -> None:
    """Add a flag for each of the knobs `found`; a switch takes ``--x``, ``--x false`` and ``--no-x``."""
    for knob in found:
        parser.flags.append(knob.flag)
        takes = f"{words(knob.annotation)}, " if metavar(knob) in ("N", "X") else ""
        default = "required" if knob.is_required else f"default {shown(knob.default) or 'empty'}"
        document = f"{knob.document} ({takes}{default})".replace("%", "%%").strip()
        is_switch = bool in parts_of(knob.annotation)
        parser.add_argument(
            knob.flag,
            dest=PREFIX + knob.name,
            metavar=metavar(knob),
            help=document,
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
        )
        if is_switch:
            negative = f"--no-{knob.flag.removeprefix('--')}"
            parser.flags.append(negative)
            parser.add_argument(
                negative, dest=PREFIX + knob.name, action="store_const", const="false", help=""
            )


def metavar(knob: Knob) -> str:
    """Return the placeholder for the value of `knob` in its help."""
    part = parts_of(knob.annotation)[0]
    if get_origin(part) is Literal:
        return "|".join(map(str, get_args(part)))
    return METAVARS.get(part, "VALUE")

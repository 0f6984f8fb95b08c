"""Reading the arguments of a command; what is wrong with them is one line, with the nearest name.

The one rule: argparse splits, we judge: every value arrives as text and is checked here.
"""

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from quintain.errors import UsageError, suggestion


class Parser(argparse.ArgumentParser):
    """The arguments of one command: ``Parser("eval", "Measure a model.")``."""

    def __init__(self, command: str, description: str) -> None:
        """Start with ``--help`` only."""
        super().__init__(prog=f"quintain {command}", description=description, allow_abbrev=False)
        self.flags = ["--help"]

    def flag(self, name: str, document: str, metavar: str, default: str | None = None) -> None:
        """Add a flag that takes a value."""
        self.flags.append(name)
        self.add_argument(name, metavar=metavar, default=default, help=document.replace("%", "%%"))

    def switch(self, name: str, document: str) -> None:
        """Add a flag that is there or not."""
        self.flags.append(name)
        self.add_argument(name, action="store_true", help=document.replace("%", "%%"))

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the values in `argv`.

        Raises:
            UsageError: an unknown flag, a flag without its value, an argument too many or too few.
        """
        values, rest = self.parse_known_args(joined(argv))
        for text in rest:
            name = text.partition("=")[0]
            if name.startswith("-"):
                raise UsageError(f"flag of {self.prog}: got {name!r}; {suggestion(name, self.flags)}")
        if rest:
            raise UsageError(
                f"{self.prog}: got {rest[0]!r}, which it has no use for; see `{self.prog} --help`"
            )
        return values

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found as a `UsageError`."""
        if found := re.fullmatch(r"argument (\S+?)(?:/\S+)?: expected .*", message):
            message = f"{found[1]} needs a value: got nothing; write {found[1]} VALUE"
        elif found := re.fullmatch(r"the following arguments are required: ([^,]+).*", message):
            message = f"{self.prog} needs {found[1]}: got nothing; see `{self.prog} --help`"
        else:
            message = f"{self.prog}: {message}; see `{self.prog} --help`"
        raise UsageError(message)


def joined(argv: Sequence[str]) -> list[str]:
    """Return `argv` with underscores in flags as hyphens, and negative numbers joined to their flag."""
    tokens: list[str] = []
    for token in argv:
        if token.startswith("--"):
            name, equals, value = token.partition("=")
            tokens.append(name.replace("_", "-") + equals + value)
        elif (
            tokens
            and re.fullmatch(r"-[\d.].*", token)
            and tokens[-1].startswith("--")
            and "=" not in tokens[-1]
        ):
            tokens[-1] += f"={token}"
        else:
            tokens.append(token)
    return tokens


def whole_number(text: str, flag: str, least: int = 0) -> int:
    """Return the integer, at least `least`, that `text` is."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{flag} must be an integer: got {text!r}; give {least} or more") from None
    if number < least:
        raise UsageError(f"{flag} must be at least {least}: got {number}; give {least} or more")
    return number


def one_of(text: str, what: str, options: Iterable[str]) -> str:
    """Return `text` if it is one of `options`."""
    choices = list(options)
    if text not in choices:
        raise UsageError(f"{what}: got {text!r}; {suggestion(text, choices)}")
    return text


def named_folder(text: str, root: str) -> Path:
    """Return the folder that `text` is, or the one of the run of that name under `root`."""
    return Path(text) if "/" in text or Path(text).exists() else Path(root) / text


def named_model(text: str, root: str) -> str:
    """Return the folder of the run `text` under `root` if there is one, else `text`: a folder or a hub id."""
    folder = named_folder(text, root)
    return str(folder) if folder.is_dir() else text


def positive(text: str, flag: str) -> float:
    """Return the finite number, 0 or more, that `text` is."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{flag} must be a number of 0 or more: got {text!r}; give one such as 1.0")
    return number

"""Reading the arguments of a command; what is wrong with them is one line, with the nearest name.

argparse only splits them: every value arrives as text and is checked here.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from quintain.errors import UsageError, suggestion

ELSEWHERE = {
    "data": "demonstrations",
    "dataset": "demonstrations",
    "train-file": "demonstrations",
    "lr": "learning-rate",
    "epochs": "num-epochs",
    "max-steps": "steps",
    "output-dir": "run",
    "model-name-or-path": "model",
    "env": "environment",
    "num-generations": "group-size",
    "beta": "kl-coef",
    "max-completion-length": "max-turn-tokens",
    "bf16": "precision",
}
"""What other tools call our flags."""


BATCHES = ("batch-size", "train-batch-size", "rollout-batch-size", "per-device-train-batch-size")
"""What other tools call the episodes of a step."""


TRUST = "use what a run of somebody else's names: its programs, files and addresses (docs/reliability.md)"
"""What ``--trust-run`` does."""
ACCEPT = "go on with files of the run that are not what it wrote or began with, which is said"
"""What ``--accept-changes`` does where a run is used."""


class Parser(argparse.ArgumentParser):
    """The arguments of one command: ``Parser("eval", "Measure a model.")``."""

    def __init__(self, command: str, description: str) -> None:
        """Start with ``--help`` only."""
        super().__init__(prog=f"quintain {command}", description=description, allow_abbrev=False)
        self.flags = ["--help"]
        self.more = ""
        """what the help ends with"""
        self.stray: Callable[[str], str] = lambda text: ""
        """what may have been meant by an argument that no flag stands before; empty where nothing comes to mind"""
        self.families: list[tuple[re.Pattern[str], Callable[[str], dict[str, Any]]]] = []

    def flag(self, name: str, document: str, metavar: str, default: str | None = None) -> None:
        """Add a flag that takes a value."""
        self.flags.append(name)
        self.add_argument(name, metavar=metavar, default=default, help=document.replace("%", "%%"))

    def switch(self, name: str, document: str) -> None:
        """Add a flag that is there or not."""
        self.flags.append(name)
        self.add_argument(name, action="store_true", help=document.replace("%", "%%"))

    def admit(self, pattern: str, takes: Callable[[str], dict[str, Any]]) -> None:
        """Take every flag that matches `pattern`; ``takes(flag)`` are its arguments of `add_argument`."""
        self.families.append((re.compile(pattern), takes))

    def format_help(self) -> str:
        """Return the help of the flags, and what it ends with."""
        return super().format_help() + (f"\n{self.more}\n" if self.more else "")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the values in `argv`.

        Raises:
            UsageError: an unknown flag, a flag without its value, an argument too many or too few.
        """
        tokens = join_flags(argv)
        for flag in dict.fromkeys(token.partition("=")[0] for token in tokens):
            takes = next((takes for pattern, takes in self.families if pattern.fullmatch(flag)), None)
            if takes is not None:
                self.add_argument(flag, help=argparse.SUPPRESS, **takes(flag))
        values, rest = self.parse_known_args(tokens)
        for text in rest:
            name = text.partition("=")[0]
            if name.startswith("-"):
                raise UsageError(f"flag of {self.prog}: got {name!r}; {self.nearest(name)}")
        if rest:
            raise UsageError(
                f"{self.prog}: got {rest[0]!r}, which it has no use for; "
                f"{self.stray(rest[0]) or f'see `{self.prog} --help`'}"
            )
        return values

    def nearest(self, name: str) -> str:
        """Return which flag may have been meant by `name`; the hyphens in front make none alike."""
        known = [flag.lstrip("-") for flag in self.flags]
        bare = name.lstrip("-")
        if bare in BATCHES and {"tasks", "group-size"} <= set(known):
            return "a step has --tasks times --group-size episodes"
        near = [ELSEWHERE[bare]] if ELSEWHERE.get(bare) in known else get_close_matches(bare, known, n=1)
        return f"did you mean '--{near[0]}'?" if near else f"see `{self.prog} --help`"

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found as a `UsageError`."""
        if found := re.fullmatch(r"argument (\S+?)(?:/\S+)?: expected .*", message):
            message = f"{found[1]} needs a value: got nothing; write {found[1]} VALUE"
        elif found := re.fullmatch(r"the following arguments are required: ([^,]+).*", message):
            message = f"{self.prog} needs {found[1]}: got nothing; see `{self.prog} --help`"
        else:
            message = f"{self.prog}: {message}; see `{self.prog} --help`"
        raise UsageError(message)


def join_flags(argv: Sequence[str]) -> list[str]:
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


def resolve_folder(text: str, root: str) -> Path:
    """Return the folder that `text` is, or the one of the run of that name under `root`.

    Raises:
        UsageError: it names a step of a run, where a whole run is asked for.
    """
    from quintain.store.names import split_step

    folder = folder_under(text, root)
    base, mark = split_step(text)
    if mark and not folder.exists() and folder_under(base, root).is_dir():
        raise UsageError(
            f"run: got {text!r}, a step of the run {base}; a step is named where a model is asked for (eval, serve, "
            f"export --to hf, check, compare, --model): give {base} here"
        )
    return folder


def split_names(text: str) -> list[str]:
    """Return the names that `text` lists with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def resolve_model(text: str, root: str) -> str:
    """Return the folder of the run `text` under `root` if there is one, else `text`: a folder or a hub id.

    Of a step of a run, ``RUN@best`` or ``RUN@75``, the mark stays behind the folder.
    """
    from quintain.store.names import split_step

    place = resolve_policy(text, root)
    return str(place) if Path(split_step(str(place))[0]).is_dir() else text


def resolve_policy(text: str, root: str) -> Path:
    """Return the place of the run `text`, by its path or its name under `root`, with the mark of a step behind it."""
    from quintain.store.names import split_step

    base, mark = split_step(text)
    folder = folder_under(base, root)
    return folder.with_name(f"{folder.name}@{mark}") if mark else folder


def refuse_unknown(text: str, root: str) -> None:
    """Raise a `UsageError` where `text`, by the name of a run, names none under `root`, and no file or folder."""
    base = text.partition("@")[0]
    if Path(base).exists() or folder_under(base, root).exists():
        return
    known = sorted(place.parent.name for place in Path(root).glob("*/run.db"))
    near = suggestion(base, known) if known else ""
    hint = near if near.startswith("did") else f"the runs in {root} are {', '.join(known)}" if known else ""
    raise UsageError(
        f"run: got {text!r}, and there is no run, folder or file of that name; "
        f"{hint or f'there are no runs in {root}'}; a model of the hub needs --environment"
    )


def folder_under(text: str, root: str) -> Path:
    """Return the path `text`, or the place of the run of that name under `root`."""
    return Path(text) if "/" in text or Path(text).exists() else Path(root) / text


def new_folder(text: str, flag: str) -> Path:
    """Return the folder that `text` names, which must not be there."""
    path = Path(text)
    if path.exists():
        raise UsageError(f"{flag}: got {text!r}, which exists; choose another name")
    return path


def positive(text: str, flag: str) -> float:
    """Return the finite number, 0 or more, that `text` is."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{flag} must be a number of 0 or more: got {text!r}; give one such as 1.0")
    return number

"""Packages and programs that adapters need and quintain does not: found when an environment is built, or named.

A package or program that is missing is one line with the command that installs it; a package that is there but breaks
while it is imported is shown as it is.
"""

import importlib
import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from quintain.errors import MissingExtra, install_command


def extra_module(module: str, *, package: str, feature: str, extra: str = "", command: str = "") -> Any:
    """Import `module` of the optional `package`, which `command` installs: the one of our `extra` when empty.

    Example: ``extra_module("textworld.generator", package="textworld", extra="textworld", feature="...")``.

    Raises:
        MissingExtra: the package is not installed, or in a version without this module.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        told = command or install_command(extra)
        if error.name == top:
            raise MissingExtra(
                f"{feature} needs the package {package}: it is not installed; {told}"
            ) from error
        raise MissingExtra(
            f"{feature} needs another version of {package}: got {version_of(package)}, without {error.name}; {told}"
        ) from error


def version_of(package: str) -> str:
    """Return the version of an installed `package`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "an unknown one"


def extra_program(names: Sequence[str], *, package: str, feature: str) -> str:
    """Return the path of the first of the programs `names` that is there; Debian has it in `package`.

    Raises:
        MissingExtra: none is.
    """
    for name in names:
        if found := shutil.which(name):
            return found
    raise MissingExtra(
        f"{feature} needs the program {names[0]}: it is not installed; apt-get install {package}"
    )

"""Packages and programs that adapters need and quintain does not: found when an environment is built, or named.

The one rule: a package or program that is missing is one line with the command that installs it; a package that
is there but breaks while it is imported is shown as it is.
"""

import importlib
import shutil
from collections.abc import Sequence
from typing import Any

from quintain.errors import MissingExtra


def extra_module(module: str, *, package: str, extra: str, feature: str) -> Any:
    """Import `module` of the optional `package`.

    Example: ``extra_module("textworld.generator", package="textworld", extra="textworld", feature="...")``.

    Raises:
        MissingExtra: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtra.named(package, extra, feature) from error


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

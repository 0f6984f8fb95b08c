"""Packages that adapters need and quintain does not: imported when an environment is built, or named.

The one rule: a package that is missing is one line with the command that installs it; a package that is there
but breaks while it is imported is shown as it is.
"""

import importlib
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

"""The parts of bfcl-eval that are used: its data, its AST checker and its multi-turn checker.

The checker imports a table of vendors' models, and with it their packages, only to learn whether a model writes dots
as underscores. None does here: a table that says so stands in its place, and the package is installed without
dependencies.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from quintain.environments.extras import extra_module

TABLE = "bfcl_eval.constants.model_config"
COMMAND = "pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath"


@cache
def data_folder() -> Path:
    """Return the folder of the package's questions.

    Raises:
        MissingExtra: it is not installed.
    """
    return Path(str(_module("bfcl_eval").__file__)).parent / "data"


@cache
def checker() -> Callable[[Any, Any, Any, str], dict[str, Any]]:
    """Return the AST checker: functions, calls, possible answers and category → ``{"valid": ..., "error": [...]}``."""
    _without_vendors()
    language = _module("bfcl_eval.constants.enums").Language.PYTHON
    check = _module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
    return lambda functions, calls, answers, category: check(
        functions, calls, answers, language, category, "quintain"
    )


@cache
def turns() -> tuple[Any, Any]:
    """Return the modules of the multi-turn checker and of what carries out its calls."""
    _without_vendors()
    place = "bfcl_eval.eval_checker.multi_turn_eval"
    return _module(f"{place}.multi_turn_checker"), _module(f"{place}.multi_turn_utils")


def file_names() -> dict[str, str]:
    """Return the file that describes the functions of each simulated system."""
    return _module("bfcl_eval.constants.executable_backend_config").MULTI_TURN_FUNC_DOC_FILE_MAPPING


def _module(name: str) -> Any:
    """Import a module of the package, or say how it is installed."""
    return extra_module(name, package="bfcl-eval", feature="the environment bfcl", command=COMMAND)


def _without_vendors() -> None:
    """Put a table that knows no vendor in the place of the package's."""
    if TABLE not in sys.modules:
        table = ModuleType(TABLE)
        vars(table)["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
        sys.modules[TABLE] = table

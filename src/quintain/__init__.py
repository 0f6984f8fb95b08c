"""Quintain trains LLM agents: models that act over many turns, call tools and talk to users.

What an environment needs is here, and what is done with it: `check`, `train`, `resume`, `evaluate`, `compare`,
`collect`, `serving`, `lab`, `verify`, `replay` and `bisect`. Importing this loads nothing heavy; each name is fetched
when it is first used.
"""

import importlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quintain.api import bisect, collect, compare, evaluate, lab, replay, resume, serving, verify
    from quintain.environments.check import check
    from quintain.environments.protocol import Environment
    from quintain.environments.tools import tool
    from quintain.options import train  # pyright: ignore[reportMissingModuleSource]
    from quintain.trained import TrainedRun
    from quintain.types import Action, Image, StepResult, Task, Text, ToolCall

warnings.filterwarnings("ignore", message="IProgress not found")
"""A notebook without ipywidgets is told so by what transformers imports, where nobody has asked for bars of widgets."""

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Environment",
    "Image",
    "StepResult",
    "Task",
    "Text",
    "ToolCall",
    "TrainedRun",
    "__version__",
    "bisect",
    "check",
    "collect",
    "compare",
    "evaluate",
    "lab",
    "replay",
    "resume",
    "serving",
    "tool",
    "train",
    "verify",
]

_HOMES = {
    "Action": "quintain.types",
    "Environment": "quintain.environments.protocol",
    "Image": "quintain.types",
    "StepResult": "quintain.types",
    "Task": "quintain.types",
    "Text": "quintain.types",
    "ToolCall": "quintain.types",
    "TrainedRun": "quintain.trained",
    "bisect": "quintain.api",
    "check": "quintain.environments.check",
    "collect": "quintain.api",
    "compare": "quintain.api",
    "evaluate": "quintain.api",
    "lab": "quintain.api",
    "replay": "quintain.api",
    "resume": "quintain.api",
    "serving": "quintain.api",
    "tool": "quintain.environments.tools",
    "train": "quintain.api",
    "verify": "quintain.api",
}


def __getattr__(name: str) -> object:
    """Return the public name `name`, importing its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'quintain' has no attribute {name!r}")
    value = vars(importlib.import_module(_HOMES[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Classes that were typed in an interactive session, as in a cell of a notebook.

They have no file. In the process in which they were defined they are found by ``__main__:Class``; no other process can
build them, so that their source, where it is known, is kept for people to read.
"""

import inspect
import linecache
import sys
from pathlib import Path
from types import FunctionType

from quintain.environments.protocol import Environment

MAIN = "__main__"
"""Name of the module that a session defines its classes in, and a program too."""


def program_file() -> Path | None:
    """Return the file of the program that runs; None in a session, and for a program that comes from standard input."""
    name = vars(sys.modules[MAIN]).get("__file__")
    return Path(name).resolve() if name and Path(name).is_file() else None


def is_of_session(spec: str) -> bool:
    """Whether `spec` names a class that this process alone can build, as ``__main__:Guess``; also within a mixture."""
    return f"{MAIN}:" in spec


def session_source(kind: type[Environment]) -> str | None:
    """Return the cells that define `kind` and the classes of the session it inherits from; None where one is unknown.

    The lines are those that tracebacks show: IPython keeps them, and so does the prompt of Python 3.13.
    """
    cells: list[str] = []
    for each in reversed(inspect.getmro(kind)):
        if each.__module__ != MAIN:
            continue
        functions = [inspect.unwrap(value) for value in vars(each).values() if inspect.isfunction(value)]
        files = {each.__code__.co_filename for each in functions if isinstance(each, FunctionType)}
        found = ["".join(linecache.getlines(file)) for file in sorted(files)]
        if not found or not all(found):
            return None
        cells += [cell for cell in found if cell not in cells]
    return "\n\n".join(cells) or None

"""The program that the other interpreter runs: it finds this package by its own place, and hosts an environment.

So quintain need not be installed there, and nothing else of ours can be imported. It needs Python 3.11 and the
standard library, and what is imported for it needs no more.
"""

import importlib.util
import os
import sys
from types import ModuleType


def load_package(folder: str) -> ModuleType:
    """Make the package in `folder` importable as ``quintain``, and nothing beside it."""
    place = os.path.join(folder, "__init__.py")
    found = importlib.util.spec_from_file_location("quintain", place, submodule_search_locations=[folder])
    assert found is not None and found.loader is not None, "a file that ends with .py has a loader"
    module = importlib.util.module_from_spec(found)
    sys.modules["quintain"] = module
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 (the interpreter is the user's choice)
        sys.exit(f"a worker needs Python 3.11 or later: got {sys.version.split()[0]} at {sys.executable}")
    load_package(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from quintain.environments.worker_host import main

    main()

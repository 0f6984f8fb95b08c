"""Tests of real packages are marked ``real(module, extra)`` and skipped, with the reason, where it is missing.

``program=`` names a program that is needed besides.
"""

import shutil
from importlib.util import find_spec

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("real"):
        module = str(mark.args[0])
        extra = str(mark.args[-1])
        if find_spec(module) is None:
            reason = f'{module} is not installed: pip install "quintain[{extra}]", or run make test-real'
            pytest.skip(reason)
        program = mark.kwargs.get("program")
        if program is not None and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: see make test-real")

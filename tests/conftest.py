"""Tests of real packages are marked ``real(module, extra)`` and skipped, with the reason, where it is missing.

``program=`` names a program that is needed besides. With ``beside=True`` the package has an interpreter of its own,
in ``.venv-MODULE`` beside the sources (`make test-real` sets it up), which the fixture `python_beside` names.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.build import shorten_corpus

ROOT = Path(__file__).resolve().parents[1]
settings.register_profile("quintain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quintain")  # how fast examples are made and run is a matter of the machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--episodes", type=int, default=20, help="episodes that must leave nothing behind")
    parser.addoption("--slow", action="store_true", help="play what takes minutes, too")
    parser.addoption("--agentgym", help="folder of a checkout of AgentGym, whose own server is played")


def beside(mark: pytest.Mark) -> Path:
    """Return the interpreter of the package that `mark` names."""
    return ROOT / f".venv-{mark.args[0]}" / "bin" / "python"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, and a small corpus for tiny tokenizers: for tests that train, ``usefixtures("quick")``."""
    import torch

    torch.set_num_threads(1)
    shorten_corpus(monkeypatch)


@pytest.fixture
def python_beside(request: pytest.FixtureRequest) -> str:
    """The interpreter that has the package of the test's mark."""
    mark = request.node.get_closest_marker("real")
    assert mark is not None, "a test of a real package is marked with it"
    return str(beside(mark))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("real"):
        module = str(mark.args[0])
        extra = str(mark.args[-1])
        if mark.kwargs.get("beside"):
            if not beside(mark).exists():
                pytest.skip(f"{module} has no {beside(mark)}: run make test-real")
        elif find_spec(module) is None:
            reason = f'{module} is not installed: pip install -e ".[{extra}]", or run make test-real'
            pytest.skip(reason)
        program = mark.kwargs.get("program")
        if program is not None and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: see make test-real")

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import quintain


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, quintain; quintain.Environment, quintain.tool, quintain.Task;"
        "print([name for name in ('numpy', 'pydantic', 'torch', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_worlds_run_and_training_imports_without_gymnasium() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None; import quintain.api\n"
        "from quintain.environments.catalog import find\n"
        "from quintain.environments.baselines import expert, play\n"
        "world = find('keydoor')(); print(play(world, world.task('train', 0), expert, 200).is_success)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=110
    )
    assert done.stdout.strip() == "True"


def test_names_are_those_of_their_homes() -> None:
    from quintain.environments.protocol import Environment
    from quintain.environments.tools import tool
    from quintain.types import Action, Image, StepResult, Task, Text, ToolCall

    assert (quintain.Environment, quintain.tool, quintain.Task) == (Environment, tool, Task)
    assert (quintain.Action, quintain.StepResult, quintain.ToolCall) == (Action, StepResult, ToolCall)
    assert (quintain.Text, quintain.Image) == (Text, Image)
    assert quintain.__version__ == "0.1.0"
    assert set(dir(quintain)) >= {"Environment", "train"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Enviroment'"):
        getattr(quintain, "Enviroment")  # noqa: B009 (a type checker would refuse the attribute)


def test_every_extra_has_a_check_of_its_own() -> None:
    """Which `make test-extras` runs where that extra alone is installed."""
    gate = runpy.run_path(str(Path(__file__).with_name("extras_gate.py")))
    assert set(gate["CHECKS"]) == set(gate["extras"]())


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quintain", "--version"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == f"quintain {quintain.__version__}\n"


@pytest.mark.parametrize("place", ["src", "docs", "README.md"])
def test_nothing_says_to_install_from_a_registry(place: str) -> None:
    """Quintain is in none: what is advised is an installation from a clone."""
    root = Path(__file__).parents[1] / place
    files = [root] if root.is_file() else [*root.rglob("*.py"), *root.rglob("*.md")]
    assert files
    for file in files:
        assert not re.search(r"pip install [^\n`]*(?<!/)\bquintain\b", file.read_text(encoding="utf-8")), file

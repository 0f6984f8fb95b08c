"""What is read of a recipe's source is what its class says, and reading it loads nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

from quintain.config.knobs import knobs
from quintain.config.outline import outline
from quintain.methods.names import RECIPES, recipe_module

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("name", RECIPES)
def test_an_outline_is_what_the_class_says(name: str) -> None:
    assert outline(RECIPES[name]) == knobs(recipe_module(name).Config)


def test_a_source_that_is_not_plain_or_not_there_is_left_to_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    bodies = {
        "outline_a": "class Config:\n    steps: int = 2 + len('x')\n",
        "outline_b": "class Config(A, B):\n    steps: int = 2\n",
        "outline_c": "class Other:\n    steps: int = 2\n",
        "outline_d": "class Config:\n    steps: list[int] = 2\n",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(body)
        assert outline(name) is None
    assert outline("outline_nowhere") is None
    (tmp_path / "outline_e.py").write_text(
        "LEAST = 3\n\nclass Config:\n    steps: int = LEAST\n    'How many.'\n"
    )
    found = outline("outline_e")
    assert found is not None
    (knob,) = found
    assert (knob.name, knob.annotation, knob.default, knob.document) == ("steps", int, 3, "How many.")


def test_the_help_of_a_recipe_loads_nothing_heavy() -> None:
    program = (
        "import sys; from quintain.cli.main import main; main(['train', 'grpo', '--help']); "
        "print(sorted({'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--group-size N" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"

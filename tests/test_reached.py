"""Which tests a change reaches: by imports, through finders and conftest files, and all where it is no module."""

from pathlib import Path

import pytest
from tests.reached import FINDERS, ROOT, graph, reached

FILES = {
    "src/quintain/base.py": "",
    "src/quintain/text.py": "def f():\n    from quintain import base",
    "src/quintain/other.py": "",
    "src/quintain/environments/specs.py": "",
    "src/quintain/worlds/guess/game.py": "",
    "tests/conftest.py": "import quintain.other",
    "evidence/tests/test_text.py": "from quintain.text import f",
    "evidence/tests/worlds/test_found.py": "from quintain.environments import specs",
    "evidence/tests/worlds/conftest.py": "from tests.helper import a",
    "tests/helper.py": "a = 1",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["src/quintain/base.py"], ["test_text.py"]),
        (["src/quintain/text.py", "docs/a.md"], ["test_text.py"]),
        (["src/quintain/other.py"], []),
        (["README.md"], []),
        (["src/quintain/worlds/guess/game.py"], ["worlds/test_found.py"]),
        (["tests/helper.py"], ["worlds/test_found.py"]),
        (["evidence/tests/test_text.py"], ["test_text.py"]),
        (["pyproject.toml"], ["test_text.py", "worlds/test_found.py"]),
        (["src/quintain/scores.json"], ["test_text.py", "worlds/test_found.py"]),
        (["src/quintain/gone.py"], []),
    ],
)
def test_what_a_change_reaches(tmp_path: Path, changed: list[str], expected: list[str]) -> None:
    for place, text in FILES.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text, encoding="utf-8")
    found = reached(changed, "evidence/tests", tmp_path)
    assert found == [f"evidence/tests/{name}" for name in expected]


def test_finders_are_modules_of_ours() -> None:
    edges = graph(ROOT)
    for package, finder in FINDERS.items():
        assert finder in edges and any(name.startswith(f"{package}.") for name in edges)

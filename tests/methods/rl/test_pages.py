"""A method's file says where it differs from the paper, and what it was measured on; its page begins with that."""

import importlib
import re
from pathlib import Path

import pytest

from quintain.methods.table import MODULES, TABLE

PAGES = Path(__file__).resolve().parents[3] / "docs" / "methods"
ROWS = {entry.name: entry.is_row for entry in TABLE if entry.module.startswith("rl.")}
"""method → whether it stands for a published system of its own, and not for one part of others"""


def find_differences(name: str) -> str:
    """Return what the file of the method `name` says of its differences, as one line."""
    text = importlib.import_module(MODULES[name]).__doc__ or ""
    found = re.search(r"^Differences to [^:]*: (.*?)(\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name}: let its docstring have a paragraph 'Differences to the paper: …'"
    return " ".join(found[1].replace("``", "`").split())


@pytest.mark.parametrize("name", sorted({*ROWS} - {"policy_gradient"}))
def test_the_file_and_the_page_say_how_the_method_differs(name: str) -> None:
    page = " ".join((PAGES / f"{name}.md").read_text(encoding="utf-8").split())
    differences = find_differences(name)
    assert f"**Differences.** {differences[0].upper()}{differences[1:]}" in page, "run python docs/tables.py"
    assert f"quintain train {name} --environment" in page
    assert not ROWS[name] or "easured on " in differences, (
        f"{name}: let its differences end with 'Measured on …, where the paper has …'"
    )

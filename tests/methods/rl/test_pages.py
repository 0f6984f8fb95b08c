"""A method's page and its file say the same of where they differ from the paper, and of what they were measured on."""

import importlib
import re
from pathlib import Path

import pytest

from quintain.methods.table import MODULES

PAGES = Path(__file__).resolve().parents[3] / "docs" / "methods"
METHODS = sorted(name for name, module in MODULES.items() if ".rl." in module and name != "policy_gradient")
PARTS = frozenset({"cispo", "dapo", "dr_grpo", "gspo", "reinforce", "rloo", "vine"})
"""Methods that fall out of others with one part changed; all others stand for a published system of their own."""


def differences(name: str) -> str:
    """Return what the file of the method `name` says of its differences, as one line."""
    text = importlib.import_module(MODULES[name]).__doc__ or ""
    found = re.search(r"^Differences to [^:]*: (.*?)(\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return " ".join(found[1].replace("``", "`").split())


@pytest.mark.parametrize(
    "method",
    sorted(name for name, module in MODULES.items() if ".rl." in module and name != "policy_gradient"),
)
def test_the_page_says_how_the_method_differs(method: str) -> None:
    page = (PAGES / f"{MODULES[method].rpartition('.')[2]}.md").read_text(encoding="utf-8")
    told = " ".join(page.split())
    said = differences(method)
    assert f"**Differences.** {said[0].upper()}{said[1:]}" in told
    assert f"quintain train {method} --environment" in told


@pytest.mark.parametrize("method", sorted({*METHODS} - PARTS))
def test_where_it_is_measured_is_said_beside_where_the_paper_was(method: str) -> None:
    assert "easured on " in differences(method)

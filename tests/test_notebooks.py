"""The tutorials run, learn what they say, and hold what they printed."""

import json
from pathlib import Path

import pytest
from tests.notebooks import NAMES, PRINTED_FOR, digest_code, execute, read

from quintain.trained import TrainedRun

LEARNS = {"agent": ("triage", 0.08), "environment": ("lamp", 0.3), "research": ("grpo-0", 0.05)}
"""Notebook: the run in it that learns, and by how much its held-out success rises at least."""


def test_there_is_a_tutorial_for_each_kind_of_user() -> None:
    assert NAMES == ("agent", "environment", "research", "transcripts")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_notebook_shows_was_printed_by_its_code(name: str) -> None:
    notebook = read(name)
    assert notebook["metadata"].get(PRINTED_FOR) == digest_code(notebook), "stale outputs: make notebooks"
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(outputs) >= 5 and not [each for each in outputs if each["output_type"] == "error"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_its_first_cell_to_the_last(name: str, tmp_path: Path) -> None:
    notebook = execute(name, tmp_path)
    printed = "".join(
        "".join(output.get("text", "")) for cell in notebook.cells for output in cell.get("outputs", ())
    )
    if name in LEARNS:
        run, rise = LEARNS[name]
        rows = [
            row["eval/success"]
            for row in TrainedRun(tmp_path / "runs" / run).metrics
            if "eval/success" in row
        ]
        assert rows[-1] >= rows[0] + rise, rows
    else:
        assert json.dumps({"order": "B4"}) in printed and "Order B4 is lost." in printed

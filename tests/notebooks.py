"""The tutorials of examples/notebooks: run from their first cell to the last, and kept with what they printed.

``python -m tests.notebooks [NAME…]`` writes the outputs into the files (`make notebooks`).
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb")))
SECONDS = 900
"""What a cell may take, on a machine that does much else."""
PRINTED_FOR = "printed_for"
"""The key of a notebook's metadata that says for which cells its outputs were printed."""


def read(name: str) -> dict[str, Any]:
    """Return the notebook `name` as JSON."""
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def digest_code(notebook: dict[str, Any]) -> str:
    """Return a digest of the code of `notebook`: outputs of another one are stale."""
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def execute(name: str, folder: Path) -> Any:
    """Run the notebook `name` in `folder`, and return it with what it printed.

    Raises:
        CellExecutionError: a cell failed, which it names with its traceback.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # pyright: ignore[reportUnknownMemberType]
    NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}},
        record_timing=False, coalesce_streams=True,
    ).execute()  # fmt: skip
    return notebook


def renew(name: str) -> None:
    """Run the notebook `name`, and write what it printed into its file."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(name, Path(folder))
        text = nbformat.writes(notebook).replace(f"{folder}/", "")  # pyright: ignore[reportUnknownMemberType]
    notebook = nbformat.reads(text, as_version=4)  # pyright: ignore[reportUnknownMemberType]
    notebook.metadata[PRINTED_FOR] = digest_code(notebook)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")  # pyright: ignore[reportUnknownMemberType]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:  # noqa: TID251
        renew(chosen)

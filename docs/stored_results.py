"""Puts the stored results of methods, which are data of the distribution in evidence/, beside the page of them."""

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "evidence" / "src" / "quintain_evidence" / "results"
LINK = "../../evidence/src/quintain_evidence/results/"
"""How a page of ``docs/results`` names that folder, so that its links lead somewhere in a checkout, too."""


def on_files(files: Any, config: Any) -> Any:
    """Add the results to the files of the site."""
    from mkdocs.structure.files import File

    for path in sorted(RESULTS.glob("*.jsonl")):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to the results lead to the files beside the page."""
    return markdown.replace(LINK, "") if page.file.src_uri.startswith("results/") else markdown

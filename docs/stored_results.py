"""Puts what evidence/ keeps of methods, their stored results and histories, beside the pages of them."""

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "evidence" / "src" / "quintain_evidence" / "results"
LINK = "../../evidence/src/quintain_evidence/results/"
"""How a page of ``docs/results`` names that folder, so that its links lead somewhere in a checkout, too."""
HISTORY = Path(__file__).resolve().parents[1] / "evidence" / "history"
PAST, PAGES = "../../evidence/history/", "../../docs/"
"""How a page of a method names the folder of histories, and a history the documentation."""


def on_files(files: Any, config: Any) -> Any:
    """Add the results to the files of the site."""
    from mkdocs.structure.files import File

    for path in sorted(RESULTS.glob("*.jsonl")):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    for path in sorted(HISTORY.glob("*.md")):
        text = path.read_text(encoding="utf-8").replace(PAGES, "../")
        files.append(File.generated(config, f"history/{path.name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to results and histories lead to the files beside the page."""
    if page.file.src_uri.startswith("results/"):
        return markdown.replace(LINK, "")
    return markdown.replace(PAST, "../history/")

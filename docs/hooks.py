"""Puts notebooks, and what evidence/ keeps of methods, beside the pages: mkdocs calls it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
"""Tutorials, with what they printed; their links are those of a checkout."""
BOOK = re.compile(r"\(\.\./examples/notebooks/(\w+)\.ipynb\)")
"""How a page names one of them."""

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
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for name, content in read_notebook(path):
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def read_notebook(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield the page of the notebook at `path` and each picture in it: name, content."""
    from nbconvert.exporters import MarkdownExporter

    text, found = MarkdownExporter().from_filename(str(path), {"unique_key": path.stem})
    source = f"This page is the notebook `{path.relative_to(path.parents[2])}`, with what it printed."
    title, _, rest = text.replace(PAGES, "../").partition("\n")
    yield f"{path.stem}.md", f"{title}\n\n*{source}*\n{rest}"
    yield from found["outputs"].items()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to results, histories and notebooks lead to the files beside the page."""
    markdown = BOOK.sub(r"(tutorials/\1.md)", markdown)
    if page.file.src_uri.startswith("results/"):
        return markdown.replace(LINK, "")
    return markdown.replace(PAST, "../history/")

"""AgentOccam on real pages: what others wrote in fewer words, and a model that plans and acts.

Pages that pydoc writes of Python's modules are read into trees of nodes; then SmolLM2 plays a site with
pages in fewer words and a tree of plans.
"""

from __future__ import annotations

import pydoc
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

from quintain import api
from quintain.agents.pages import simplify
from quintain.types import Score
from quintain_evidence.experiments.agents.agent_occam import count_tokens
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
AGENT = "simplified+branching?commands=2+text?max_tokens=24"
MODULES = (
    "argparse",
    "asyncio",
    "csv",
    "http.client",
    "json",
    "logging",
    "pathlib",
    "sqlite3",
    "unittest",
    "zipfile",
)
ROLES = {
    "a": "link",
    "table": "table",
    "tr": "row",
    "td": "cell",
    "th": "columnheader",
    "ul": "list",
    "li": "listitem",
}


class Reader(HTMLParser):
    """A page of HTML as a tree of nodes, a line each."""

    def __init__(self) -> None:
        """Begin with no node."""
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []

    def add(self, role: str, name: str = "") -> None:
        """Add a node where the page is now."""
        quoted = name.replace('"', "'")
        self.lines.append(f'{"  " * len(self._open)}[{len(self.lines) + 1}] {role} "{quoted}"')

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Go into an element; those that hold nothing are none."""
        if tag not in ("br", "hr", "img", "meta", "link", "input"):
            self.add(ROLES.get(tag, "generic"))
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave the innermost element of that name, and all that was left open in it."""
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Add a text."""
        if words := " ".join(data.split()):
            self.add("StaticText", words)


def read_html(html: str) -> str:
    """Return a page of HTML as a tree."""
    reader = Reader()
    reader.feed(html)
    return "\n".join(reader.lines)


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Simplify pages that somebody else wrote, and let the model act on a site."""
    checks, figures = check_pages()
    _, episodes = api.evaluate(MODEL, "web", episodes=2, agent=AGENT)
    turns = [turn for each in episodes for turn in each.turns]
    internal = [turn for turn in turns if turn.is_internal]
    checks.append(
        Check(
            name="acts",
            has_passed=len(episodes) == 2
            and all(isinstance(each.outcome, Score) for each in episodes)
            and all(re.match(r"\s*(branch|prune|note)\b", turn.action.text) for turn in internal),
            detail=f"{len(turns)} turns of {len(episodes)} episodes, {len(internal)} of them planning",
        )
    )
    return checks, figures


def check_pages() -> tuple[list[Check], dict[str, float]]:
    """Return what becomes of the pages of modules of Python."""
    raw = [read_html(pydoc.HTMLDoc().document(import_module(name), name)) for name in MODULES]
    simple = [simplify(page) for page in raw]
    share = sum(map(count_tokens, simple)) / sum(map(count_tokens, raw))
    lost = sum(find_words(page) - find_words(left) != set() for page, left in zip(raw, simple, strict=True))
    links = [
        [number for number, role in re.findall(r"\[(\d+)\] (\w+)", page) if role == "link"] for page in raw
    ]
    kept = [re.findall(r"\[(\d+)\] link", page) for page in simple]
    again = sum(simplify(page) != page for page in simple)
    checks = [
        Check(
            name="fewer words",
            has_passed=share <= 0.6,
            detail=f"{sum(map(count_tokens, simple)):,} tokens of {sum(map(count_tokens, raw)):,} in {len(raw)} pages",
        ),
        Check(
            name="acts stay",
            has_passed=links == kept,
            detail=f"{sum(map(len, kept)):,} of {sum(map(len, links)):,} links",
        ),
        Check(name="words stay", has_passed=not lost, detail=f"{lost} pages lose a word"),
        Check(name="twice is once", has_passed=not again, detail=f"{again} pages change again"),
    ]
    return checks, {"share": share, "links": float(sum(map(len, kept)))}


def find_words(page: str) -> set[str]:
    """Return the words of names, without ids and roles."""
    return set(re.findall(r"\w+", re.sub(r"\[\d+\] \w+", " ", page)))

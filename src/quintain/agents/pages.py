"""A page of nodes in fewer words, in which all that can be acted on stays: AgentOccam (arXiv 2410.13825).

A page is a tree, a node a line: indentation, an id in brackets, a role, a name and properties (``[12] button "Buy"``).
Static text goes into the node around it, or away where that says it already; nodes without a name that only hold
others go away; entries of a menu stand behind it on its line; lists become items and tables Markdown, with the nodes
inside that can be acted on. What can be acted on is everything but `PASSIVE`: its id, role and name stay as they are.
Lines without an id stay, too, so that simplifying twice is simplifying once.

Differences to the paper: the rules are said of roles, without the released code's lists of sites and of texts to drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

NODE = re.compile(r"(\s*)\[(\w+)\]\s*(\w+)?\s*(.*)")
STATIC = frozenset({"StaticText", "text", "LineBreak", "InlineTextBox"})
CELLS = frozenset({"cell", "gridcell", "columnheader", "rowheader"})
HOLDERS = frozenset({
    "article", "banner", "complementary", "contentinfo", "div", "form", "generic", "group", "main", "navigation",
    "none", "paragraph", "presentation", "region", "rowgroup", "section", "span", "",
})  # fmt: skip
TABLES, LISTS = frozenset({"table", "grid"}), frozenset({"list"})
PASSIVE = STATIC | CELLS | HOLDERS | TABLES | LISTS | {"row", "listitem"}
"""Roles of nodes that only show something."""
MENUS = frozenset({"combobox", "listbox", "menu", "menubar", "radiogroup", "tablist"})
_WORD = re.compile(r"[^\s\"']+")
_QUOTED = re.compile(r"""(["'])(.*)\1""")
_IDLE = re.compile(r"\s*\b\w+: (?:False|false)\b")


@dataclass(slots=True)
class Node:
    """A node and those in it: ``Node(depth=2, id="12", role="button", rest='"Buy"', line=0)``."""

    depth: int
    id: str
    role: str
    rest: str
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def name(self) -> str:
        """What it says, without quotes."""
        quoted = _QUOTED.fullmatch(self.rest)
        return quoted[2] if quoted else self.rest

    @property
    def head(self) -> str:
        """Its own line, without indentation."""
        return " ".join(part for part in (f"[{self.id}]", self.role, self.rest) if part)

    @property
    def is_passive(self) -> bool:
        """Whether it can be left out where what is in it stays."""
        return self.role in PASSIVE


def simplify(text: str, rows: int = 0) -> str:
    """Return the page `text` in fewer words; with `rows` no more lines than that, and how many others there were."""
    found = _simplify_once(text)
    for _ in range(len(found)):  # what went away may have been all that was between others
        simpler = _simplify_once("\n".join(found))
        if simpler == found:
            break
        found = simpler
    if 0 < rows < len(found):
        found = [*found[:rows], f"({len(found) - rows} more lines of the page are not shown)"]
    return "\n".join(found)


def _simplify_once(text: str) -> list[str]:
    """Return the lines of `text` as they are told from its own tree."""
    found: list[str] = []
    block: list[str] = []
    for line in [*text.splitlines(), None]:
        if line is not None and NODE.fullmatch(line):
            block.append(line)
            continue
        if line is not None and not line.strip():
            continue
        found += (part for root in read_nodes(block) for part in _render(root, 0, ()))
        block = []
        if line is not None and line.rstrip() != (found[-1] if found else None):
            found.append(line.rstrip())
    return found


def read_nodes(lines: Sequence[str]) -> list[Node]:
    """Return the outermost nodes of `lines`, each of which is one; names in properties that say no are left out."""
    roots: list[Node] = []
    stack: list[Node] = []
    for line in lines:
        match = NODE.fullmatch(line)
        assert match is not None, "every line is a node"
        rest = match[4].strip()
        end = max(rest.rfind('"'), rest.rfind("'")) + 1
        node = Node(len(match[1]), match[2], match[3] or "", rest[:end] + _IDLE.sub("", rest[end:]))
        while stack and stack[-1].depth >= node.depth:
            stack.pop()
        (stack[-1].children if stack else roots).append(node)
        stack.append(node)
    return roots


def _render(node: Node, shift: int, said: tuple[str, ...]) -> list[str]:
    """Return the lines of `node`, `shift` signs further left than it stands, inside nodes that have `said` names."""
    indent = " " * (node.depth - shift)
    inner = (*said, node.name)
    if node.role in STATIC and not node.children:
        return [] if _is_said(node.name, said) else [indent + node.head]
    texts = [child for child in node.children if child.role in STATIC and not child.children]
    if not node.name and texts and len(texts) == len(node.children) and node.role not in TABLES | LISTS:
        words = " ".join(text.name for text in texts if text.name)
        node = Node(node.depth, node.id, node.role, f'"{words}"' if words else node.rest)
        if node.is_passive and (not words or _is_said(words, said)):
            return []
        return [indent + node.head]
    if node.role in TABLES and (table := _write_table(node, inner)) is not None:
        return [*([indent + node.head] if node.name else []), *(f"{indent}{line}" for line in table)]
    if node.role in LISTS and all(child.role == "listitem" and _is_flat(child) for child in node.children):
        items = [_inline(child, inner) for child in node.children]
        head = [indent + node.head] if node.name else []
        return [*head, *(f"{indent}- {item}" for item in items if item)]
    if node.role in MENUS and node.children and all(_is_flat(child) for child in node.children):
        entries = [_inline(child, inner) for child in node.children]
        return [f"{indent}{node.head}: {' | '.join(entry for entry in entries if entry)}"]
    is_kept = not node.is_passive or bool(node.name)
    if not is_kept and node.children:
        shift += min(child.depth for child in node.children) - node.depth
    lines = [indent + node.head] if is_kept else []
    return [*lines, *(line for child in node.children for line in _render(child, shift, inner))]


def _inline(node: Node, said: tuple[str, ...]) -> str:
    """Return `node` and all in it on one line."""
    inner = (*said, node.name)
    own = "" if node.is_passive and _is_said(node.name, said) else node.name if node.is_passive else node.head
    parts = [own, *(_inline(child, inner) for child in node.children)]
    return " ".join(part for part in parts if part)


def _is_flat(node: Node) -> bool:
    """Whether `node` reads well on a line: there is no table, list or menu in it."""
    return node.role not in TABLES | LISTS | MENUS and all(_is_flat(child) for child in node.children)


def _write_table(node: Node, said: tuple[str, ...]) -> list[str] | None:
    """Return the lines of a table in Markdown; None where it is none: what is in it are not rows of cells."""
    rows = list(_find_rows(node))
    if not rows or any(row is None or not row.children for row in rows):
        return None
    lines: list[str] = []
    for number, row in enumerate(rows):
        assert row is not None
        if not all(child.role in CELLS and _is_flat(child) for child in row.children):
            return None
        cells = [_inline(child, said).replace("|", "\\|") for child in row.children]
        if not {*_WORD.findall(row.name)} <= {*_WORD.findall(" ".join(cells).replace("\\|", "|"))}:
            return None  # a name that is more than what its cells say
        lines.append(f"| {' | '.join(cells)} |")
        if number == 0 and all(child.role == "columnheader" for child in row.children):
            lines.append(f"|{' --- |' * len(cells)}")
    return lines


def _find_rows(node: Node) -> Iterator[Node | None]:
    """Yield the rows in `node`, and None for what is no row."""
    for child in node.children:
        if child.role == "row":
            yield child
        elif child.role in HOLDERS and not child.name:
            yield from _find_rows(child)
        else:
            yield None


def _is_said(text: str, names: Sequence[str]) -> bool:
    """Whether the words of `text` stand in one of `names`, one after the other: "Order 100" says "100" and not "10"."""
    words = _WORD.findall(text)
    return not words or any(
        said[n : n + len(words)] == words for said in map(_WORD.findall, names) for n in range(len(said))
    )

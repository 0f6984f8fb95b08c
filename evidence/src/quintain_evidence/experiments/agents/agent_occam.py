"""AgentOccam: does a page in half of the tokens still say what to act on, to a reader who knows the prompt alone?

Pages of a shop as a browser's accessibility tree has them: holders within holders, text said twice, menus, a table, a
list of reviews and a form. A task names a word of the page and what is to be acted on behind it: the button in the row
with a price, the field behind a label, the entry of a menu, the link of a review. The reader takes the first node of
that role and name behind the word, in any notation; the right node is known from how the page was drawn. In the control
static text and holders are removed at random, to as many tokens, and every node that can be acted on stays; the rival
shows the page from its beginning, to as many tokens. In the null world pages have no clutter, and stay as they are.
Beside it: a past page by the nodes that were spoken of, against as many at random.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from quintain.agents.pages import NODE, PASSIVE, simplify
from quintain.agents.shaping import keep_pivotal
from quintain.types import derive_seed

TOKEN = re.compile(r"\w+|[^\w\s]")
GOODS = ("lamp", "chair", "clock", "kettle", "mirror", "basket", "rug", "vase", "towel", "candle")
COLORS = ("red", "blue", "green", "white", "black", "yellow")
LABELS = ("Email", "Street", "Town", "Phone")
SIZES = ("small", "medium", "large")
NAMED = 0.9
"""Chance that whoever acts speaks of a node of the page, its recall."""


@dataclass(slots=True)
class Draft:
    """A page that is being drawn: its lines, and the ids of what may be asked for."""

    clutter: int
    lines: list[str] = field(default_factory=list[str])
    targets: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])
    """(word, role, name) → id"""

    def add(self, depth: int, role: str, name: str = "", more: str = "") -> str:
        """Add a node and return its id; a page with clutter says that it is not disabled, not required, …."""
        number = str(len(self.lines) + 1)
        said = f" {more}" if more and self.clutter else ""
        self.lines.append(f'{"  " * depth}[{number}] {role} "{name}"{said}')
        return number

    def hold(self, depth: int) -> int:
        """Add as many holders within each other as there is clutter, and return the depth of what is in them."""
        for _ in range(self.clutter):
            self.add(depth, "generic")
            depth += 1
        return depth

    def say(self, depth: int, role: str, name: str, more: str = "") -> str:
        """Add a node with its name, which a text in it says again where there is clutter."""
        number = self.add(depth, role, name, more)
        if self.clutter:
            self.add(depth + 1, "StaticText", name)
        return number


def draw_page(rng: Random, clutter: int) -> Draft:
    """Return a page of a shop with so many holders around each thing; with none it has no table and no list."""
    page = Draft(clutter)
    page.add(0, "RootWebArea", "Shop", "focused: True")
    depth = page.hold(1)
    for word in rng.sample(GOODS, 6):
        page.say(page.hold(depth), "link", f"All {word}s", "visited: False")
    for name in rng.sample(["Size", "Sort", "Pack"], 2):
        inner = page.hold(depth)
        page.add(inner, "combobox", name, "expanded: False required: False")
        for size in SIZES:
            page.targets[name, "option", size] = page.add(
                inner + bool(clutter), "option", size, "selected: False"
            )
    draw_goods(page, depth, rng)
    draw_reviews(page, depth, rng)
    for label in rng.sample(LABELS, 3):
        inner = page.hold(depth)
        page.add(inner, "StaticText", label)
        page.targets[label, "textbox", ""] = page.add(inner, "textbox", "", "disabled: False required: False")
    page.say(page.hold(depth), "button", "Send", "disabled: False")
    return page


def draw_goods(page: Draft, depth: int, rng: Random) -> None:
    """Add goods with prices and buttons: a table, or a line each where there is no clutter."""
    inner = page.hold(depth)
    if page.clutter:
        page.add(inner, "table", "Goods")
        page.add(inner + 1, "row")
        for name in ("Name", "Price", "Left", ""):
            page.say(inner + 2, "columnheader", name)
    for price in rng.sample(range(1000, 9999), 8):
        name = f"{rng.choice(COLORS)} {rng.choice(GOODS)}"
        if page.clutter:
            page.add(inner + 1, "row")
            for text in (name, str(price), str(rng.randint(10, 99))):
                page.add(inner + 2, "cell")
                page.add(page.hold(inner + 3), "StaticText", text)
            page.add(inner + 2, "cell")
            bought = page.say(inner + 3, "button", "Buy", "disabled: False")
        else:
            page.add(inner, "StaticText", f"{name} {price}")
            bought = page.add(inner, "button", "Buy")
        page.targets[str(price), "button", "Buy"] = bought


def draw_reviews(page: Draft, depth: int, rng: Random) -> None:
    """Add reviews, each with the name of its author and a link behind it."""
    inner = page.hold(depth)
    if page.clutter:
        page.add(inner, "list")
    for number in rng.sample(range(100, 999), 4):
        author = f"guest{number}"
        if page.clutter:
            page.add(inner + 1, "listitem")
        within = page.hold(inner + 2) if page.clutter else inner
        page.add(within, "StaticText", f"{author} says it is {rng.choice(['good', 'bad', 'fine'])}")
        page.targets[author, "link", "Reply"] = page.say(within, "link", "Reply", "visited: False")


def read(page: str, task: tuple[str, str, str]) -> str:
    """Return the id that a reader of `page` acts on: the first of the role and name behind the word."""
    word, role, name = task
    start = re.search(rf"(?<![\w\[]){re.escape(word)}(?![\w\]])", page)
    if start is None:
        return ""
    found = re.search(rf'\[(\w+)\] {role} "{re.escape(name)}"', page[start.end() :])
    return found[1] if found else ""


def count_tokens(page: str) -> int:
    """Return the words and signs of `page`; how far it is indented counts nothing."""
    return len(TOKEN.findall(page))


def cut_at_random(page: str, most: int, rng: Random) -> str:
    """Return `page` without lines at random that nobody can act on, until it has at most so many tokens."""
    lines = page.splitlines()
    passive = [n for n, line in enumerate(lines) if (node := NODE.fullmatch(line)) and node[3] in PASSIVE]
    rng.shuffle(passive)
    gone, size = set[int](), count_tokens(page)
    while size > most and passive:
        gone.add(passive[-1])
        size -= count_tokens(lines[passive.pop()])
    return "\n".join(line for n, line in enumerate(lines) if n not in gone)


def cut_behind(page: str, most: int) -> str:
    """Return the first lines of `page` that have at most so many tokens."""
    kept: list[str] = []
    for line in page.splitlines():
        most -= count_tokens(line)
        if most < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return whether the reader finds what to act on, for each of `seeds` pages and tasks."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        rng = Random(derive_seed("page", seed, number))
        row: dict[str, float] = {}
        for prefix, clutter in (("", int(options["clutter"])), ("null_", 0)):
            draft = draw_page(rng, clutter)
            raw = "\n".join(draft.lines)
            task = rng.choice(sorted(draft.targets))
            right, simple = draft.targets[task], simplify(raw)
            most = count_tokens(simple)
            shown = {
                "method": simple,
                "control": cut_at_random(raw, most, rng),
                **({} if prefix else {"extra.raw": raw, "extra.viewport": cut_behind(raw, most)}),
            }
            row |= {f"{prefix}{name}": float(read(page, task) == right) for name, page in shown.items()}
            if not prefix:
                acts = re.compile(r"\[(\w+)\] (link|button|textbox|option|combobox)")
                row["extra.tokens"] = most / count_tokens(raw)
                row["extra.lost"] = float(acts.findall(simple) != acts.findall(raw))
                row |= recall(simple, task, right, rng)
        found.append(row)
    return found


def recall(page: str, task: tuple[str, str, str], right: str, rng: Random) -> dict[str, float]:
    """Return whether a past page still leads to what was acted on, by what was spoken of or as much at random."""
    ids = re.findall(r"\[(\w+)\]", page)
    spoken = frozenset({right} if rng.random() < NAMED else set()) | {rng.choice(ids)}
    others = frozenset(rng.sample(ids, len(spoken)))
    return {
        f"extra.{name}": float(f"[{right}] {task[1]}" in keep_pivotal(page, chosen))
        for name, chosen in (("pivotal", spoken), ("others", others))
    }

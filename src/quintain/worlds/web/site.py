"""The sites of `web`: pages, links and forms, drawn for a task, and the way to its goal.

A shop in a tree of pages: home, kinds of things, sizes, things, and a form to order each; and one to sign up. A site
is frozen data; what was clicked and typed is the browser's.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

Kind = Literal["open", "answer", "form", "order"]
GOALS: tuple[Kind, ...] = ("open", "answer", "form", "order")
KINDS = ("lamp", "chair", "cup", "shirt", "book", "bag", "clock", "desk")
COLORS = ("red", "blue", "green", "black", "white", "pink")
SIZES = ("small", "large")
NAMES = ("anna", "ben", "carl", "dora", "emil", "fay", "gus", "hana")
CITIES = ("oslo", "rome", "lima", "cairo", "paris", "kyoto", "quito", "delhi")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "name": NAMES,
    "city": CITIES,
    "delivery": ("slow", "fast"),
    "gift": ("on", "off"),
}
"""field → values it can be asked to have"""
TYPED = ("name", "city")
"""Fields that text is typed into; `delivery` is chosen and `gift` ticked."""
HOME, SIGN_UP, CLUB, GONE = "home", "sign up", "club", "not found"
NUM_DEPTHS = 3
WORDINGS = (
    ("buy", "order now", "get it"),
    (SIGN_UP, "register", "join us"),
    ("close", "dismiss", "got it"),
    ("{}", "all {}", "shop {}"),
)
"""What a link to a form, one to sign up, the button of a pop-up and links to lists are called, in turn."""
NUM_LAYOUTS = 12
"""Changes of one word each after which everything is called as at first."""


class Page(NamedTuple):
    """A page: ``Page(links=(("buy", "order red lamp"),), facts=(("price", 12),))``."""

    links: tuple[tuple[str, str], ...] = ()
    """label → name of the page it leads to"""
    facts: tuple[tuple[str, int], ...] = ()
    is_form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to do: ``Goal(kind="answer", target="red lamp", fact="price", answer="12", fields=())``."""

    kind: Kind
    target: str
    fact: str = ""
    answer: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    def words(self) -> str:
        """Return the task in words."""
        asked = ", ".join(f"{name} {value}" for name, value in self.fields)
        return {
            "open": f"Task: open {self.target}.",
            "answer": f"Task: answer the {self.fact} of {self.target}.",
            "form": f"Task: sign up with {asked}.",
            "order": f"Task: order {self.target} with {asked}.",
        }[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A task: its goal, its pages by name, and the pages from home to where the goal is reached."""

    goal: Goal
    pages: tuple[tuple[str, Page], ...]
    route: tuple[str, ...]
    close: str = field(default="close", repr=False)
    """button that closes a pop-up; it has no part in what the task is (`split_draw`)"""


class SiteShape(NamedTuple):
    """The options that a site is drawn by."""

    depth: int
    kinds: int
    items: int
    fields: int
    dead_ends: int
    goal: Kind | Literal["any"]
    is_vague: bool
    """Whether the links to kinds of things do not say what kind."""


def draw_site(shape: SiteShape, rng: random.Random) -> Site:
    """Return a site of `shape`, and a goal in it."""
    kinds = rng.sample(KINDS, shape.kinds)
    sizes = SIZES if shape.depth == NUM_DEPTHS else ("",)
    pages: dict[str, Page] = {}
    names: list[tuple[str, ...]] = []
    for kind in kinds:
        for size in sizes:
            for color in rng.sample(COLORS, shape.items):
                item = " ".join(filter(None, (size, color, kind)))
                names.append((kind, size, item))
                price, stock = rng.randint(2, 99), rng.randint(2, 99)
                pages[item] = Page((("buy", f"order {item}"),), (("price", price), ("stock", stock)))
                pages[f"order {item}"] = Page(is_form=True)
    roots = _listings(shape, names, pages, rng)
    pages[HOME] = _shuffle([*roots, (SIGN_UP, SIGN_UP)], rng)
    pages |= {SIGN_UP: Page(is_form=True), CLUB: Page(), GONE: Page()}
    kind, size, item = rng.choice(names)
    goal = _draw_goal(shape, item, dict(pages[item].facts), rng)
    if goal.kind == "form":
        route: tuple[str, ...] = (HOME, SIGN_UP)
    else:
        way = [HOME, *([f"{kind}s"] * (shape.depth > 1)), *([f"{size} {kind}s"] * bool(size)), item]
        route = (*way, *([f"order {item}"] * (goal.kind == "order")))
    return Site(goal=goal, pages=tuple(pages.items()), route=route)


def wording(layout: int) -> tuple[str, ...]:
    """Return what things are called in `layout`, as in `WORDINGS`: from one to the next one of them changes."""
    num = len(WORDINGS)
    return tuple(words[(layout + num - 1 - k) // num % len(words)] for k, words in enumerate(WORDINGS))


def restyle(site: Site, layout: int) -> Site:
    """Return `site` with the words of `layout` on its links and pop-ups; where they lead stays."""
    buy, sign_up, close, lists = wording(layout)
    pages = dict(site.pages)

    def label(said: str, target: str) -> str:
        if said in ("buy", SIGN_UP):
            return buy if said == "buy" else sign_up
        is_list = said == target and bool(pages[target].links) and not pages[target].facts
        return lists.format(said) if is_list else said

    changed = [
        (name, page._replace(links=tuple((label(said, target), target) for said, target in page.links)))
        for name, page in site.pages
    ]
    return replace(site, pages=tuple(changed), close=close)


def _listings(
    shape: SiteShape, names: list[tuple[str, ...]], pages: dict[str, Page], rng: random.Random
) -> list[tuple[str, str]]:
    """Add the pages that list kinds, sizes and things, and return the links of the home page."""
    if shape.depth == 1:
        return [(item, item) for _, _, item in names] + _ads(shape, names, rng)
    kinds = list(dict.fromkeys(kind for kind, _, _ in names))
    roots: list[tuple[str, str]] = []
    for number, kind in enumerate(kinds, start=1):
        listed: dict[str, list[tuple[str, str]]] = {}
        for other, size, item in names:
            if other == kind:
                listed.setdefault(" ".join(filter(None, (size, f"{kind}s"))), []).append((item, item))
        for name, links in listed.items():
            pages[name] = _shuffle([*links, *_ads(shape, names, rng)], rng)
        if shape.depth == NUM_DEPTHS:
            pages[f"{kind}s"] = _shuffle([(name, name) for name in listed], rng)
        roots.append((f"section {number}" if shape.is_vague else f"{kind}s", f"{kind}s"))
    return roots


def _ads(shape: SiteShape, names: list[tuple[str, ...]], rng: random.Random) -> list[tuple[str, str]]:
    """Return links that promise a thing and lead to a page that is not there."""
    chosen = rng.sample(names, min(shape.dead_ends, len(names)))
    return [(f"best {item}", GONE) for _, _, item in chosen]


def _shuffle(links: list[tuple[str, str]], rng: random.Random) -> Page:
    """Return a page of `links` in an order that means nothing."""
    return Page(links=tuple(rng.sample(links, len(links))))


def _draw_goal(shape: SiteShape, item: str, facts: Mapping[str, int], rng: random.Random) -> Goal:
    """Return a goal about `item`, or about signing up."""
    kind: Kind = rng.choice(GOALS) if shape.goal == "any" else shape.goal
    if kind == "answer":
        fact = rng.choice(sorted(facts))
        return Goal(kind=kind, target=item, fact=fact, answer=str(facts[fact]))
    if kind == "open":
        return Goal(kind=kind, target=item)
    names = list(FIELDS)[: shape.fields]
    fields = tuple((name, rng.choice(FIELDS[name]) if name != "gift" else "on") for name in names)
    return Goal(kind=kind, target=SIGN_UP if kind == "form" else item, fields=fields)

"""A web shop: search, click through results and options, go back from what does not fit, and buy.

Families it stands for: WebShop and other page-by-page shopping with a graded score at the end. The only thing that is
scored is what was bought, and a purchase ends the episode.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval, split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.shop.stock import (
    COLORS,
    FEATURES,
    KINDS,
    PRICES,
    SIZES,
    Item,
    Stock,
    Wish,
    draw_stock,
    draw_wish,
    read_wish,
)

LETTERS = "abcd"
"""What the results of a page are called; so many are shown at once."""
MAX_ITEMS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Where the customer is: ``Visit(page="item", results=(3, 7), item=3, color="red")``."""

    page: Literal["home", "results", "item", "description"] = "home"
    results: tuple[int, ...] = ()
    query: str = ""
    offset: int = 0
    item: int = -1
    color: str = ""
    size: str = ""
    opened: frozenset[int] = frozenset()
    """Items that were looked at in this episode."""
    read: frozenset[int] = frozenset()
    """Items whose description was read."""
    turn: int = 0
    is_over: bool = False
    """Whether the item was bought."""


State = tuple[Stock, Visit, int]


class Shop(Environment):
    """Buy what is asked for.

    Act: search WORDS, click a, click b, click c, click d, click next, click previous, click COLOR, click SIZE,
    click description, click back or click buy.
    """

    name = "shop"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory", "reasoning"})

    def __init__(
        self,
        *,
        items: int = 40,
        near: int = 3,
        hidden: bool = False,
        reward: Literal["sparse", "dense"] = "dense",
        noise: int = 0,
    ) -> None:
        """Sell `items` things, `near` of which are what is wanted but for one thing.

        With `hidden` only an item's description says what it is made of, and the search does not know. The
        reward of a purchase is its score (`dense`), or 1 if all is right (`sparse`). `noise` sentences that mean
        nothing follow every page.

        Raises:
            UsageError: there is no such shop.
        """
        if not 1 <= items <= MAX_ITEMS or not 0 <= near < items or noise < 0:
            raise UsageError(
                f"shop: got items={items}, near={near}, noise={noise}; give 1 to {MAX_ITEMS} items, fewer near "
                "ones, and no negative number"
            )
        self._shape = (items, near)
        self._is_hidden = hidden
        self._is_dense = reward == "dense"
        self._noise = noise
        # Of the wanted kind there are about an eighth of the items, and looking at one takes two turns, or four.
        candidates = near + 2 + items // 4
        self.max_turns = 12 + candidates * (4 if hidden else 1) + near * 2
        self._stock = Stock(
            wish=Wish(kind="hat", feature="wool", color="red", size="small", limit=10), items=()
        )
        self._visit = Visit()
        self._seed = 0

    def reset(self, task: Task) -> str:
        """Stock the shop of the task; its data may name another ``wish`` than the one that the shop is stocked for."""
        wish = split_draw(task, draw_wish)
        self._stock = draw_stock(wish, *self._shape, task.rng)
        if "wish" in task.data:
            self._stock = replace(self._stock, wish=Wish(**task.data["wish"]))
        self._visit, self._seed = Visit(), task.seed
        return f"{self._stock.wish.words()} {self._view()}"

    def step(self, action: Action) -> StepResult:
        """Search or click; what is not on the page cannot be clicked."""
        text = action.text.lower().replace("[", " ").replace("]", " ")
        verb, _, what = " ".join(text.split()).partition(" ")
        visit = replace(self._visit, turn=self._visit.turn + 1)
        is_valid = action.error is None and self._accepts(verb, what)
        if not is_valid:
            self._visit = visit
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        if what == "buy":
            self._visit = replace(visit, is_over=True)
            return self._bought()
        self._visit = self._search(visit, what) if verb == "search" else self._click(visit, what)
        return StepResult(observation=self._view(), is_success=False)

    def legal_actions(self) -> tuple[str, ...]:
        """Return what can be clicked here; at home, a search for each kind of thing (any words are accepted)."""
        if self._visit.page == "home":
            return tuple(f"search {kind}" for kind in KINDS)
        return tuple(f"click {what}" for what in self._links())

    def expert_action(self) -> Action:
        """Return the next action of one who looks at what may fit, in order, and goes back from what does not."""
        return Action(text=self._expert_words())

    def achieved(self) -> Mapping[str, Any] | None:
        """Return the wish that what was bought fulfils; None where nothing was bought, or no color or size chosen."""
        visit = self._visit
        if not (visit.is_over and visit.color and visit.size):
            return None
        item = self._stock.items[visit.item]
        limit = max(item.price, PRICES[1])
        wish = Wish(kind=item.kind, feature=item.feature, color=visit.color, size=visit.size, limit=limit)
        return {"wish": asdict(wish)}

    def proposal(self, rng: Random) -> Mapping[str, Any]:
        """Return the wish of one who saw a thing listed: its kind, price and feature, in some color and size.

        Whether it is sold so is not known; where features are hidden that is drawn, too. No wish that is held out.
        """
        while True:
            item = rng.choice(self._stock.items)
            feature = rng.choice(FEATURES) if self._is_hidden else item.feature
            wish = Wish(
                kind=item.kind,
                feature=feature,
                color=rng.choice(COLORS),
                size=rng.choice(SIZES),
                limit=max(item.price, PRICES[1]),
            )
            if not is_eval(wish):
                return {"wish": asdict(wish)}

    def read_proposal(self, text: str) -> Mapping[str, Any] | None:
        """Return the wish that `text` says as this shop does; None for another text, and for one that is held out."""
        wish = read_wish(text)
        return None if wish is None or is_eval(wish) else {"wish": asdict(wish)}

    def snapshot(self) -> State:
        """Return the shop and where the customer is."""
        return self._stock, self._visit, self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._stock, self._visit, self._seed = state

    def state_key(self) -> str:
        """Return the page with its choices; what was looked at before is no part of it."""
        visit = self._visit
        return repr((visit.page, visit.query, visit.offset, visit.item, visit.color, visit.size))

    def _accepts(self, verb: str, what: str) -> bool:
        """Whether the action is possible on this page."""
        if verb == "search":
            return self._visit.page == "home" and bool(what)
        return verb == "click" and what in self._links()

    def _links(self) -> tuple[str, ...]:
        """Return what can be clicked on this page."""
        visit = self._visit
        if visit.page == "home":
            return ()
        if visit.page == "results":
            shown = LETTERS[: len(visit.results) - visit.offset]
            more = ("next",) if visit.offset + len(LETTERS) < len(visit.results) else ()
            return (*shown, *more, *(("previous",) if visit.offset else ()), "back")
        if visit.page == "description":
            return ("back",)
        item = self._stock.items[visit.item]
        return (*item.colors, *item.sizes, "description", "back", "buy")

    def _search(self, visit: Visit, query: str) -> Visit:
        """Return the first page of results for `query`."""
        results = self._stock.found(query, by_feature=not self._is_hidden)
        return replace(visit, page="results", results=results, query=query, offset=0)

    def _click(self, visit: Visit, what: str) -> Visit:
        """Return the page that the link `what` leads to."""
        if what == "back":
            if visit.page == "description":
                return replace(visit, page="item")
            if visit.page == "item":
                return replace(visit, page="results", item=-1, color="", size="")
            return replace(visit, page="home", results=(), query="", offset=0)
        if visit.page == "results":
            if what in ("next", "previous"):
                return replace(visit, offset=visit.offset + len(LETTERS) * (1 if what == "next" else -1))
            item = visit.results[visit.offset + LETTERS.index(what)]
            return replace(visit, page="item", item=item, opened=visit.opened | {item})
        if what == "description":
            return replace(visit, page="description", read=visit.read | {visit.item})
        if what in self._stock.items[visit.item].colors:
            return replace(visit, color=what)
        return replace(visit, size=what)

    def _bought(self) -> StepResult:
        """Return the end of the episode."""
        visit = self._visit
        score = self._stock.wish.score(self._stock.items[visit.item], visit.color, visit.size)
        return StepResult(
            observation=f"Bought. Score {score:g}.",
            reward=score if self._is_dense else float(score == 1.0),
            is_terminated=True,
            is_success=score == 1.0,
        )

    def _title(self, item: Item) -> str:
        """Return how an item is listed."""
        return f"{'' if self._is_hidden else item.feature + ', '}{item.kind}, {item.price}"

    def _view(self) -> str:
        """Return the page."""
        visit = self._visit
        if visit.page == "home":
            page = "home"
        elif visit.page == "results":
            shown = visit.results[visit.offset : visit.offset + len(LETTERS)]
            listed = [f"{LETTERS[n]}: {self._title(self._stock.items[item])}" for n, item in enumerate(shown)]
            page = "; ".join(listed) or "nothing found"
            page += "; next" if "next" in self._links() else ""
        else:
            item = self._stock.items[visit.item]
            options = f"{', '.join(item.colors)}; {', '.join(item.sizes)}"
            chosen = ", ".join(part for part in (visit.color, visit.size) if part) or "nothing"
            page = f"{self._title(item)}; {options}; chosen: {chosen}"
            if visit.page == "description":
                page = f"description: {item.feature}"
        return f"{page}{chatter(self._noise, self._seed, visit.turn)}"

    def _expert_words(self) -> str:
        """Return the expert's action."""
        visit, wish = self._visit, self._stock.wish
        if visit.page == "home":
            return f"search {wish.kind}"
        if visit.page == "description":
            return "click back"
        if visit.page == "item":
            return f"click {self._choice(visit)}"
        shown = visit.results[visit.offset : visit.offset + len(LETTERS)]
        for letter, item in zip(LETTERS, shown, strict=False):
            if self._may_fit(item):
                return f"click {letter}"
        return "click next" if "next" in self._links() else "click back"

    def _choice(self, visit: Visit) -> str:
        """Return what the expert clicks on an item's page."""
        wish = self._stock.wish
        if not self._may_fit(visit.item):
            return "back"
        if self._is_hidden and visit.item not in visit.read:
            return "description"
        if visit.color != wish.color:
            return wish.color
        return "buy" if visit.size == wish.size else wish.size

    def _may_fit(self, place: int) -> bool:
        """Whether the item may be what is wanted, as far as the expert has seen."""
        item, visit, wish = self._stock.items[place], self._visit, self._stock.wish
        if item.kind != wish.kind or item.price > wish.limit:
            return False
        if (not self._is_hidden or place in visit.read) and item.feature != wish.feature:
            return False
        return place not in visit.opened or (wish.color in item.colors and wish.size in item.sizes)

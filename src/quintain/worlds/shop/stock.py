"""What a shop sells and what a customer wants: items, the search that finds them, and the score of a purchase.

Frozen data and pure functions. There is always an item that is all that the customer wants.
"""

import re
from dataclasses import dataclass
from random import Random

KINDS = ("shirt", "shoe", "hat", "bag", "coat", "sock", "scarf", "belt")
FEATURES = ("cotton", "wool", "leather", "linen", "silk", "denim")
COLORS = ("red", "blue", "green", "black", "white", "grey")
SIZES = ("small", "medium", "large")
PRICES = tuple(range(10, 100, 10))
WISH = re.compile(
    rf"({'|'.join(FEATURES)}), ({'|'.join(KINDS)}), ({'|'.join(COLORS)}), "
    rf"({'|'.join(SIZES)}), at most ({'|'.join(map(str, PRICES))})\b"
)
"""How a wish is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something for sale: ``Item(kind="hat", feature="wool", price=30, colors=("red",), sizes=("small",))``."""

    kind: str
    feature: str
    price: int
    colors: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to buy: ``Wish(kind="hat", feature="wool", color="red", size="small", limit=40)``."""

    kind: str
    feature: str
    color: str
    size: str
    limit: int
    """The most that it may cost."""

    def words(self) -> str:
        """Return the wish in words."""
        return f"Goal: {self.feature}, {self.kind}, {self.color}, {self.size}, at most {self.limit}."

    def score(self, item: Item, color: str, size: str) -> float:
        """Return the share of four wishes that are met: feature, color, size and price.

        Another kind of thing is worth nothing. `color` and `size` are the options that were chosen.
        """
        if item.kind != self.kind:
            return 0.0
        met = (
            item.feature == self.feature,
            color == self.color,
            size == self.size,
            item.price <= self.limit,
        )
        return sum(met) / len(met)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A shop and its customer: ``Stock(wish=wish, items=(item, ...))``."""

    wish: Wish
    items: tuple[Item, ...]

    def found(self, query: str, *, by_feature: bool) -> tuple[int, ...]:
        """Return the places of the items that match most words of `query`, those that match none left out.

        Words match the kind and, when asked, the feature; colors, sizes and prices are not searched.
        """
        words = set(query.split())
        hits = [(item.kind in words) + (by_feature and item.feature in words) for item in self.items]
        return tuple(sorted((n for n, count in enumerate(hits) if count), key=lambda n: -hits[n]))


def draw_wish(rng: Random) -> Wish:
    """Return what a customer wants."""
    return Wish(
        kind=rng.choice(KINDS),
        feature=rng.choice(FEATURES),
        color=rng.choice(COLORS),
        size=rng.choice(SIZES),
        limit=rng.choice(PRICES[1:-1]),
    )


def read_wish(text: str) -> Wish | None:
    """Return the wish that `text` says, in words as `Wish.words` has them; None where it says none."""
    found = WISH.search(text.lower())
    if found is None:
        return None
    feature, kind, color, size, limit = found.groups()
    return Wish(kind=kind, feature=feature, color=color, size=size, limit=int(limit))


def draw_stock(wish: Wish, num_items: int, num_near: int, rng: Random) -> Stock:
    """Return a shop of `num_items`, `num_near` of them what is wanted but for one thing."""
    items = [_draw_wanted(wish, rng)]
    items += [_near(wish, rng) for _ in range(num_near)]
    items += [_any_item(rng) for _ in range(num_items - 1 - num_near)]
    rng.shuffle(items)
    return Stock(wish=wish, items=tuple(items))


def _draw_wanted(wish: Wish, rng: Random) -> Item:
    """Return an item that is all that is wanted."""
    return Item(
        kind=wish.kind,
        feature=wish.feature,
        price=rng.choice([price for price in PRICES if price <= wish.limit]),
        colors=_options(COLORS, rng, wish.color),
        sizes=_options(SIZES, rng, wish.size),
    )


def _near(wish: Wish, rng: Random) -> Item:
    """Return an item that lacks one thing that is wanted."""
    item = _draw_wanted(wish, rng)
    lacks = rng.choice(("feature", "price", "color", "size"))
    return Item(
        kind=item.kind,
        feature=rng.choice([f for f in FEATURES if f != wish.feature])
        if lacks == "feature"
        else item.feature,
        price=rng.choice([p for p in PRICES if p > wish.limit]) if lacks == "price" else item.price,
        colors=_options(COLORS, rng, without=wish.color) if lacks == "color" else item.colors,
        sizes=_options(SIZES, rng, without=wish.size) if lacks == "size" else item.sizes,
    )


def _any_item(rng: Random) -> Item:
    """Return any item."""
    return Item(
        kind=rng.choice(KINDS),
        feature=rng.choice(FEATURES),
        price=rng.choice(PRICES),
        colors=_options(COLORS, rng),
        sizes=_options(SIZES, rng),
    )


def _options(known: tuple[str, ...], rng: Random, needed: str = "", without: str = "") -> tuple[str, ...]:
    """Return two of `known`, `needed` among them and `without` not, in their usual order."""
    offered = [option for option in known if option != without]
    one = offered.index(needed) if needed else rng.randrange(len(offered))
    other = rng.randrange(len(offered) - 1)
    other += other >= one
    return offered[min(one, other)], offered[max(one, other)]

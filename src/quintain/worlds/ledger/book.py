"""What stands in a ledger, what is asked of it, and how it is drawn. Frozen data and pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

Ask = Literal["sum", "join", "sort"]
ASKS: tuple[Ask, ...] = ("sum", "join", "sort")
SHOPS = ("oslo", "rome", "lima", "cairo", "perth", "quito", "dakar", "turin")
REGIONS = ("north", "south", "west")
MAX_AMOUNT = 99


class Row(NamedTuple):
    """A sale: ``Row(shop="oslo", amount=37)``; its id is its place."""

    shop: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """A ledger and a question: ``Book(rows=(Row("oslo", 37),), regions=(("oslo", "north"),), ask="sort")``."""

    rows: tuple[Row, ...]
    regions: tuple[tuple[str, str], ...]
    """region of each shop"""
    ask: Ask
    of: str = ""
    """shop, or region, whose rows are asked about; empty: all"""
    late: tuple[int, int] | None = None
    """place of a row that will be corrected, and its amount then"""

    @property
    def corrected(self) -> "Book":
        """The ledger after the correction."""
        if self.late is None:
            return self
        place, amount = self.late
        row = self.rows[place]._replace(amount=amount)
        rows = (*self.rows[:place], row, *self.rows[place + 1 :])
        return Book(rows=rows, regions=self.regions, ask=self.ask, of=self.of)

    def question(self) -> str:
        """Return what is asked, in words."""
        if self.ask == "sort":
            return "List the ids of the rows by amount, the largest first; of equal amounts the lower id."
        of = f"the shop {self.of}" if self.ask == "sum" else f"the shops of the region {self.of}"
        return f"Add up the amounts of {of}."


def find_answer(book: Book) -> list[int]:
    """Return the answer to the question of `book`: one number, or ids in order."""
    if book.ask == "sort":
        return sorted(range(len(book.rows)), key=lambda place: -book.rows[place].amount)
    region_of = dict(book.regions)
    return [sum(row.amount for row in book.rows if book.of in (row.shop, region_of[row.shop]))]


def is_answer(value: object, answer: Sequence[int]) -> bool:
    """Whether `value`, an object of whatever kind, is `answer`: a list of it, or its one number."""
    given: list[object] = list(value) if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return all(type(each) is int for each in given) and given == list(answer)


def draw_book(rng: Random, rows: int, asks: Sequence[Ask], *, is_corrected: bool) -> Book:
    """Return a ledger of `rows` rows and a question of one of the kinds `asks`; a correction changes the answer."""
    regions = tuple((shop, rng.choice(REGIONS)) for shop in SHOPS)
    drawn = tuple(Row(rng.choice(SHOPS), rng.randint(1, MAX_AMOUNT)) for _ in range(rows))
    ask, known = rng.choice(asks), rng.choice(drawn).shop
    of = {"sum": known, "join": dict(regions)[known], "sort": ""}[ask]
    book = Book(rows=drawn, regions=regions, ask=ask, of=of)
    while is_corrected:
        place = rng.randrange(rows)
        late = Book(rows=drawn, regions=regions, ask=ask, of=of, late=(place, rng.randint(1, 2 * MAX_AMOUNT)))
        if find_answer(late.corrected) != find_answer(book):
            return late
    return book

"""A day at the help desk: the shop's rows, one customer's hidden wish, and what the policy says to it.

The verdict is computed from the rows by the rules of `verdict`, the same that the policy text states. A case whose
right answer changes nothing in the database says which words are right instead.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from quintain.worlds.desk.store import Order, Row, Rows, Status, Write

Kind = Literal["cancel", "refund", "exchange", "city", "price", "other"]
Reason = Literal["not_yours", "shipped", "not_delivered", "too_late", "no_stock"]
KINDS: tuple[Kind, ...] = get_args(Kind)
REASONS: dict[Kind, tuple[Reason, ...]] = {
    "cancel": ("not_yours", "shipped"),
    "refund": ("not_yours", "not_delivered", "too_late"),
    "exchange": ("not_yours", "not_delivered", "too_late", "no_stock"),
    "city": ("not_yours", "shipped"),
    "price": ("not_yours",),
}
"""Why a wish of each kind may have to be refused; the first that applies is the right one."""
NAMES = (
    *("Ann", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana", "Ivo", "Jane", "Kim", "Leo"),
    *("Mia", "Ned", "Olga", "Paul", "Rosa", "Sam", "Tara", "Uwe", "Vera", "Will", "Yara", "Zoe"),
)
ITEMS = ("boots", "clock", "coat", "kite", "lamp", "mug", "rug", "shirt", "tent", "vase")
SIZES = ("large", "medium", "small")
CITIES = ("Bern", "Cairo", "Lima", "Oslo", "Paris", "Quito", "Rome", "Tokyo")
WINDOWS = (10, 20, 30, 60)
DAYS = (*range(1, 10), *range(11, 20), *range(21, 30), *range(31, 60, 4), *range(61, 90, 4))
PRICES = tuple(range(10, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large and how hard cases are: ``Shape(customers=3, orders=3, kinds=("cancel",), ...)``."""

    customers: int
    orders: int
    """orders of each customer"""
    kinds: tuple[Kind, ...]
    denied: float
    """share of wishes that the policy forbids, where a kind has such"""
    vague: float
    """share of customers who know the item but not the number of their order"""
    pushy: float
    """share of customers who insist once when they are refused"""
    changes_of_mind: float
    """share of customers who want another size or city when they are asked to confirm"""
    windows: tuple[int, ...]
    """days within which goods may come back, one of them for each case"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rows, wish and verdict: ``Case(name="Ann", kind="cancel", order=15, ...)``."""

    rows: Rows
    window: int
    name: str
    """the customer at the desk"""
    kind: Kind
    order: int
    item: str
    price: int
    value: str
    """the size or city wanted in the end"""
    first_value: str
    """what is said at first; differs from `value` when the customer will change their mind"""
    reason: Reason | None
    """why it must be refused"""
    is_vague: bool
    is_pushy: bool

    @property
    def writes(self) -> tuple[Write, ...]:
        """What the policy has the agent change."""
        if self.reason is not None:
            return ()
        if self.kind == "cancel" or self.kind == "refund":
            return (Write(name=self.kind, order=self.order),)
        if self.kind == "exchange":
            return (Write(name="exchange", order=self.order, value=self.value),)
        return (Write(name="change_city", order=self.order, value=self.value),) if self.kind == "city" else ()


def verdict(order: Order, name: str, kind: Kind, window: int, in_stock: bool) -> Reason | None:
    """Return why the policy forbids `name` a wish of `kind` for `order`, or None where it allows it."""
    holds: dict[Reason, bool] = {
        "not_yours": order.customer != name,
        "shipped": order.status != "paid",
        "not_delivered": order.status != "delivered",
        "too_late": order.days > window,
        "no_stock": not in_stock,
    }
    return next((reason for reason in REASONS.get(kind, ()) if holds[reason]), None)


def draw_case(rng: Random, shape: Shape) -> Case:
    """Draw a shop, a customer and a wish."""
    kind = rng.choice(shape.kinds)
    window = rng.choice(shape.windows)
    reason = rng.choice(REASONS[kind]) if kind in REASONS and rng.random() < shape.denied else None
    names = rng.sample(NAMES, shape.customers)
    orders = _orders(rng, names, shape.orders)
    others = [place for place, order in enumerate(orders) if order.customer != names[0]]
    place = rng.choice(others) if reason == "not_yours" else rng.randrange(shape.orders)
    target = orders[place] = _fitting(rng, orders[place], kind, reason, window)
    wanted = rng.sample([size for size in SIZES if size != target.size], 2)
    if kind == "city":
        wanted = rng.sample([city for city in CITIES if city != target.city], 2)
    counts = _stock(rng, target.item, wanted if kind == "exchange" else [], reason != "no_stock")
    changes = kind in ("exchange", "city") and reason is None and rng.random() < shape.changes_of_mind
    assert verdict(target, names[0], kind, window, reason != "no_stock") == reason
    return Case(
        rows=(_customers(rng, names), _order_rows(orders, names), counts),
        window=window,
        name=names[0],
        kind=kind,
        order=target.id,
        item=target.item,
        price=target.price,
        value=wanted[0] if kind in ("exchange", "city") else "",
        first_value=wanted[1 if changes else 0] if kind in ("exchange", "city") else "",
        reason=reason,
        is_vague=target.customer == names[0] and rng.random() < shape.vague,
        is_pushy=rng.random() < shape.pushy,
    )


def _orders(rng: Random, names: list[str], count: int) -> list[Order]:
    """Draw `count` orders of different items for each of `names`."""
    numbers = sorted(rng.sample(range(10, 100), len(names) * count))
    rng.shuffle(numbers)
    orders: list[Order] = []
    for name in names:
        for item in rng.sample(ITEMS, count):
            status: Status = rng.choice(("paid", "shipped", "delivered"))
            orders.append(
                Order(
                    id=numbers[len(orders)],
                    customer=name,
                    item=item,
                    size=rng.choice(SIZES),
                    status=status,
                    days=rng.choice(DAYS) if status == "delivered" else 0,
                    price=rng.choice(PRICES),
                    city=rng.choice(CITIES),
                )
            )
    return orders


def _fitting(rng: Random, order: Order, kind: Kind, reason: Reason | None, window: int) -> Order:
    """Return `order` in a state in which `reason` is what the policy says to a wish of `kind`."""
    if kind in ("price", "other") or reason == "not_yours":
        return order
    status: Status
    if kind in ("cancel", "city"):
        status = "paid" if reason is None else rng.choice(("shipped", "delivered"))
    else:
        status = rng.choice(("paid", "shipped")) if reason == "not_delivered" else "delivered"
    fitting = [day for day in DAYS if (day > window) == (reason == "too_late")]
    return replace(order, status=status, days=rng.choice(fitting) if status == "delivered" else 0)


def _stock(rng: Random, item: str, wanted: list[str], has_wanted: bool) -> tuple[Row, ...]:
    """Draw what is in stock; the `wanted` sizes of `item` are there or all of them are not."""
    counts: dict[tuple[str, str], int] = {
        (other, size): rng.randint(0, 5) for other in ITEMS for size in SIZES
    }
    for size in wanted:
        counts[item, size] = rng.randint(1, 5) if has_wanted else 0
    return tuple((*key, count) for key, count in sorted(counts.items()))


def _customers(rng: Random, names: list[str]) -> tuple[Row, ...]:
    return tuple((number, name, rng.randint(0, 50)) for number, name in enumerate(names, start=1))


def _order_rows(orders: list[Order], names: list[str]) -> tuple[Row, ...]:
    rows: list[Row] = [
        (
            order.id,
            names.index(order.customer) + 1,
            order.item,
            order.size,
            order.status,
            order.days,
            order.price,
            order.city,
        )
        for order in orders
    ]
    return tuple(sorted(rows))

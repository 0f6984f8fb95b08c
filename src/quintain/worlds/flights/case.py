"""What is drawn for a talk at the airline: flights, bookings, a phone, a wish, and what the policy says to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from quintain.environments.dialogue import Call
from quintain.worlds.flights.store import Booking, Flight, Phone

Kind = Literal["cancel", "rebook", "bags", "pass"]
Reason = Literal["not_yours", "not_refundable", "basic_fare", "full", "too_many"]
KINDS: tuple[Kind, ...] = get_args(Kind)
REASONS: Mapping[Kind, tuple[Reason, ...]] = {
    "cancel": ("not_yours", "not_refundable"),
    "rebook": ("not_yours", "basic_fare", "full"),
    "bags": ("not_yours", "too_many"),
    "pass": ("not_yours",),
}
"""Why a wish may have to be refused; the first that holds is the one to give."""
NAMES = (
    "Ann",
    "Bob",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gil",
    "Hana",
    "Ivo",
    "Jane",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Olga",
)
CITIES = ("Bern", "Cairo", "Lima", "Oslo", "Paris", "Quito", "Rome", "Tokyo")
FARES = ("basic", "economy", "business")
MAX_BAGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The databases at the start, the wish and the verdict: ``Case(name="Ann", kind="bags", number=15, ...)``."""

    flights: tuple[Flight, ...]
    bookings: tuple[Booking, ...]
    phone: Phone
    name: str
    kind: Kind
    number: int
    """of the booking that it is about"""
    flight: int
    """the flight wanted instead, where the wish is to rebook"""
    bags: int
    """bags wanted, where the wish is about bags"""
    reason: Reason | None

    @property
    def calls(self) -> tuple[Call, ...]:
        """What the policy has agent and customer do; a refusal where it has them do nothing."""
        if self.reason is not None:
            return (Call(name="refuse", arguments={"reason": self.reason}),)
        if self.kind == "cancel":
            return (Call(name="cancel", arguments={"booking": self.number}),)
        if self.kind == "rebook":
            return (Call(name="rebook", arguments={"booking": self.number, "flight": self.flight}),)
        if self.kind == "bags":
            return (Call(name="set_bags", arguments={"booking": self.number, "bags": self.bags}),)
        phone = [
            *(("update_app",) if not self.phone.is_updated else ()),
            *(("sign_in",) if not self.phone.is_signed_in else ()),
            "get_pass",
        ]
        issue = Call(name="issue_pass", arguments={"booking": self.number})
        return (issue, *(Call(name=name, by="user") for name in phone))


def verdict(booking: Booking, name: str, kind: Kind, seats: int, bags: int) -> Reason | None:
    """Return why the policy forbids `name` a wish of `kind` about `booking`, or None where it allows it."""
    holds: dict[Reason, bool] = {
        "not_yours": booking.customer != name,
        "not_refundable": booking.days > 1 and booking.fare != "business" and not booking.is_insured,
        "basic_fare": booking.fare == "basic",
        "full": seats == 0,
        "too_many": bags > MAX_BAGS,
    }
    return next((reason for reason in REASONS[kind] if holds[reason]), None)


def draw_case(rng: Random, kinds: tuple[Kind, ...], denied: float) -> Case:
    """Draw a talk: the wish is forbidden with probability `denied`, for a reason drawn among those of its kind."""
    kind = rng.choice(kinds)
    wanted = rng.choice(REASONS[kind]) if rng.random() < denied else None
    while True:  # one draw in a few has the verdict that is wanted
        case = _draw(rng, kind)
        if case.reason == wanted:
            return case


def _draw(rng: Random, kind: Kind) -> Case:
    names = rng.sample(NAMES, 3)
    numbers = rng.sample(range(10, 100), 12)
    flights = tuple(
        Flight(number=number, start=start, end=end, seats=rng.choice((0, 2, 5)))
        for number in numbers[:5]
        for start, end in (rng.sample(CITIES, 2),)
    )
    bookings = tuple(
        Booking(
            number=number,
            customer=name,
            flight=rng.choice(flights).number,
            fare=rng.choice(FARES),
            bags=rng.randint(0, 1),
            days=rng.choice((0, 1, 2, 5, 9)),
            is_insured=rng.random() < 0.4,
        )
        for name, number in zip(
            (names[0], names[0], names[1], names[1], names[2]), numbers[5:10], strict=True
        )
    )
    booking = rng.choice(bookings)
    other = rng.choice([flight for flight in flights if flight.number != booking.flight])
    bags = rng.randint(2, 5)
    phone = Phone(is_updated=rng.random() < 0.5, is_signed_in=rng.random() < 0.5, has_pass=False)
    return Case(
        flights=flights,
        bookings=bookings,
        phone=phone,
        name=names[0],
        kind=kind,
        number=booking.number,
        flight=other.number,
        bags=bags,
        reason=verdict(booking, names[0], kind, other.seats, bags),
    )

"""The airline's database and the customer's phone: strict SQLite tables in memory, and what may be done to them.

Agent and customer have tools of their own. The phone shows a boarding pass only where the airline has issued one, and
the agent cannot touch the phone. Every write is a transaction; digests are of typed rows in a fixed order.
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NoReturn

from quintain.environments.dialogue import Call, Reply

SCHEMA = """
CREATE TABLE flights(number INTEGER PRIMARY KEY, start TEXT NOT NULL, finish TEXT NOT NULL,
    seats INTEGER NOT NULL CHECK (seats >= 0)) STRICT;
CREATE TABLE bookings(number INTEGER PRIMARY KEY, customer TEXT NOT NULL, flight INTEGER NOT NULL REFERENCES flights,
    fare TEXT NOT NULL, bags INTEGER NOT NULL CHECK (bags >= 0), days INTEGER NOT NULL, insured INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0, issued INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE refusals(reason TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE phone(updated INTEGER NOT NULL, signed_in INTEGER NOT NULL, pass INTEGER NOT NULL) STRICT;
"""
WRITES = frozenset(
    {"cancel", "rebook", "set_bags", "issue_pass", "refuse", "update_app", "sign_in", "get_pass"}
)
TABLES = ("flights", "bookings", "refusals", "phone")
Dumped = tuple[tuple[tuple[int | str, ...], ...], ...]
"""The rows of each of `TABLES`."""
LARGEST = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A flight: ``Flight(number=15, start="Rome", end="Oslo", seats=2)``."""

    number: int
    start: str
    end: str
    seats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A seat of a customer: ``Booking(number=40, customer="Ann", flight=15, fare="basic", ...)``."""

    number: int
    customer: str
    flight: int
    fare: str
    bags: int
    days: int
    """since it was booked"""
    is_insured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone:
    """The customer's phone: ``Phone(is_updated=True, is_signed_in=False, has_pass=False)``."""

    is_updated: bool
    is_signed_in: bool
    has_pass: bool


class RefusedError(Exception):
    """The databases do not allow it; its text is for who asked."""


class Store:
    """The databases of one episode; see `quintain.environments.dialogue.Domain`."""

    def __init__(self) -> None:
        """Open empty databases in memory."""
        # Episodes are stepped by different threads, one at a time.
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(SCHEMA)

    def load(self, flights: Sequence[Flight], bookings: Sequence[Booking], phone: Phone) -> None:
        """Replace everything."""
        for table in reversed(TABLES):
            self._db.execute(f"DELETE FROM {table}")
        self._db.executemany("INSERT INTO flights VALUES (?, ?, ?, ?)", map(astuple, flights))
        self._db.executemany(
            "INSERT INTO bookings (number, customer, flight, fare, bags, days, insured) VALUES (?, ?, ?, ?, ?, ?, ?)",
            map(astuple, bookings),
        )
        self._db.execute("INSERT INTO phone VALUES (?, ?, ?)", astuple(phone))

    def writes(self, call: Call) -> bool:
        """Whether calls like this one change a database."""
        return call.name in WRITES

    def digests(self) -> tuple[str, ...]:
        """Return the hash of the airline's rows and that of the phone's."""
        *airline, phone = self.dump()
        return tuple(
            hashlib.blake2b(repr(rows).encode(), digest_size=12).hexdigest() for rows in (airline, phone)
        )

    def dump(self) -> Dumped:
        """Return every row there is, for `fill`."""
        return tuple(
            tuple(self._db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()) for table in TABLES
        )

    def fill(self, dumped: Dumped) -> None:
        """Replace everything by what `dump` returned."""
        for table in reversed(TABLES):
            self._db.execute(f"DELETE FROM {table}")
        for table, rows in zip(TABLES, dumped, strict=True):
            for row in rows:
                self._db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def holds(self, assertion: Mapping[str, Any]) -> bool:
        """Whether the phone shows what `assertion` says: ``{"pass": True}``."""
        row = self._db.execute("SELECT updated, signed_in, pass FROM phone").fetchone()
        shown: dict[str, bool] = dict(zip(("updated", "signed_in", "pass"), map(bool, row), strict=True))
        return all(shown[name] == value for name, value in assertion.items())

    def call(self, call: Call) -> Reply:
        """Carry out `call` as a whole or not at all; arguments were checked before."""
        self._db.execute("BEGIN")
        try:
            text = self._do(call)
        except (RefusedError, sqlite3.IntegrityError) as error:
            self._db.execute("ROLLBACK")
            told = "no seat is free" if isinstance(error, sqlite3.IntegrityError) else str(error)
            return Reply(f"Error: {told}.", failed=True)
        self._db.execute("COMMIT")
        return Reply(text)

    def close(self) -> None:
        """Close the databases."""
        self._db.close()

    def _do(self, call: Call) -> str:
        """Carry out `call` within a transaction."""
        asked = call.arguments
        match call.name:
            case "find_customer":
                rows = self._db.execute(
                    "SELECT number FROM bookings WHERE customer = ? ORDER BY 1", (asked["name"],)
                )
                numbers = ", ".join(str(row[0]) for row in rows)
                return (
                    f"{asked['name']}: bookings {numbers}."
                    if numbers
                    else self._refuse("there is no such customer")
                )
            case "show_booking":
                row = self._booking(asked["booking"])
                state = "cancelled" if row["cancelled"] else "insured" if row["insured"] else "not insured"
                return (
                    f"Booking {row['number']}: {row['customer']}, flight {row['flight']}, {row['fare']}, {row['bags']} "
                    f"bags, booked {row['days']} days ago, {state}."
                )
            case "show_flight":
                row = self._row("flights", asked["flight"], "flight")
                return (
                    f"Flight {row['number']}: {row['start']} to {row['finish']}, {row['seats']} seats free."
                )
            case "cancel":
                row = self._booking(asked["booking"], is_open=True)
                self._set("UPDATE bookings SET cancelled = 1 WHERE number = ?", row["number"])
                self._set("UPDATE flights SET seats = seats + 1 WHERE number = ?", row["flight"])
            case "rebook":
                row = self._booking(asked["booking"], is_open=True)
                flight = self._row("flights", asked["flight"], "flight")["number"]
                if flight == row["flight"]:
                    self._refuse(f"booking {row['number']} is of flight {flight} already")
                self._set("UPDATE flights SET seats = seats - 1 WHERE number = ?", flight)
                self._set("UPDATE flights SET seats = seats + 1 WHERE number = ?", row["flight"])
                self._set("UPDATE bookings SET flight = ? WHERE number = ?", flight, row["number"])
            case "set_bags":
                row = self._booking(asked["booking"], is_open=True)
                self._set("UPDATE bookings SET bags = ? WHERE number = ?", asked["bags"], row["number"])
            case "issue_pass":
                row = self._booking(asked["booking"], is_open=True)
                self._set("UPDATE bookings SET issued = 1 WHERE number = ?", row["number"])
            case "refuse":
                self._db.execute("INSERT OR IGNORE INTO refusals VALUES (?)", (asked["reason"],))
                return f"Refused: {asked['reason']}."
            case _:
                return self._use_phone(call.name)
        return f"Booking {asked['booking']}: {call.name} done."

    def _use_phone(self, name: str) -> str:
        """Carry out a tool of the customer."""
        updated, signed_in = self._db.execute("SELECT updated, signed_in FROM phone").fetchone()
        if name == "show_phone":
            return f"the app is {'new' if updated else 'old'}, I am signed {'in' if signed_in else 'out'}"
        if name == "update_app":
            self._set("UPDATE phone SET updated = 1")
            return "the app is new now"
        if name == "sign_in":
            if not updated:
                self._refuse("the app is too old to sign in")
            self._set("UPDATE phone SET signed_in = 1")
            return "I am signed in"
        if name != "get_pass":
            self._refuse(f"there is no {name[:20]}")
        issued = self._db.execute("SELECT count(*) FROM bookings WHERE issued = 1").fetchone()[0]
        if not (updated and signed_in and issued):
            self._refuse("no pass appears")
        self._set("UPDATE phone SET pass = 1")
        return "the pass is there"

    def _set(self, statement: str, *values: int) -> None:
        self._db.execute(statement, values)

    def _booking(self, number: int, *, is_open: bool = False) -> dict[str, Any]:
        """Return a booking by column; refused where it must be open and is not."""
        row = self._row("bookings", number, "booking")
        if is_open and row["cancelled"]:
            self._refuse(f"booking {number} is cancelled")
        return row

    def _row(self, table: str, number: int, what: str) -> dict[str, Any]:
        found = self._db.execute(
            f"SELECT * FROM {table} WHERE number = ?", (max(-LARGEST, min(number, LARGEST)),)
        )
        row = found.fetchone()
        if row is None:
            self._refuse(f"there is no {what} {str(number)[:20]}")
        return dict(zip((column[0] for column in found.description), row, strict=True))

    def _refuse(self, told: str) -> NoReturn:
        raise RefusedError(told)

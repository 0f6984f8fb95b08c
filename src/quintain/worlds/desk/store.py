"""The shop's database: three strict SQLite tables in memory, and what may be done to them.

Every write is a transaction; what the constraints forbid is rolled back and told. The digest is of typed rows in a
fixed order, so two ways to the same state have the same digest and looking changes nothing.
"""

import hashlib
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Status = Literal["paid", "shipped", "delivered", "cancelled", "refunded", "exchanged"]
CLOSED = ("cancelled", "refunded")
TABLES = ("customers", "orders", "stock")
WIDTHS = {"customers": 3, "orders": 8, "stock": 3}
SCHEMA = """
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, credit INTEGER NOT NULL) STRICT;
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers, item TEXT NOT NULL,
    size TEXT NOT NULL, status TEXT NOT NULL, days INTEGER NOT NULL, price INTEGER NOT NULL, city TEXT NOT NULL)
    STRICT;
CREATE TABLE stock(item TEXT NOT NULL, size TEXT NOT NULL, count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (item, size)) STRICT, WITHOUT ROWID;
"""
Row = tuple[int | str, ...]
Rows = tuple[tuple[Row, ...], ...]
"""The rows of each of `TABLES`, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order with its customer's name: ``Order(id=15, customer="Ann", item="mug", status="paid", ...)``."""

    id: int
    customer: str
    item: str
    size: str
    status: Status
    days: int
    """days since it was delivered; 0 before that"""
    price: int
    """coins"""
    city: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A change to an order: ``Write(name="exchange", order=15, value="large")``."""

    name: Literal["cancel", "refund", "exchange", "change_city"]
    order: int
    value: str = ""
    """the new size or city"""


class RefusedWriteError(Exception):
    """The database does not allow the write; its text is for the agent."""


class Store:
    """The database of one episode; `load` fills it anew."""

    def __init__(self) -> None:
        """Open an empty database in memory."""
        # Episodes are stepped by different threads, one at a time.
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(SCHEMA)

    def load(self, rows: Rows) -> None:
        """Replace everything by `rows`."""
        with self._transaction():
            for table in reversed(TABLES):
                self._db.execute(f"DELETE FROM {table}")
            for table, content in zip(TABLES, rows, strict=True):
                marks = ",".join("?" * WIDTHS[table])
                self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", content)

    def rows(self) -> Rows:
        """Return everything there is."""
        return tuple(
            tuple(self._db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()) for table in TABLES
        )

    def digest(self) -> str:
        """Return the hash of everything there is; 1 and "1" differ."""
        return hashlib.blake2b(repr(self.rows()).encode(), digest_size=12).hexdigest()

    def digest_after(self, writes: Sequence[Write]) -> str:
        """Return the digest that `writes` would lead to, and leave everything as it is."""
        self._db.execute("BEGIN")
        try:
            for write in writes:
                self._change(write)
            return self.digest()
        finally:
            self._db.execute("ROLLBACK")

    def customer_orders(self, name: str) -> tuple[int, ...] | None:
        """Return the orders of the customer called `name`; None if there is no such customer."""
        found = self._db.execute("SELECT id FROM customers WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None
        rows = self._db.execute("SELECT id FROM orders WHERE customer = ? ORDER BY id", found)
        return tuple(row[0] for row in rows)

    def order(self, number: int) -> Order | None:
        """Return order `number`, if there is one."""
        if abs(number) >= 1 << 63:  # more than SQLite can hold
            return None
        row = self._db.execute(
            "SELECT name, item, size, status, days, price, city FROM orders JOIN customers"
            " ON customers.id = orders.customer WHERE orders.id = ?",
            (number,),
        ).fetchone()
        if row is None:
            return None
        name, item, size, status, days, price, city = row
        return Order(
            id=number, customer=name, item=item, size=size, status=status, days=days, price=price, city=city
        )

    def stock(self, item: str) -> tuple[tuple[str, int], ...]:
        """Return how many of `item` there are of each size; empty for an unknown item."""
        return tuple(self._db.execute("SELECT size, count FROM stock WHERE item = ? ORDER BY size", (item,)))

    def write(self, write: Write) -> None:
        """Carry out `write`, as a whole or not at all.

        Raises:
            RefusedWriteError: there is no such order, it is closed, or a constraint forbids it.
        """
        with self._transaction():
            self._change(write)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Commit what is done within, or roll it back."""
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _change(self, write: Write) -> None:
        """Carry out `write` within a transaction."""
        order = self.order(write.order)
        if order is None:
            raise RefusedWriteError(f"there is no order {str(write.order)[:20]}")
        if order.status in CLOSED:
            raise RefusedWriteError(f"order {write.order} is {order.status}")
        if write.name == "change_city":
            self._db.execute("UPDATE orders SET city = ? WHERE id = ?", (write.value, write.order))
        elif write.name == "exchange":
            self._exchange(order, write.value)
        else:
            status = "cancelled" if write.name == "cancel" else "refunded"
            self._db.execute("UPDATE orders SET status = ? WHERE id = ?", (status, write.order))
            self._db.execute(
                "UPDATE customers SET credit = credit + ? WHERE name = ?", (order.price, order.customer)
            )

    def _exchange(self, order: Order, size: str) -> None:
        """Give another size for `order` and take the old one back."""
        if order.size == size:
            raise RefusedWriteError(f"order {order.id} is {size} already")
        move = "UPDATE stock SET count = count + ? WHERE item = ? AND size = ?"
        try:
            taken = self._db.execute(move, (-1, order.item, size)).rowcount
        except sqlite3.IntegrityError as error:
            raise RefusedWriteError(f"no {size} {order.item} in stock") from error
        if not taken:
            raise RefusedWriteError(f"there is no {size} {order.item}")
        self._db.execute(move, (1, order.item, order.size))
        self._db.execute("UPDATE orders SET size = ?, status = 'exchanged' WHERE id = ?", (size, order.id))

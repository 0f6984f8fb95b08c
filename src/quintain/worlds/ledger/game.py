"""A ledger of sales that is too long to be read, and a question about all of its rows.

Family it stands for: agents that work on data (CaveAgent, arXiv 2601.01569). The rows are variables of code, or stand
in the prompt. Whatever gives the answer, a variable or a call, it is graded as a value and by one grader. With
``changes`` a row is corrected on the way, so that who keeps to what was read first is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolSpec
from quintain.worlds.ledger.book import ASKS, Ask, Book, Row, draw_book, find_answer, is_answer

MAX_ROWS, PAGE = 10_000, 200
RESULT = "result"
"""The variable that holds the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was done: ``Seen(num_read=200, is_refreshed=True)``."""

    num_read: int = 0
    """rows that were read, from the first on"""
    is_refreshed: bool = False


State = tuple[Book, Seen]


class LedgerWorld(Environment):
    """Answer a question about all rows of a ledger of sales."""

    name = "ledger"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "reasoning"})

    def __init__(
        self,
        *,
        rows: int = 20,
        ask: Literal["any", "sum", "join", "sort"] = "any",
        interface: Literal["objects", "text"] = "objects",
        changes: bool = False,
    ) -> None:
        """Ask about ledgers of `rows` rows.

        With ``interface=objects`` they are `rows` and `shops` in code, and are read by a tool without; with ``text``
        they stand in the prompt. With `changes` a row is corrected when the tool ``refresh`` is called, once.

        Raises:
            UsageError: there are no such ledgers.
        """
        if not 1 <= rows <= MAX_ROWS or (rows == 1 and changes and ask in ("any", "sort")):
            raise UsageError(
                f"ledger: got rows={rows}, ask={ask}, changes={changes}; give 1 to {MAX_ROWS} rows, and to sort "
                "what changes 2 or more"
            )
        self._num_rows = rows
        self._asks: tuple[Ask, ...] = ASKS if ask == "any" else (ask,)
        self._is_text, self._changes = interface == "text", changes
        left_out = {*(["read"] if self._is_text else []), *([] if changes else ["refresh"])}
        self._specs = tuple(spec for spec in super().tools() if spec.name not in left_out)
        self.max_turns = rows // PAGE + 5
        self._book = Book(rows=(Row("oslo", 1),), regions=(("oslo", "north"),), ask="sort")
        self._seen = Seen()

    def reset(self, task: Task) -> str:
        """Lay out the ledger and ask."""
        self._book = split_draw(task, self._draw)
        self._seen = Seen()
        book, parts = self._book, [self._book.question()]
        if self._changes:
            parts.append("Call refresh before you answer: a row may be corrected then.")
        regions = ", ".join(f"{shop} {region}" for shop, region in book.regions)
        if self._is_text:
            parts.append(f"Regions: {regions}. Rows, by id, shop and amount:\n{write_rows(book.rows)}")
        else:
            parts.append(
                f"In code: rows, a list of {len(book.rows)} as {{'id': 0, 'shop': 'oslo', 'amount': 1}}; shops, a dict "
                f"from shop to region; bind the answer to {RESULT}. In words: regions {regions}."
            )
        return " ".join(parts)

    def _draw(self, rng: Random) -> Book:
        return draw_book(rng, self._num_rows, self._asks, is_corrected=self._changes)

    @property
    def book(self) -> Book:
        """The ledger as it is now."""
        return self._book.corrected if self._seen.is_refreshed else self._book

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that these options leave."""
        return self._specs

    @tool
    def read(self, first: int, count: int) -> str:
        """Return so many rows, 200 at most, from an id on, as id, shop and amount."""
        if first < 0 or not 1 <= count <= PAGE:
            return f"Error: got first={first}, count={count}; give an id from 0 and 1 to {PAGE} rows"
        rows = self.book.rows[first : first + count]
        if first <= self._seen.num_read:
            self._seen = replace(self._seen, num_read=max(self._seen.num_read, first + len(rows)))
        return write_rows(rows, first) or "no such rows"

    @tool
    def refresh(self) -> str:
        """Bring the ledger up to date."""
        if self._seen.is_refreshed:
            return "Nothing new."
        self._seen = Seen(is_refreshed=True)
        return "A row was corrected."

    @tool
    def answer(self, numbers: list[int]) -> str:
        """Answer with one number, or with the ids in order."""
        return self._grade(numbers)

    def objects(self) -> Mapping[str, Any]:
        """Return the rows and the shops; nothing where they stand in the prompt."""
        if self._is_text:
            return {}
        rows = [
            {"id": place, "shop": row.shop, "amount": row.amount} for place, row in enumerate(self.book.rows)
        ]
        return {"rows": rows, "shops": dict(self._book.regions)}

    def wanted(self) -> tuple[str, ...]:
        """Return the name of the answer."""
        return (RESULT,)

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        """Grade what code has bound to the answer."""
        is_right = self._is_right(objects[RESULT])
        told = "right" if is_right else "wrong"
        return StepResult(observation=told, reward=float(is_right), is_terminated=True, is_success=is_right)

    def _is_right(self, value: object) -> bool:
        return is_answer(value, find_answer(self._book.corrected))

    def _grade(self, value: object) -> str:
        is_right = self._is_right(value)
        return self.finish("right" if is_right else "wrong", reward=float(is_right), success=is_right)

    def expert_action(self) -> Action:
        """Return the next page, or the answer once all was read."""
        if self._changes and not self._seen.is_refreshed:
            return tool_action("refresh")
        if not self._is_text and self._seen.num_read < len(self._book.rows):
            return tool_action("read", first=self._seen.num_read, count=PAGE)
        return tool_action("answer", numbers=find_answer(self._book.corrected))

    def progress(self) -> float:
        """Return the share of the rows that were read; in the prompt all are."""
        return 1.0 if self._is_text else self._seen.num_read / len(self._book.rows)

    def snapshot(self) -> State:
        """Return the ledger and what was done."""
        return self._book, self._seen

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._book, self._seen = state

    def state_key(self) -> str:
        """Return the ledger and what was done."""
        return repr((self._book, self._seen))


def write_rows(rows: Sequence[Row], first: int = 0) -> str:
    """Return `rows` as text, a line each: ``0 oslo 37``."""
    return "\n".join(f"{first + place} {row.shop} {row.amount}" for place, row in enumerate(rows))

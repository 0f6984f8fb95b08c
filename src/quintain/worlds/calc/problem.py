"""Chains of arithmetic: what is to be computed, the calls that compute it, and how a problem is drawn.

Frozen data and pure functions. Every number on the way is a natural number of so many digits.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Literal

Operation = Literal["add", "subtract", "multiply"]
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}
Name = Literal["apple", "pear", "plum", "fig", "lemon", "grape"]
NAMES: tuple[Name, ...] = ("apple", "pear", "plum", "fig", "lemon", "grape")
Term = int | str
Call = tuple[str, tuple[Term, ...]]
"""(tool, arguments): ``("add", (3, 4))``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A chain: ``Problem(first="fig", steps=(("add", 4), ("multiply", 5)), prices=(("fig", 3),))`` is 35.

    A name stands for its price.
    """

    first: Term
    steps: tuple[tuple[Operation, Term], ...]
    prices: tuple[tuple[str, int], ...] = ()
    """Price of each name that occurs."""
    later: tuple["Problem", ...] = field(default=(), repr=False)
    """Problems that are told one after the other, each once the one before is answered."""

    def words(self) -> str:
        """Return the problem in words: ``Compute: fig, add 4, multiply 5.``"""
        return f"Compute: {', '.join([str(self.first), *(f'{name} {term}' for name, term in self.steps)])}."

    def price(self, name: str) -> int | None:
        """Return the price of `name`, None for a name that does not occur."""
        return dict(self.prices).get(name)

    @property
    def answer(self) -> int:
        """What the chain comes to."""
        return solve(self)[1]

    def calls(
        self, told: Mapping[Call, int], *, knows_all: bool = False
    ) -> Iterator[tuple[int, Call | None]]:
        """Yield (value so far, call that comes next) along the chain, the last with None.

        Results of calls are as `told`, or with `knows_all` as they really are; where a result is not told, the
        call is the last that is yielded.
        """
        value = 0
        for name, term in (("", self.first), *self.steps):
            number = term
            if isinstance(term, str):
                call: Call = ("lookup", (term,))
                yield value, call
                found = self.result(call) if knows_all else told.get(call)
                if found is None:
                    return
                number = found
            assert isinstance(number, int)
            if not name:
                value = number
                continue
            call = (name, (value, number))
            yield value, call
            found = self.result(call) if knows_all else told.get(call)
            if found is None:
                return
            value = found
        yield value, None

    def result(self, call: Call) -> int | None:
        """Return what `call` comes to, None for the price of a name that does not occur."""
        name, arguments = call
        if name == "lookup":
            return self.price(str(arguments[0]))
        left, right = (int(number) for number in arguments)
        return OPERATIONS[name](left, right)


@lru_cache(maxsize=1024)
def solve(problem: Problem) -> tuple[tuple[Call, ...], int]:
    """Return the calls that solve `problem`, in order, and what it comes to."""
    calls = list(problem.calls({}, knows_all=True))
    return tuple(call for _, call in calls if call is not None), calls[-1][0]


def draw_phases(num_phases: int, num_steps: int, digits: int, rng: Random) -> Problem:
    """Return `num_phases` problems, in turn a chain of `num_steps` operations on numbers and a single name."""
    first, *later = (
        draw_problem(0, 1, digits, rng) if phase % 2 else draw_problem(num_steps, 0, digits, rng)
        for phase in range(num_phases)
    )
    return replace(first, later=tuple(later))


def draw_problem(num_steps: int, num_names: int, digits: int, rng: Random) -> Problem:
    """Return a chain of `num_steps` operations in which `num_names` of the numbers are prices of names."""
    most = 10**digits - 1
    most_term = most if digits == 1 else 10 ** max(digits - 1, 1) - 1
    value = rng.randint(1, most_term)
    numbers, operations = [value], list[Operation]()
    for _ in range(num_steps):
        ranges: dict[Operation, tuple[int, int]] = {
            "add": (1, min(most_term, most - value)),
            "subtract": (1, min(most_term, value)),
            "multiply": (2, min(9, most // max(value, 1))),
        }
        possible: list[Operation] = [name for name, (low, high) in ranges.items() if low <= high]
        name = rng.choice(possible)
        number = rng.randint(*ranges[name])
        value = OPERATIONS[name](value, number)
        numbers.append(number)
        operations.append(name)
    names = rng.sample(NAMES, num_names)
    named = dict(zip(rng.sample(range(len(numbers)), num_names), names, strict=True))
    terms: list[Term] = [named.get(place, number) for place, number in enumerate(numbers)]
    return Problem(
        first=terms[0],
        steps=tuple(zip(operations, terms[1:], strict=True)),
        prices=tuple((name, numbers[place]) for place, name in sorted(named.items())),
    )

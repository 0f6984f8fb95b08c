"""STRIPS: states are sets of facts, actions need, add and delete facts; distances to the goal by search.

A state is an integer, a bit for each fact. Distances are exact, over all states that can be reached from the start,
so that a state without a distance is a dead end.
"""

from collections import deque
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from quintain.errors import UsageError

MAX_STATES = 100_000


class Schema(NamedTuple):
    """An action in words: ``Schema("pick up a", needs=("a clear", "hand empty"), adds=(...), deletes=(...))``."""

    words: str
    needs: tuple[str, ...]
    adds: tuple[str, ...]
    deletes: tuple[str, ...]


class Operator(NamedTuple):
    """An action over the bits of states."""

    words: str
    needs: int
    adds: int
    deletes: int


class Problem:
    """A start, a goal and actions: ``Problem(schemas, start=("a clear", ...), goal=("a on b",))``."""

    def __init__(self, schemas: Iterable[Schema], start: Iterable[str], goal: Iterable[str]) -> None:
        """Number the facts that occur, in the order in which they do."""
        start, goal, schemas = tuple(start), tuple(goal), tuple(schemas)
        self.facts = tuple(
            dict.fromkeys(
                (*start, *goal, *(fact for schema in schemas for part in schema[1:] for fact in part))
            )
        )
        self._bit = {fact: 1 << number for number, fact in enumerate(self.facts)}
        self.start, self.goal = self.bits(start), self.bits(goal)
        self.operators = tuple(
            Operator(words, self.bits(needs), self.bits(adds), self.bits(deletes))
            for words, needs, adds, deletes in schemas
        )
        self._named: dict[str, list[Operator]] = {}
        for operator in self.operators:
            self._named.setdefault(operator.words, []).append(operator)
        self._distances: dict[int, int] = {}

    def bits(self, facts: Iterable[str]) -> int:
        """Return the state in which `facts` hold and no others."""
        return sum(self._bit[fact] for fact in set(facts))

    def holding(self, state: int) -> tuple[str, ...]:
        """Return the facts that hold in `state`."""
        return tuple(fact for fact, bit in self._bit.items() if state & bit)

    def is_solved(self, state: int) -> bool:
        """Whether the goal holds in `state`."""
        return state & self.goal == self.goal

    def applicable(self, state: int) -> list[str]:
        """Return the actions that can be taken in `state`."""
        return [words for words, needs, _, _ in self.operators if state & needs == needs]

    def after(self, state: int, words: str) -> int | None:
        """Return the state after action `words`; None if it cannot be taken."""
        for _, needs, adds, deletes in self._named.get(words, ()):
            if state & needs == needs:
                return state & ~deletes | adds
        return None

    def missing(self, state: int, words: str) -> tuple[str, ...] | None:
        """Return the facts that action `words` lacks in `state`; None if there is no such action."""
        found = self._named.get(words)
        if not found:
            return None
        lacking = [operator.needs & ~state for operator in found]
        return self.holding(min(lacking, key=lambda bits: (bits.bit_count(), bits)))

    def distance(self, state: int) -> int | None:
        """Return the least number of actions from `state` to the goal; None where there is no way."""
        if not self._distances:
            self._distances = self._measure()
        return self._distances.get(state)

    def steps_to(self, facts: Iterable[str]) -> int | None:
        """Return the least number of actions from the start to where `facts` hold; None where there is no way."""
        facts = tuple(facts)
        if not all(fact in self._bit for fact in facts):
            return None
        goal = self.bits(facts)
        return min((depth for state, depth in self.depths.items() if state & goal == goal), default=None)

    @cached_property
    def depths(self) -> dict[int, int]:
        """Every state that can be reached from the start, with the least number of actions."""
        found, queue = {self.start: 0}, deque([self.start])
        while queue:
            state = queue.popleft()
            for _, needs, adds, deletes in self.operators:
                if state & needs == needs:
                    reached = state & ~deletes | adds
                    if reached not in found:
                        found[reached] = found[state] + 1
                        queue.append(reached)
            if len(found) > MAX_STATES:
                raise UsageError(
                    f"plan: got a domain with more than {MAX_STATES:,} states; give it fewer things"
                )
        return found

    def plan(self, state: int) -> tuple[str, ...] | None:
        """Return a shortest plan from `state`, the first in the order of the actions; None without one."""
        left = self.distance(state)
        if left is None:
            return None
        words: list[str] = []
        while left:
            left -= 1
            for name, needs, adds, deletes in self.operators:
                if state & needs == needs and self._distances.get(state & ~deletes | adds) == left:
                    words.append(name)
                    state = state & ~deletes | adds
                    break
        return tuple(words)

    def _measure(self) -> dict[int, int]:
        """Return the distance to the goal of each state that has one."""
        before: dict[int, list[int]] = {self.start: []}
        queue = deque([self.start])
        while queue:
            state = queue.popleft()
            for _, needs, adds, deletes in self.operators:
                if state & needs == needs:
                    reached = state & ~deletes | adds
                    if reached not in before:
                        before[reached] = []
                        queue.append(reached)
                    before[reached].append(state)
        distances = {state: 0 for state in before if self.is_solved(state)}
        queue.extend(distances)
        while queue:
            state = queue.popleft()
            for earlier in before[state]:
                if earlier not in distances:
                    distances[earlier] = distances[state] + 1
                    queue.append(earlier)
        return distances

"""Formulas over what is done in which order, as automata (LTL on finite traces; arXiv 2310.08535).

A trace is the names of an agent's actions, one at a time: ``not refund unless show_order`` holds of those in which
nothing is refunded before an order was looked at. A formula is progressed action by action: what must hold of the rest,
once an action is done, is a set of alternatives, each a set of formulas; there are finitely many, and they are the
states of a deterministic automaton. A state accepts where the trace may end. What may be done next looks *ahead*: an
action is allowed where a trace that goes on from it can still be accepted in the turns that are left, since a mask that
only avoids what is wrong at once runs into dead ends.

Words, strongest first: ``not``, ``next``, ``weak_next``, ``eventually``, ``always``; ``until``, ``unless``; ``and``;
``or``; ``implies``; with bounds ``eventually[0,2]``, ``a until[1,3] b``; ``last``, ``true``, ``false``; brackets.

Differences to the paper: formulas have words instead of S-expressions; ``always`` is as in LTL, where the published
code bounds it; alternatives do not share a stack, so that what follows a loop is found; a trace that violates the
formula is refused, where the published validator catches its own errors and accepts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, cast

from quintain.errors import ConfigError, suggestion
from quintain.safety.guard import ALLOWED, Verdict
from quintain.types import Action, Observation, Task, Trajectory

Formula = tuple[Any, ...]
"""(word, parts…), without ``not`` but in ``("is", name, False)``"""
Rest = frozenset[frozenset[Formula]]
"""What must hold of the rest of a trace: all formulas of one of the alternatives."""
TRUE: Formula = ("true",)
FALSE: Formula = ("false",)
SOME: Formula = ("until", TRUE, TRUE)
"""There is a further action."""
NONE: Formula = ("release", FALSE, FALSE)
"""There is none."""
OTHER = ""
"""Whatever action the formula does not name."""
SAY = "say"
"""An action that calls no tool."""
MAX_STATES = 2_000
MAX_BOUND = 50
UNARY = ("not", "next", "weak_next", "eventually", "always")
BINARY: Sequence[tuple[str, ...]] = (("implies",), ("or",), ("and",), ("until", "unless"))
"""Words between two formulas, weakest first."""
WORDS = frozenset([*UNARY, *(word for own in BINARY for word in own), "true", "false", "last"])
TOKEN = re.compile(r"\s*([A-Za-z_][\w.-]*|\[\s*\d+\s*,\s*\d+\s*\]|[()])")


def parse_formula(text: str) -> Formula:
    """Return the formula that `text` is.

    Raises:
        ConfigError: it is none, with what stands where it ends.
    """
    tokens: list[str] = []
    place = 0
    while text[place:].strip():
        found = TOKEN.match(text, place)
        if found is None:
            raise _refusal(text, f"{text[place:].strip()[:20]!r} cannot be read")
        tokens.append(found[1])
        place = found.end()
    left = [*reversed(tokens)]
    try:
        formula = _read_binary(left, 0)
    except (IndexError, RecursionError):
        raise _refusal(text, "it ends too early, or is too deep") from None
    except ValueError as error:
        raise _refusal(text, str(error)) from None
    if left:
        raise _refusal(text, f"{left[-1]!r} follows what is whole")
    return formula


def _refusal(text: str, reason: str) -> ConfigError:
    return ConfigError(f"formula: got {text[:80]!r}, in which {reason}; see docs/guards.md for the words")


def _read_binary(left: list[str], level: int) -> Formula:
    """Read a formula whose words bind at least as strongly as those of `level`; `left` are tokens, last first."""
    if level == len(BINARY):
        return _read_unary(left)
    one = _read_binary(left, level + 1)
    while left and left[-1] in BINARY[level]:
        word = left.pop()
        bounds = _read_bounds(left)
        other = _read_binary(left, level if word in ("implies", "until", "unless") else level + 1)
        one = _join(word, one, other, bounds)
    return one


def _read_unary(left: list[str]) -> Formula:
    word = left.pop()
    if word == "(":
        found = _read_binary(left, 0)
        if left.pop() != ")":
            raise ValueError("a bracket is not closed")
        return found
    if word in UNARY:
        bounds = _read_bounds(left)
        inner = _read_unary(left)
        if word == "not":
            return negate(inner)
        if word in ("next", "weak_next"):
            return ("next" if word == "next" else "weak", inner)
        if word == "eventually":
            return _join("until", TRUE, inner, bounds)
        return negate(_join("until", TRUE, negate(inner), bounds))
    if word in ("true", "false"):
        return (word,)
    if word == "last":
        return ("weak", FALSE)
    if word in WORDS or not re.match(r"[A-Za-z_]", word):
        raise ValueError(f"{word!r} stands where an action should")
    return ("is", word, True)


def _read_bounds(left: list[str]) -> tuple[int, int] | None:
    if not left or not left[-1].startswith("["):
        return None
    low, high = (int(part) for part in left.pop()[1:-1].split(","))
    if not low <= high <= MAX_BOUND:
        raise ValueError(f"the bounds {low} and {high} are none; give [least,most], at most {MAX_BOUND}")
    return low, high


def _join(word: str, one: Formula, other: Formula, bounds: tuple[int, int] | None) -> Formula:
    """Return ``one word other``; bounds count the actions for which `one` holds before `other` does."""
    if bounds is not None and word not in ("until", "eventually"):
        raise ValueError(f"{word} has bounds; until, eventually and always may have some")
    if word == "implies":
        return ("or", negate(one), other)
    if word == "unless":
        return ("release", other, ("or", one, other))
    if bounds is None:
        return (word, one, other)
    low, high = bounds
    found = other
    for steps in range(high - 1, -1, -1):
        onward: Formula = ("and", one, ("next", found))
        found = ("or", other, onward) if steps >= low else onward
    return ("and", SOME, found)


def negate(formula: Formula) -> Formula:
    """Return what holds where `formula` does not; on an empty trace, too."""
    word = formula[0]
    if word == "is":
        return ("is", formula[1], not formula[2])
    other = {
        "true": "false", "false": "true", "and": "or", "or": "and", "next": "weak", "weak": "next",
        "until": "release", "release": "until",
    }[word]  # fmt: skip
    return (other, *(negate(part) for part in formula[1:]))


def names_in(formula: Formula) -> set[str]:
    """Return the actions that `formula` names."""
    if formula[0] == "is":
        return {formula[1]}
    return {name for part in formula[1:] for name in names_in(part)}


def conjoin(one: Rest, other: Rest) -> Rest:
    """Return the alternatives in which both hold."""
    return _absorb(a | b for a in one for b in other)


def disjoin(one: Rest, other: Rest) -> Rest:
    """Return the alternatives in which one of them holds."""
    return _absorb([*one, *other])


def _absorb(alternatives: Iterable[frozenset[Formula]]) -> Rest:
    """Return `alternatives` without those that ask for more than another one."""
    found = {*alternatives}
    return frozenset(each for each in found if not any(other < each for other in found))


ALWAYS: Rest = frozenset([frozenset[Formula]()])
NEVER: Rest = frozenset()


def split(formula: Formula) -> Rest:
    """Return `formula` as alternatives of formulas about the trace that is left, which is not looked at."""
    word = formula[0]
    if word in ("true", "false"):
        return ALWAYS if word == "true" else NEVER
    if word == "and":
        return conjoin(split(formula[1]), split(formula[2]))
    if word == "or":
        return disjoin(split(formula[1]), split(formula[2]))
    return frozenset([frozenset([formula])])


def progress(formula: Formula, name: str) -> Rest:
    """Return what must hold of the rest so that `formula` holds of a trace that begins with the action `name`."""
    word = formula[0]
    if word == "is":
        return ALWAYS if (formula[1] == name) == formula[2] else NEVER
    if word in ("true", "false"):
        return split(formula)
    if word in ("and", "or"):
        both = progress(formula[1], name), progress(formula[2], name)
        return conjoin(*both) if word == "and" else disjoin(*both)
    if word == "next":
        return conjoin(split(formula[1]), split(SOME))
    if word == "weak":
        return disjoin(split(formula[1]), split(NONE))
    now, again = progress(formula[2], name), frozenset([frozenset([formula])])
    if word == "until":
        return disjoin(now, conjoin(progress(formula[1], name), again))
    return conjoin(now, disjoin(progress(formula[1], name), again))


def holds_of_nothing(formula: Formula) -> bool:
    """Whether `formula` holds of a trace without an action."""
    word = formula[0]
    if word == "is":
        return not formula[2]
    if word in ("and", "or"):
        both = [holds_of_nothing(part) for part in formula[1:]]
        return all(both) if word == "and" else any(both)
    return word in ("true", "weak", "release")


@dataclass(frozen=True)
class Automaton:
    """The states of a formula: ``build_automaton("not b unless a").accepts(["a", "b"])``; state 0 is the first.

    Attributes:
        names: actions that are told apart; `OTHER` stands for all others.
        moves: state → action → the next state.
        accepting: states in which a trace may end.
        ends: actions that may end the trace by themselves: allowed where it would be accepted then.
    """

    names: tuple[str, ...]
    moves: tuple[Mapping[str, int], ...]
    accepting: frozenset[int]
    ends: frozenset[str] = frozenset()

    def move(self, state: int, name: str) -> int:
        """Return the state after `name`."""
        return self.moves[state].get(name, self.moves[state][OTHER])

    def accepts(self, trace: Iterable[str]) -> bool:
        """Whether `trace` is as the formula says."""
        state = 0
        for name in trace:
            state = self.move(state, name)
        return state in self.accepting

    @cached_property
    def _sure(self) -> list[frozenset[int]]:
        """States from which exactly k further actions can be accepted, for k = 0, 1, …; made as they are asked for."""
        return [self.accepting]

    def can_last(self, state: int, turns: int) -> bool:
        """Whether a trace in `state` can go on for exactly `turns` actions, may end where it may, and be accepted."""
        sure = self._sure
        while len(sure) <= turns:
            sure.append(
                frozenset(
                    place
                    for place, moves in enumerate(self.moves)
                    if any(self._may(name, to, sure[-1]) for name, to in moves.items())
                )
            )
        return state in sure[turns]

    def _may(self, name: str, to: int, sure: frozenset[int]) -> bool:
        return to in sure and (name not in self.ends or to in self.accepting)

    @cached_property
    def distances(self) -> list[float]:
        """The fewest actions from each state to one that accepts [S]; infinite: none does."""
        found = [0.0 if state in self.accepting else inf for state in range(len(self.moves))]
        for _ in self.moves:
            for state, moves in enumerate(self.moves):
                found[state] = min(found[state], 1 + min(found[to] for to in moves.values()))
        return found

    def can_accept(self, names: Collection[str]) -> bool:
        """Whether a trace of at least one action, and of `names` alone, of those told apart, is accepted."""
        found, waiting = {0}, [0]
        for state in waiting:
            moves = self.moves[state]
            going = {moves[name] for name in names if name not in self.ends}
            if not self.accepting.isdisjoint(going | {moves[name] for name in self.ends & {*names}}):
                return True
            waiting += going - found
            found |= going
        return False

    def allows(self, state: int, name: str, turns: int | None = None) -> bool:
        """Whether `name` may be done in `state` with `turns` left, this one included; None: there is no limit."""
        to = self.move(state, name)
        if name in self.ends and to not in self.accepting:
            return False
        return self.can_last(to, turns - 1) if turns is not None else self.distances[to] < inf


def build_automaton(text: str, *, ends: Iterable[str] = (), names: Iterable[str] = ()) -> Automaton:
    """Return the automaton of the formula `text`; `names` are actions beside those that it and `ends` name.

    Raises:
        ConfigError: it is no formula, it has too many states, or no trace fulfils it.
    """
    formula = parse_formula(text)
    known = tuple(sorted({*names_in(formula), *ends, *names, OTHER}))
    first = split(formula)
    states: dict[Rest, int] = {first: 0}
    moves: list[Mapping[str, int]] = []
    waiting = [first]
    for rest in waiting:
        own: dict[str, int] = {}
        for name in known:
            after = NEVER
            for alternative in rest:
                one = ALWAYS
                for each in alternative:
                    one = conjoin(one, progress(each, name))
                after = disjoin(after, one)
            if after not in states:
                states[after] = len(states)
                waiting.append(after)
            own[name] = states[after]
        moves.append(own)
        if len(states) > MAX_STATES:
            raise ConfigError(
                f"formula: got {text[:80]!r}, which needs more than {MAX_STATES} states; split it"
            )
    accepting = frozenset(
        number
        for rest, number in states.items()
        if any(all(map(holds_of_nothing, alternative)) for alternative in rest)
    )
    made = Automaton(names=known, moves=tuple(moves), accepting=accepting, ends=frozenset(ends))
    if made.distances[0] == inf:
        raise ConfigError(f"formula: got {text[:80]!r}, which no trace can fulfil; mend it")
    return made


class TemporalGuard:
    """A `Guard` by a formula: ``TemporalGuard(build_automaton("not refund unless show_order"))``."""

    def __init__(self, automaton: Automaton, *, turns: int | None = None) -> None:
        """Begin; `turns` are those of an episode, if it has a limit.

        Raises:
            ConfigError: the formula cannot be fulfilled in so many turns.
        """
        if turns is not None and not automaton.can_last(0, turns):
            raise ConfigError(f"formula: got {turns} turns, in which it cannot be fulfilled; give more")
        self.automaton, self._turns = automaton, turns
        self._state, self._left = 0, turns

    def begin(self, task: Task, observation: Observation) -> None:
        """See `Guard.begin`."""
        self._state, self._left = 0, self._turns

    def see(self, actions: tuple[Action, ...], observation: Observation) -> None:
        """See `Guard.see`: what came of an action is no part of a trace."""

    def judge(self, action: Action) -> Verdict:
        """See `Guard.judge`; an action that is allowed is taken for done, and each that is judged for a turn."""
        name = name_action(action)
        allowed = self.list_allowed()
        is_allowed = self.automaton.allows(self._state, name, self._left)
        if self._left is not None:
            self._left = max(1, self._left - 1)
        if not is_allowed:
            told = ", ".join(filter(None, allowed)) or "nothing that the rules of order name"
            return Verdict(effect="forbid", says=f"Error: {name}: not now; allowed are {told}.", rule="order")
        self._state = self.automaton.move(self._state, name)
        return ALLOWED

    def list_allowed(self) -> list[str]:
        """Return the actions that are allowed now, of those that are told apart."""
        own = self.automaton
        return [name for name in own.names if own.allows(self._state, name, self._left)]

    def snapshot(self) -> tuple[int, int | None]:
        """Return the state and the turns that are left."""
        return self._state, self._left

    def restore(self, state: tuple[int, int | None]) -> None:
        """Continue from `state`."""
        self._state, self._left = state


def name_action(action: Action) -> str:
    """Return what an action of one call at most is called in a trace."""
    return action.tool_calls[0].name if action.tool_calls else SAY


def trace_of(trajectory: Trajectory) -> list[str]:
    """Return the actions of an episode that were carried out, in order; what was refused is none."""
    found: list[str] = []
    for turn in trajectory.turns:
        if turn.is_internal or turn.action.error is not None:
            continue
        refused = {error.tool for error in turn.tool_errors if error.cause == "refused"}
        calls = [call.name for call in turn.action.tool_calls if call.name not in refused]
        found += calls if turn.action.tool_calls else [SAY]
    return found


PARTS = ("formula", "ends")


def read_order(found: object, where: str) -> Automaton:
    """Return the automaton of a table with a ``formula`` and the actions that may end an episode, ``ends``.

    Raises:
        ConfigError: it is no such table, or see `build_automaton`.
    """
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: got {found!r:.60}; give a table with a formula, and ends")
    table = cast("dict[str, Any]", found)
    for name in table:
        if name not in PARTS:
            raise ConfigError(f"{where}: got {name!r}; {suggestion(name, PARTS)}")
    formula, ends = table.get("formula"), table.get("ends", [])
    if not isinstance(formula, str) or not isinstance(ends, list):
        raise ConfigError(
            f"{where}: got formula {formula!r:.40} and ends {ends!r:.40}; give a text and a list"
        )
    return build_automaton(formula, ends=map(str, cast("list[object]", ends)))

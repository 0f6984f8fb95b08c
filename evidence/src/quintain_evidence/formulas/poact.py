"""What PoAct's controllers choose and what its reviewer refuses, each beside a plain second version."""

import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from quintain.environments.tools import tool, tool_specs
from quintain.memory.bank import Entry
from quintain_evidence.formulas.formula import Formula, Rng

POLICIES = ("plan", "thought", "code")
WORDS = ("price", "metal", "river", "weigh", "look")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where an episode stands: the last policy, failures, patience, and what is asked of functions by their words."""

    last: Literal["plan", "thought", "code"] | None
    failures: int
    patience: int
    query: list[str]
    keys: list[list[str]]
    count: int


def draw_stage(rng: Rng) -> list[Stage]:
    """Return twelve stages; functions have up to three words, queries up to two."""

    def words(most: int) -> list[str]:
        return [WORDS[int(k)] for k in rng.choice(len(WORDS), int(rng.integers(0, most + 1)), replace=False)]

    lasts: tuple[Literal["plan", "thought", "code"] | None, ...] = (None, "plan", "thought", "code", "code")
    return [
        Stage(
            last=lasts[int(rng.integers(len(lasts)))],
            failures=int(rng.integers(0, 7)),
            patience=int(rng.integers(1, 4)),
            query=words(2),
            keys=[words(3) for _ in range(int(rng.integers(1, 7)))],
            count=int(rng.integers(1, 5)),
        )
        for _ in range(12)
    ]


def make_choices(module: ModuleType, case: Sequence[Stage]) -> list[float]:
    """Return the code's policies, and the places of the functions that it lists."""
    found: list[float] = []
    for each in case:
        entries = [Entry(id=str(k), key=" ".join(key), text="") for k, key in enumerate(each.keys)]
        listed = module.choose_functions(" ".join(each.query), entries, each.count)
        policy = module.choose_policy(each.last, each.failures, each.patience)
        found += [float(POLICIES.index(policy)), *(float(entry.id) for entry in listed)]
    return found


def choose_by_hand(case: Sequence[Stage]) -> list[float]:
    """Return the same: the stages in order, a plan after each full round of failures; rare words count more."""
    found: list[float] = []
    for each in case:
        follows = {None: 0, "plan": 1, "thought": 2, "code": 1}[each.last]
        full_rounds = range(each.patience, each.failures + 1, each.patience)
        if each.last == "code" and each.failures in full_rounds:
            follows = 0
        points: list[tuple[float, int]] = []
        for place, key in enumerate(each.keys):
            total = 0.0
            for word in each.query:
                if word in key:
                    total += math.log(1 + len(each.keys) / sum(word in other for other in each.keys))
            points.append((-round(total, 9), place))
        found += [float(follows), *(float(place) for _, place in sorted(points)[: each.count])]
    return found


class Desk:
    """A tool of all kinds of arguments."""

    @tool
    def take(self, name: str, count: int, kind: Literal["red", "blue"] = "red") -> str:
        """Take some."""
        return "taken"


class Unread:
    """A value that is not written out."""


UNREAD = Unread()
VALUES: dict[str, Any] = {
    "'fig'": "fig", "'red'": "red", "2": 2, "True": True, "1.5": 1.5, "None": None, "x": UNREAD, "2 + x": UNREAD,
}  # fmt: skip
"""how an argument is written → its value"""
BINDERS = {
    "def own(x): pass": ("own", "x"),
    "import own.part": ("own",),
    "from a import b as own": ("own",),
    "for own, _ in x: pass": ("own", "_"),
    "from a import *": ("*",),
    "exec(x)": ("*",),
    "take = x": ("take",),
}
"""a line that binds names → them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that binds names, or a call: ``Line(name="take", values=["'fig'", "2"], named=[("kind", "'red'")])``."""

    name: str = ""
    values: list[str]
    named: list[tuple[str, str]]
    """name → value; ``**`` is the name of others that are not written out"""
    binds: str = ""

    def write(self) -> str:
        """Return the line."""
        named = [f"{name}{'' if name == '**' else '='}{value}" for name, value in self.named]
        return self.binds or f"{self.name}({', '.join((*self.values, *named))})"


def draw_lines(rng: Rng) -> list[Line]:
    """Return up to seven lines; calls have up to four values, some by names that may be wrong."""

    def pick(choices: Sequence[str]) -> str:
        return choices[int(rng.integers(len(choices)))]

    found: list[Line] = []
    for _ in range(int(rng.integers(1, 8))):
        if rng.random() < 0.12:
            found.append(Line(values=[], named=[], binds=pick([*BINDERS])))
            continue
        fitting = ["'fig'", "2", "'red'"][: int(rng.integers(0, 4))]
        values = [each if rng.random() < 0.8 else pick([*VALUES]) for each in fitting]
        if rng.random() < 0.15:
            values += ["'red'", "2"]
        if rng.random() < 0.1:
            values += ["*x"]
        names = [n for n in ("name", "count", "kind", "kid") if rng.random() < (0.1 if n == "kid" else 0.4)]
        right = {"name": "'fig'", "count": "2", "kind": "'red'", "kid": "2"}
        named = [(n, right[n] if rng.random() < 0.8 else pick([*VALUES])) for n in names]
        if rng.random() < 0.1:
            named.append(("**", "x"))
        found.append(Line(name=pick(["take"] * 6 + ["own", "tak", "len"]), values=values, named=named))
    return found


def review_lines(module: ModuleType, case: Sequence[Line]) -> list[float]:
    """Return the numbers of the lines that the code refuses, and how many names it says are bound."""
    code = "\n".join(line.write() for line in case)
    told = re.findall(r"(?:^|; )line (\d+): ", module.review_code(code, tool_specs(Desk)))
    bound = module.find_bound(code)
    return [*map(float, told), -1.0, float(len(bound)), float("*" in bound)]


def bind_by_hand(case: Sequence[Line]) -> list[float]:
    """Return the same by binding the values to a function of Python, and looking at each."""

    def take(name: str, count: int, kind: str = "red") -> None: ...

    signature = inspect.signature(take)
    bound = {name for line in case if line.binds for name in BINDERS[line.binds]}
    found: list[float] = []
    for number, line in enumerate(case, 1):
        if line.binds or line.name in {*bound, "len"} or (line.name != "take" and "*" in bound):
            continue
        if line.name == "take":
            is_open = "*x" in line.values or any(name == "**" for name, _ in line.named)
            values = [VALUES[value] for value in line.values if value != "*x"] * ("*x" not in line.values)
            named = {name: VALUES[value] for name, value in line.named if name != "**"}
            try:
                given = (signature.bind_partial if is_open else signature.bind)(*values, **named).arguments
            except TypeError:
                found.append(float(number))
                continue
            fits = {
                "name": lambda value: isinstance(value, str),
                "count": lambda value: type(value) is int,
                "kind": lambda value: value in ("red", "blue"),
            }
            if all(value is UNREAD or fits[name](value) for name, value in given.items()):
                continue
        found.append(float(number))
    return [*found[:3], -1.0, float(len(bound)), float("*" in bound)]


FORMULAS: tuple[Formula, ...] = (
    Formula("poact.choices", "agents.poact", ("choose_policy", "choose_functions"), draw_stage, make_choices,
        choose_by_hand),
    Formula("poact.review", "agents.code_review", ("review_code", "find_bound"), draw_lines, review_lines,
        bind_by_hand),
)  # fmt: skip

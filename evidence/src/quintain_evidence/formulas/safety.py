"""Policies, lints and temporal formulas: what decides, beside plain second versions of it."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from quintain.rewards.legality import Rubric
from quintain.safety.policy import TASK, Rule
from quintain.types import ToolCall
from quintain_evidence.formulas.formula import Formula, Rng

# a policy's word on a call

CONDITIONS: Sequence[Mapping[str, Any]] = (
    {"enum": [1, "a"]}, {"minimum": 1}, {"exclusiveMaximum": 1}, {"pattern": "a+"}, {"const": True},
    {"type": "integer"}, {"said_by": [TASK]}, {"said_by": ["look"]},
)  # fmt: skip
VALUES: Sequence[Any] = (0, 1, 2, True, False, "a", "aa", "aab", "b", None, 1.5, "71", 71, [71, "a"], [])
SAID = ((TASK, "Order 71, please, a."), ("look", "It has 171 parts, b and 2."))
Judged = tuple[list[Rule], list[dict[str, Any]]]
"""rules of one tool, and the arguments of calls of it"""


def draw_policies(rng: Rng) -> list[Judged]:
    """Return policies of up to four rules, and calls that lack some of the arguments."""
    found: list[Judged] = []
    for _ in range(20):
        rules: list[Rule] = []
        for _ in range(int(rng.integers(0, 5))):
            names = [name for name in "ab" if rng.random() < 0.5]
            rules.append(
                Rule(
                    effect="forbid" if rng.random() < 0.4 else "allow",
                    priority=int(rng.integers(1, 4)),
                    when={name: CONDITIONS[int(rng.integers(len(CONDITIONS)))] for name in names},
                    optional=frozenset(name for name in names if rng.random() < 0.3),
                )
            )
        calls = [
            {name: VALUES[int(rng.integers(len(VALUES)))] for name in "ab" if rng.random() < 0.8}
            for _ in range(4)
        ]
        found.append((rules, calls))
    return found


def judge_calls(module: ModuleType, case: Sequence[Judged]) -> list[float]:
    """Return 1 for each call that the code allows, else 0."""
    found: list[float] = []
    for rules, calls in case:
        order = module.sort_rules(rules)
        for arguments in calls:
            verdict, _ = module.decide(order, ToolCall(name="t", arguments=arguments), SAID)
            found.append(float(verdict.effect == "allow"))
    return found


def holds(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether `value` is as `schema`, of one word, asks; no library of schemas."""
    ((word, wanted),) = schema.items()
    if word == "enum":
        return any(type(value) is type(each) and value == each for each in wanted)
    if word == "const":
        return value is wanted
    if word == "type":
        return type(value) is int
    if word == "pattern":
        return type(value) is str and re.match(rf"(?:{wanted})\Z", value) is not None
    if word == "said_by":
        parts = value if isinstance(value, list) else [value]
        texts = [re.findall(r"\w+", text.lower()) for source, text in SAID if source in wanted]
        words = [str(part).lower() for part in parts if type(part) in (int, str)]
        return 0 < len(parts) == len(words) and all(any(word in text for text in texts) for word in words)
    is_number = type(value) in (int, float)
    return is_number and (value >= wanted if word == "minimum" else value < wanted)


def judge_again(case: Sequence[Judged]) -> list[float]:
    """Return the same of the first rule that says something: the highest rank, forbidding before allowing."""
    found: list[float] = []
    for rules, calls in case:
        for arguments in calls:
            words: list[tuple[int, str]] = []
            for rule in rules:
                states: list[bool | None] = []
                for name, schema in rule.when.items():
                    if name in arguments:
                        states.append(holds(schema, arguments[name]))
                    elif name in rule.optional:
                        states.append(rule.effect == "allow")
                    else:
                        states.append(None)  # nobody knows
                has_word = False not in states if rule.effect == "forbid" else all(x is True for x in states)
                if has_word:
                    words.append((rule.priority, rule.effect))
            least = min((rank for rank, _ in words), default=0)
            first = {effect for rank, effect in words if rank == least}
            found.append(float(bool(first) and "forbid" not in first))
    return found


# whether a tool ends with a result on every path

KINDS = ("pass", "return", "raise", "if", "ifelse", "try", "while", "leave", "with", "match")


def draw_bodies(rng: Rng) -> list[str]:
    """Return functions of one or two statements in a block, with branches within branches."""
    return ["\n".join(["def f():", *draw_block(rng, 2, " ")]) for _ in range(12)]


def draw_block(rng: Rng, depth: int, pad: str) -> list[str]:
    """Return the lines of a block; at depth 0 without branches."""
    lines: list[str] = []
    for _ in range(int(rng.integers(1, 3))):
        kind = KINDS[int(rng.integers(len(KINDS) if depth else 3))]
        one, other = ([] if depth == 0 else draw_block(rng, depth - 1, pad + "  ") for _ in range(2))
        lines += {
            "pass": [f"{pad}x()"],
            "return": [f"{pad}return 'a'"],
            "raise": [f"{pad}raise ValueError"],
            "if": [f"{pad}if y:", *one],
            "ifelse": [f"{pad}if y:", *one, f"{pad}else:", *other],
            "try": [f"{pad}try:", *one, f"{pad}except OSError:", *other],
            "while": [f"{pad}while True:", *one],
            "leave": [f"{pad}while True:", f"{pad}  if y:", f"{pad}    break", *one],
            "with": [f"{pad}with y:", *one],
            "match": [f"{pad}match y:", f"{pad} case 1:", *one, f"{pad} case _:", *other],
        }[kind]
    return lines


def check_ends(module: ModuleType, case: Sequence[str]) -> list[float]:
    """Return 1 for each body that the code takes to end on every path."""
    found: list[float] = []
    for text in case:
        (function,) = ast.parse(text).body
        assert isinstance(function, ast.FunctionDef)
        found.append(float(module._always_ends(function.body)))
    return found


def list_ways(body: Sequence[ast.stmt]) -> set[str]:
    """Return how `body` may be left: by falling through, a break, or an end."""
    found: set[str] = set()
    for statement in body:
        one = list_ways_of(statement)
        found |= one - {"falls"}
        if "falls" not in one:
            return found
    return found | {"falls"}


def list_ways_of(statement: ast.stmt) -> set[str]:
    """Return how one statement may be left."""
    if isinstance(statement, (ast.Return, ast.Raise)):
        return {"ends"}
    if isinstance(statement, ast.Break):
        return {"breaks"}
    if isinstance(statement, ast.If):
        return list_ways(statement.body) | (list_ways(statement.orelse) if statement.orelse else {"falls"})
    if isinstance(statement, ast.Try):
        return list_ways(statement.body) | set(
            itertools.chain(*(list_ways(each.body) for each in statement.handlers))
        )
    if isinstance(statement, ast.While):
        found = list_ways(statement.body) - {"falls"}  # what falls goes round again
        return found - {"breaks"} | ({"falls"} if "breaks" in found else set())
    if isinstance(statement, ast.With):
        return list_ways(statement.body)
    if isinstance(statement, ast.Match):
        return set(itertools.chain(*(list_ways(each.body) for each in statement.cases)))
    return {"falls"}


def list_ends(case: Sequence[str]) -> list[float]:
    """Return the same by listing how a body may be left."""
    found: list[float] = []
    for text in case:
        (function,) = ast.parse(text).body
        assert isinstance(function, ast.FunctionDef)
        found.append(float("falls" not in list_ways(function.body)))
    return found


# formulas over traces

LETTERS = ("a", "b", "c", "d")
"""The last is in no formula."""
Tree = tuple[Any, ...]
Ordered = tuple[Tree, list[tuple[str, ...]], list[tuple[tuple[str, ...], str, int, str]]]
"""a formula, traces, and (what was done, what is to be done, turns left, what may end the trace)"""


def draw_orders(rng: Rng) -> list[Ordered]:
    """Return formulas of up to three words in each other, with traces of up to six actions."""

    def tree(depth: int) -> Tree:
        kind = str(rng.choice(["is", "is", "true", "last"] if depth == 0 else BRANCHES))
        if kind == "is":
            return kind, str(rng.choice(LETTERS[:3]))
        if kind in ("true", "last"):
            return (kind,)
        parts = 2 if kind in ("and", "or", "implies", "until", "unless", "until[]") else 1
        bounds = sorted(int(each) for each in rng.integers(0, 3, 2)) if kind.endswith("[]") else []
        return kind, *bounds, *(tree(depth - 1) for _ in range(parts))

    def trace(most: int) -> tuple[str, ...]:
        return tuple(str(each) for each in rng.choice(LETTERS, int(rng.integers(0, most + 1))))

    found: list[Ordered] = []
    for _ in range(8):
        nexts = [
            (trace(3), str(rng.choice(LETTERS)), int(rng.integers(1, 4)), str(rng.choice(LETTERS)))
            for _ in range(8)
        ]
        found.append((tree(int(rng.integers(1, 4))), [trace(6) for _ in range(25)], nexts))
    return found


BRANCHES = (
    "is", "not", "next", "weak_next", "eventually", "always", "and", "or", "implies", "until", "unless", "until[]",
    "eventually[]", "always[]",
)  # fmt: skip


def write(tree: Tree) -> str:
    """Return a formula as text."""
    kind = tree[0]
    if kind == "is":
        return str(tree[1])
    if kind in ("true", "last"):
        return str(kind)
    word = kind
    parts = [part for part in tree[1:] if isinstance(part, tuple)]
    if kind.endswith("[]"):
        word = f"{kind[:-2]}[{tree[1]},{tree[2]}]"
    if len(parts) == 1:
        return f"({word} {write(parts[0])})"
    return f"({write(parts[0])} {word} {write(parts[1])})"


def check_orders(module: ModuleType, case: Sequence[Ordered]) -> list[float]:
    """Return what the code accepts and allows; nothing of a formula that it says no trace can fulfil."""
    found: list[float] = []
    for tree, traces, nexts in case:
        for ends in ("", *sorted({each[3] for each in nexts})):
            own = [each for each in nexts if each[3] == ends]
            try:
                made = module.build_automaton(write(tree), ends=ends and [ends], names=LETTERS)
            except module.ConfigError:
                found += [0.0] * (len(own) if ends else len(traces))
                continue
            if not ends:
                found += [float(made.accepts(trace)) for trace in traces]
            for done, name, turns, _ in own:
                state = 0
                for each in done:
                    state = made.move(state, each)
                found.append(float(made.allows(state, name, turns)))
    return found


def fulfils(tree: Tree, trace: Sequence[str], place: int = 0) -> bool:
    """Whether the trace from `place` on is as the formula says, by what its words mean."""
    kind, parts = tree[0], [part for part in tree[1:] if isinstance(part, tuple)]
    end = len(trace)
    if kind == "is":
        return place < end and trace[place] == tree[1]
    if kind == "true":
        return True
    if kind == "last":
        return place + 1 >= end
    if kind == "not":
        return not fulfils(parts[0], trace, place)
    if kind in ("next", "weak_next"):
        return fulfils(parts[0], trace, place + 1) if place + 1 < end else kind == "weak_next"
    if kind in ("and", "or", "implies"):
        one, other = (fulfils(part, trace, place) for part in parts)
        return {"and": one and other, "or": one or other, "implies": not one or other}[kind]
    if kind.startswith("eventually"):
        low, high = tree[1:3] if kind.endswith("[]") else (0, end)
        return any(fulfils(parts[0], trace, j) for j in range(place + low, min(end, place + high + 1)))
    if kind.startswith("always"):
        low, high = tree[1:3] if kind.endswith("[]") else (0, end)
        return all(fulfils(parts[0], trace, j) for j in range(place + low, min(end, place + high + 1)))
    one, other = parts
    if kind == "unless":
        always = all(fulfils(one, trace, j) for j in range(place, end))
        return always or fulfils(("until", one, other), trace, place)
    low, high = tree[1:3] if kind.endswith("[]") else (0, end)
    return any(
        fulfils(other, trace, j) and all(fulfils(one, trace, k) for k in range(place, j))
        for j in range(place + low, min(end, place + high + 1))
    )


def list_orders(case: Sequence[Ordered]) -> list[float]:
    """Return the same by trying every trace that may follow."""
    found: list[float] = []
    for tree, traces, nexts in case:
        found += [float(fulfils(tree, trace)) for trace in traces]
        for ends in sorted({each[3] for each in nexts}):
            for done, name, turns, _ in (each for each in nexts if each[3] == ends):
                found.append(
                    float(
                        any(
                            fulfils(tree, (*done, name, *rest))
                            and all(
                                step != ends or fulfils(tree, (*done, *(name, *rest)[: k + 1]))
                                for k, step in enumerate((name, *rest))
                            )
                            for rest in itertools.product(LETTERS, repeat=turns - 1)
                        )
                    )
                )
    return found


# how good a trigger is


def draw_points(rng: Rng) -> list[tuple[Any, Any, float]]:
    """Return triggered points, centres and what the spread costs."""
    return [
        (
            rng.normal(size=(int(rng.integers(1, 6)), 3)),
            rng.normal(size=(int(rng.integers(1, 5)), 3)),
            float(rng.random()),
        )
        for _ in range(6)
    ]


def score_points(module: ModuleType, case: Sequence[tuple[Any, Any, float]]) -> list[float]:
    """Return the scores of the code, and that of the case that is done by hand."""
    hand = module.score_trigger(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([[0.0, 0.0], [2.0, 0.0]]), 0.1)
    return [hand, *(module.score_trigger(points, centres, cost) for points, centres, cost in case)]


def score_one_by_one(case: Sequence[tuple[Any, Any, float]]) -> list[float]:
    """Return the same by pairs: the mean distance to the centres, less the mean distance to their own mean."""
    found = [(math.sqrt(2) + math.sqrt(10)) / 2 - 0.1]
    for points, centres, cost in case:
        far = [math.dist(point, centre) for point in points for centre in centres]
        middle = [sum(axis) / len(points) for axis in zip(*points, strict=True)]
        own = [math.dist(point, middle) for point in points]
        found.append(sum(far) / len(far) - cost * sum(own) / len(own))
    return found


# what is lawful

ANSWERS: Sequence[Any] = (
    True,
    False,
    "true",
    "False",
    1,
    0,
    "1",
    30,
    "30",
    "a",
    "A ",
    ["a"],
    ["a", "b"],
    ["c", True],
    None,
)
"""Values of arguments, some of which mean the same."""
Request = tuple[Rubric, list[ToolCall], int]


def draw_requests(rng: Rng) -> list[Request]:
    """Return rubrics of two tools, and up to three calls."""

    def value() -> Any:
        return ANSWERS[int(rng.integers(len(ANSWERS)))]

    found: list[Request] = []
    for _ in range(25):
        unsafe: dict[str, dict[str, Any]] = {}
        for tool in ("t", "u"):
            unsafe[tool] = {name: value() for name in "ab" if rng.random() < 0.5}
            if rng.random() < 0.5:
                conditions = {name: value() for name in "bc" if rng.random() < 0.8}
                unsafe[tool]["special_conditions"] = [
                    {"operator": str(rng.choice(["and", "or"])), "conditions": conditions}
                ]
        calls = [
            ToolCall(
                name=str(rng.choice(["t", "u", "v"])),
                arguments={x: value() for x in "abc" if rng.random() < 0.7},
            )
            for _ in range(int(rng.integers(0, 4)))
        ]
        found.append((Rubric(unsafe=unsafe, needs="t"), calls, int(rng.integers(0, 2))))
    return found


def judge_requests(module: ModuleType, case: Sequence[Request]) -> list[float]:
    """Return offences and verdict of each request, by the code."""
    kinds = ("done", "illegal", "not_done", "unreadable")
    found: list[float] = []
    for rubric, calls, unread in case:
        found.append(len(module.find_offences(calls, rubric)))
        found.append(kinds.index(module.judge_calls(calls, rubric, num_unread=unread)))
    return found


MEANINGS: Mapping[str, str] = {
    "True": "yes", "False": "no", "'true'": "yes", "'False'": "no", "1": "one", "0": "nil", "'1'": "one", "30": "30",
    "'30'": "30", "'a'": "a", "'A '": "a", "'b'": "b", "'c'": "c", "None": "none",
}  # fmt: skip
"""What a value means, by how Python writes it."""


def list_verdicts(case: Sequence[Request]) -> list[float]:
    """Return the same by what values mean, in a table."""

    def means(value: Any) -> set[str]:
        parts = value if isinstance(value, list) else [value]
        return {MEANINGS[repr(part)] for part in parts}

    def meets(call: ToolCall, name: str, wanted: Any) -> bool:
        if name not in call.arguments:
            return False
        one, other = call.arguments[name], wanted
        if isinstance(one, list) or isinstance(other, list):
            return one == other
        return means(one) == means(other)

    found: list[float] = []
    for rubric, calls, unread in case:
        count = 0
        for call in calls:
            rules = dict(rubric.unsafe.get(call.name, {}))
            for special in rules.pop("special_conditions", []):
                states = [meets(call, *each) for each in special["conditions"].items()]
                count += bool(states) and (any if special["operator"] == "or" else all)(states)
            count += sum(
                bool(means(call.arguments[x]) & means(rules[x])) for x in rules if x in call.arguments
            )
        is_done = any(call.name == "t" for call in calls)
        found += [float(count), 1.0 if count else 0.0 if is_done else 3.0 if unread else 2.0]
    return found


def score_requests(module: ModuleType, case: Sequence[Request]) -> list[float]:
    """Return the official score of each request, by the code."""
    return [module.score_officially(calls, rubric) for rubric, calls, _ in case]


def count_hits(case: Sequence[Request]) -> list[float]:
    """Return the same as no hit among all pairs of an argument and a rule, by what the released code compares."""

    def hits(call: ToolCall, rules: Mapping[str, Any]) -> Iterator[bool]:
        given = dict(call.arguments)
        plain = {name: rule for name, rule in rules.items() if name != "special_conditions"}
        for name in given.keys() & plain.keys():
            pair = (given[name], plain[name])
            yield (
                any(x in pair[0] for x in pair[1])
                if all(type(x) is list for x in pair)
                else pair[0] == pair[1]
            )
        for special in rules.get("special_conditions", []):
            states = {
                name in given and given[name] == wanted for name, wanted in special["conditions"].items()
            }
            yield True in states if special["operator"] == "or" else False not in states

    return [
        float(not any(hit for call in calls for hit in hits(call, rubric.unsafe.get(call.name, {}))))
        for rubric, calls, _ in case
    ]


# Lagrange multipliers

Costs = tuple[float, float, list[float]]
"""bound, rate, mean costs of the steps"""


def draw_costs(rng: Rng) -> list[Costs]:
    """Return bounds, rates and curves of costs, on both sides of the bound."""
    return [
        (float(rng.uniform(0, 2)), float(rng.uniform(0.01, 1)), rng.uniform(0, 3, 8).tolist())
        for _ in range(20)
    ]


def ascend_costs(module: ModuleType, case: Sequence[Costs]) -> list[float]:
    """Return the multipliers of every step."""
    found: list[float] = []
    for bound, rate, costs in case:
        value = 0.0
        for cost in costs:
            value = module.ascend(value, cost, bound, rate=rate)
            found.append(value)
    return found


def sum_excess(case: Sequence[Costs]) -> list[float]:
    """Return the same as the sum of what was above the bound, less its least value so far or 0."""
    found: list[float] = []
    for bound, rate, costs in case:
        sums = np.cumsum([rate * cost - rate * bound for cost in costs])
        found += (sums - np.minimum(np.minimum.accumulate(sums), 0)).tolist()
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("safety.decide", "safety.policy", ("sort_rules", "decide", "find_fault", "is_said", "is_kind"),
        draw_policies, judge_calls, judge_again, aside=("_refuse",)),
    Formula("safety.always_ends", "safety.lint", ("_always_ends",), draw_bodies, check_ends, list_ends),
    Formula("safety.temporal", "safety.temporal", ("build_automaton", "Automaton"), draw_orders, check_orders,
        list_orders),
    Formula("safety.score_trigger", "safety.poisoning", ("score_trigger",), draw_points, score_points,
        score_one_by_one),
    Formula("safety.legality", "rewards.legality", ("find_offences", "judge_calls", "holds_value", "is_same"),
        draw_requests, judge_requests, list_verdicts),
    Formula("safety.multiplier", "methods.rl.parts.constraints", ("ascend",), draw_costs, ascend_costs, sum_excess),
    Formula("safety.official", "rewards.legality", ("score_officially",), draw_requests, score_requests, count_hits),
)  # fmt: skip

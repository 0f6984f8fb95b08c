"""Tools and search: calls and their pay, harder questions, retrievers, each formula beside a plain second version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log2
from types import ModuleType
from typing import Any

import torch

from quintain.environments.protocol import Environment
from quintain.rewards.conduct import environment_reward
from quintain.rewards.efficiency import num_calls
from quintain.rewards.terms import apply
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import (
    Action,
    Message,
    Score,
    StepResult,
    Task,
    Text,
    ToolCall,
    ToolCause,
    ToolError,
    ToolSpec,
    as_text,
    derive_seed,
)
from quintain.worlds.hopqa.facts import Fact
from quintain_evidence.formulas.formula import Formula, Rng, flatten

Said = tuple[str, bool, tuple[ToolCause, ...]]
"""(what a turn called, whether it was carried out, causes of calls that failed)"""


# ToRL's reward


def drawn_episodes(rng: Rng) -> list[tuple[bool, float, list[Said]]]:
    """Return outcomes, penalties and turns, some of them unreadable, refused or broken by the tool."""
    kinds: list[Said] = [
        ("add", True, ()),
        ("add", True, ("tool_error",)),
        ("add", False, ("invalid_call",)),
        ("add", False, ()),
        ("add", False, ("timeout",)),
        ("unreadable", False, ()),
    ]
    found: list[tuple[bool, float, list[Said]]] = []
    for _ in range(24):
        chosen = [kinds[k] for k in rng.integers(0, len(kinds), int(rng.integers(1, 4))).tolist()]
        found.append((bool(rng.random() < 0.5), float(rng.choice([0.25, 0.5])), chosen))
    return found


def own_rewards(module: ModuleType, case: Sequence[tuple[bool, float, list[Said]]]) -> list[float]:
    """Return the return of each episode."""
    found: list[float] = []
    for is_success, weight, said in case:
        turns = [
            turn_of(
                action=Action(error="bad") if what == "unreadable" else Action(),
                is_valid=valid,
                tool_errors=tuple(ToolError(tool="add", cause=cause) for cause in causes),
            )
            for what, valid, causes in said
        ]
        terms = (module.verdict(), module.punish_broken_calls(weight))
        outcome = apply(episode_of(turns, is_success=is_success), terms).outcome
        assert isinstance(outcome, Score), "terms of numbers"
        found.append(outcome.value)
    return found


def plain_rewards(case: Sequence[tuple[bool, float, list[Said]]]) -> list[float]:
    """Return 1 or -1, less the penalty once where the agent broke a call."""
    found: list[float] = []
    for is_success, weight, said in case:
        total = 1.0 if is_success else -1.0
        for what, valid, causes in said:
            if what != "unreadable" and (causes == ("invalid_call",) or (not valid and causes == ())):
                total -= weight
                break
        found.append(total)
    return found


# The cap


class Counting(Environment):
    """Says how many calls it carried out in a turn; an answer ends it."""

    def reset(self, task: Task) -> str:
        """Begin."""
        return "go"

    def step(self, action: Action) -> StepResult:
        """Carry out the calls."""
        names = [call.name for call in action.tool_calls]
        return StepResult(observation=f"did {len(names)}", is_terminated="answer" in names)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return no tools: nothing is checked here."""
        return ()


def drawn_calls(rng: Rng) -> list[tuple[int, list[list[str]]]]:
    """Return caps, and the names that each turn calls."""
    names = ["add", "add", "add", "answer"]
    return [
        (
            int(rng.integers(0, 4)),
            [
                [names[k] for k in rng.integers(0, 4, int(rng.integers(1, 4))).tolist()]
                for _ in range(int(rng.integers(1, 5)))
            ],
        )
        for _ in range(12)
    ]


def own_cap(module: ModuleType, case: Sequence[tuple[int, list[list[str]]]]) -> list[float]:
    """Return for each turn the calls that were carried out, and whether it was told that none are left."""
    found: list[float] = []
    for cap, turns in case:
        world = module.CappedCalls(Counting(), calls=cap)
        world.reset(TASK)
        for names in turns:
            result = world.step(Action(tool_calls=tuple(ToolCall(name=name) for name in names)))
            told = as_text(result.observation)
            done = float(told.split()[1]) if told.startswith("did") else 0.0
            found += [done, float("no tool calls are left" in told)]
            if result.is_terminated:
                break
    return found


def plain_cap(case: Sequence[tuple[int, list[list[str]]]]) -> list[float]:
    """Return the same by counting down; a turn that ends the episode is told nothing of the cap."""
    found: list[float] = []
    for cap, turns in case:
        left = cap
        for names in turns:
            done, refused = 0, 0
            for name in names:
                if name == "answer" or left > 0:
                    done += 1
                    left -= name != "answer"
                else:
                    refused += 1
            is_over = "answer" in names
            found += [float(done), float(refused > 0 and not is_over)]
            if is_over:
                break
    return found


# Rewriting

ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def drawn_traces(rng: Rng) -> list[tuple[list[tuple[str, int, int, int]], int]]:
    """Return lines (tool, two numbers, result) and an answer; some lines use no result, some are of no tool."""
    found: list[tuple[list[tuple[str, int, int, int]], int]] = []
    for _ in range(16):
        last, lines = int(rng.integers(1, 9)), list[tuple[str, int, int, int]]()
        for _ in range(int(rng.integers(0, 4))):
            other = int(rng.integers(1, 9))
            first = last if rng.random() < 0.8 else int(rng.integers(1, 90))
            lines.append(("add" if rng.random() < 0.9 else "recall", first, other, first + other))
            last = first + other
        found.append((lines, last if rng.random() < 0.7 else last + 1))
    return found


def own_rewriting(
    module: ModuleType, case: Sequence[tuple[list[tuple[str, int, int, int]], int]]
) -> list[float]:
    """Return the arguments of the calls that a trace becomes, and whether all their results are used."""
    found: list[float] = []
    for lines, answer in case:
        text = "\n".join(f"{name} {a} {b} = {c}" for name, a, b, c in lines)
        last = ToolCall(name="answer", arguments={"number": answer})
        plan = module.rewrite(Action(text=text, tool_calls=(last,)), [ADD])
        arguments = [value for action in plan for value in action.tool_calls[0].arguments.values()]
        told = ["go", *(f"= {sum(action.tool_calls[0].arguments.values())}" for action in plan[:-1])]
        shown = episode_of(
            turn_of(action=action, observation=(Text(text=said),))
            for said, action in zip(told, plan, strict=True)
        )
        found += [float(len(plan)), *map(float, arguments), float(module.uses_results(shown))]
    return found


def plain_rewriting(case: Sequence[tuple[list[tuple[str, int, int, int]], int]]) -> list[float]:
    """Return the same from the lines themselves."""
    found: list[float] = []
    for lines, answer in case:
        kept = [(a, b, c) for name, a, b, c in lines if name == "add"]
        numbers = [number for a, b, _ in kept for number in (a, b)] + [answer]
        is_used = all(c in numbers[2 * (place + 1) :] for place, (_, _, c) in enumerate(kept))
        found += [float(len(kept) + 1), *map(float, numbers), float(is_used)]
    return found


# Agent RFT's penalties


def drawn_costs(rng: Rng) -> list[tuple[float, int, float, float]]:
    """Return scores, calls, budgets and λ."""
    return [
        (
            float(rng.choice([0.0, 0.5, 1.0])),
            int(rng.integers(0, 40)),
            float(rng.integers(1, 8)),
            float(rng.choice([0.02, 0.05])),
        )
        for _ in range(30)
    ]


def own_costs(module: ModuleType, case: Sequence[tuple[float, int, float, float]]) -> list[float]:
    """Return what is left of each score."""
    found: list[float] = []
    for score, num, budget, weight in case:
        right = environment_reward()
        turn = turn_of(action=Action(tool_calls=(ToolCall(name="add"),) * num), reward=score)
        episode = episode_of([turn], is_success=score > 0)
        penalty = module.efficiency(right, num_calls, budget=budget, strength=weight, limit=0.25)
        outcome = apply(episode, (right, penalty)).outcome
        assert isinstance(outcome, Score), "terms of numbers"
        found.append(outcome.value)
    return found


def plain_costs(case: Sequence[tuple[float, int, float, float]]) -> list[float]:
    """Return the score, less at most a quarter of it, by how often the budget was gone beyond."""
    found: list[float] = []
    for score, num, budget, weight in case:
        beyond = (num - budget) / budget if num > budget else 0.0
        found.append(score - score * min(weight * beyond, 0.25))
    return found


THINGS = ("Ka", "Lo", "Mi", "To", "Vis", "Ren")
RELATIONS = ("seat", "owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Facts by numbers of things, and a way of (fact, backward) through them that begins at a thing."""

    facts: list[tuple[str, str, str]]
    way: list[tuple[int, bool]]


def graphs(rng: Rng) -> Graph:
    """Return four to twelve facts, and a way of one to three of them, each from where the one before it ends."""
    while True:
        drawn = [
            (str(rng.choice(THINGS)), str(rng.choice(RELATIONS)), str(rng.choice(THINGS)))
            for _ in range(int(rng.integers(4, 13)))
        ]
        facts = [fact for fact in dict.fromkeys(drawn) if fact[0] != fact[2]]
        if not facts:
            continue
        way = [(int(rng.integers(len(facts))), bool(rng.random() < 0.5))]
        for _ in range(int(rng.integers(0, 3))):
            number, backward = way[-1]
            here = facts[number][0 if backward else 2]
            after = [
                (k, b) for k, fact in enumerate(facts) for b in (False, True) if fact[2 if b else 0] == here
            ]
            if after:
                way.append(after[int(rng.integers(len(after)))])
        return Graph(facts=facts, way=way)


CHECKS = ("", "valid", "findable", "unique", "harder")


def checked(module: ModuleType, case: Graph) -> list[float]:
    """Return which check the way fails, how many things answer it, and how often it is answered without search."""
    facts = [Fact(*fact) for fact in case.facts]
    way = [module.Hop(facts[number], number, is_backward=backward) for number, backward in case.way]
    before = module.measure_closed_book(way[1:]) if way[1:] else 1.0
    found = module.problem(way, facts, before)
    return [CHECKS.index(found), len(module.answers(way, facts)), 8 * module.measure_closed_book(way)]


def checked_plainly(case: Graph) -> list[float]:
    """Return the same by walking sets of things, and by asking each reader for each fact."""
    things, sets = list[str](), list[set[str]]()
    for place, (number, backward) in enumerate(case.way):
        subject, relation, answer = case.facts[number]
        source, end = (answer, subject) if backward else (subject, answer)
        if not place:
            things, sets = [source], [{source}]
        things.append(end)
        reached: set[str] = set()
        for s, r, a in case.facts:
            if r == relation:
                reached |= (
                    {s} if backward and a in sets[-1] else {a} if not backward and s in sets[-1] else set()
                )
        sets.append(reached)

    def readers(way: list[tuple[int, bool]]) -> int:
        known = 0
        for reader in range(8):
            odds = [derive_seed("known", reader, *case.facts[n]) % 1000 for n, _ in way]
            known += not any(odd >= 700 for odd in odds)
        return known

    relations = [(case.facts[n][1], things[k], b) for k, (n, b) in enumerate(case.way)]
    told = {(s, r) for s, r, _ in case.facts}
    if sorted(set(things)) != sorted(things):
        found = "valid"
    elif any(b and (thing, relation) in told for relation, thing, b in relations):
        found = "findable"
    elif any(reached != {thing} for reached, thing in zip(sets, things, strict=True)):
        found = "unique"
    elif readers(case.way) >= (readers(case.way[1:]) if case.way[1:] else 8):
        found = "harder"
    else:
        found = ""
    return [CHECKS.index(found), len(sets[-1]), readers(case.way)]


Played = list[list[tuple[float, bool]]]


def episodes(rng: Rng) -> Played:
    """Return one to four episodes of one to five turns: what each was paid, and whether it could be read."""
    return [
        [(float(rng.normal()), bool(rng.random() < 0.6)) for _ in range(int(rng.integers(1, 6)))]
        for _ in range(int(rng.integers(1, 5)))
    ]


def paid(module: ModuleType, case: Played) -> list[float]:
    """Return what the code pays each turn."""

    def said(is_readable: bool) -> Action:
        return Action(text="a valid question", error=None if is_readable else "no call")

    told = [
        episode_of(turn_of(action=said(is_readable), reward=reward) for reward, is_readable in turns)
        for turns in case
    ]
    return flatten([list(module.readable_reward().measure(t)) for t in told])


def paid_plainly(case: Played) -> list[float]:
    """Return every turn's pay, or nothing for the whole episode whose end nobody could read."""
    return [reward if turns[-1][1] else 0.0 for turns in case for reward, _ in turns]


LOOKS = ("reading", "browsing", "needless_reading", "needless_browsing", "answer")
Looked = list[tuple[list[int], bool]]
"""of each episode the numbers of `LOOKS`, turn by turn, and whether the task was solved"""


def lookers(rng: Rng) -> Looked:
    """Return one to twelve episodes of one to four turns."""
    return [
        ([int(k) for k in rng.integers(0, 5, int(rng.integers(1, 5)))], bool(rng.random() < 0.6))
        for _ in range(int(rng.integers(1, 13)))
    ]


def bounded(module: ModuleType, case: Looked) -> list[float]:
    """Return the numbers of the code, and what each turn is paid."""
    told = [
        episode_of((turn_of(reward_terms={LOOKS[k]: 0.0}) for k in turns), is_success=won)
        for turns, won in case
    ]
    paid = [list(module.looking(1.0).measure(t)) for t in told]
    return flatten([list(module.boundary(told).values()), paid])


def bounded_plainly(case: Looked) -> list[float]:
    """Return the same, episode by episode."""
    closed = looked = opened = missed = won_open = looks_open = total = 0
    for turns, won in case:
        needed, more = len([k for k in turns if k < 2]), len([k for k in turns if k in (2, 3)])
        total += needed + more
        if needed == 0 and (more != 0 or won):
            closed, looked = closed + 1, looked + (more != 0)
        else:
            opened, missed, won_open = opened + 1, missed + (needed == 0), won_open + won
            looks_open += needed + more
    rates = [
        looked / closed if closed else 0.0,
        missed / opened if opened else 0.0,
        total / len(case),
        won_open / looks_open if looks_open else float(won_open),
    ]
    return flatten([rates, [[-1.0 if k < 4 else 0.0 for k in turns] for turns, _ in case]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Claims as (thing, value, page) by numbers: page -1 is ``known``, 9 is a page of nothing."""

    claims: list[tuple[int, int, int]]
    asked: list[int]
    opened: list[int]
    known: list[int]


def reports(rng: Rng) -> Report:
    """Return up to six claims about four things, of which one to three are asked for; the value of thing k is k."""
    asked = [int(k) for k in rng.permutation(4)[: int(rng.integers(1, 4))]]
    claims: list[tuple[int, int, int]] = []
    for _ in range(int(rng.integers(0, 7))):
        thing = int(rng.integers(4))
        page = (thing, -1, 9, int(rng.integers(4)))[int(rng.choice(4, p=[0.5, 0.2, 0.1, 0.2]))]
        claims.append((thing, thing if rng.random() < 0.7 else 7, page))
    opened, known = ([int(k) for k in rng.permutation(4)[: int(rng.integers(0, 4))]] for _ in range(2))
    return Report(claims=claims, asked=asked, opened=opened, known=[k for k in known if k in asked])


def graded(module: ModuleType, case: Report) -> list[float]:
    """Return coverage, support and worth by the code, of the report as it is written."""

    def page(number: int) -> str:
        return module.KNOWN if number < 0 else "home" if number > 3 else f"lamp {'abcd'[number]}"

    def about(number: int) -> Any:
        return module.Asked("price", page(number))

    text = "; ".join(module.Claim(about(t), value, page(p)).words() for t, value, p in case.claims)
    found = module.grade(
        module.read_claims(text),
        [about(k) for k in case.asked],
        {about(k): k for k in range(4)},
        opened={page(k) for k in case.opened},
        known={about(k) for k in case.known},
    )
    return [found.coverage, found.support, found.value]


def graded_plainly(case: Report) -> list[float]:
    """Return the same, claim by claim."""
    made = sorted(set(case.claims))
    good = {thing for thing, value, _ in made if thing in case.asked and value == thing}
    backed = 0
    for thing, value, page in made:
        is_right = thing in case.asked and value == thing
        backed += is_right and (
            (page == thing and page in case.opened) or (page == -1 and thing in case.known)
        )
    coverage, support = len(good) / len(case.asked), backed / len(made) if made else 0.0
    return [coverage, support, (coverage + support) / 2]


TEMPERATURE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Embeddings of length 1 of queries and of their documents, some of which are the same document."""

    queries: list[list[float]]
    documents: list[list[float]]
    keys: list[int]


def pairs(rng: Rng) -> Pairs:
    """Return two to six pairs of three numbers a side; half of the cases have a document twice."""
    num = int(rng.integers(2, 7))
    sides = [
        [[float(x) for x in row / (row @ row) ** 0.5] for row in rng.normal(size=(num, 3))] for _ in range(2)
    ]
    keys = [int(k) for k in (rng.integers(0, 3, num) if rng.random() < 0.5 else range(num))]
    return Pairs(queries=sides[0], documents=sides[1], keys=keys)


def learned(module: ModuleType, case: Pairs) -> list[float]:
    """Return the loss of the code, and its gradients."""
    queries = torch.tensor(case.queries, dtype=torch.float64, requires_grad=True)
    documents = torch.tensor(case.documents, dtype=torch.float64, requires_grad=True)
    loss = module.info_nce(queries, documents, names=case.keys, temperature=TEMPERATURE)
    return flatten([loss.detach(), *torch.autograd.grad(loss, (queries, documents))])


def learned_plainly(case: Pairs) -> list[float]:
    """Return the loss query by query, and gradients by hand: τ·dL/dq_i = Σ_j (p_ij - [i = j]) d_j / B."""
    num, size = len(case.keys), len(case.queries[0])
    loss = 0.0
    by_query = [[0.0] * size for _ in range(num)]
    by_document = [[0.0] * size for _ in range(num)]
    for i, query in enumerate(case.queries):
        there = [j for j in range(num) if j == i or case.keys[j] != case.keys[i]]
        scores = {
            j: sum(a * b for a, b in zip(query, case.documents[j], strict=True)) / TEMPERATURE for j in there
        }
        total = sum(exp(score) for score in scores.values())
        loss += (log(total) - scores[i]) / num
        for j in there:
            share = (exp(scores[j]) / total - (j == i)) / TEMPERATURE / num
            for k in range(size):
                by_query[i][k] += share * case.documents[j][k]
                by_document[j][k] += share * query[k]
    return flatten([loss, by_query, by_document])


Rankings = list[tuple[list[int], set[int]]]


def rankings(rng: Rng) -> Rankings:
    """Return orders of up to twenty documents, with one to four that are wanted, not all of which are found."""
    found: Rankings = []
    for _ in range(int(rng.integers(1, 6))):
        order = [int(k) for k in rng.permutation(20)][: int(rng.integers(1, 21))]
        found.append((order, {int(k) for k in rng.integers(0, 20, int(rng.integers(1, 5)))}))
    return found


def measured(module: ModuleType, case: Rankings) -> list[float]:
    """Return the numbers of the code, in the order of their names."""
    return [value for _, value in sorted(module.ranking_metrics(case).items())]


def measured_plainly(case: Rankings) -> list[float]:
    """Return mrr, ndcg@10, recall@1, recall@10 and recall@4, ranking by ranking."""
    sums = [0.0] * 5
    for order, wanted in case:
        places = sorted(order.index(number) + 1 for number in wanted if number in order)
        best = sum(1 / log2(2 + k) for k in range(min(len(wanted), 10)))
        own = [
            1 / places[0] if places else 0.0,
            sum(1 / log2(place + 1) for place in places if place < 11) / best,
            *(len([place for place in places if place < k + 1]) / len(wanted) for k in (1, 10, 4)),
        ]
        sums = [total + one / len(case) for total, one in zip(sums, own, strict=True)]
    return sums


NAMES = ("a", "b", "c", "d", "e")
KINDS = ("undefined", "not_listed", "missing", "extra", "misnamed", "mistyped", "unsaid", "unreadable")
Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in plain data, with what its tool takes and what was said before and after it."""

    tool: int
    """0 is on the list, 1 on another's, 2 on none"""
    fields: dict[str, str]
    """name → integer or string"""
    required: tuple[str, ...]
    arguments: dict[str, Value]
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    is_readable: bool


def value_of(rng: Rng) -> Value:
    """Return a number of one to three digits, or a word of three letters and perhaps a part of it."""
    if rng.random() < 0.5:
        return int(rng.choice([1, 12, 123, 7, 77]))
    return str(rng.choice(["rom", "rome", "ro", "x-1", "x-12"]))


def draw_calls(rng: Rng) -> list[Call]:
    """Return eight calls, most of which name their arguments rightly."""
    found: list[Call] = []
    for _ in range(8):
        fields = {
            name: str(rng.choice(["integer", "string"])) for name in NAMES[:4] if rng.random() < 0.7
        } or {"a": "string"}
        own = [name for name in fields if rng.random() < 0.85]
        own += ["e"] if rng.random() < 0.15 else []
        before = tuple(value_of(rng) for _ in range(int(rng.integers(1, 6))))
        drawn = [before[int(rng.integers(len(before)))] if rng.random() < 0.7 else value_of(rng) for _ in own]
        found.append(
            Call(
                tool=int(rng.choice([0, 0, 0, 0, 1, 2])),
                fields=fields,
                required=tuple(name for name in fields if rng.random() < 0.6),
                arguments=dict(zip(own, drawn, strict=True)),
                before=before,
                after=tuple(value_of(rng) for _ in range(2)),
                is_readable=bool(rng.random() < 0.9),
            )
        )
    return found


def counted(module: ModuleType, case: list[Call]) -> list[float]:
    """Return how many faults of each kind each call has."""
    found: list[float] = []
    for call in case:
        tool = ToolSpec(
            name="tool0", description="",
            parameters={"type": "object", "properties": {n: {"type": k} for n, k in call.fields.items()},
                        "required": list(call.required)},
        )  # fmt: skip
        made = ToolCall(name=f"tool{call.tool}", arguments=call.arguments)
        messages = [
            spoken("user", " and ".join(map(str, call.before))),
            Message(role="assistant", content=(), tool_calls=(made,)),
            spoken("tool", " and ".join(map(str, call.after))),
        ]
        unreadable = {} if call.is_readable else {0: "no JSON"}
        faults = module.find_faults(messages, [tool], known={"tool1"}, unreadable=unreadable)
        kinds = [fault.kind for fault in faults]
        found += [float(kinds.count(kind)) for kind in KINDS]
    return found


def spoken(role: str, text: str) -> Message:
    """Return what a user or a tool says."""
    return Message(role="user" if role == "user" else "tool", content=(Text(text=text),))


def by_sets(case: list[Call]) -> list[float]:
    """Return the same by sets of names and by what was told as a value."""
    found: list[float] = []
    for call in case:
        num = dict.fromkeys(KINDS, 0)
        num["unreadable"] = int(not call.is_readable)
        num["not_listed"], num["undefined"] = int(call.tool == 1), int(call.tool == 2)
        if call.tool == 0:
            strange = len(set(call.arguments) - set(call.fields))
            gone = len(set(call.required) - set(call.arguments))
            num["misnamed"] = min(strange, gone)
            num["extra"], num["missing"] = strange - num["misnamed"], gone - num["misnamed"]
            num["mistyped"] = sum(
                isinstance(value, int) != (call.fields[name] == "integer")
                for name, value in call.arguments.items()
                if name in call.fields
            )
            if not any(num[kind] for kind in ("misnamed", "extra", "missing", "mistyped")):
                num["unsaid"] = sum(value not in call.before for value in call.arguments.values())
        found += [float(num[kind]) for kind in KINDS]
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("calls.penalised", "rewards.efficiency", ("efficiency", "over_budget", "scale"), drawn_costs,
        own_costs, plain_costs),
    Formula("calls.torl_reward", "rewards.conduct", ("verdict", "punish_broken_calls", "is_broken"), drawn_episodes,
        own_rewards, plain_rewards),
    Formula("calls.capped", "agents.capped", ("step", "cut_calls"), drawn_calls, own_cap, plain_cap),
    Formula("calls.rewritten", "methods.toolrl.retool", ("rewrite", "call_of", "uses_results", "write_arguments"),
        drawn_traces, own_rewriting, plain_rewriting),
    Formula("toolrl.boundary", "methods.toolrl.deep_research", ("boundary", "looks", "looking"), lookers,
        bounded, bounded_plainly),
    Formula("toolrl.graded", "worlds.web.research", ("grade", "value", "Grade"), reports, graded,
        graded_plainly),
    Formula("toolrl.evolved", "worlds.hopqa.synthesis", ("problem", "answers", "step", "measure_closed_book", "Hop"),
        graphs, checked, checked_plainly, aside=("words",)),
    Formula("toolrl.readable", "methods.toolrl.asearcher", ("readable_reward",), episodes, paid, paid_plainly),
    Formula("losses.info_nce", "losses.contrastive", ("info_nce",), pairs, learned, learned_plainly),
    Formula("eval.ranking", "eval.ranking", ("ranking_metrics", "recall", "reciprocal_rank", "ndcg"), rankings,
        measured, measured_plainly),
    Formula("data.find_faults", "data.calls", ("find_faults", "misfits", "unsaid", "leaves"), draw_calls,
        counted, by_sets),
)  # fmt: skip

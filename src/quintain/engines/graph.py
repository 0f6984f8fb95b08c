"""A graph of calls that is submitted at once: what one completion fills, another prompt reads (Parrot, 2405.19888).

A prompt is made of token ids and of names of variables. Nobody waits for a client between two calls: as soon as all
that a call reads is filled it may begin, and which of those that may begins first follows from what is wanted in the
end. Each variable that is wanted has a criterion, latency or throughput, and `deduce_objectives` hands it backwards:
a call is as urgent as the most urgent variable that it leads to, and as deep as there are calls from it to that one.
Calls of an application that are equally deep are a group, whose whole is waited for and not a call of it: it asks for
throughput where a call by itself asks for latency. Deep calls begin first, and of equally deep ones those by
themselves, then group by group. Prompts that begin alike are read once, by `engines.Local` and by servers that cache
prefixes; the sessions of a graph stay until it is over.

Differences to the paper: an order of calls for an engine that exists, in the place of a placement over engines of
several capacities. Its released code hands a criterion back unchanged; here the switch to throughput is that of the
paper's text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.engines.patience import Patience
from quintain.engines.protocol import Engine, Request, Sampling
from quintain.errors import EngineFault, UsageError
from quintain.types import Completion, Failure

Criterion = Literal["latency", "throughput"]
End = tuple[Criterion, int, str]
"""urgency and depth of a call, and the wanted variable that they are of"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A completion: ``Call(fills="plan", prompt=((5, 9), "task"), seed=7, sampling=Sampling())``."""

    fills: str
    """variable that the completion is the value of, and name of its session"""
    prompt: tuple[str | tuple[int, ...], ...]
    """token ids, and names of variables in whose place their values stand"""
    seed: int
    sampling: Sampling

    @property
    def reads(self) -> frozenset[str]:
        """Variables that must be filled before it."""
        return frozenset(part for part in self.prompt if isinstance(part, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is deduced of a call: ``Objective(urgency="latency", depth=2, group="reduce/2")``."""

    urgency: Criterion
    """of the most urgent variable that it leads to"""
    depth: int
    """calls from it to that variable, itself included; the most where there are several ways"""
    group: str = ""
    """what it begins together with; empty for a call by itself"""

    @property
    def criterion(self) -> Criterion:
        """What the call asks for: of a group the whole is waited for."""
        return "throughput" if self.group else self.urgency


def deduce_objectives(calls: Sequence[Call], wanted: Mapping[str, Criterion]) -> dict[str, Objective]:
    """Return the objective of each of `calls`, by what it fills, from the variables that are `wanted` in the end.

    Raises:
        UsageError: calls wait for each other, or nobody wants what one fills.
    """
    by_name = {call.fills: call for call in calls}
    ends: dict[str, End] = {}
    for name in reversed(sort_calls(calls)):
        if name in wanted:
            ends[name] = max(ends.get(name, LAST), (wanted[name], 1, name), key=_rank)
        if name not in ends:
            raise UsageError(
                f"graph of calls: nobody reads or wants {name!r}; name it as wanted, or leave it out"
            )
        urgency, depth, end = ends[name]
        for read in by_name[name].reads & by_name.keys():
            ends[read] = max(ends.get(read, LAST), (urgency, depth + 1, end), key=_rank)
    layers: dict[tuple[int, str], int] = {}
    for _, depth, end in ends.values():
        layers[depth, end] = layers.get((depth, end), 0) + 1
    found: dict[str, Objective] = {}
    for name in by_name:
        urgency, depth, end = ends[name]
        group = f"{end}/{depth}" if layers[depth, end] > 1 else ""
        found[name] = Objective(urgency=urgency, depth=depth, group=group)
    return found


LAST: End = ("throughput", 0, "")


def _rank(end: End) -> tuple[bool, int, str]:
    """Return by what one of several ends of a call is chosen: the urgent one, of those the deepest."""
    urgency, depth, name = end
    return urgency == "latency", depth, name


def sort_calls(calls: Sequence[Call]) -> list[str]:
    """Return what `calls` fill, each behind all that it reads.

    Raises:
        UsageError: calls wait for each other.
    """
    left = {call.fills: call.reads for call in calls}
    found: list[str] = []
    while left:
        free = [name for name, reads in left.items() if not reads & left.keys()]
        if not free:
            raise UsageError(
                f"graph of calls: got {_find_cycle(left)}, which wait for each other; cut one of them"
            )
        found += free
        for name in free:
            del left[name]
    return found


def _find_cycle(left: Mapping[str, Collection[str]]) -> str:
    """Return calls in a circle, as text."""
    path = [next(iter(left))]
    while path[-1] not in path[:-1]:
        path.append(min(set(left[path[-1]]) & left.keys()))
    return " → ".join(map(repr, path[path.index(path[-1]) :]))


def order_calls(calls: Iterable[Call], objectives: Mapping[str, Objective]) -> list[Call]:
    """Return `calls` in the order in which they are to begin."""
    firsts: dict[str, int] = {}
    for place, (name, objective) in enumerate(objectives.items()):
        firsts.setdefault(objective.group or f"={name}", place)

    def rank(call: Call) -> tuple[bool, int, bool, int]:
        own = objectives[call.fills]
        first = firsts[own.group or f"={call.fills}"]
        return own.urgency != "latency", -own.depth, own.criterion != own.urgency, first

    return sorted(calls, key=rank)


def run_graph(
    engine: Engine,
    calls: Sequence[Call],
    wanted: Mapping[str, Criterion] | None = None,
    *,
    given: Mapping[str, tuple[int, ...]] | None = None,
    objectives: Mapping[str, Objective] | None = None,
    max_running: int | None = None,
    special_ids: frozenset[int] = frozenset(),
    patience: float = 600.0,
) -> dict[str, Completion | Failure]:
    """Return what `engine` answers to each of `calls`, by the variable that it fills; its sessions are released.

    A call that reads what failed is a failure itself, and so is one whose prompt becomes too long; the others go on.

    Args:
        engine: samples; nobody else may use it meanwhile.
        calls: in any order.
        wanted: variables that matter in the end, and for what; None: what no call reads, for latency.
        given: variables that are there from the beginning.
        objectives: of each call, where they are not to be deduced.
        max_running: calls under way at once; None: all that may begin.
        special_ids: tokens that no variable carries into a prompt, such as those of a chat's form.
        patience: seconds after which an engine that says nothing has lost its requests.

    Raises:
        UsageError: calls wait for each other, read or are wanted for what nobody fills, or fill the same.
        EngineFault: the engine says nothing, or refuses a prompt in which no variable stands.
    """
    values = dict(given or {})
    _check(calls, values, wanted or {})
    read = frozenset[str]().union(*(call.reads for call in calls))
    ends = wanted or {call.fills: "latency" for call in calls if call.fills not in read}
    goals = deduce_objectives(calls, ends) if objectives is None else objectives
    left = order_calls(calls, goals)
    running: dict[str, Call] = {}
    found: dict[str, Completion | Failure] = {}
    watch = Patience(engine, patience)
    try:
        while left or running:
            waiting: list[Call] = []
            for call in left:
                failed = min(
                    (name for name in call.reads if isinstance(found.get(name), Failure)), default=""
                )
                if failed:
                    found[call.fills] = _failure("input", f"{failed!r}, which it reads, failed")
                elif not call.reads <= values.keys() or len(running) == max_running:
                    waiting.append(call)
                elif (refused := _submit(engine, call, values)) is not None:
                    found[call.fills] = refused
                else:
                    running[call.fills] = call
            left = waiting
            if not running:  # what was left failed for what it reads
                continue
            replies = engine.advance()
            for reply in replies:
                call = running.pop(reply.session, None)
                if call is None:
                    raise EngineFault(
                        f"a reply of {watch.name}: got one for session {reply.session!r}, which waits for none; "
                        "restart it, then resume"
                    )
                found[call.fills] = reply.result
                if isinstance(reply.result, Completion):
                    dropped = special_ids | call.sampling.stop_ids
                    values[call.fills] = tuple(i for i in reply.result.token_ids if i not in dropped)
            watch.listen(
                {name: call.sampling.max_tokens for name, call in running.items()}, is_reply=bool(replies)
            )
    finally:
        for call in calls:
            engine.release(call.fills)
    return found


def _submit(engine: Engine, call: Call, values: Mapping[str, tuple[int, ...]]) -> Failure | None:
    """Submit `call`; return why it cannot be where that is due to what it reads."""
    prompt = [values[part] if isinstance(part, str) else part for part in call.prompt]
    request = Request(
        session=call.fills,
        prompt_ids=tuple(i for part in prompt for i in part),
        seed=call.seed,
        sampling=call.sampling,
    )
    try:
        engine.submit(request)
    except EngineFault as error:
        if not call.reads:
            raise
        return _failure("prompt", str(error))
    return None


def _failure(kind: str, message: str) -> Failure:
    return Failure(owner="engine", kind=kind, message=message)


def _check(calls: Sequence[Call], given: Collection[str], wanted: Collection[str]) -> None:
    """Refuse a graph whose variables do not fit together.

    Raises:
        UsageError: see `run_graph`.
    """
    filled = Counter(call.fills for call in calls)
    twice = sorted(name for name, count in filled.items() if count > 1 or name in given)
    if twice:
        raise UsageError(
            f"graph of calls: got {twice[0]!r} filled twice; give each call a variable of its own"
        )
    for call in calls:
        unknown = sorted(call.reads - {*filled, *given})
        if unknown:
            raise UsageError(
                f"graph of calls: {call.fills!r} reads {unknown[0]!r}, which nobody fills; add its call, or give it"
            )
    missing = sorted({*wanted} - {*filled})
    if missing:
        raise UsageError(f"graph of calls: {missing[0]!r} is wanted and nobody fills it; add its call")
    sort_calls(calls)

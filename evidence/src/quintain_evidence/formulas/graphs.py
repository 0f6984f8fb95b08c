"""What is deduced of a graph of calls, and what streams share, each beside a plain second version."""

from types import ModuleType

from quintain.engines.protocol import Sampling
from quintain_evidence.formulas.formula import Formula, Rng

Graph = tuple[list[tuple[str, list[str]]], dict[str, str]]
"""(call, what it reads) for each, and what is wanted, for what"""


def draw_graph(rng: Rng) -> Graph:
    """Return up to nine calls in any order, each of which leads to something that is wanted."""
    names = [f"n{k}" for k in range(int(rng.integers(1, 10)))]
    reads = {
        name: [str(each) for each in rng.permutation(names[:k])[: int(rng.integers(0, 4))]]
        for k, name in enumerate(names)
    }
    read = {each for own in reads.values() for each in own}
    wanted = {
        name: "latency" if rng.random() < 0.6 else "throughput"
        for name in names
        if name not in read or rng.random() < 0.2
    }
    order = [str(each) for each in rng.permutation(names)]
    return [(name, reads[name]) for name in order], wanted


def deduce_by_code(module: ModuleType, case: Graph) -> list[float]:
    """Return urgency, depth and size of the group of each call, and its place in the order, by the code."""
    calls, wanted = case
    made = [
        module.Call(fills=name, prompt=((1,), *reads), seed=0, sampling=Sampling()) for name, reads in calls
    ]
    goals = module.deduce_objectives(made, wanted)
    groups = [goals[name].group for name, _ in calls]
    order = [each.fills for each in module.order_calls(made, goals)]
    found: list[float] = []
    for name, _ in calls:
        own = goals[name]
        size = groups.count(own.group) if own.group else 1
        found += [own.urgency == "latency", own.depth, size, own.criterion == "latency", order.index(name)]
    return [float(each) for each in found]


def deduce_by_paths(case: Graph) -> list[float]:
    """Return the same from all ways through the graph."""
    calls, wanted = case
    readers = {name: [other for other, reads in calls if name in reads] for name, _ in calls}

    def ways(name: str) -> list[tuple[int, str]]:
        here = [(1, name)] if name in wanted else []
        return here + [(1 + depth, end) for other in readers[name] for depth, end in ways(other)]

    best: dict[str, tuple[int, str]] = {}
    for name, _ in calls:
        own = ways(name)
        urgent = [way for way in own if wanted[way[1]] == "latency"]
        best[name] = max(urgent or own)
    found: list[float] = []
    keys: dict[str, tuple[bool, int, bool, int]] = {}
    for name, _ in calls:
        layer = [other for other, _ in calls if best[other] == best[name]]
        first = min(k for k, (other, _) in enumerate(calls) if other in layer)
        waits = wanted[best[name][1]] == "throughput"
        is_switched = len(layer) > 1 and not waits
        keys[name] = (waits, -best[name][0], is_switched, first)
    order = sorted([name for name, _ in calls], key=lambda name: keys[name])
    for name, _ in calls:
        size = sum(best[other] == best[name] for other, _ in calls)
        soon = wanted[best[name][1]] == "latency"
        found += [soon, best[name][0], size, soon and size == 1, order.index(name)]
    return [float(each) for each in found]


def draw_streams(rng: Rng) -> tuple[list[list[int]], int]:
    """Return up to eight different streams of two tokens, and the shortest piece that is read by itself."""
    drawn = {
        tuple(int(each) for each in rng.integers(0, 2, size=int(rng.integers(1, 10))))
        for _ in range(int(rng.integers(1, 9)))
    }
    return [list(each) for each in sorted(drawn, key=lambda each: each[::-1])], int(rng.integers(1, 5))


def read_pieces(module: ModuleType, case: tuple[list[list[int]], int]) -> list[float]:
    """Return how many tokens of each stream the code has before it goes on by itself, and the tokens of pieces."""
    streams, min_shared = case
    starts, read = [0] * len(streams), 0
    for level in module.plan_pieces(streams, starts[:], min_shared):
        for piece in level:
            read += piece.length - starts[piece.leader]
            for place in (piece.leader, *piece.others):
                starts[place] = piece.length
    return [float(each) for each in (*starts, read)]


def read_trie(case: tuple[list[list[int]], int]) -> list[float]:
    """Return the same from the root on, token by token: a place where ways part, or a stream has but one token left."""
    streams, min_shared = case
    starts, read = [0] * len(streams), 0

    def go(beginning: tuple[int, ...], begun: int) -> None:
        nonlocal read
        here = [k for k, each in enumerate(streams) if tuple(each[: len(beginning)]) == beginning]
        going = [k for k in here if len(streams[k]) > len(beginning)]
        if len(going) < 2:
            return
        following = {streams[k][len(beginning)] for k in going}
        ends = any(len(streams[k]) == len(beginning) + 1 for k in going)
        if (len(following) > 1 or ends) and len(beginning) - begun >= min_shared:
            waiting = [k for k in going if starts[k] < len(beginning)]
            if len(waiting) > 1:
                read += len(beginning) - begun
                for k in waiting:
                    starts[k] = len(beginning)
                begun = len(beginning)
        for token in following:
            go((*beginning, token), begun)

    go((), 0)
    return [float(each) for each in (*starts, read)]


FORMULAS: tuple[Formula, ...] = (
    Formula("engines.objectives", "engines.graph", ("deduce_objectives", "order_calls"), draw_graph, deduce_by_code,
        deduce_by_paths, aside=("sort_calls", "_find_cycle")),
    Formula("engines.shared_prefixes", "engines.prefixes", ("plan_pieces",), draw_streams, read_pieces, read_trie,
        aside=("common_length",)),
)  # fmt: skip

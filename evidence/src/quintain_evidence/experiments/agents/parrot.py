"""Parrot: does a graph of calls end sooner in the order that is deduced from what is wanted in the end?

Mixes of applications are submitted at once to an engine that says a token of each running call a step, at most eight
calls at a time: chains, plans whose parts are worked out side by side and summed up, and single questions. The number
is the engine's steps until the last application's final variable. In the control the same objectives are dealt out
anew among the calls; the rival begins calls as they come (no graph is known, only what waits is). In the null world
there are single calls alone, as many as run at once twice over, all of a length. Beside it, on a tiny model: tokens
read for a group of eight, whether anything that is said changes by sharing, and how near small graphs come to the best
order of all. Single calls wait longer in the deduced order; where they are what is wanted soon, and all else can wait,
they must not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

from quintain.engines.build import build_engine
from quintain.engines.graph import Call, Criterion, Objective, deduce_objectives, run_graph
from quintain.engines.protocol import Engine, Reply, Request, Sampling
from quintain.engines.scripted import Scripted
from quintain.engines.settings import EngineSettings
from quintain.testing.pupil import Pupil, new_pupil
from quintain.types import derive_seed

NEVER = 1 << 30
BATCH, SMALL = 8, 2
"""Calls at once, of a mix and of a small graph."""
SMALL_GRAPHS, TRIES = 30, 6
"""Small graphs whose best order is sought, and calls of each at most."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the steps of each of `seeds` mixes, in parts of those of the control, whose own are then 1."""
    shared, near = measure_sharing(seed), measure_small(seed)
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        rng = Random(derive_seed("mix", seed, number))
        calls = draw_mix(rng)
        alike = [make_call(f"single{k}", tokens=9) for k in range(2 * BATCH)]
        method, control = compare(calls, rng)
        null_method, null_control = compare(alike, rng)
        arrival, urgent = run_counted(calls, arrive(calls)), run_counted(calls, deduce(calls, "throughput"))
        last = max(control.values())
        found.append(
            {
                "method": max(method.values()) / last,
                "control": 1.0,
                "null_method": max(null_method.values()) / max(null_control.values()),
                "null_control": 1.0,
                "extra.arrival": max(arrival.values()) / last,
                "extra.singles": quantile(method) / quantile(control),
                "extra.urgent": quantile(urgent) / quantile(control),
                **shared,
                **near,
            }
        )
    return found


def make_call(fills: str, *reads: str, tokens: int) -> Call:
    """Return a call of so many tokens."""
    return Call(fills=fills, prompt=((1,), *reads), seed=0, sampling=Sampling(max_tokens=tokens))


def draw_mix(rng: Random) -> list[Call]:
    """Return the calls of a mix, application by application in any order, 4 to 16 tokens each."""
    applications: list[list[Call]] = []
    for k in range(4):
        names = [f"chain{k}/{step}" for step in range(rng.randint(6, 10))]
        applications.append(
            [
                make_call(name, *names[max(0, step - 1) : step], tokens=rng.randint(4, 16))
                for step, name in enumerate(names)
            ]
        )
    for k in range(2):
        parts = [f"map{k}/{part}" for part in range(rng.randint(4, 8))]
        applications.append(
            [
                make_call(f"plan{k}", tokens=rng.randint(4, 16)),
                *(make_call(part, f"plan{k}", tokens=rng.randint(4, 16)) for part in parts),
                make_call(f"sum{k}", *parts, tokens=rng.randint(4, 16)),
            ]
        )
    applications += [[make_call(f"single{k}", tokens=rng.randint(4, 16))] for k in range(24)]
    rng.shuffle(applications)
    return [call for application in applications for call in application]


class Counted:
    """An engine that notes in which step each call ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ends: dict[str, int] = {}
        self._steps = 0

    def advance(self) -> list[Reply]:
        """See `Engine.advance`."""
        self._steps += 1
        replies = self._engine.advance()
        self.ends |= {reply.session: self._steps for reply in replies}
        return replies

    def __getattr__(self, name: str) -> Any:
        """Return what the engine has."""
        return getattr(self._engine, name)


def say(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    """Say as many tokens as may be said."""
    return (1,) * request.sampling.max_tokens


def run_counted(
    calls: Sequence[Call], objectives: Mapping[str, Objective] | None, most: int = BATCH
) -> dict[str, int]:
    """Return the step in which each of `calls` ended."""
    engine: Any = Counted(Scripted(say, tokens_per_round=1))
    run_graph(engine, calls, objectives=objectives, max_running=most)
    return engine.ends


def deduce(calls: Sequence[Call], of_others: Criterion = "latency") -> dict[str, Objective]:
    """Return the objectives of `calls`, of which all that nobody reads is wanted: single calls soon."""
    read = {name for call in calls for name in call.reads}
    ends = [call.fills for call in calls if call.fills not in read]
    return deduce_objectives(
        calls, {name: "latency" if name.startswith("single") else of_others for name in ends}
    )


def arrive(calls: Sequence[Call]) -> dict[str, Objective]:
    """Return objectives that are all alike, so that calls begin in the order in which they come."""
    return {call.fills: Objective(urgency="latency", depth=1) for call in calls}


def compare(calls: Sequence[Call], rng: Random) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ends of `calls` with their own objectives, and with these dealt out anew."""
    own = deduce(calls)
    dealt = dict(zip(own, rng.sample(list(own.values()), len(own)), strict=True))
    return run_counted(calls, own), run_counted(calls, dealt)


def quantile(ends: Mapping[str, int]) -> float:
    """Return the step by which 95 % of the single calls ended."""
    singles = sorted(step for name, step in ends.items() if name.startswith("single"))
    return float(singles[-(-95 * len(singles) // 100) - 1])


def measure_small(seed: int) -> dict[str, float]:
    """Return the steps of small graphs, two calls at once, over those of their best order."""
    ratios: list[float] = []
    for number in range(SMALL_GRAPHS):
        rng = Random(derive_seed("small", seed, number))
        names = [f"n{k}" for k in range(rng.randint(3, TRIES))]
        calls = [
            make_call(name, *rng.sample(names[:k], rng.randint(0, min(k, 2))), tokens=rng.randint(2, 6))
            for k, name in enumerate(names)
        ]
        own = max(run_counted(calls, deduce(calls), SMALL).values())
        best = min(max(run_counted(order, arrive(order), SMALL).values()) for order in permutations(calls))
        ratios.append(own / best)
    return {"extra.small": sum(ratios) / len(ratios)}


def measure_sharing(seed: int) -> dict[str, float]:
    """Return the tokens read for a group of eight, and how many completions of random streams change by sharing."""
    pupil = new_pupil(["guess"], seed=seed % 10_000)
    rng = Random(seed)
    group = [[5 + k % 50 for k in range(100)] + [rng.randrange(5, 60) for _ in range(20)] for _ in range(8)]
    (read, found), (read_apart, others) = (sample(pupil, group, least) for least in (16, NEVER))
    changed = sum(one != other for one, other in zip(found, others, strict=True))
    for _ in range(25):
        streams: list[list[int]] = []
        for _ in range(8):
            before = rng.choice([*streams, []])
            own = [rng.randrange(5, 60) for _ in range(rng.randint(1, 60))]
            streams.append([*before[: rng.randint(0, len(before))], *own])
        (_, found), (_, others) = (sample(pupil, streams, least) for least in (rng.choice([1, 16]), NEVER))
        changed += sum(one != other for one, other in zip(found, others, strict=True))
    return {"extra.read": float(read), "extra.read_apart": float(read_apart), "extra.changed": float(changed)}


def sample(pupil: Pupil, streams: Sequence[Sequence[int]], min_shared: int) -> tuple[int, list[object]]:
    """Return the tokens that are read, and what is said to each of `streams`, by sharing so many tokens at least."""
    calls = [
        replace(make_call(f"s{k}", tokens=6), prompt=(tuple(ids),), seed=k) for k, ids in enumerate(streams)
    ]
    engine: Any = build_engine(EngineSettings(), pupil.model, pupil.tokenizer)
    with closing(engine):
        engine.min_shared = min_shared
        found = run_graph(engine, calls)
        return engine.stats().num_prefilled, [found[f"s{k}"] for k in range(len(streams))]

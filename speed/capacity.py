"""How many episodes a cluster plays, on a virtual clock: python speed/capacity.py [--measured FILE] [--json FILE]

Nothing sleeps: events of a simulated hour are taken in order. An episode takes a slot of a worker; its turns go to the
replica that it stays with, which samples a token for all its requests in a round, then into the environment, whose
tool takes a heavy-tailed time that costs nobody anything else; at the end the driver takes it in. Synchronous: a step
waits for all its episodes, then learns, then hands out weights. Asynchronous: episodes go on meanwhile.

    worker   CPU seconds of a turn on its core, all of its episodes in line
    round    seconds of a replica for a token of each of n requests: a + b·n
    driver   seconds to take in an episode and write it to the journal, one after the other
    learner  seconds to learn from a step's tokens; weights: seconds until all replicas have the new ones

Times of worker and driver are measured here; those of models on GPUs follow from the assumptions in `Machine`,
which are printed with the table. The simulation has no lost machines and no full disks.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an episode is made of."""

    turns: tuple[int, int] = (2, 6)
    tokens: int = 128
    """sampled in a turn, on average; each turn draws 0.5 to 1.5 of it"""
    context: int = 2048
    """tokens of the stream in the middle of an episode"""
    tool: tuple[float, float, float] = (0.05, 30.0, 1.2)
    """shortest and longest seconds of a tool, and the shape of its Pareto distribution"""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Service times in seconds."""

    worker_turn: float = 1.4e-3
    """measured: 0.3 ms in environment, harness and rollout of `guess`, and 0.85 ms for each call through Ray"""
    driver_episode: float = 1.0e-3
    """measured with episodes of 2 kB: 0.23 ms through Ray and 0.08 ms in the journal; longer ones take more"""
    round_fixed: float = 10e-3
    round_each: float = 2e-5
    learner_token: float = 1e-5
    weights: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An accelerator, and how much of what it could do is reached."""

    name: str = "H100"
    flops: float = 989e12
    """dense bf16, per second"""
    bandwidth: float = 3.35e12
    """bytes per second"""
    learns: float = 0.35
    """share of flops in training"""
    reads: float = 0.6
    """share of bandwidth in sampling"""
    launch: float = 4e-3
    """seconds of a round beside reading weights"""
    memory: float = 80e9
    """bytes, of which a tenth is kept free"""
    network: float = 10e9
    """bytes per second at which weights get to a replica"""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is trained: ``Model(name="7B", parameters=7.6e9, cache=57_344)``."""

    name: str
    parameters: float
    cache: float
    """bytes of keys and values of a token"""

    def most_running(self, machine: Machine, work: Work) -> int:
        """Return the requests whose keys and values fit beside the weights on one machine; 256 at most."""
        return max(
            1, min(256, int((0.9 * machine.memory - 2 * self.parameters) / (work.context * self.cache)))
        )

    def times(self, machine: Machine, work: Work, base: Times, *, learners: int) -> Times:
        """Return the service times of this model; everything in bf16, and 6 flops a parameter and token in training."""
        speed = machine.bandwidth * machine.reads
        return replace(
            base,
            round_fixed=machine.launch + 2 * self.parameters / speed,
            round_each=work.context * self.cache / speed,
            learner_token=6 * self.parameters / (machine.flops * machine.learns * learners),
            weights=1.0 + 2 * self.parameters / machine.network,
        )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How many of each there are."""

    workers: int = 16
    slots: int = 8
    """episodes of a worker"""
    replicas: int = 4
    most_running: int = 256
    """requests that a replica samples for at once"""
    episodes_of_step: int = 512
    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    max_staleness: int = 2
    """steps that episodes may be begun ahead"""


@dataclass
class Result:
    """What came of it: rates per second, and the share of time that each part works."""

    episodes: float = 0.0
    tokens: float = 0.0
    steps: float = 0.0
    busy: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def limit(self) -> str:
        """The part that is busiest."""
        return max(self.busy, key=lambda name: self.busy[name])


@dataclass
class Replica:
    """Requests that it samples for, by the round in which they end."""

    ends: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    waiting: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    number: int = 0
    is_on: bool = False


class Simulation:
    """A run of `cluster` for `seconds` of virtual time; the first quarter is not counted."""

    def __init__(self, cluster: Cluster, work: Work, times: Times, *, seconds: float, seed: int = 0) -> None:
        self.cluster, self.work, self.times, self.seconds = cluster, work, times, seconds
        self.chance = random.Random(seed)
        self.now, self.count = 0.0, 0
        self.events: list[tuple[float, int, str, int]] = []
        self.replicas = [Replica() for _ in range(cluster.replicas)]
        self.core_free = [0.0] * cluster.workers
        self.driver_free = self.learner_free = 0.0
        self.free: deque[int] = deque(w for _ in range(cluster.slots) for w in range(cluster.workers))
        self.place: dict[int, int] = {}
        self.since: dict[int, float] = {}
        self.left: dict[int, int] = {}
        self.begun = self.ended = self.learned = self.collected = 0
        self.sampled = 0
        self.of_step = 0
        self.used = dict.fromkeys(("workers", "slots", "engines", "driver", "learner"), 0.0)
        self.start = seconds / 4
        self.counted = [0, 0, 0]

    def run(self) -> Result:
        """Return what came of it."""
        self._begin()
        while self.events and self.events[0][0] < self.seconds:
            self.now, _, kind, which = heapq.heappop(self.events)
            getattr(self, f"_{kind}")(which)
        span = self.seconds - self.start
        cluster = self.cluster
        shares = {
            "workers": cluster.workers,
            "slots": cluster.workers * cluster.slots,
            "engines": cluster.replicas,
        }
        return Result(
            episodes=self.counted[0] / span,
            tokens=self.counted[1] / span,
            steps=self.counted[2] / span,
            busy={name: used / span / shares.get(name, 1) for name, used in self.used.items()},
        )

    def _at(self, when: float, kind: str, which: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, which))

    def _use(self, part: str, begin: float, end: float) -> None:
        self.used[part] += max(0.0, min(end, self.seconds) - max(begin, self.start))

    @property
    def _most(self) -> int:
        """Episodes that may have been begun by now."""
        ahead = self.cluster.max_staleness if self.cluster.mode == "asynchronous" else 0
        return (self.learned + 1 + ahead) * self.cluster.episodes_of_step

    def _begin(self) -> None:
        """Begin as many episodes as there are slots and the step allows."""
        while self.free and self.begun < self._most:
            episode, self.begun = self.begun, self.begun + 1
            self.place[episode] = self.free.popleft()
            self.left[episode] = self.chance.randint(*self.work.turns)
            self.since[episode] = self.now
            self._on_core(episode, "ask")

    def _on_core(self, episode: int, then: str) -> None:
        """Let the worker compute for a turn, when its core is free."""
        worker = self.place[episode]
        begin = max(self.now, self.core_free[worker])
        self.core_free[worker] = begin + self.times.worker_turn
        self._use("workers", begin, self.core_free[worker])
        self._at(self.core_free[worker], then, episode)

    def _ask(self, episode: int) -> None:
        """Ask the episode's replica for a turn."""
        tokens = max(1, round(self.work.tokens * self.chance.uniform(0.5, 1.5)))
        number = episode % len(self.replicas)
        replica = self.replicas[number]
        replica.waiting.append((tokens, episode))
        self.sampled += tokens
        self.counted[1] += tokens * (self.now >= self.start)
        if not replica.is_on:
            replica.is_on = True
            self._at(self.now, "rounds", number)

    def _rounds(self, number: int) -> None:
        """Do the rounds of a replica up to the next in which a request ends; who comes meanwhile waits."""
        replica = self.replicas[number]
        while replica.ends and replica.ends[0][0] <= replica.number:
            _, episode = heapq.heappop(replica.ends)
            shortest, longest, shape = self.work.tool
            self._at(self.now + min(shortest * self.chance.paretovariate(shape), longest), "acted", episode)
        while replica.waiting and len(replica.ends) < self.cluster.most_running:
            tokens, episode = replica.waiting.popleft()
            heapq.heappush(replica.ends, (replica.number + tokens, episode))
        if not replica.ends:
            replica.is_on = False
            return
        rounds = min(replica.ends[0][0] - replica.number, STRIDE)
        seconds = rounds * (self.times.round_fixed + self.times.round_each * len(replica.ends))
        replica.number += rounds
        self._use("engines", self.now, self.now + seconds)
        self._at(self.now + seconds, "rounds", number)

    def _acted(self, episode: int) -> None:
        """Go on after a tool has answered."""
        self.left[episode] -= 1
        self._on_core(episode, "ask" if self.left[episode] else "close")

    def _close(self, episode: int) -> None:
        """Hand the episode to the driver, and its slot to the next."""
        begin = max(self.now, self.driver_free)
        self.driver_free = begin + self.times.driver_episode
        self._use("driver", begin, self.driver_free)
        self._at(self.driver_free, "taken", episode)
        self._use("slots", self.since.pop(episode), self.now)
        self.free.append(self.place.pop(episode))
        del self.left[episode]
        self._begin()

    def _taken(self, episode: int) -> None:
        """Count an episode; a step that is complete is learned from."""
        self.ended += 1
        self.counted[0] += self.now >= self.start
        if self.ended == (self.collected + 1) * self.cluster.episodes_of_step:
            self.collected += 1
            tokens = self.work.tokens * sum(self.work.turns) / 2 * self.cluster.episodes_of_step
            seconds = self.times.learner_token * (tokens + self.work.context * self.cluster.episodes_of_step)
            begin = max(self.now, self.learner_free)
            self.learner_free = begin + seconds + self.times.weights
            self._use("learner", begin, self.learner_free)
            self._at(self.learner_free, "updated", 0)

    def _updated(self, _: int) -> None:
        """Begin what new weights allow."""
        self.learned += 1
        self.counted[2] += self.now >= self.start
        self._begin()


STRIDE = 16
"""Rounds that are taken in one event; a request that comes waits for half of them on average."""
WORKERS = (16, 64, 256, 1000)
REPLICAS = (1, 4, 16, 64)
MODELS = (
    Model(name="1.5B", parameters=1.54e9, cache=28_672),
    Model(name="7B", parameters=7.6e9, cache=57_344),
    Model(name="32B", parameters=32.8e9, cache=262_144),
)
"""Qwen2.5: 2 (K and V) × layers × key-value heads × 128 × 2 bytes of a token."""
WHAT = {
    "workers": "workers (their cores are full)",
    "slots": "workers (episodes wait for tools)",
    "engines": "replicas",
    "driver": "a second run, or fewer and longer episodes: one driver takes them in",
    "learner": "learner ranks, or longer steps",
}


def simulate(cluster: Cluster, work: Work, times: Times, *, seconds: float = 600.0, seed: int = 0) -> Result:
    """Return what `cluster` does in `seconds`."""
    return Simulation(cluster, work, times, seconds=seconds, seed=seed).run()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", type=Path, help="times of worker and driver: a JSON file of Times")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    base = Times(**json.loads(arguments.measured.read_text())) if arguments.measured else Times()
    work, machine = Work(), Machine()
    rows: list[dict[str, object]] = []
    print("assumed:", asdict(work), asdict(machine), sep="\n  ")
    for model in MODELS:
        for workers, replicas in zip(WORKERS, REPLICAS, strict=True):
            learners = max(replicas, math.ceil(model.parameters * 16 / 70e9))
            times = model.times(machine, work, base, learners=learners)
            found: dict[str, Result] = {}
            for mode in ("synchronous", "asynchronous"):
                cluster = Cluster(
                    workers=workers,
                    replicas=replicas,
                    most_running=model.most_running(machine, work),
                    mode=mode,
                    episodes_of_step=max(128, workers * 4),
                )
                found[mode] = simulate(
                    cluster, work, times, seconds=arguments.seconds * (8 if workers < 256 else 1)
                )
            fast = found["asynchronous"]
            row = {
                "model": model.name, "workers": workers, "replicas": replicas, "learners": learners,
                "synchronous": round(found["synchronous"].episodes, 2), "asynchronous": round(fast.episodes, 2),
                "tokens": round(fast.tokens), "busy": {name: round(share, 2) for name, share in fast.busy.items()},
                "limit": fast.limit, "add": WHAT[fast.limit],
            }  # fmt: skip
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.json:
        told = {"work": asdict(work), "machine": asdict(machine), "base": asdict(base), "rows": rows}
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

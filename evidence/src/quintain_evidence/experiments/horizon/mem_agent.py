"""MemAgent: the outcome trains every memory that led to it, or memories are trained by the outcome of somebody else.

A book has pages, a fact each, one of which is asked for. A reader sees the question, a memory of at most two facts
and a page, and writes the next memory: as it was, the page alone, nothing, or both, of which the newest two stay; after
the last page it answers by the memory alone. Its table is over what is seen: whether facts are about what is asked, and
what they say. Credit and update are the method's. In the control each memory turn has the advantage of another episode
of its group, and the answer its own; so sizes are kept, and only answering is learned. The rival trains the answer
alone. In the null world the question says what it asks for. What was learned of four pages reads sixteen, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch

from quintain.methods.horizon import mem_agent
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.types import Credit, Group, Task, derive_seed, flatten_scored
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

VALUES, ROOM = 3, 2
OTHER, EMPTY = VALUES, VALUES + 1
"""facts of no use, and free places of the memory; others are what is asked for, by its value"""
MEMORIES = tuple(product(range(VALUES + 2), repeat=ROOM))
WRITES = ("keep", "page", "nothing", "both")
ACTIONS = (*WRITES, *(f"answer {value}" for value in range(VALUES)))
SAYINGS = VALUES + 1
"""what a page can say: the value that is asked for, or something else"""
READING = len(MEMORIES) * SAYINGS
ANSWERING = len(MEMORIES) * (VALUES + 1)
PAGES, FAR = 4, 16
"""of a book that is trained on, and of one that nobody has trained on"""
CHECKED = 400


@dataclass
class Reader:
    """A book under way: ``Reader((3, 1, 3), is_told=False)``, of which the second page says what is asked for."""

    pages: tuple[int, ...]
    is_told: bool
    """whether the question says what it asks for"""
    place: int = 0
    memory: tuple[int, ...] = (EMPTY,) * ROOM

    @property
    def value(self) -> int:
        """What is asked for."""
        return min(self.pages)

    def row(self) -> int:
        """Return the row of what is seen: memory and page, or memory and what the question says."""
        memory = MEMORIES.index(self.memory)
        if self.place < len(self.pages):
            return memory * SAYINGS + self.pages[self.place]
        return READING + memory * (VALUES + 1) + (self.value if self.is_told else VALUES)

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.pages} {self.place} {self.memory}"

    def act(self, column: int, luck: float) -> Moved:
        """Write the memory, or answer."""
        if self.place == len(self.pages):
            is_right = column - len(WRITES) == self.value
            return Moved(reward=float(is_right), is_over=True, is_success=is_right)
        page = self.pages[self.place]
        facts = {
            "keep": self.memory,
            "page": (page,),
            "nothing": (),
            "both": (*(fact for fact in self.memory if fact != EMPTY), page),
        }[WRITES[column]]
        self.memory = (*facts[-ROOM:], *(EMPTY,) * ROOM)[:ROOM]
        self.place += 1
        return Moved()


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the success on new books after training."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("mem_agent", seed, number)
        method = mem_agent.method(mem_agent.Config())
        arms = {"method": method, "control": derange(method, own), "final": final_only(method)}
        policies = {name: train(arm, options, own) for name, arm in arms.items()}
        scores = {name: success(policy, PAGES, own) for name, policy in policies.items()}
        found.append(
            {
                "method": scores["method"],
                "control": scores["control"],
                "null_method": train_told(method, options, own),
                "null_control": train_told(arms["control"], options, own),
                "extra.final": scores["final"],
                "extra.start": success(start(own), PAGES, own),
                "extra.far": success(policies["method"], FAR, own),
            }
        )
    return found


def train_told(method: OnPolicy, options: Mapping[str, Any], seed: int) -> float:
    """Return the success after training where the question says what it asks for."""
    return success(train(method, options, seed, is_told=True), PAGES, seed, is_told=True)


def train(method: OnPolicy, options: Mapping[str, Any], seed: int, *, is_told: bool = False) -> TablePolicy:
    """Return the table that `method` trains."""
    size = mem_agent.Config().group_size

    def collect(policy: TablePolicy, step: int) -> list[Group]:
        return play(
            policy, PAGES, int(options.get("tasks", 8)), size, derive_seed(seed, step), is_told=is_told
        )

    return train_table(
        start(seed),
        method,
        num_batches=int(options.get("updates", 40)),
        size=size,
        seed=seed,
        rate=float(options.get("rate", 0.3)),
        optimizer=lambda parameters, rate: torch.optim.Adam(parameters, rate),
        collect=collect,
    ).policy


def play(
    policy: TablePolicy, pages: int, tasks: int, size: int, seed: int, *, is_told: bool = False
) -> list[Group]:
    """Return `size` readings of each of `tasks` books of `pages` pages, drawn by `seed`."""

    def open_book(task: Task) -> Reader:
        rng = Random(task.seed)
        text = [OTHER] * pages
        text[rng.randrange(pages)] = rng.randrange(VALUES)
        return Reader(tuple(text), is_told)

    books = [Task(id=f"book/train/{k}", environment="book", seed=derive_seed(seed, k)) for k in range(tasks)]
    world = replace(policy.world, horizon=pages + 1)
    return play_games(TablePolicy(world, policy.theta), open_book, books, size=size, seed=seed)


def success(policy: TablePolicy, pages: int, seed: int, *, is_told: bool = False) -> float:
    """Return the share of new books whose question is answered rightly."""
    groups = play(policy, pages, CHECKED, 1, derive_seed(seed, "checked", pages), is_told=is_told)
    return fmean(float(t.is_success) for t in flatten_scored(groups))


def start(seed: int) -> TablePolicy:
    """Return a table that writes and answers at random."""
    world = observed_world(READING + ANSWERING, ACTIONS, (), horizon=1)
    is_legal = np.zeros(world.is_legal.shape, np.bool_)
    is_legal[:READING, : len(WRITES)] = True
    is_legal[READING:, len(WRITES) :] = True
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.1 * torch.randn(is_legal.shape, generator=generator, dtype=torch.float64)
    return TablePolicy(replace(world, is_legal=is_legal), theta)


def derange(method: OnPolicy, seed: int) -> OnPolicy:
    """Return `method`, but for that memory turns have the advantages of another episode of their group."""

    def exchange(groups: Sequence[Group], numbers: Sequence[float]) -> list[float]:
        rng, found = Random(derive_seed(seed, repr(groups[0].trajectories[0].seed))), list[float]()
        for group in groups:
            own = numbers[len(found) : len(found) + len(group.scored)]
            order = rng.sample(range(len(own)), len(own))
            to = dict(zip(order, [*order[1:], order[0]], strict=True))
            found += [own[to[place]] for place in range(len(own))]
        return found

    return with_memory_turns(method, exchange)


def final_only(method: OnPolicy) -> OnPolicy:
    """Return `method`, but for that memory turns have no advantage."""
    return with_memory_turns(method, lambda _, numbers: [0.0] * len(numbers))


def with_memory_turns(
    method: OnPolicy, change: Callable[[Sequence[Group], Sequence[float]], Sequence[float]]
) -> OnPolicy:
    """Return `method` whose memory turns have other advantages: (groups, those of the answers) → theirs."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        found = method.credit(groups, estimates)
        others = change(groups, [float(own[-1][0]) for own in found.advantages])
        advantages = [
            [*(turn * 0 + other for turn in own[:-1]), own[-1]]
            for own, other in zip(found.advantages, others, strict=True)
        ]
        return replace(found, advantages=advantages)

    return replace(method, credit=credit)

"""MUA-RL: does a user who answers what was asked teach to ask for all that is missing before handing in?

`collab` as a table over what is seen: two slots of three values, some told at the start. The start is an expert who
hands in a guess in a share of its turns. The method's own credit and update, at its defaults, learn from episodes with
a live user. In the control the user replays what it said in another rollout of the same task, drawn from those of the
start: the same words, not to what was asked. The number is the share of held-out episodes in which every slot that was
not told is asked for before something is handed in. Asking costs. In the null world a question costs more than an
answer is worth, and nobody is to ask.

Beside it: a user who answers from a recording, where that rollout was asked the same, and says nothing else; imitation
of the successes of the start, as many updates; the rate halved and doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch

from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.multiagent import mua_rl
from quintain.types import Credit, Task, derive_seed, flatten_scored
from quintain_evidence.labs.exact import World
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, assign, loss_gradient

SLOTS, VALUES, HORIZON = 2, 3, 6
UNKNOWN = VALUES
ASKS = tuple(f"ask {slot}" for slot in range(SLOTS))
SUBMISSIONS = tuple(product(range(VALUES), repeat=SLOTS))
ACTIONS = (*ASKS, *(f"submit {one} {other}" for one, other in SUBMISSIONS))
Asked = Sequence[int]
"""Slots that a rollout asked for, in order."""


@dataclass
class Talk:
    """A talk under way: ``Talk(wish=(0, 2), told=frozenset({1}), cost=.02)``; a replaying user has a `tape`."""

    wish: tuple[int, ...]
    told: frozenset[int]
    cost: float
    tape: Asked | None = None
    """slots that the user speaks of, one a question; None: it is live"""
    is_keyed: bool = False
    """whether the tape is looked up by what is asked, and not gone through in order"""
    known: set[int] = field(default_factory=set[int])
    asked: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        """Hear what is told at the start."""
        self.known = set(self.told)

    def row(self) -> int:
        """Return the row of what is seen: a value for each slot, or that it is not known."""
        found = 0
        for slot in range(SLOTS):
            found = found * (VALUES + 1) + (self.wish[slot] if slot in self.known else UNKNOWN)
        return found

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.wish}:{sorted(self.known)}"

    def act(self, column: int, luck: float) -> Moved:
        """Ask, or hand in."""
        if column < SLOTS:
            number = len(self.asked)
            self.asked.append(column)
            if self.tape is None or (self.is_keyed and column in self.tape):
                self.known.add(column)
            elif not self.is_keyed and number < len(self.tape):
                self.known.add(self.tape[number])
            return Moved(reward=-self.cost)
        is_right = SUBMISSIONS[column - SLOTS] == self.wish
        return Moved(reward=float(is_right), is_over=True, is_success=is_right)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [
        replication(options, derive_seed("mua_rl", seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what both arms ask at the end."""
    rate, cost, dear = (float(options[name]) for name in ("rate", "cost", "dear"))
    start = beginning(seed)

    def rates(tape: str, rate: float = rate, cost: float = cost) -> float:
        policy = train(start, tape, rate, cost, seed, int(options["updates"]))
        return asking(policy, seed)

    live, replayed = rates("live"), rates("replayed")
    return {
        "method": live,
        "control": replayed,
        "null_method": rates("live", cost=dear),
        "null_control": rates("replayed", cost=dear),
        "extra.start": asking(start, seed),
        "extra.keyed": rates("keyed"),
        "extra.imitation": asking(imitate(start, rate, cost, seed, int(options["updates"])), seed),
        "extra.halved": rates("live", rate / 2) - rates("replayed", rate / 2),
        "extra.doubled": rates("live", rate * 2) - rates("replayed", rate * 2),
    }


def world_of(tasks: Sequence[Task]) -> World:
    """Return the table's rows and columns."""
    return observed_world((VALUES + 1) ** SLOTS, ACTIONS, tasks, horizon=HORIZON)


def tasks_of(seed: int, num: int) -> list[Task]:
    """Return `num` tasks."""
    return [Task(id=f"talk/{seed}/{n}", environment="talk", seed=derive_seed(seed, n)) for n in range(num)]


def talk_of(task: Task, cost: float, tape: Asked | None = None, *, is_keyed: bool = False) -> Talk:
    """Return the talk of `task`: a wish, of which at least one slot is not told."""
    rng = Random(task.seed)
    wish = tuple(rng.randrange(VALUES) for _ in range(SLOTS))
    hidden = rng.randrange(SLOTS)
    told = frozenset(slot for slot in range(SLOTS) if slot != hidden and rng.random() < 0.5)
    return Talk(wish=wish, told=told, cost=cost, tape=tape, is_keyed=is_keyed)


def beginning(seed: int) -> TablePolicy:
    """Return an expert who, in half of its turns, hands in a guess that agrees with what it knows."""
    world = world_of(tasks_of(seed, 1))
    weights = torch.full((world.num_states, len(ACTIONS)), 1e-3)
    for row, seen in enumerate(product(range(VALUES + 1), repeat=SLOTS)):
        fitting = [
            SLOTS + place
            for place, values in enumerate(SUBMISSIONS)
            if all(known in (UNKNOWN, value) for known, value in zip(seen, values, strict=True))
        ]
        unknown = [slot for slot, value in enumerate(seen) if value == UNKNOWN]
        weights[row, fitting] += (0.5 if unknown else 1.0) / len(fitting)
        if unknown:
            weights[row, unknown[0]] += 0.5
    return TablePolicy(world, weights.log())


def train(start: TablePolicy, tape: str, rate: float, cost: float, seed: int, updates: int) -> TablePolicy:
    """Return what the method makes of `start` with a user that is live, replayed, or keyed to what is asked."""
    config = mua_rl.Config()
    method = mua_rl.method(config)
    policy, reference = start.copy(), start.copy()
    for step in range(updates):
        tasks = tasks_of(derive_seed(seed, "train", step), config.tasks)
        make = make_talks(start, tape, cost, tasks, derive_seed(seed, "tape", step))
        groups = play_games(policy, make, tasks, size=config.group_size, seed=derive_seed(seed, step))
        credit = assign(policy, method, groups)
        move(policy, credit, method.update, rate, reference)
    return policy


def make_talks(
    start: TablePolicy, tape: str, cost: float, tasks: Sequence[Task], seed: int
) -> Callable[[Task], Talk]:
    """Return what makes the talk of a task: each time another recording of the start is replayed."""
    if tape == "live":
        return lambda task: talk_of(task, cost)
    recorded: dict[str, list[Asked]] = {}
    groups = play_games(
        start, lambda task: talk_of(task, cost), tasks, size=mua_rl.Config().group_size, seed=seed
    )
    for group in groups:
        recorded[group.task.id] = [
            [ASKS.index(turn.action.text) for turn in t.turns if turn.action.text in ASKS]
            for t in group.trajectories
        ]
    drawn = Random(seed)
    return lambda task: talk_of(task, cost, drawn.choice(recorded[task.id]), is_keyed=tape == "keyed")


def move(policy: TablePolicy, credit: Credit, update: Update, rate: float, reference: TablePolicy) -> None:
    """Take a step of `rate`, in the direction of `update`, whose length is that of the gradient."""
    step = loss_gradient(policy, credit, update, reference=reference)
    with torch.no_grad():
        policy.theta += rate * step


def imitate(start: TablePolicy, rate: float, cost: float, seed: int, updates: int) -> TablePolicy:
    """Return what imitation makes of the successes of the start, recorded with the live user."""
    config = mua_rl.Config()
    policy = start.copy()
    update = Update(loss=imitation(), aggregation="sequence_mean")
    for step in range(updates):
        tasks = tasks_of(derive_seed(seed, "train", step), config.tasks)
        groups = play_games(
            start,
            lambda task: talk_of(task, cost),
            tasks,
            size=config.group_size,
            seed=derive_seed(seed, step),
        )
        solved = [t for t in flatten_scored(groups) if t.is_success]
        if solved:
            ones = tuple(tuple(np.ones(1, np.float32) for _ in t.turns) for t in solved)
            move(policy, Credit(trajectories=tuple(solved), advantages=ones), update, rate, start)
    return policy


def asking(policy: TablePolicy, seed: int) -> float:
    """Return the share of held-out episodes, with the live user, that ask for all that was not told."""
    tasks = tasks_of(derive_seed(seed, "held out"), 128)
    groups = play_games(
        policy, lambda task: talk_of(task, 0.0), tasks, size=2, seed=derive_seed(seed, "asking")
    )
    shares: list[float] = []
    for group in groups:
        told = talk_of(group.task, 0.0).told
        for trajectory in group.trajectories:
            asked = {turn.action.text for turn in trajectory.turns}
            shares.append(float(all(f"ask {slot}" in asked for slot in range(SLOTS) if slot not in told)))
    return fmean(shares)

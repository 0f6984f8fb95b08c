"""Trained planner: does it learn who can do what from outcomes alone?

A house, and three scripted workers whose competences are drawn by seed: all can go, and every other verb is on the card
of one or two of them, so that no name says anything before. The planner is a table over what the next thing of the way
asks for (go, go and open, take, clean, …); it gives each thing to a worker, the steps are one typed plan, and the harness' own
world carries it out. Reward, credit and update are the method's. In the control the outcomes are dealt to other plans of the
same task. The rival gives everything to one worker, the best of the three in hindsight. In the null world all workers
can do everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import torch

from quintain.agents.routed import PlanStep, RoutedWorld, write_plan
from quintain.agents.workforce import verb_of
from quintain.environments.protocol import advance, begin
from quintain.methods.horizon import router
from quintain.methods.loops.on_policy import Estimates
from quintain.types import Action, Group, Task, Trajectory, derive_seed, flatten_scored
from quintain.worlds.house.game import House
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, kept_samples, packed

WORKERS = ("anna", "bert", "cleo")
VERBS = ("open", "take", "put", "clean", "heat", "cool", "light")
WAYS: tuple[tuple[str, ...], ...] = (("go",), ("go", "open"), ("open",), *((verb,) for verb in VERBS[1:]))
"""What a thing may ask for: a row of the table each; others are in the last row."""
NUM_ROWS, MOST = len(WAYS) + 1, 9
Way = tuple[tuple[str, int], ...]
"""things in the expert's order, each with the row of what it asks for"""
Cards = dict[str, tuple[str, ...]]


def draw_cards(seed: int, *, generalists: bool) -> Cards:
    """Return what each worker can do: all, or going and each other verb by one or two of them."""
    rng = Random(derive_seed("cards", seed))
    able = {verb: rng.sample(WORKERS, 1 + (rng.random() < 0.5)) for verb in VERBS}
    return {
        name: () if generalists else ("go", "close", *(verb for verb in VERBS if name in able[verb]))
        for name in WORKERS
    }


@lru_cache(maxsize=4096)
def find_way(seed: int) -> Way:
    """Return the expert's way through the house of `seed`."""
    with closing(House(rooms=1)) as house:
        begin(house, make_task(seed))
        way: list[tuple[str, int]] = []
        for _ in range(house.max_turns):
            thing, verbs = house.expert_thing(), list[str]()
            is_over = False
            while not is_over and (following := house.follow(thing)) is not None:
                verbs.append(verb_of(following.text))
                is_over = advance(house, following).is_over
            key = tuple(verbs)
            way.append((thing, WAYS.index(key) if key in WAYS else len(WAYS)))
            if is_over or not verbs:
                break
        return tuple(way)


def make_task(seed: int) -> Task:
    """Return the task of the house of `seed`."""
    return Task(id=f"house/train/{seed}", environment="house", seed=seed)


@dataclass
class Planning:
    """A plan under way: ``Planning(seed=7, cards=cards)``."""

    seed: int
    cards: Cards
    workers: list[int] = field(default_factory=list[int])

    def row(self) -> int:
        """Return the row of the table for the next thing."""
        return find_way(self.seed)[len(self.workers)][1]

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.seed} {self.workers}"

    def act(self, column: int, luck: float) -> Moved:
        """Give the next thing to a worker; the last one has the plan carried out."""
        self.workers.append(column)
        if len(self.workers) < len(find_way(self.seed)):
            return Moved()
        is_solved = carry_out(self.seed, self.cards, self.workers)
        return Moved(reward=float(is_solved), is_over=True, is_success=is_solved)


def carry_out(seed: int, cards: Cards, workers: Sequence[int]) -> bool:
    """Return whether the workers of `cards` solve the house of `seed` by this plan."""
    steps = zip(find_way(seed), workers, strict=True)
    plan = tuple(PlanStep(WORKERS[worker], thing) for (thing, _), worker in steps)
    with closing(RoutedWorld(House(rooms=1), cards, steps=MOST)) as world:
        begin(world, make_task(seed))
        return bool(advance(world, Action(text=write_plan(plan))).is_success)


def draw_tasks(seed: int, num: int) -> list[Task]:
    """Return `num` tasks whose way has at most `MOST` things."""
    rng, found = Random(seed), list[Task]()
    while len(found) < num:
        drawn = rng.randrange(1 << 12) * 2
        if len(find_way(drawn)) <= MOST:
            found.append(make_task(drawn))
    return found


def deal(group: Group, seed: int) -> Group:
    """Return `group` with its outcomes and last rewards dealt to others of its plans, in a circle."""
    members = group.trajectories
    others = [*members[1:], members[0]]

    def swap(own: Trajectory, other: Trajectory) -> Trajectory:
        last = replace(own.turns[-1], reward=other.turns[-1].reward)
        return replace(own, outcome=other.outcome, turns=(*own.turns[:-1], last))

    return replace(group, trajectories=tuple(swap(a, b) for a, b in zip(members, others, strict=True)))


def train(options: Mapping[str, Any], seed: int, cards: Cards, *, dealt: bool = False) -> TablePolicy:
    """Return the planner after training."""
    config = router.Config()
    method = router.method(config)
    world = observed_world(NUM_ROWS, WORKERS, draw_tasks(seed, 1), horizon=MOST)
    policy = TablePolicy(world, torch.zeros(NUM_ROWS, len(WORKERS)))
    optimizer = torch.optim.Adam(policy.parameters, float(options["rate"]))
    for step in range(int(options["updates"])):
        own = derive_seed(seed, step)
        tasks = draw_tasks(own, config.tasks)
        groups = play_games(
            policy, lambda task: Planning(task.seed, cards), tasks, size=config.group_size, seed=own
        )
        groups = [deal(group, own) for group in groups] if dealt else groups
        credit = method.credit(method.reward(groups), Estimates())
        samples = kept_samples(credit, method.update)
        if samples:
            batch = packed(samples, method.update)
            optimizer.zero_grad()
            method.update.loss(policy(batch), batch).loss.backward()
            optimizer.step()
    return policy


def success(policy: TablePolicy, cards: Cards, seed: int, num: int) -> float:
    """Return the share of `num` new houses that the planner solves, as it samples."""
    tasks = draw_tasks(derive_seed("test", seed), num)
    groups = play_games(policy, lambda task: Planning(task.seed, cards), tasks, size=1, seed=seed)
    episodes = flatten_scored(groups)
    return sum(t.is_success for t in episodes) / len(episodes)


def best_alone(cards: Cards, seed: int, num: int) -> float:
    """Return the share of the same houses that the best worker alone solves, chosen in hindsight."""
    tasks = draw_tasks(derive_seed("test", seed), num)
    return max(
        sum(carry_out(t.seed, cards, [worker] * len(find_way(t.seed))) for t in tasks) / num
        for worker in range(len(WORKERS))
    )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with workers of its own; arms draw alike."""
    num = int(options["tests"])
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("router", seed, number)
        cards, all_able = draw_cards(own, generalists=False), draw_cards(own, generalists=True)
        start = TablePolicy(
            observed_world(NUM_ROWS, WORKERS, draw_tasks(own, 1), horizon=MOST),
            torch.zeros(NUM_ROWS, len(WORKERS)),
        )
        found.append(
            {
                "method": success(train(options, own, cards), cards, own, num),
                "control": success(train(options, own, cards, dealt=True), cards, own, num),
                "null_method": success(train(options, own, all_able), all_able, own, num),
                "null_control": success(train(options, own, all_able, dealt=True), all_able, own, num),
                "extra.alone": best_alone(cards, own, num),
                "extra.start": success(start, cards, own, num),
            }
        )
    return found

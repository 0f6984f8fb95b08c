"""Trained planner: does it learn who can do what from outcomes alone?

Houses, and three workers whose competences are drawn by seed: all can go, and every other verb is on the card of one or
two of them, so that no name says anything before. A plan gives each thing of the expert's way to a worker, each step
after the one before it, so that it solves the house if and only if all of its steps are done (a test carries such plans
out in the harness' own world). The planner is a table over what a thing asks for (go, go and open, take, clean, …).
Config, reward, credit and update are the method's. In the control outcomes are dealt to other plans of the same house.
The rival is the worker who alone solves most of the same houses. Imitation of the plans that solved theirs is measured,
too. In the null world cards are drawn anew for every house.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any

import torch

from quintain.agents.workforce import Cards, verb_of
from quintain.credit.outcome import outcome_return
from quintain.environments.protocol import advance, begin
from quintain.losses.imitation import imitation
from quintain.methods.horizon import router
from quintain.methods.loops.on_policy import Estimates
from quintain.types import Group, Task, Trajectory, derive_seed, flatten_scored
from quintain.worlds.house.game import House
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, kept_samples, packed

WORKERS = ("anna", "bert", "cleo")
VERBS = ("open", "take", "put", "clean", "heat", "cool", "light")
KINDS: tuple[tuple[str, ...], ...] = (("go",), ("go", "open"), ("open",), *((verb,) for verb in VERBS[1:]))
"""What a thing may ask for: a row of the table each; all others have the last row."""
NUM_ROWS, MOST = len(KINDS) + 1, 9
Way = tuple[tuple[str, tuple[str, ...]], ...]
"""things in the expert's order, each with the verbs that it asks for"""
Deal = Callable[[int], Cards]
"""house → what each worker can do in it"""


def draw_cards(seed: int) -> Cards:
    """Return what each worker can do: going, closing, and each other verb by one or two of them."""
    rng = Random(derive_seed("cards", seed))
    able = {verb: rng.sample(WORKERS, 1 + (rng.random() < 0.5)) for verb in VERBS}
    return {name: ("go", "close", *(verb for verb in VERBS if name in able[verb])) for name in WORKERS}


@lru_cache(maxsize=4096)
def find_way(seed: int) -> Way:
    """Return the expert's way through the house of `seed`."""
    with closing(House(rooms=1)) as house:
        begin(house, make_task(seed))
        way: list[tuple[str, tuple[str, ...]]] = []
        is_over = False
        while not is_over:
            thing, verbs = house.expert_thing(), list[str]()
            while not is_over and (following := house.follow(thing)) is not None:
                verbs.append(verb_of(following.text))
                is_over = advance(house, following).is_over
            way.append((thing, tuple(verbs)))
        return tuple(way)


def make_task(seed: int) -> Task:
    """Return the task of the house of `seed`."""
    return Task(id=f"house/train/{seed}", environment="house", seed=seed)


def draw_tasks(seed: int, num: int) -> list[Task]:
    """Return `num` tasks whose way has at most `MOST` things."""
    rng, found = Random(seed), list[Task]()
    while len(found) < num:
        drawn = rng.randrange(1 << 9) * 2
        if len(find_way(drawn)) <= MOST:
            found.append(make_task(drawn))
    return found


@dataclass
class Planning:
    """A plan under way: ``Planning(seed=6, cards=cards)``."""

    seed: int
    cards: Cards
    workers: list[int] = field(default_factory=list[int])

    def row(self) -> int:
        """Return the row of the table for the next thing."""
        verbs = find_way(self.seed)[len(self.workers)][1]
        return KINDS.index(verbs) if verbs in KINDS else NUM_ROWS - 1

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.seed} {self.workers}"

    def act(self, column: int, luck: float) -> Moved:
        """Give the next thing to a worker; after the last one the plan is carried out."""
        self.workers.append(column)
        if len(self.workers) < len(find_way(self.seed)):
            return Moved()
        is_solved = solves(self.seed, self.cards, self.workers)
        return Moved(reward=float(is_solved), is_over=True, is_success=is_solved)


def solves(seed: int, cards: Cards, workers: Sequence[int]) -> bool:
    """Return whether every step of the plan is given to who can do it."""
    steps = zip(find_way(seed), workers, strict=True)
    return all({*verbs} <= {*cards[WORKERS[worker]]} for (_, verbs), worker in steps)


def exchange(group: Group) -> Group:
    """Return `group` with its outcomes and last rewards dealt to others of its plans, in a circle."""
    members = group.trajectories

    def swap(own: Trajectory, other: Trajectory) -> Trajectory:
        last = replace(own.turns[-1], reward=other.turns[-1].reward)
        return replace(own, outcome=other.outcome, turns=(*own.turns[:-1], last))

    others = (*members[1:], members[0])
    return replace(group, trajectories=tuple(map(swap, members, others)))


def make_planner() -> TablePolicy:
    """Return a planner that gives every step to anybody."""
    world = observed_world(NUM_ROWS, WORKERS, [make_task(0)], horizon=MOST)
    return TablePolicy(world, torch.zeros(NUM_ROWS, len(WORKERS), dtype=torch.float64))


def train(options: Mapping[str, Any], seed: int, deal: Deal, arm: str = "method") -> TablePolicy:
    """Return the planner after training; `arm`: method, control (outcomes dealt anew) or imitation (of what worked)."""
    config = router.Config()
    method, policy = router.method(config), make_planner()
    loss = imitation() if arm == "imitation" else method.update.loss
    optimizer = torch.optim.Adam(policy.parameters, float(options["rate"]))
    for step in range(int(options["updates"])):
        own = derive_seed(seed, step)
        groups = play(policy, deal, draw_tasks(own, config.tasks), size=config.group_size, seed=own)
        groups = [exchange(group) for group in groups] if arm == "control" else groups
        credit = (
            outcome_return(groups)
            if arm == "imitation"
            else method.credit(method.reward(groups), Estimates())
        )
        samples = kept_samples(credit, method.update)
        if samples:
            batch = packed(samples, method.update)
            optimizer.zero_grad()
            loss(policy(batch), batch).loss.backward()
            optimizer.step()
    return policy


def play(policy: TablePolicy, deal: Deal, tasks: Sequence[Task], *, size: int, seed: int) -> list[Group]:
    """Return `size` plans for each of `tasks`, carried out by the workers that `deal` gives them."""
    return play_games(policy, lambda t: Planning(t.seed, deal(t.seed)), tasks, size=size, seed=seed)


def success(policy: TablePolicy, deal: Deal, seed: int, num: int) -> float:
    """Return the fraction of `num` drawn houses that the planner solves, as it samples."""
    tasks = draw_tasks(derive_seed("test", seed), num)
    return fmean(t.is_success for t in flatten_scored(play(policy, deal, tasks, size=1, seed=seed)))


def best_alone(deal: Deal, seed: int, num: int) -> float:
    """Return the fraction of the same houses that the best worker alone solves, chosen in hindsight."""
    tasks = draw_tasks(derive_seed("test", seed), num)
    return max(
        fmean(solves(t.seed, deal(t.seed), [worker] * len(find_way(t.seed))) for t in tasks)
        for worker in range(len(WORKERS))
    )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with workers of its own; its arms draw alike."""
    num = int(options["tests"])
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("router", seed, number)
        cards = draw_cards(own)

        def same(_: int, cards: Cards = cards) -> Cards:
            return cards

        def deal_each(house: int, own: int = own) -> Cards:
            return draw_cards(derive_seed(own, house))

        def arm(deal: Deal, name: str, scale: float = 1.0, own: int = own) -> float:
            trained = train({**options, "rate": scale * float(options["rate"])}, own, deal, name)
            return success(trained, deal, own, num)

        found.append(
            {
                "method": arm(same, "method"),
                "control": arm(same, "control"),
                "null_method": arm(deal_each, "method"),
                "null_control": arm(deal_each, "control"),
                "extra.imitation": arm(same, "imitation"),
                "extra.half": arm(same, "method", 0.5),
                "extra.double": arm(same, "method", 2.0),
                "extra.alone": best_alone(same, own, num),
                "extra.start": success(make_planner(), same, own, num),
            }
        )
    return found

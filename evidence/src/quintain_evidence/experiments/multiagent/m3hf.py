"""M3HF: does the test on the environment's own return tell harmful remarks from useful ones?

`twocards` as a table: sixteen deals, two seats that tell, ask, pass or answer, and a reward for the right answer alone.
PPO at the method's defaults is paused three times for remarks in an order that is drawn: a useful one (telling is
paid), a harmful one (passing is paid) and one that concerns nothing (a word that nobody says). Pauses play the same
episodes' worth of deals and judge the remark before, by the method's own pool. The number is the weight of the useful
remark at the end less that of the harmful one. In the control the changes of the return are dealt out anew over the
pauses. The rival lacks the environment's own return alone: it judges by what the remarks pay, too. In the null world
all three remarks concern nothing.

Beside it: the return at the end less that of PPO without remarks, from the same start on the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from statistics import fmean
from typing import Any

import torch

from quintain.environments.catalog import find
from quintain.methods.multiagent import m3hf
from quintain.rewards.feedback import Remark, RemarkPool
from quintain.testing.pupil import tasks_from
from quintain.types import Action, Group, Task, derive_seed, flatten_scored
from quintain.worlds.twocards.deal import claims
from quintain.worlds.twocards.game import TwoCards
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

SPEC = "twocards?facts=1&values=3&cost=0"
DEALS, HORIZON = 16, 12
USEFUL, HARMFUL = "useful", "harmful"
SAID = {
    USEFUL: Remark(template="event", action="say", value=0.05),
    HARMFUL: Remark(template="event", action="pass", value=1.0),
    "idle": Remark(template="event", action="whistle", value=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """What came of a run: ``Taught(changes=(0.1, -0.2), shaped=(0.3, 0.4), weights=(1.0, 0.0), reached=0.8)``."""

    changes: tuple[float, ...]
    """of the environment's own return over the phase after each remark"""
    shaped: tuple[float, ...]
    """the same with what remarks pay"""
    weights: tuple[float, ...]
    """of the remarks at the end, in the order in which they were made"""
    reached: float
    """return at the end"""


ACTIONS = ("say", "ask", "pass", "answer")
NUM_ROWS = 16


@dataclass
class Talk:
    """A talk in the real environment, seen as a row: who acts, what it heard and told, whether it was asked."""

    environment: TwoCards

    def row(self) -> int:
        """Return the row of what the acting seat knows."""
        now = self.environment.snapshot()
        heard, told = (bool(claims(now.messages, seat)) for seat in (now.acting, 1 - now.acting))
        is_asked = bool(now.messages) and now.messages[-1][1].startswith("ask")
        return now.acting * 8 + heard * 4 + told * 2 + is_asked

    def key(self) -> str:
        """Return the name of the state."""
        return self.environment.state_key()

    def act(self, column: int, luck: float) -> Moved:
        """Tell the own fact, ask for the other, pass, or answer by what is known; what is not known counts 0."""
        now = self.environment.snapshot()
        ((key, value),) = now.deal.cards[now.acting]
        known = {**claims(now.messages, now.acting), key: value}
        lacks = next(name for name in now.deal.question if name != key)
        total = sum(int(known.get(name, "0")) for name in now.deal.question)
        words = (f"say {key} {value}", f"ask {lacks}", "pass", f"answer {total}")[column]
        result = self.environment.step(Action(text=words))
        return Moved(reward=result.reward, is_over=result.is_over, is_success=bool(result.is_success))


@cache
def deals() -> tuple[Task, ...]:
    """Return the tasks."""
    return tuple(tasks_from(SPEC, DEALS))


def talk_of(task: Task) -> Talk:
    """Return the talk of `task`."""
    environment = find(SPEC)()
    assert isinstance(environment, TwoCards)
    environment.reset(task)
    return Talk(environment=environment)


def start_of(seed: int, haste: float) -> TablePolicy:
    """Return a policy that likes to answer by `haste`, spread by `seed`; its critic knows nothing."""
    generator = torch.Generator().manual_seed(seed % (1 << 62))
    world = observed_world(NUM_ROWS, ACTIONS, deals(), horizon=HORIZON)
    theta = 0.5 * torch.randn(NUM_ROWS, len(ACTIONS), generator=generator)
    theta[:, ACTIONS.index("answer")] += haste
    return TablePolicy(world, theta, torch.zeros(NUM_ROWS))


def play(policy: TablePolicy, size: int, seed: int) -> list[Group]:
    """Return `size` episodes of each deal."""
    return play_games(policy, talk_of, deals(), size=size, seed=seed)


def teach(
    start: TablePolicy, said: Sequence[Remark], options: Mapping[str, Any], seed: int, *, after: int = 0
) -> Taught:
    """Return what PPO comes to that is paused for each of `said`, then judges the last and goes on `after` phases."""
    config = m3hf.Config()
    pool = RemarkPool(decay=config.decay, bonus=config.bonus, cut=config.cut)
    policy, before = start, list[Group]()
    changes, shaped = list[float](), list[float]()
    for phase in range(len(said) + 1 + after):
        policy = train(policy, pool, options, derive_seed(seed, "train", phase))
        if phase > len(said):
            continue
        tested = play(policy, config.test_tasks // DEALS, derive_seed(seed, "test", phase))
        if phase:
            changes.append(change_of(before, tested))
            shaped.append(change_of(pool.pay(before), pool.pay(tested)))
            pool.judge(changes[-1])
        before = tested
        if phase < len(said):
            pool.add(said[phase])
    return Taught(
        changes=tuple(changes),
        shaped=tuple(shaped),
        weights=tuple(pool.weights),
        reached=fmean(returns_of(play(policy, 16, derive_seed(seed, "end"))).values()),
    )


def train(policy: TablePolicy, pool: RemarkPool, options: Mapping[str, Any], seed: int) -> TablePolicy:
    """Return `policy` after the steps of a phase, paid by the environment and `pool`."""
    config = m3hf.Config()
    return train_table(
        policy,
        replace(m3hf.actor_critic(config), reward=pool.pay),
        num_batches=config.phase_steps,
        size=1,
        seed=seed,
        rate=float(options["rate"]),
        num_epochs=config.num_epochs,
        optimizer=lambda parameters, rate: torch.optim.Adam(parameters, rate),
        collect=lambda table, number: play(table, config.episodes // DEALS, derive_seed(seed, number)),
    ).policy


def returns_of(groups: Sequence[Group]) -> dict[str, float]:
    """Return the return of each episode of `groups`."""
    return {f"{t.task.id}/{t.index}": sum(turn.reward for turn in t.turns) for t in flatten_scored(groups)}


def change_of(before: Sequence[Group], after: Sequence[Group]) -> float:
    """Return the change of the return that the method goes by."""
    change = m3hf.mean_change(returns_of(before), returns_of(after))
    assert change is not None, "the same deals are played"
    return change


def weigh(said: Sequence[Remark], changes: Sequence[float]) -> list[float]:
    """Return the weights at the end of remarks that are judged by `changes`, by the method's own pool."""
    config = m3hf.Config()
    pool = RemarkPool(decay=config.decay, bonus=config.bonus, cut=config.cut)
    for remark, change in zip(said, changes, strict=True):
        pool.add(remark)
        pool.judge(change)
    return pool.weights


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a start and an order of its own."""
    return [
        replication(options, number, derive_seed("m3hf", seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], number: int, seed: int) -> dict[str, float]:
    """Return what all arms come to on one start; the orders of remarks are equally frequent."""
    orders = list(permutations(SAID))
    order = orders[number % len(orders)]
    start = start_of(seed, float(options["haste"]))
    said = [SAID[name] for name in order]
    useful, harmful = order.index(USEFUL), order.index(HARMFUL)
    after = int(options["after"])
    found = teach(start, said, options, seed, after=after)
    idle = teach(start, [SAID["idle"]] * len(order), options, derive_seed(seed, "null"))
    alone = teach(start, [], options, seed, after=after + len(said))
    shift = 1 + number // len(orders) % 2

    def lead(weights: Sequence[float]) -> float:
        return weights[useful] - weights[harmful]

    def deal(changes: Sequence[float]) -> list[float]:
        return [*changes[shift:], *changes[:shift]]

    return {
        "method": lead(found.weights),
        "control": lead(weigh(said, deal(found.changes))),
        "null_method": lead(idle.weights),
        "null_control": lead(weigh(said, deal(idle.changes))),
        "extra.rival": lead(weigh(said, found.shaped)),
        "extra.harmful": found.weights[harmful],
        "extra.useful": found.weights[useful],
        "extra.gain": found.reached - alone.reached,
        "extra.start": fmean(returns_of(play(start, 16, derive_seed(seed, "end"))).values()),
        "extra.end": found.reached,
    }

"""OTC: is it the task's own fewest calls, from memory, that teaches when a search is needed?

Questions of two kinds look different: closed ones tell what is needed (n* = 0 searches), open ones take one search (n*
= 1). A table over (kind, searches so far) begins by searching needlessly and again. It learns by the method's own
reward, memory, credit and loss on training questions, each of which comes back. The number is the distance of the
searches from n* over right answers to held-out questions. The control permutes the memory among the tasks: the same
numbers, of other questions. Beside them: GRPO on being right, whose success bounds the loss, and an additive price per
search. In the null world all questions are closed, so the memory of one is that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import State
from quintain.methods.rl import otc
from quintain.rewards.conduct import success
from quintain.rewards.efficiency import FewestCalls, num_calls
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Task, ToolCall, Trajectory, derive_seed
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

MOST = 4
"""Searches after which an answer is due: one more turn, and the episode ends."""
SEARCH, ANSWER = range(2)
CALLS = (ToolCall(name="search"), ToolCall(name="answer"))
Change = Callable[[Sequence[Group]], Sequence[Group]]


class Question:
    """An episode: searches, then an answer that is right where what is needed is known."""

    def __init__(self, task: Task, *, known: float, guessed: float) -> None:
        self.fewest = needed(task)
        self.searches = 0
        self.known, self.guessed = known, guessed

    def row(self) -> int:
        """Return the kind and how often was searched."""
        return self.fewest * (MOST + 1) + self.searches

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Search, or answer: right with probability `known` where all is known, else `guessed`."""
        if column == SEARCH:
            self.searches += 1
            return Moved(calls=CALLS[:1], is_over=self.searches > MOST)
        is_right = luck < (self.known if self.searches >= self.fewest else self.guessed)
        terms = {"answer": float(is_right)}
        return Moved(reward=float(is_right), terms=terms, calls=CALLS[1:], is_over=True, is_success=is_right)


def needed(task: Task) -> int:
    """Return n*: 0 for a closed question, 1 for an open one."""
    return task.seed % 2


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the mean distance from n*."""
    batches, size, rate = int(options.get("batches", 30)), int(options.get("size", 8)), float(options["rate"])
    num_tasks, held_out = int(options.get("tasks", 32)), int(options.get("held_out", 256))
    per_batch = int(options.get("tasks_per_batch", 16))
    game = partial(
        Question, known=float(options.get("known", 0.9)), guessed=float(options.get("guessed", 0.1))
    )
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("otc", seed, number)
        pool = tasks("train", own, num_tasks)
        closed = tasks("train", own, 2 * num_tasks)[::2]
        fresh = tasks("eval", own, held_out)

        def learned(arm: OnPolicy, own: int = own, pool: list[Task] = pool) -> TablePolicy:
            def collect(policy: TablePolicy, batch: int) -> list[Group]:
                chosen = np.random.default_rng(derive_seed(own, batch)).permutation(len(pool))[:per_batch]
                return play_games(
                    policy, game, [pool[i] for i in chosen.tolist()], size=size, seed=derive_seed(own, batch)
                )

            return train_table(
                searcher(own), arm, num_batches=batches, size=size, seed=own, rate=rate, collect=collect
            ).policy

        def tried(policy: TablePolicy, own: int = own, fresh: list[Task] = fresh) -> list[Group]:
            return play_games(policy, game, fresh, size=1, seed=derive_seed(own, "eval"))

        paid, plain = tried(learned(otc.method(otc.Config()))), tried(learned(correct()))
        additive = tried(learned(priced(float(options.get("price", 0.1)))))
        alike = tried(learned(otc.method(otc.Config()), pool=closed), fresh=fresh[::2])
        alike_control = tried(learned(confused(own), pool=closed), fresh=fresh[::2])
        found.append(
            {
                "method": distance(paid),
                "control": distance(tried(learned(confused(own)))),
                "null_method": distance(alike),
                "null_control": distance(alike_control),
                "extra.start": distance(tried(searcher(own))),
                "extra.grpo": distance(plain),
                "extra.lost": right(plain) - right(paid),
                "extra.additive": distance(additive),
                "extra.open_kept": right(paid, 1) - right(additive, 1),
            }
        )
    return found


def tasks(name: str, seed: int, count: int) -> list[Task]:
    """Return `count` questions, closed and open ones in turn."""
    return [
        Task(id=f"{name}/{i}", environment="questions", seed=2 * (derive_seed(seed, name, i) >> 2) + i % 2)
        for i in range(count)
    ]


def searcher(seed: int) -> TablePolicy:
    """Return a table that mostly searches once and now and then again, needed or not."""
    world = observed_world(2 * (MOST + 1), ["search", "answer"], [NO_TASK], horizon=MOST + 1)
    theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    for row in range(world.num_states):
        chance = 0.7 if row % (MOST + 1) == 0 else 0.4
        theta[row, SEARCH] = float(np.log(chance / (1 - chance)))
    noise = torch.Generator().manual_seed(seed % (1 << 63))
    return TablePolicy(world, theta + 0.2 * torch.randn(theta.shape, generator=noise, dtype=torch.float64))


NO_TASK = Task(id="none", environment="questions", seed=0)


def memory(method: OnPolicy) -> FewestCalls:
    """Return what `method` remembers of each task."""
    state: State = method.state
    (fewest,) = getattr(state, "parts")  # noqa: B009 - a fold of one part
    assert isinstance(fewest, FewestCalls), "the method's only state"
    return fewest


def confused(seed: int) -> OnPolicy:
    """Return the method, whose memory is permuted among the tasks whenever it pays."""
    method = otc.method(otc.Config())
    fewest = memory(method)

    def reward(groups: Sequence[Group]) -> Sequence[Group]:
        own = dict(fewest.known)
        if len(own) > 1:
            fewest.known = dict(zip(own, permute(list(own.values()), seed=seed).values, strict=True))
        paid = method.reward(groups)
        fewest.known = own
        return paid

    return replace(method, reward=reward)


def correct() -> OnPolicy:
    """Return the method without its factor: being right is all that is paid."""
    return replace(otc.method(otc.Config()), reward=lambda groups: apply_all(groups, (success(),)))


def priced(price: float) -> OnPolicy:
    """Return the method with `price` taken off for each search in the place of its factor, right or wrong."""
    cost = Term(name="calls", measure=lambda t: -price * num_calls(t))
    return replace(otc.method(otc.Config()), reward=lambda groups: apply_all(groups, (success(), cost)))


def distance(groups: Sequence[Group]) -> float:
    """Return the mean of |m - n*| over right answers, the largest possible where none is right."""
    found = [abs(num_calls(t) - needed(t.task)) for t in episodes(groups) if t.is_success]
    return fmean(found) if found else float(MOST)


def right(groups: Sequence[Group], kind: int | None = None) -> float:
    """Return the share of right answers, to questions of `kind` alone where it is given."""
    return fmean(float(t.is_success) for t in episodes(groups) if kind in (None, needed(t.task)))


def episodes(groups: Sequence[Group]) -> list[Trajectory]:
    """Return the episodes of `groups`."""
    return [t for group in groups for t in group.trajectories]

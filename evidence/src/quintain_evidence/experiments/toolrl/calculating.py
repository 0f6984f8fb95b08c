"""Arithmetic with tools as a table: which sum to have worked out, by whom, and when to answer, is what is learned.

The world is `calc` behind the cap of ToRL, as it ships. A row of the table is what is left to be worked out and whether
the last call failed; numbers are pointed at, not written: a move works the next thing out by a call of the number that
stands there now, has another operation worked out, does the next thing in the head, which errs, or answers the number
that stands there. So what is told decides what is answered, and a policy that imitates forms has learned nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
import torch

from quintain.agents.capped import CappedCalls, Results
from quintain.environments.protocol import begin
from quintain.methods.loops.on_policy import OnPolicy
from quintain.types import Action, Group, Task, ToolCall, as_text, derive_seed
from quintain.worlds.calc.game import Calc
from quintain.worlds.calc.problem import OPERATIONS
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

COMPUTE, OTHER, ANSWER, THINK = range(4)
MOVES = ("compute", "compute another", "answer", "think")
MOST_LEFT = 2
NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A world, and what an agent can do in its head: ``Setting(steps=2, calls=2)``."""

    steps: tuple[int, ...] = (2,)
    """operations of a problem; of several, the task's number chooses"""
    calls: int = 8
    results: Results = "told"
    failures: float = 0.0
    """share of calls that say that they failed"""
    thinks: float | None = None
    """how often what is done in the head comes out right; None: nothing is"""
    horizon: int = 5
    worlds: dict[int, CappedCalls] = field(default_factory=dict[int, CappedCalls], compare=False)

    @property
    def moves(self) -> tuple[str, ...]:
        """The columns of the table."""
        return MOVES[: 3 + (self.thinks is not None)]

    def world(self, task: Task) -> CappedCalls:
        """Return the world of `task`."""
        steps = self.steps[(task.seed >> 1) % len(self.steps)]
        if steps not in self.worlds:
            inner = Calc(names=0, steps=steps, digits=1, checks=0, failures=self.failures)
            self.worlds[steps] = CappedCalls(inner, calls=self.calls, results=self.results)
        return self.worlds[steps]

    def table(self, seed: int, *, spread: float = 0.2) -> TablePolicy:
        """Return a policy that knows the form of a move and no more, with values of 0."""
        known = observed_world(2 * (MOST_LEFT + 1), self.moves, [NO_TASK], horizon=self.horizon)
        noise = torch.Generator().manual_seed(seed % (1 << 63))
        theta = spread * torch.randn(known.is_legal.shape, generator=noise, dtype=torch.float64)
        return TablePolicy(known, theta, torch.zeros(known.num_states, dtype=torch.float64))

    def play(self, policy: TablePolicy, tasks: Sequence[Task], *, size: int, seed: int) -> list[Group]:
        """Return `size` episodes of each of `tasks`."""
        return play_games(policy, lambda task: Sum(self, task), tasks, size=size, seed=seed)

    def trained(
        self, start: TablePolicy, method: OnPolicy, pool: Sequence[Task], *, batches: int, rate: float, seed: int,
        per_batch: int = 16, size: int = 8,
    ) -> TablePolicy:  # fmt: skip
        """Return what becomes of `start` by `method`, whose batches are of tasks drawn from `pool`."""

        def collect(policy: TablePolicy, number: int) -> list[Group]:
            own = derive_seed("calculating", seed, number)
            drawn = np.random.default_rng(own).choice(len(pool), per_batch, replace=False)
            return self.play(policy, [pool[i] for i in drawn.tolist()], size=size, seed=own)

        return train_table(
            start, method, num_batches=batches, size=size, seed=seed, rate=rate, collect=collect,
            optimizer=lambda parameters, rate: torch.optim.Adam(parameters, rate),
        ).policy  # fmt: skip


class Sum:
    """An episode of `Setting`."""

    def __init__(self, setting: Setting, task: Task) -> None:
        self.setting, self.world = setting, setting.world(task)
        numbers, self.steps = read_problem(as_text(begin(self.world, task)))
        self.value, self.num_done, self.has_failed = numbers, 0, False

    def row(self) -> int:
        """Return what is left to be done, and whether the last call failed."""
        return 2 * (len(self.steps) - self.num_done) + self.has_failed

    def key(self) -> str:
        """Return nothing: no method here reads states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Make the move of `column`; `luck` decides whether what is done in the head comes out right."""
        if column == ANSWER:
            call = ToolCall(name="answer", arguments={"number": self.value})
            found = self.world.step(Action(tool_calls=(call,)))
            return Moved(
                reward=found.reward,
                terms={"answer": found.reward},
                calls=(call,),
                is_over=True,
                is_success=bool(found.is_success),
            )
        name, term = self.steps[min(self.num_done, len(self.steps) - 1)] if self.steps else ("add", 1)
        if column == THINK:
            self.take(OPERATIONS[name](self.value, term) + (luck >= (self.setting.thinks or 0.0)))
            return Moved()
        if column == OTHER:
            name = next(other for other in OPERATIONS if other != name)
        call = ToolCall(name=name, arguments={"a": self.value, "b": term})
        told = as_text(self.world.step(Action(tool_calls=(call,))).observation)
        number = NUMBER.search(told)
        self.has_failed = told.startswith("Error")
        if not self.has_failed and number is not None:
            self.take(int(number[0]))
        return Moved(calls=(call,))

    def take(self, value: int) -> None:
        """Go on with `value` in the place of what was worked out."""
        self.value, self.has_failed = value, False
        self.num_done = min(self.num_done + 1, len(self.steps))


NO_TASK = Task(id="none", environment="calc", seed=0)


def read_problem(text: str) -> tuple[int, list[tuple[str, int]]]:
    """Return the first number and the steps of ``Compute: 3, add 4, multiply 5.``"""
    first, *steps = text.removeprefix("Compute: ").rstrip(".").split(", ")
    return int(first), [(name, int(term)) for name, term in map(str.split, steps)]


def tasks(split: str, seed: int, count: int) -> list[Task]:
    """Return `count` tasks of `split`, train or eval; the lowest bit of a seed is the split's."""
    is_eval = split == "eval"
    drawn = (derive_seed("calc", split, seed, number) >> 2 << 1 | is_eval for number in range(count))
    return [
        Task(id=f"calc/{split}/{number}", environment="calc", seed=own, split="eval" if is_eval else "train")
        for number, own in enumerate(drawn)
    ]


def success(groups: Sequence[Group]) -> float:
    """Return the share of episodes that were answered rightly."""
    return fmean(float(t.is_success) for group in groups for t in group.trajectories)

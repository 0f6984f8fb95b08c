"""A game of memories that is small enough to enumerate: what is expected of credit over segments, exactly.

A page says one of two values. A reader writes a memory of it; a second page says nothing, and the reader, who sees the
memory alone, writes the next memory or answers at once; whoever wrote two memories answers by the second. Each turn is
a conversation of its own (a segment), so that a memory is worth what is done up to two conversations later, and
episodes have two or three. There are twelve for each page, whose chances are eighths: one batch can hold every episode
as often as it is likely (`population`), and what is expected of all groups of two is a sum (`expect`).

Rows of the table: 0-1 the page, 2-3 the first memory, 4-5 the second. Columns: 0-1 write a value, 2-3 answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from quintain.credit.layout import outcome_of
from quintain.data.pack import Aggregation
from quintain.methods.horizon import mem1, mem_agent
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Completion, Credit, Group, Task, Trajectory, Turn
from quintain_evidence.labs.exact import log_policy
from quintain_evidence.labs.observed import observed_world
from quintain_evidence.labs.tabular import TablePolicy, assign, loss_gradient

Numbers = Callable[[Sequence[Trajectory]], list[list[float]]]
"""The episodes of a group → the advantage of each turn."""
VALUES = 2
FIRST, SECOND, LAST = slice(0, 2), slice(2, 4), slice(4, 6)
"""rows of the first memory, of the turn that may write another one, and of the answer that follows that"""
EIGHTHS = ((5, 3, 0, 0), (2, 6, 0, 0), (3, 2, 2, 1), (1, 4, 1, 2), (0, 0, 6, 2), (0, 0, 3, 5))
"""chances of the columns of each row, times eight"""
TASKS = tuple(Task(id=f"page {value}", environment="relay", seed=value) for value in range(VALUES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """An episode: ``Path(value=1, steps=((1, 0), (2, 2)))``, its (row, column) turn by turn."""

    value: int
    steps: tuple[tuple[int, int], ...]

    @property
    def reward(self) -> float:
        """1 where its answer is what the page said."""
        return float(self.steps[-1][1] - VALUES == self.value)


def paths_of(value: int) -> list[Path]:
    """Return the twelve episodes of a page that says `value`."""
    found: list[Path] = []
    for first in range(VALUES):
        for answer in range(VALUES):
            end = VALUES + answer
            found.append(Path(value=value, steps=((value, first), (VALUES + first, end))))
            for second in range(VALUES):
                on = ((value, first), (VALUES + first, second), (2 * VALUES + second, end))
                found.append(Path(value=value, steps=on))
    return found


PATHS = tuple(path for value in range(VALUES) for path in paths_of(value))


def start() -> TablePolicy:
    """Return the table of the game, with what its prompts are worth as the values of a critic."""
    chances = np.array(EIGHTHS) / 8
    world = observed_world(len(EIGHTHS), ("write 0", "write 1", "answer 0", "answer 1"), TASKS, horizon=3)
    theta = torch.as_tensor(np.log(np.where(chances > 0, chances, 1.0)))
    policy = TablePolicy(replace(world, is_legal=chances > 0), theta)
    return TablePolicy(policy.world, theta, torch.as_tensor(worth_of_prompts(policy)))


def chance_of(path: Path, chances: Tensor) -> Tensor:
    """Return the probability of `path` among those of its page, differentiable in `chances` [rows, columns]."""
    return torch.stack([chances[row, column] for row, column in path.steps]).prod()


def worth_of_prompts(policy: TablePolicy) -> list[float]:
    """Return what is to come where each row is seen, over all pages that lead there: the best that a critic can say."""
    paid, seen = np.zeros(policy.world.num_states), np.zeros(policy.world.num_states)
    for path in PATHS:
        chance = float(chance_of(path, policy.probabilities()))
        for row, _ in path.steps:
            seen[row] += chance
            paid[row] += chance * path.reward
    return (paid / seen).tolist()


def true_gradient(policy: TablePolicy) -> Tensor:
    """Return the gradient [rows, columns] of the expected return by the logits, by enumeration."""
    theta = policy.theta.detach().clone().requires_grad_()
    chances = log_policy(policy.world, theta).exp()
    objective = torch.stack([chance_of(path, chances) * path.reward for path in PATHS]).sum() / VALUES
    (gradient,) = torch.autograd.grad(objective, theta)
    return gradient


def record(policy: TablePolicy, paths: Sequence[Path]) -> list[Group]:
    """Return the episodes of `paths` as they are recorded, a group for each page."""
    known: dict[Path, tuple[Turn, ...]] = {path: _turns(policy, path) for path in set(paths)}
    groups: list[Group] = []
    for task in TASKS:
        own = [path for path in paths if path.value == task.seed]
        members = tuple(
            episode_of(
                known[path], path.reward, task=task, is_success=path.reward > 0, group=task.id, index=index
            )
            for index, path in enumerate(own)
        )
        groups += [Group(task=task, trajectories=members)] if members else []
    return groups


def _turns(policy: TablePolicy, path: Path) -> tuple[Turn, ...]:
    logs = policy.logs().detach()
    turns: list[Turn] = []
    for row, column in path.steps:
        token = policy.world.num_states + column
        said = Completion(token_ids=(token,), logprobs=(float(logs[row, column]),), stop="stop")
        is_answer = column >= VALUES
        turn = turn_of(
            (token,),
            starts_segment=True,
            prompt_ids=(row,),
            reward=path.reward if is_answer else 0.0,
            reward_terms={"answer": path.reward} if is_answer else {},
        )
        turns.append(replace(turn, completion=said))
    return tuple(turns)


def population(policy: TablePolicy) -> list[Group]:
    """Return a group for each page in which every episode is as often as it is likely: what many episodes tend to."""
    chances = policy.probabilities()
    return record(
        policy, [path for path in PATHS for _ in range(round(512 * float(chance_of(path, chances))))]
    )


def expect(policy: TablePolicy, method: OnPolicy) -> Tensor:
    """Return the mean direction of an update of `method` from one group of two, over all such groups: exact."""
    chances, found = policy.probabilities(), torch.zeros_like(policy.theta)
    for value in range(VALUES):
        own = [path for path in PATHS if path.value == value]
        for one, other in combinations_with_replacement(own, 2):
            chance = float(chance_of(one, chances) * chance_of(other, chances)) * (1 if one is other else 2)
            found += chance / VALUES * direction(policy, method, record(policy, [one, other]))
    return found


def direction(policy: TablePolicy, method: OnPolicy, groups: Sequence[Group]) -> Tensor:
    """Return where `method` moves the logits by `groups`, through its own credit, packing and loss."""
    return loss_gradient(policy, assign(policy, method, groups), method.update).detach()


def memagent(aggregation: Aggregation = "constant") -> OnPolicy:
    """Return MemAgent without its KL, which is no part of the gradient of the return.

    Its own mean is over the tokens of a step, a number that chance decides: a constant in its place is its limit of
    many episodes a step.
    """
    method = mem_agent.method(mem_agent.Config(kl_coef=0.0))
    constant = 1.0 if aggregation == "constant" else None
    return replace(method, update=replace(method.update, aggregation=aggregation, constant=constant))


def with_numbers(method: OnPolicy, assign_numbers: Numbers) -> OnPolicy:
    """Return `method`, of whose advantages each turn has a number of its own."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        usual = method.credit(groups, estimates)
        numbers = assign_numbers(groups[0].trajectories)
        arrays = [
            [np.full_like(array, number) for array, number in zip(own, given, strict=True)]
            for own, given in zip(usual.advantages, numbers, strict=True)
        ]
        return replace(usual, advantages=arrays)

    return replace(method, credit=credit)


def credit_last(episodes: Sequence[Trajectory]) -> list[list[float]]:
    """Return MemAgent's advantages for answers, and 0 for all memories: the last conversation alone is credited."""
    mean = fmean(outcome_of(t) for t in episodes)
    return [[0.0] * (len(t.turns) - 1) + [outcome_of(t) - mean] for t in episodes]


def credit_rows(episodes: Sequence[Trajectory]) -> list[list[float]]:
    """Return advantages over the mean of all conversations, in which an episode counts as often as it has some."""
    counts = [len(t.turns) for t in episodes]
    mean = sum(n * outcome_of(t) for n, t in zip(counts, episodes, strict=True)) / sum(counts)
    return [[outcome_of(t) - mean] * len(t.turns) for t in episodes]


def state_learner(gae_lambda: float) -> OnPolicy:
    """Return MEM1, whose critic looks ahead by `gae_lambda` from one memory to the next."""
    return mem1.method(mem1.Config(gae_lambda=gae_lambda))

"""IRREV as a table: blocks that stay where they were stacked, and states that are equal up to the blocks' names.

A row of logits belongs to a state with its goal, blocks named x, y and z in the order that makes it first, so that
what is learned of one task holds in others. A wrong stacking ends all hope; the episode goes on to its horizon.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.testing.pupil import tasks_from
from quintain.types import Batch, Outputs, Task, as_content, as_text
from quintain_evidence.labs.exact import END, World, enumerate_world, exact_values
from quintain_evidence.labs.tabular import TablePolicy

SPEC = "plan?blocks=3&irreversible=true"
HORIZON = 8
NAMES = "xyz"


@dataclass(frozen=True, eq=False)
class Blocks:
    """An enumerated IRREV with the shared row and column of every (state, action)."""

    world: World
    cells: NDArray[np.int64]
    """[S, A] number of the shared logit; 0 where the action is not legal"""
    num_cells: int

    def policy(self, shared: Tensor) -> TablePolicy:
        """Return the table whose logits are `shared` [cells]."""
        return TablePolicy(self.world, shared.detach()[torch.from_numpy(self.cells)])

    def speaker(self, batch: Batch) -> Callable[[Tensor], Outputs]:
        """Return what tables of shared logits [cells] say of `batch`, with gradients, computed for its states alone."""
        targets = (batch.turn_id >= 0).nonzero().squeeze(1)
        states, place = batch.token_ids[targets - 1].unique(return_inverse=True)
        actions = batch.token_ids[targets] - self.world.num_states
        cells, legal = (torch.from_numpy(each)[states] for each in (self.cells, self.world.is_legal))

        def say(shared: Tensor) -> Outputs:
            logs = shared[cells].masked_fill(~legal, -torch.inf).log_softmax(-1)[place, actions]
            logprobs = logs.new_zeros(len(batch.token_ids)).index_copy(0, targets, logs)
            return Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs))

        return say


@lru_cache(maxsize=8)
def blocks(num_tasks: int, first: int, spec: str = SPEC) -> Blocks:
    """Return IRREV with `num_tasks` tasks from number `first` on."""
    world = irreversible(num_tasks, first, spec)
    goals = [goal_of(spec, task) for task in world.tasks]
    known: dict[tuple[str, str], int] = {}
    cells = np.zeros(world.is_legal.shape, np.int64)
    for state, key in enumerate(world.keys):
        goal = goals[world.task_of[state]]
        told, names = renamed(f"{goal} | {key}")
        for action in np.flatnonzero(world.is_legal[state]).tolist():
            word = _rename(world.actions[action], names)
            cells[state, action] = known.setdefault((told, word), len(known))
    return Blocks(world, cells, len(known))


def irreversible(num_tasks: int, first: int, spec: str = SPEC) -> World:
    """Return the table of `num_tasks` tasks of IRREV from number `first` on."""
    return enumerate_world(find(spec), tasks_from(spec, num_tasks, first=first), horizon=HORIZON)


def goal_of(spec: str, task: Task) -> str:
    """Return what `task` asks for."""
    environment = find(spec)()
    try:
        told = as_text(as_content(begin(environment, task)))
    finally:
        environment.close()
    return told.partition("Goal: ")[2].partition(".")[0]


def renamed(told: str) -> tuple[str, dict[str, str]]:
    """Return the first of all ways to say `told` with blocks named x, y and z, facts in order, and the names."""
    letters = sorted(set(re.findall(r"\b[a-h]\b", told)))
    best: tuple[str, dict[str, str]] | None = None
    for order in permutations(NAMES[: len(letters)]):
        names = dict(zip(letters, order, strict=True))
        parts = [
            ", ".join(sorted(_rename(fact, names) for fact in part.split(", "))) for part in told.split(" | ")
        ]
        said = " | ".join(parts)
        if best is None or said < best[0]:
            best = said, names
    assert best is not None, "there is at least one order"
    return best


def _rename(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b([a-h])\b", lambda found: names.get(found[1], found[1]), text)


def expert_policy(world: World) -> NDArray[np.float64]:
    """Return the probabilities [S, A] of the expert; where it has no action, of waiting, else of anything legal."""
    found = world.is_legal / np.maximum(world.is_legal.sum(1, keepdims=True), 1)
    knows = world.expert != END
    found[knows] = 0.0
    found[np.flatnonzero(knows), world.expert[knows]] = 1.0
    return found


def noisy_policy(world: World, rate: float) -> NDArray[np.float64]:
    """Return the probabilities of an expert that takes any legal action at a share `rate` of its turns."""
    anything = world.is_legal / np.maximum(world.is_legal.sum(1, keepdims=True), 1)
    return (1 - rate) * expert_policy(world) + rate * anything


def table_of(world: World, probabilities: NDArray[np.float64]) -> TablePolicy:
    """Return the table that acts by `probabilities` [S, A]."""
    logits = np.log(np.maximum(probabilities, 1e-30))
    return TablePolicy(world, torch.from_numpy(logits))


def solved_of(policy: TablePolicy, tasks: Sequence[int]) -> float:
    """Return the exact mean success of `policy` over `tasks`."""
    by_task = exact_values(policy.world, policy.probabilities(), outcome="success").by_task
    return float(by_task[list(tasks)].mean())

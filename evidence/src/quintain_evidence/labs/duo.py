"""Two agents and one answer, as a table: A tells of its card, B hears it, has a card of its own and answers.

A sees x and says one of three words; B sees y and the word, and answers; right is (x + y) mod 3. Where a task is B's
alone, which both see, right is y, whatever was said. Rows of one table are what is seen, so that every number here has
an exact counterpart: J is a sum over nine pairs of cards, and so are its gradient and every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from quintain.types import Group, Task, derive_seed
from quintain_evidence.labs.exact import World, log_policy
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy

CARDS = 3
WORDS = tuple(f"word {number}" for number in range(CARDS))
ROWS_A = 2 * CARDS
"""Rows of A: what kind of task, and its card; then come those of B, with the word that it heard."""
NUM_ROWS = ROWS_A + 2 * CARDS * CARDS
SEATS = ("A", "B")


@dataclass
class Talk:
    """A task under way: ``Talk(x=1, y=2, is_alone=False)``."""

    x: int
    y: int
    is_alone: bool
    heard: int | None = None

    def row(self) -> int:
        """Return the row of the table for what is seen now."""
        return (
            row_of_a(self.x, self.is_alone)
            if self.heard is None
            else row_of_b(self.y, self.heard, self.is_alone)
        )

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.x} {self.y} {self.heard} {self.is_alone}"

    def act(self, column: int, luck: float) -> Moved:
        """Say a word, or answer."""
        if self.heard is None:
            self.heard = column
            return Moved()
        is_right = column == answer(self.x, self.y, self.is_alone)
        return Moved(reward=float(is_right), is_over=True, is_success=is_right)


def row_of_a(x: int, is_alone: bool) -> int:
    """Return the row of what A sees."""
    return CARDS * is_alone + x


def row_of_b(y: int, heard: int, is_alone: bool) -> int:
    """Return the row of what B sees."""
    return ROWS_A + CARDS * (CARDS * is_alone + y) + heard


def answer(x: int, y: int, is_alone: bool) -> int:
    """Return what is right."""
    return y if is_alone else (x + y) % CARDS


def world_of(tasks: Sequence[Task]) -> World:
    """Return the table's rows and columns."""
    return observed_world(NUM_ROWS, WORDS, tasks, horizon=2)


def draw_tasks(seed: int, num: int) -> list[Task]:
    """Return `num` tasks."""
    return [Task(id=f"duo/{seed}/{n}", environment="duo", seed=derive_seed(seed, n)) for n in range(num)]


def talk_of(task: Task, alone: float) -> Talk:
    """Return the talk of `task`, which is B's alone at the rate `alone`."""
    rng = Random(task.seed)
    return Talk(x=rng.randrange(CARDS), y=rng.randrange(CARDS), is_alone=rng.random() < alone)


def noisy_start(seed: int, *, skill: float) -> TablePolicy:
    """Return a policy that tells its card, and answers right, at the rate `skill`; the rest is spread by `seed`."""
    generator = torch.Generator().manual_seed(seed % (1 << 62))
    world = world_of(draw_tasks(seed, 1))
    weights = (1 - skill) * torch.softmax(torch.randn(NUM_ROWS, CARDS, generator=generator), -1)
    for is_alone in (False, True):
        for x in range(CARDS):
            weights[row_of_a(x, is_alone), x] += skill
            for heard in range(CARDS):
                weights[row_of_b(x, heard, is_alone), answer(heard, x, is_alone)] += skill
    return TablePolicy(world, weights.log())


def play(policy: TablePolicy, *, tasks: int, size: int, seed: int, alone: float = 0.0) -> list[Group]:
    """Return `size` episodes of each of `tasks` tasks, whose turns say who spoke; they are whole."""
    drawn = draw_tasks(seed, tasks)
    found = play_games(
        policy, lambda task: talk_of(task, alone), drawn, size=size, seed=derive_seed(seed, "play")
    )
    return [
        replace(
            group,
            trajectories=tuple(
                replace(
                    episode,
                    turns=tuple(
                        replace(turn, seat=seat, starts_segment=True)
                        for turn, seat in zip(episode.turns, SEATS, strict=True)
                    ),
                )
                for episode in group.trajectories
            ),
        )
        for group in found
    ]


def success(policy: TablePolicy, alone: float = 0.0) -> Tensor:
    """Return J exactly, differentiable in the logits: the chance of a right answer."""
    chances = log_policy(policy.world, policy.theta).exp()
    total = chances.new_zeros(())
    for is_alone, share in ((False, 1 - alone), (True, alone)):
        for x in range(CARDS):
            for y in range(CARDS):
                told = chances[row_of_a(x, is_alone)]
                right = [
                    chances[row_of_b(y, heard, is_alone), answer(x, y, is_alone)] for heard in range(CARDS)
                ]
                total = total + share * (told * torch.stack(right)).sum() / CARDS**2
    return total


def exact_gradient(policy: TablePolicy, alone: float = 0.0) -> Tensor:
    """Return ∇J [rows, words]."""
    (gradient,) = torch.autograd.grad(success(policy, alone), policy.theta)
    return gradient


def rows_of(seat: str) -> slice:
    """Return the rows of a seat."""
    return slice(0, ROWS_A) if seat == SEATS[0] else slice(ROWS_A, NUM_ROWS)

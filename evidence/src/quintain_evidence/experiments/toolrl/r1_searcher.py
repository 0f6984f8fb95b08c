"""R1-Searcher: does a policy that hardly searches learn to answer because searching was paid for first?

A question takes two searches that find something, which four in five do; then the answer is right nine times in ten,
before one time in ten. A table over what was found begins by answering at once. It learns by the method's own rewards,
stages, credit and loss, and is tried on held-out questions when nothing has been paid for searching for many steps. In
the control the first stage pays half for an event that has nothing to do with searching and is as frequent as it would
be. Beside it: the second stage alone, and the first for ever. In the null world everything is known at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import torch

from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.toolrl import r1_searcher
from quintain.rewards.retrieval import answer_score, first_stage, is_well_formed, search_rate
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Task, ToolCall, Trajectory, derive_seed
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

NEEDED, MOST = 2, 4
"""Facts that an answer takes, and searches after which the episode ends."""
SEARCH, ANSWER = range(2)
CALLS = (
    ToolCall(name="search", arguments={"query": "it"}),
    ToolCall(name="answer", arguments={"text": "it"}),
)


class Question:
    """An episode: searches, then an answer."""

    def __init__(self, task: Task, *, closed: bool, finds: float, known: float, guessed: float) -> None:
        self.found = NEEDED if closed else 0
        self.searches = 0
        self.finds, self.known, self.guessed = finds, known, guessed

    def row(self) -> int:
        """Return what was found, and how often was searched."""
        return min(self.found, NEEDED) * (MOST + 1) + self.searches

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Search, which may find nothing, or answer."""
        if column == SEARCH:
            self.searches += 1
            self.found += luck < self.finds
            return Moved(calls=CALLS[:1], is_over=self.searches > MOST)
        is_right = luck < (self.known if self.found >= NEEDED else self.guessed)
        terms = {"answer": float(is_right)}
        return Moved(reward=float(is_right), terms=terms, calls=CALLS[1:], is_over=True, is_success=is_right)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of success on held-out questions."""
    batches, first = int(options.get("batches", 40)), int(options.get("first_steps", 10))
    size, per_batch, held_out = (
        int(options.get("size", 8)),
        int(options.get("tasks", 16)),
        int(options.get("held_out", 512)),
    )
    rate, shy = float(options["rate"]), float(options.get("shy", 0.05))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("r1_searcher", seed, number)

        def tried(arm: OnPolicy, own: int = own, *, closed: bool = False) -> list[Group]:
            game = partial(Question, closed=closed, finds=0.8, known=0.9, guessed=0.1)

            def collect(policy: TablePolicy, batch: int) -> list[Group]:
                drawn = derive_seed(own, batch)
                return play_games(policy, game, tasks("train", drawn, per_batch), size=size, seed=drawn)

            learned = train_table(
                shy_start(own, shy), arm, num_batches=batches, size=size, seed=own, rate=rate, collect=collect
            ).policy
            return play_games(
                learned, game, tasks("eval", own, held_out), size=1, seed=derive_seed(own, "eval")
            )

        staged, late = tried(made(first)), tried(made(0))
        habit = tried(made(batches))
        closed = tried(made(first), closed=True)
        found.append(
            {
                "method": right(staged),
                "control": right(tried(unrelated(first, own, shy))),
                "null_method": right(closed),
                "null_control": right(tried(unrelated(first, own, shy), closed=True)),
                "extra.over_late": right(staged) - right(late),
                "extra.over_habit": right(staged) - right(habit),
                "extra.rate_at_the_end": search_rate(episodes(staged)),
                "extra.needless": search_rate(episodes(closed)),
                "extra.late": right(late),
            }
        )
    return found


def made(first_steps: int) -> OnPolicy:
    """Return the method with a first stage of so many steps."""
    return r1_searcher.method(r1_searcher.Config(first_steps=first_steps))


def unrelated(first_steps: int, seed: int, share: float) -> OnPolicy:
    """Return the method whose first stage pays for luck in the place of searching, as often as it is searched."""
    method = made(first_steps)
    (stages,) = getattr(method.state, "parts")  # noqa: B009 - a fold of one part
    assert isinstance(stages, r1_searcher.Stages), "the method's only state"

    def reward(groups: Sequence[Group]) -> Sequence[Group]:
        if not stages.is_first:
            return method.reward(groups)
        often = max(search_rate(episodes(groups)), share)

        def lucky(trajectory: Trajectory) -> float:
            drawn = derive_seed("luck", seed, stages.step, trajectory.group, trajectory.index) % 10_000
            return first_stage(drawn < 10_000 * often, is_well_formed(trajectory))

        return apply_all(groups, (Term(name="staged", measure=lucky),))

    return replace(method, reward=reward)


def shy_start(seed: int, share: float) -> TablePolicy:
    """Return a table that searches with probability `share` before an answer, wherever it is."""
    world = observed_world((NEEDED + 1) * (MOST + 1), ["search", "answer"], [NO_TASK], horizon=MOST + 1)
    theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    theta[:, SEARCH] = float(torch.logit(torch.tensor(share, dtype=torch.float64)))
    noise = torch.Generator().manual_seed(seed % (1 << 63))
    return TablePolicy(world, theta + 0.1 * torch.randn(theta.shape, generator=noise, dtype=torch.float64))


NO_TASK = Task(id="none", environment="questions", seed=0)


def tasks(name: str, seed: int, count: int) -> list[Task]:
    """Return `count` questions."""
    return [
        Task(id=f"{name}/{i}", environment="questions", seed=derive_seed(seed, name, i)) for i in range(count)
    ]


def right(groups: Sequence[Group]) -> float:
    """Return the share of right answers."""
    return fmean(answer_score(t) for t in episodes(groups))


def episodes(groups: Sequence[Group]) -> list[Trajectory]:
    """Return the episodes of `groups`."""
    return [t for group in groups for t in group.trajectories]

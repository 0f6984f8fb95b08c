"""Short thinking, more acting: does paying for information teach to look where an answer is not known yet?

The book world `stream` itself, whose questions add up facts of several pages, over a table of what a reader knows: how
many of the facts that are asked for, and how many pages were read. The start mostly answers too early. A state is what
is known, so that the bonus of the method is for pages that hold a part of the answer, and for no other. It learns by
the method's own reward, credit and loss. The number is the rate of wrong decisions on held-out questions: answers that
are missed for want of reading, and readings without need, by the world's own account. The control moves the bonuses to
other turns of the episode's group, the sum kept. In the null world all questions are told with their answers and
nothing is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import move_term
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import act_more
from quintain.types import Action, Group, Task, derive_seed
from quintain.worlds.stream.game import Stream
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

READ, ANSWER = range(2)
TERM = "new_state"
Change = Callable[[Sequence[Group]], Sequence[Group]]


class Reader:
    """An episode of `stream`: read on, or answer, rightly where the answer is known and by chance where not."""

    def __init__(self, stream: Stream, task: Task) -> None:
        self.stream = stream
        self.pages = stream.pages
        self.num_read = 0
        begin(stream, task)

    def row(self) -> int:
        """Return how many facts are missing, and the pages read."""
        return self.missing() * (self.pages + 1) + self.num_read

    def key(self) -> str:
        """Return what is known of the question."""
        return f"{self.missing()} missing"

    def missing(self) -> int:
        """Return how many pages with a part of the answer were not read yet."""
        now = self.stream.snapshot()
        return sum(page > now.page for page in now.book.questions[0].pages)

    def act(self, column: int, luck: float) -> Moved:
        """Read or answer; a decision is wrong where it misses an answer or reads without need."""
        needs = self.stream.needs_reading()
        wrong = float(needs == (column == ANSWER))
        if column == READ and self.num_read < self.pages:
            text = "read"
            self.num_read += 1
        elif needs:
            text = f"answer {int(luck * self.stream.values)}"
        else:
            text = self.stream.expert_action().text
        result = advance(self.stream, Action(text=text))
        return Moved(
            reward=result.reward,
            terms={"wrong": wrong},
            is_over=result.is_terminated,
            is_success=bool(result.is_success),
        )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the rate of wrong decisions."""
    batches, rate = int(options.get("batches", 30)), float(options["rate"])
    num_tasks, size, held_out = (
        int(options.get(k, v)) for k, v in (("tasks", 8), ("size", 8), ("held_out", 256))
    )
    early = float(options.get("early", 0.7))
    world = str(options.get("world", "stream?facts=1&closed_book=0.3&pages=6&terms=3"))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("act_more", seed, number)

        def learned(spec: str, arm: OnPolicy, own: int = own) -> list[Group]:
            stream = find(spec)()
            assert isinstance(stream, Stream), "the experiment is about reading"

            def played(policy: TablePolicy, split: str, first: int, count: int, size: int) -> list[Group]:
                base = derive_seed(own, split) % (1 << 40)
                tasks = [
                    stream.task("train" if split == "train" else "eval", base + first + i)
                    for i in range(count)
                ]
                return play_games(
                    policy,
                    lambda task: Reader(stream, task),
                    tasks,
                    size=size,
                    seed=derive_seed(own, split, first),
                )

            start = reader(stream, own, early=early)
            run = train_table(
                start,
                arm,
                num_batches=batches,
                size=size,
                seed=own,
                rate=rate,
                collect=lambda policy, batch: played(policy, "train", batch * num_tasks, num_tasks, size),
            )
            return played(run.policy, "eval", 0, held_out, 1)

        method, plain = arms(float(options.get("information", 0.05)))
        moved = replace(method, reward=elsewhere(method.reward, own))
        free = world.replace("closed_book=0.3", "closed_book=1")
        paid, blind, grpo = learned(world, method), learned(world, moved), learned(world, plain)
        found.append(
            {
                "method": wrong(paid),
                "control": wrong(blind),
                "null_method": wrong(learned(free, method)),
                "null_control": wrong(learned(free, moved)),
                "extra.grpo": wrong(grpo),
                "extra.success": solved(paid),
                "extra.control_success": solved(blind),
                "extra.grpo_success": solved(grpo),
                "extra.needless": wrong(paid, "read"),
            }
        )
    return found


def arms(information: float) -> tuple[OnPolicy, OnPolicy]:
    """Return the method with one pass over its episodes, and the same without the bonus."""
    config = act_more.Config(information=information)
    return act_more.method(config), act_more.method(replace(config, information=0.0))


def reader(stream: Stream, seed: int, *, early: float) -> TablePolicy:
    """Return a table that answers with probability `early` what it does not know, and mostly what it knows."""
    task = Task(id="none", environment="stream", seed=0)
    num_rows = (stream.terms + 1) * (stream.pages + 1)
    world = observed_world(num_rows, ["read", "answer"], [task], horizon=2 * stream.pages)
    theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    for row in range(num_rows):
        chance = 0.6 if row <= stream.pages else early
        theta[row, ANSWER] = float(np.log(chance / (1 - chance)))
    noise = torch.Generator().manual_seed(seed % (1 << 63))
    return TablePolicy(world, theta + 0.2 * torch.randn(theta.shape, generator=noise, dtype=torch.float64))


def elsewhere(reward: Change, seed: int) -> Change:
    """Return `reward` with the bonuses moved to other turns of the episode's group; kept where all are alike."""

    def changed(groups: Sequence[Group]) -> Sequence[Group]:
        paid = reward(groups)
        bonuses = {turn.reward_terms[TERM] for g in paid for t in g.trajectories for turn in t.turns}
        if len(bonuses) < 2:
            return paid
        return move_term(paid, TERM, seed=derive_seed(seed, groups[0].trajectories[0].seed))[0]

    return changed


def wrong(groups: Sequence[Group], action: str = "") -> float:
    """Return the share of decisions that are wrong, of an episode, on average; those of `action` alone if given."""
    return fmean(
        fmean(turn.reward_terms["wrong"] * (action in ("", turn.action.text)) for turn in t.turns)
        for group in groups
        for t in group.trajectories
    )


def solved(groups: Sequence[Group]) -> float:
    """Return the share of episodes that answered rightly."""
    return fmean(float(t.is_success) for group in groups for t in group.trajectories)

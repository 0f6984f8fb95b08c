"""PilotRL: who acts learns to follow given plans first, then the planner, then both; beside the same episodes mixed.

A relay as a table: a planner sees one of sixteen numbers and writes one of sixteen words; who acts sees the word alone,
and is right if it does what belongs to the number. Which word an expert would write for a number is drawn by seed. The
method's own stages, rewards, credit and update make 80 updates of 64 episodes. The control is given the plans of other
tasks of its batch. The rival has the same number of episodes with given and with own plans, one after the other, and
trains all that was sampled, as one stage. In the null world who acts sees the number, too, and needs no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch

from quintain.learning.update import Update
from quintain.methods.horizon import pilot_rl
from quintain.methods.loops.on_policy import Estimates
from quintain.types import Credit, Group, Task, Turn, derive_seed
from quintain_evidence.labs.exact import log_policy
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, kept_samples, packed

SIZE = 16
WORDS = tuple(f"symbol {number}" for number in range(SIZE))
NUM_ROWS = 3 * SIZE
"""Rows of the planner by number, of who acts by word, and of who acts by number."""
TASKS = 8


@dataclass
class Relay:
    """A relay under way: ``Relay(number=3)``; with a `word` the plan is given, and who acts is next."""

    number: int
    word: int | None = None
    sees_number: bool = False

    def row(self) -> int:
        """Return the row of the table for what is seen now."""
        if self.word is None:
            return self.number
        return 2 * SIZE + self.number if self.sees_number else SIZE + self.word

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.number} {self.word}"

    def act(self, column: int, luck: float) -> Moved:
        """Write a plan, or act."""
        if self.word is None:
            self.word = column
            return Moved()
        is_right = column == self.number
        return Moved(reward=float(is_right), is_over=True, is_success=is_right)


def name_role(turn: Turn, *, is_plan: bool) -> Turn:
    """Return `turn` as a plan, or as what is done, each in a stream of its own."""
    return replace(turn, seat="agent/plan" if is_plan else "agent", starts_segment=True)


def play(
    policy: TablePolicy,
    size: int,
    seed: int,
    *,
    words: Sequence[int] | None = None,
    sees_number: bool = False,
) -> list[Group]:
    """Return `size` episodes of each of `TASKS` tasks; with `words` the plans are given, task by task."""
    numbers = [Random(derive_seed(seed, place)).randrange(SIZE) for place in range(TASKS)]
    tasks = [Task(id=f"{place}", environment="relay", seed=number) for place, number in enumerate(numbers)]

    def begin(task: Task) -> Relay:
        return Relay(task.seed, None if words is None else words[int(task.id)], sees_number)

    return [
        replace(
            group,
            trajectories=tuple(
                replace(
                    t,
                    turns=tuple(
                        name_role(turn, is_plan=place + 1 < len(t.turns))
                        for place, turn in enumerate(t.turns)
                    ),
                )
                for t in group.trajectories
            ),
        )
        for group in play_games(policy, begin, tasks, size=size, seed=seed)
    ]


def choose_words(seed: int, code: Sequence[int], *, deranged: bool) -> list[int]:
    """Return the words that the expert's `code` gives the tasks of `seed`; `deranged`: those of the next task."""
    words = [code[Random(derive_seed(seed, place)).randrange(SIZE)] for place in range(TASKS)]
    return [*words[1:], words[0]] if deranged else words


def success(policy: TablePolicy, *, sees_number: bool) -> float:
    """Return the chance of a right act with plans of the policy's own, exactly."""
    chances = log_policy(policy.world, policy.theta.detach()).exp()
    told, acts = chances[:SIZE], chances[2 * SIZE :] if sees_number else chances[SIZE : 2 * SIZE]
    right = acts.diagonal() if sees_number else (told * acts.T).sum(1)
    return float(right.mean())


def apply(policy: TablePolicy, credit: Credit, update: Update, optimizer: torch.optim.Optimizer) -> None:
    """Take the optimizer step of `update` by `credit`."""
    samples = kept_samples(credit, update)
    if not samples:
        return
    batch = packed(samples, update)
    optimizer.zero_grad()
    update.loss(policy(batch), batch).loss.backward()
    optimizer.step()


def train(
    options: Mapping[str, Any], seed: int, *, mixed: bool = False, deranged: bool = False, sees: bool = False
) -> float:
    """Return the success after training in stages, or with the same episodes `mixed`."""
    config = pilot_rl.Config()
    updates = int(options["updates"])
    method = pilot_rl.method(config)
    policy = TablePolicy(
        observed_world(NUM_ROWS, WORDS, [Task(id="0", environment="relay", seed=0)], horizon=2),
        torch.zeros(NUM_ROWS, SIZE),
    )
    optimizer = torch.optim.Adam(policy.parameters, float(options["rate"]))
    code = Random(derive_seed(seed, "code")).sample(range(SIZE), SIZE)
    given = config.follow_steps
    for step in range(1, updates + 1):
        own = derive_seed(seed, step)
        stage = pilot_rl.stage_at(config, step)
        is_given = step * given // updates > (step - 1) * given // updates if mixed else stage == "follow"
        words = choose_words(own, code, deranged=deranged) if is_given else None
        groups = play(policy, int(options["size"]), own, words=words, sees_number=sees)
        method.state.update(groups)
        if mixed:
            credit = pilot_rl.assign(pilot_rl.pay(groups, config, "both"), "both")
        else:
            credit = method.credit(method.reward(groups), Estimates())
        apply(policy, credit, method.update, optimizer)
    return success(policy, sees_number=sees)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a code of its own; arms draw alike."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("pilot_rl", seed, number)
        found.append(
            {
                "method": train(options, own),
                "control": train(options, own, deranged=True),
                "null_method": train(options, own, sees=True),
                "null_control": train(options, own, sees=True, deranged=True),
                "extra.mixed": train(options, own, mixed=True),
            }
        )
    return found

"""AGILE: asking is an investment, which only the return of the whole session repays.

A session has eight questions, one of which comes four times and the others once; a word says which. An unknown answer
is right every second time; advice gives it for .6, so that asking never pays for its own question, and what was advised
is known when it comes again. A table acts by the word, by whether the answer is known and by how often the question
came. The number is how much likelier advice is asked for where a question that comes again is first seen than where one
that does not is, after training by the method's own credit and update. The control credits each question for itself;
advantages are whitened in both, so sizes are kept. Beside it: each session has the advantages of another one. In the
null world no question comes again, whatever the word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch

from quintain.methods.horizon import agile
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.types import Credit, Group, Task, derive_seed
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

TASKS, REPEATS, GUESSED = 8, 4, 0.5
ACTIONS = ("answer", "advice")
ROWS = 2 * 2 * REPEATS
"""word, whether the answer is known, and how often the question came before"""


@dataclass
class Asked:
    """A session under way: ``Asked((True, False), price=0.6)``: two questions, the first of which comes again."""

    words: tuple[bool, ...]
    price: float
    recurs: bool = True
    """whether those of the first word are one question"""
    place: int = 0
    times: int = 0
    known: bool = field(default=False)

    def row(self) -> int:
        """Return the row of what is seen."""
        is_again = self.words[self.place] and self.recurs
        times, known = (self.times, self.known) if is_again else (0, False)
        return (2 * self.words[self.place] + known) * REPEATS + times

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.words} {self.place} {self.known}"

    def act(self, column: int, luck: float) -> Moved:
        """Answer, or ask."""
        is_again = self.words[self.place] and self.recurs
        is_known = is_again and self.known
        paid = 1 - self.price if column else float(is_known or luck < GUESSED)
        if is_again:
            self.known, self.times = self.known or bool(column), self.times + 1
        self.place += 1
        return Moved(reward=paid, is_over=self.place == len(self.words), is_success=False)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the difference of the chances of asking."""
    price = float(options.get("price", 0.6))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("agile", seed, number)
        method, myopic = agile.method(agile.Config()), agile.method(agile.Config(discount=0.0))
        invests, asks, known = train(method, price, options, own)
        found.append(
            {
                "method": invests,
                "control": train(myopic, price, options, own)[0],
                "null_method": train(method, price, options, own, recurs=False)[0],
                "null_control": train(myopic, price, options, own, recurs=False)[0],
                "extra.exchanged": train(exchange(method, own), price, options, own)[0],
                "extra.asks": asks,
                "extra.known": known,
            }
        )
    return found


def train(
    method: OnPolicy, price: float, options: Mapping[str, Any], seed: int, *, recurs: bool = True
) -> tuple[float, float, float]:
    """Return by how much likelier asking is at first sight of what comes again, that chance, and it once known."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.1 * torch.randn((ROWS, 2), generator=generator, dtype=torch.float64)
    start = TablePolicy(observed_world(ROWS, ACTIONS, (), horizon=TASKS), theta, torch.zeros(ROWS))
    tasks = int(options.get("episodes", 64))

    def begin(task: Task) -> Asked:
        words = [True] * REPEATS + [False] * (TASKS - REPEATS)
        Random(task.seed).shuffle(words)
        return Asked(tuple(words), price, recurs)

    def collect(policy: TablePolicy, step: int) -> list[Group]:
        own = derive_seed(seed, step)
        drawn = [
            Task(id=f"session/{k}", environment="session", seed=derive_seed(own, k)) for k in range(tasks)
        ]
        return play_games(policy, begin, drawn, size=1, seed=own)

    policy = train_table(
        start, method, num_batches=int(options.get("updates", 60)), size=1, seed=seed,
        rate=float(options.get("rate", 3.0)), num_epochs=2, collect=collect,
    ).policy  # fmt: skip
    chances = policy.probabilities()[:, 1].tolist()
    again, once = chances[2 * REPEATS], chances[0]
    return again - once, again, chances[3 * REPEATS + 1]


def exchange(method: OnPolicy, seed: int) -> OnPolicy:
    """Return `method`, but for that each session has the advantages of another one, turn by turn."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        found = method.credit(groups, estimates)
        order = Random(derive_seed(seed, groups[0].trajectories[0].seed)).sample(
            range(len(groups)), len(groups)
        )
        to = dict(zip(order, [*order[1:], order[0]], strict=True))
        return replace(found, advantages=[found.advantages[to[place]] for place in range(len(groups))])

    return replace(method, credit=credit)

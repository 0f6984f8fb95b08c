"""MARTI: does a model that is told outcomes alone find which words of a talk were right?

A relay as a table: four agents speak one after the other, each sees a card and whether all words before it were right;
all are paid at the end if no word was wrong. The implicit process reward model is a table of its own, fitted by the
method's own weights to the outcomes of whole talks, and scores the turns of talks that are held out. The number is the
area under the curve (AUC) of its scores, right words against wrong ones, while none before was wrong. In the control
the outcomes are dealt out anew over the talks that it is fitted to. The rival, which has no process reward, gives every
turn the outcome of its talk. In the null world a coin decides, whatever is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import torch

from quintain.credit.implicit_reward import fit_outcomes, score_turns
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.methods.multiagent import marti
from quintain.types import Score, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, actions_of, loss_gradient, states_of

AGENTS, CARDS = 4, 3
WORDS = tuple(f"word {number}" for number in range(CARDS))
NUM_ROWS = AGENTS * 2 * CARDS


@dataclass
class Relay:
    """A relay under way: ``Relay(cards=(0, 2, 1, 1))``."""

    cards: Sequence[int]
    agent: int = 0
    is_right: bool = True
    said: list[int] = field(default_factory=list[int])

    def row(self) -> int:
        """Return the row of the table for what is seen now."""
        return (self.agent * 2 + self.is_right) * CARDS + self.cards[self.agent]

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.cards} {self.said}"

    def act(self, column: int, luck: float) -> Moved:
        """Say a word."""
        self.said.append(column)
        is_last = self.agent == AGENTS - 1
        self.is_right &= column == self.cards[self.agent]
        self.agent += 1
        return Moved(
            reward=float(is_last and self.is_right), is_over=is_last, is_success=is_last and self.is_right
        )


def relay_of(task: Task) -> Relay:
    """Return the relay of `task`."""
    rng = Random(task.seed)
    return Relay(cards=[rng.randrange(CARDS) for _ in range(AGENTS)])


def start_of(seed: int, skill: float) -> TablePolicy:
    """Return agents whose words are right at the rate `skill`; the rest is spread by `seed`."""
    generator = torch.Generator().manual_seed(seed % (1 << 62))
    weights = (1 - skill) * torch.softmax(torch.randn(NUM_ROWS, CARDS, generator=generator), -1)
    weights[torch.arange(NUM_ROWS), torch.arange(NUM_ROWS) % CARDS] += skill
    return TablePolicy(observed_world(NUM_ROWS, WORDS, tasks_of(seed, 1), horizon=AGENTS), weights.log())


def tasks_of(seed: int, num: int) -> list[Task]:
    """Return `num` tasks."""
    return [Task(id=f"relay/{seed}/{n}", environment="relay", seed=derive_seed(seed, n)) for n in range(num)]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a start of its own."""
    return [
        replication(options, derive_seed("marti", seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the areas of all arms on one start."""
    policy = start_of(seed, float(options["skill"]))
    told, held = (
        flatten_scored(play_games(policy, relay_of, tasks_of(derive_seed(seed, name), int(options["talks"])), size=1,
                                  seed=derive_seed(seed, name)))
        for name in ("told", "held out")
    )  # fmt: skip
    model = fit(policy, told, options)
    dealt = fit(policy, deal_outcomes(told, derive_seed(seed, "dealt")), options)
    coin = fit(policy, toss_outcomes(told, derive_seed(seed, "coin")), options)
    scores, by_chance = score(model, policy, held), score(dealt, policy, held)
    outcomes = [[float(t.is_success)] * len(t.turns) for t in held]
    return {
        "method": area(held, scores),
        "control": area(held, by_chance),
        "null_method": area(held, score(coin, policy, held)),
        "null_control": area(held, by_chance),
        "extra.rival": area(held, outcomes),
        "extra.success": sum(t.is_success for t in told) / len(told),
    }


def fit(policy: TablePolicy, talks: Sequence[Trajectory], options: Mapping[str, Any]) -> TablePolicy:
    """Return a table that began as `policy`, after `steps` steps of `rate` down the cross entropy of outcomes."""
    model = policy.copy()
    update = Update(loss=reinforce(), is_on_policy=False)
    reference = logprobs(policy, talks)
    for _ in range(int(options["steps"])):
        credit = fit_outcomes(talks, logprobs(model, talks), reference, beta=marti.Config().beta)
        step = loss_gradient(model, credit, update)
        with torch.no_grad():
            model.theta += float(options["rate"]) * step
    return model


def logprobs(policy: TablePolicy, talks: Sequence[Trajectory]) -> list[list[np.ndarray]]:
    """Return the log-probs of what was said, [talk][turn] → [1]."""
    logs = policy.logs().detach().numpy()
    return [
        [logs[[s], [a]] for s, a in zip(states_of(t), actions_of(t, policy.world), strict=True)]
        for t in talks
    ]


def score(model: TablePolicy, policy: TablePolicy, talks: Sequence[Trajectory]) -> list[list[float]]:
    """Return the method's scores of the turns of `talks`."""
    return score_turns(logprobs(model, talks), logprobs(policy, talks), beta=marti.Config().beta)


def deal_outcomes(talks: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `talks` with their outcomes dealt out anew."""
    outcomes = [t.outcome for t in talks if isinstance(t.outcome, Score)]
    Random(seed).shuffle(outcomes)
    return [replace(t, outcome=outcome) for t, outcome in zip(talks, outcomes, strict=True)]


def toss_outcomes(talks: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `talks` whose outcomes a coin decides, as often a success as they are."""
    rng, share = Random(seed), sum(t.is_success for t in talks) / len(talks)
    tossed = [rng.random() < share for _ in talks]
    return [
        replace(t, outcome=Score(value=float(won), is_success=won))
        for t, won in zip(talks, tossed, strict=True)
    ]


def area(talks: Sequence[Trajectory], scores: Sequence[Sequence[float]]) -> float:
    """Return the AUC of scores, right words against wrong ones, while none before was wrong."""
    right, wrong = list[float](), list[float]()
    for talk, own in zip(talks, scores, strict=True):
        for row, turn, value in zip(states_of(talk), talk.turns, own, strict=True):
            if row // CARDS % 2:
                (right if turn.action.text == WORDS[row % CARDS] else wrong).append(value)
    if not right or not wrong:
        return 0.5
    above = np.array(right)[:, None] - np.array(wrong)
    return float((above > 0).mean() + (above == 0).mean() / 2)

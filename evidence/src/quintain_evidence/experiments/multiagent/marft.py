"""MARFT: is an agent's advantage cleared of what others do after it, by values of what they see?

A relay as a table: agents speak one after the other, each sees a card, what kind of task it is, and whether all words
before it were right; the last of them ends it, and all are paid if no word was wrong. In half of the tasks the last
word alone decides, which all of them see. The critic is a table fitted to the outcomes of earlier episodes. The number
is the cosine of the gradient of all agents but the last, through the method's own credit and loss, with the exact
gradient of success in their logits. In the control the values are dealt out anew over the episodes, at the same agent.
The rival is PPO for each agent by itself, on the same values: its next value is that of its own next turn, and there is
none. In the null world no word but the last decides anything in any task, and the gradient is the last agent's.

Beside it: the mean |A| of the first agent where its word decides nothing, over that where it does, which is to be small
with the values and large with values dealt out; how much of the returns the values explain on episodes held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit.gae import gae_turns
from quintain.credit.layout import Critic
from quintain.credit.whiten import whiten
from quintain.data.seats import split_seats
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.multiagent import marft
from quintain.types import Credit, Group, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.exact import log_policy
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, cosine, loss_gradient, states_of

AGENTS, CARDS = 4, 3
WORDS = tuple(f"word {number}" for number in range(CARDS))
NUM_ROWS = AGENTS * 2 * 2 * CARDS
Values = NDArray[np.float64]
"""[rows]"""


def row_of(agent: int, card: int, *, is_alone: bool, is_right: bool) -> int:
    """Return the row of what `agent` sees."""
    return ((agent * 2 + is_alone) * 2 + is_right) * CARDS + card


@dataclass
class Relay:
    """A relay under way: ``Relay(cards=(0, 2, 1, 1), is_alone=False)``."""

    cards: Sequence[int]
    is_alone: bool
    agent: int = 0
    is_right: bool = True
    said: list[int] = field(default_factory=list[int])

    def row(self) -> int:
        """Return the row of the table for what is seen now."""
        return row_of(self.agent, self.cards[self.agent], is_alone=self.is_alone, is_right=self.is_right)

    def key(self) -> str:
        """Return the name of the state."""
        return f"{self.cards} {self.is_alone} {self.said}"

    def act(self, column: int, luck: float) -> Moved:
        """Say a word."""
        self.said.append(column)
        is_last = self.agent == AGENTS - 1
        if is_last or not self.is_alone:
            self.is_right &= column == self.cards[self.agent]
        self.agent += 1
        return Moved(
            reward=float(is_last and self.is_right), is_over=is_last, is_success=is_last and self.is_right
        )


def start_of(seed: int, skill: float) -> TablePolicy:
    """Return agents whose words are right at the rate `skill`; the rest is spread by `seed`."""
    weights = (1 - skill) * torch.softmax(
        torch.randn(NUM_ROWS, CARDS, generator=torch.Generator().manual_seed(seed % (1 << 62))), -1
    )
    weights[torch.arange(NUM_ROWS), torch.arange(NUM_ROWS) % CARDS] += skill
    return TablePolicy(observed_world(NUM_ROWS, WORDS, tasks_of(seed, 1), horizon=AGENTS), weights.log())


def tasks_of(seed: int, num: int) -> list[Task]:
    """Return `num` tasks."""
    return [Task(id=f"relay/{seed}/{n}", environment="relay", seed=derive_seed(seed, n)) for n in range(num)]


def relay_of(task: Task, alone: float) -> Relay:
    """Return the relay of `task`, which the last word alone decides at the rate `alone`."""
    rng = Random(task.seed)
    return Relay(cards=[rng.randrange(CARDS) for _ in range(AGENTS)], is_alone=rng.random() < alone)


def play(policy: TablePolicy, alone: float, *, tasks: int, seed: int) -> list[Group]:
    """Return the parts of an episode of each of `tasks` tasks, a seat for each agent."""
    groups = play_games(policy, lambda task: relay_of(task, alone), tasks_of(seed, tasks), size=1, seed=seed)
    whole: list[Group] = []
    for group in groups:
        (episode,) = group.trajectories
        turns = tuple(
            replace(turn, seat=f"agent_{number}", starts_segment=True)
            for number, turn in enumerate(episode.turns)
        )
        whole.append(replace(group, trajectories=(replace(episode, turns=turns),)))
    return split_seats(whole)


def success(policy: TablePolicy, alone: float) -> Tensor:
    """Return J exactly, differentiable in the logits: the chance that all that decide are right."""
    chances = log_policy(policy.world, policy.theta).exp()

    def right(agent: int, is_alone: bool) -> Tensor:
        rows = [row_of(agent, card, is_alone=is_alone, is_right=True) for card in range(CARDS)]
        return chances[rows, list(range(CARDS))].mean()

    together = torch.stack([right(agent, False) for agent in range(AGENTS)]).prod()
    return (1 - alone) * together + alone * right(AGENTS - 1, True)


def fit(policy: TablePolicy, alone: float, *, tasks: int, seed: int) -> Values:
    """Return the mean outcome of each row over `tasks` earlier episodes, a half of one success before them."""
    sums, counts = np.full(NUM_ROWS, 0.5), np.ones(NUM_ROWS)
    for trajectory in flatten_scored(play(policy, alone, tasks=tasks, seed=seed)):
        for row in states_of(trajectory):
            sums[row] += float(trajectory.is_success)
            counts[row] += 1
    return sums / counts


def value_turns(trajectories: Sequence[Trajectory], values: Values) -> Critic:
    """Return what the table says before each turn."""
    return Critic(values=[[values[[row]] for row in states_of(t)] for t in trajectories])


def deal(critic: Critic, trajectories: Sequence[Trajectory], seed: int) -> Critic:
    """Return `critic` with the values of each agent dealt out anew over the episodes."""
    rng, found = Random(seed), list(critic.values)
    for seat in dict.fromkeys(t.turns[0].seat for t in trajectories):
        places = [place for place, t in enumerate(trajectories) if t.turns[0].seat == seat]
        for place, other in zip(places, rng.sample(places, len(places)), strict=True):
            found[place] = critic.values[other]
    return Critic(values=found)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a start of its own."""
    return [
        replication(options, derive_seed("marft", seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what all arms come to on one start."""
    policy = start_of(seed, float(options["skill"]))
    alone = float(options["alone"])
    found = compare(
        policy, alone, slice(0, NUM_ROWS // AGENTS * (AGENTS - 1)), options, derive_seed(seed, "real")
    )
    null = compare(
        policy, 1.0, slice(NUM_ROWS // AGENTS * (AGENTS - 1), NUM_ROWS), options, derive_seed(seed, "null")
    )
    return {
        "method": found["own"],
        "control": found["dealt"],
        "null_method": null["own"],
        "null_control": null["dealt"],
        **{f"extra.{name}": value for name, value in found.items() if name not in ("own", "dealt")},
    }


def compare(
    policy: TablePolicy, alone: float, rows: slice, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Return the cosines in `rows` of all arms, means over `batches` batches."""
    config = marft.Config()
    method = marft.method(config)
    values = fit(policy, alone, tasks=int(options["fitted"]), seed=derive_seed(seed, "fit"))
    (gradient,) = torch.autograd.grad(success(policy, alone), policy.theta)
    found: dict[str, list[float]] = {}
    for number in range(int(options["batches"])):
        groups = play(policy, alone, tasks=config.episodes, seed=derive_seed(seed, number))
        trajectories = flatten_scored(groups)
        critic = value_turns(trajectories, values)
        dealt = deal(critic, trajectories, derive_seed(seed, number, "dealt"))
        arms = {
            "own": method.credit(groups, Estimates(values=critic)),
            "dealt": method.credit(groups, Estimates(values=dealt)),
            "rival": whiten(
                gae_turns(groups, critic, discount=config.discount, gae_lambda=config.gae_lambda)
            ),
        }
        for name, credit in arms.items():
            step = loss_gradient(policy, credit, method.update)
            found.setdefault(name, []).append(cosine(step[rows], gradient[rows]))
        for name, given in (("ratio", critic), ("ratio_dealt", dealt)):
            found.setdefault(name, []).append(idle_share(marft.estimate(groups, given, config)))
        found.setdefault("explained", []).append(arms["own"].metrics["value/explained_variance"])
    return {name: fmean(numbers) for name, numbers in found.items()}


def idle_share(credit: Credit) -> float:
    """Return the mean |A| of the first agent where its word decides nothing, over that where it does."""
    sizes: dict[bool, list[float]] = {True: [0.0], False: [1e-9]}
    for trajectory, advantages in zip(credit.trajectories, credit.advantages, strict=True):
        if trajectory.turns[0].seat == "agent_0":
            is_alone = states_of(trajectory)[0] // (2 * CARDS) % 2 == 1
            sizes[is_alone].append(abs(float(advantages[0][0])))
    return fmean(sizes[True][1:] or [0.0]) / fmean(sizes[False][1:] or [1.0])

"""Agent0: does pay for uncertainty keep proposals where the executor neither knows nor guesses?

A question of level n takes n steps that all levels share, each done right with a probability that is learned; one that
is done wrong makes the answer one of a hundred at random. The executor learns from its own majority alone. The
method's own proposer, filter, credit and loss run for four rounds. The number is the share of proposals whose true
pass rate lies in [.3, .8], over rounds two to four. The control permutes R over the proposals of a step: the same
pay, for other proposals. In the null world all levels are one step, and equally hard. Beside them: what repetition
costs is left out, and questions with four answers, among which guessers agree: hopeless tasks look half known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.curriculum.levels import Proposer
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, State
from quintain.methods.selftraining.agent0 import Config, method
from quintain.types import Group, Task, ToolCall, derive_seed
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.rounds import TableCollector
from quintain_evidence.labs.tabular import TablePolicy, train_table
from quintain_evidence.layers.inference import rank_correlation

LEVELS, QUESTIONS, ROUNDS = 12, 16, 4
LOW, HIGH = 0.3, 0.8


class Puzzle:
    """A question: as many steps as its level, then an answer."""

    def __init__(self, task: Task, *, num_answers: int, is_flat: bool) -> None:
        self.steps = 1 if is_flat else 1 + int(task.environment)
        self.truth, self.num_answers = task.seed % num_answers, num_answers
        self.done, self.is_right = 0, True

    def row(self) -> int:
        """Return the number of the step."""
        return self.done

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Do a step right (column 0) or wrong; after the last one the answer is said."""
        self.is_right = self.is_right and column == 0
        self.done += 1
        if self.done < self.steps:
            return Moved()
        said = self.truth if self.is_right else int(luck * self.num_answers)
        call = ToolCall(name="answer", arguments={"value": said})
        is_true = said == self.truth
        return Moved(
            reward=float(is_true),
            terms={"answer": float(is_true), "said": float(said)},
            calls=(call,),
            is_over=True,
            is_success=is_true,
        )


class Watched:
    """A run of the method on a table, with the levels that were proposed and how hard they truly were."""

    def __init__(
        self, arm: OnPolicy, options: Mapping[str, Any], seed: int, *, num_answers: int, is_flat: bool
    ) -> None:
        self.arm, self.seed = arm, seed
        self.is_flat, self.num_answers = is_flat, num_answers
        self.levels: list[list[int]] = []
        self.rates: list[list[float]] = []
        skill = float(options["flat_skill"] if is_flat else options["skill"])
        world = observed_world(LEVELS, ["right", "wrong"], [puzzle(0, 0)], horizon=LEVELS)
        theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
        theta[:, 0] = float(np.log(skill / (1 - skill)))
        self.start = TablePolicy(world, theta)
        self.end = train_table(
            self.start,
            arm,
            num_batches=ROUNDS * int(options["steps"]),
            size=1,
            seed=seed,
            rate=float(options["flat_rate"] if is_flat else options["rate"]),
            collect=self.collect,
        ).policy

    def collect(self, policy: TablePolicy, batch: int) -> list[Group]:
        """Let the method collect, and write down what it proposed."""
        play = partial(Puzzle, num_answers=self.num_answers, is_flat=self.is_flat)
        pool = [puzzle(level, number) for number in range(QUESTIONS) for level in range(LEVELS)]
        collector = TableCollector(
            policy,
            pool,
            derive_seed(self.seed, batch),
            lambda p, t, n, s: play_games(p, play, t, size=n, seed=s),
        )
        groups = self.arm.collect(cast(Collector, collector), batch)
        self.levels.append([int(group.task.environment) for group in groups])
        rates = self.pass_rates(policy)
        self.rates.append([rates[level] for level in self.levels[-1]])
        return groups

    def pass_rates(self, policy: TablePolicy) -> list[float]:
        """Return the true pass rate of each level."""
        steps = policy.probabilities()[:, 0].numpy()
        known = np.full(LEVELS, steps[0]) if self.is_flat else np.cumprod(steps)
        return (known + (1 - known) / self.num_answers).tolist()

    def medium(self) -> float:
        """Return the share of proposals of rounds two to four whose true pass rate is neither low nor high."""
        later = self.rates[len(self.rates) // ROUNDS :]
        return float(np.mean([LOW <= rate <= HIGH for rates in later for rate in rates]))

    def entropy(self) -> float:
        """Return the entropy of the proposer over levels at the end, in nats."""
        known = proposer_of(self.arm)
        chances = np.array(known.chances([str(level) for level in range(LEVELS)]))
        return float(-(chances * np.log(np.maximum(chances, 1e-300))).sum())


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the share of proposals that are neither too easy nor too hard."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("agent0", seed, number)

        def learned(
            arm: OnPolicy, num_answers: int = 100, own: int = own, *, is_flat: bool = False
        ) -> Watched:
            return Watched(arm, options, own, num_answers=num_answers, is_flat=is_flat)

        def made(repetition: float = 1.0) -> OnPolicy:
            return method(
                Config(
                    tasks=int(options["tasks"]),
                    proposer_lr=float(options["proposer_rate"]),
                    repetition_weight=repetition,
                    oversample_factor=1_000,
                )
            )

        run, control = learned(made()), learned(shuffled(made(), own))
        few, few_control = learned(made(), 4), learned(shuffled(made(), own), 4)
        found.append(
            {
                "method": run.medium(),
                "control": control.medium(),
                "null_method": learned(made(), is_flat=True).medium(),
                "null_control": learned(shuffled(made(), own), is_flat=True).medium(),
                "extra.accuracy": float(np.mean(run.pass_rates(run.end))),
                "extra.control_accuracy": float(np.mean(control.pass_rates(control.end))),
                "extra.start_accuracy": float(np.mean(run.pass_rates(run.start))),
                "extra.rise": rank_correlation(
                    list(map(float, range(len(run.levels)))),
                    [float(np.mean(levels)) for levels in run.levels],
                ),
                "extra.entropy": run.entropy(),
                "extra.entropy_unpriced": learned(made(0.0)).entropy(),
                "extra.four": few.medium(),
                "extra.four_control": few_control.medium(),
            }
        )
    return found


def puzzle(level: int, number: int) -> Task:
    """Return question `number` of `level`; its seed is the truth's."""
    return Task(
        id=f"{level}/{number}", environment=str(level), seed=derive_seed("truth", level, number) % (1 << 40)
    )


def proposer_of(arm: OnPolicy) -> Proposer:
    """Return the proposer of `arm`."""
    state: State = arm.state
    (proposer,) = getattr(state, "parts")  # noqa: B009 - a fold of one part
    assert isinstance(proposer, Proposer), "the method's only state"
    return proposer


def shuffled(arm: OnPolicy, seed: int) -> OnPolicy:
    """Return `arm`, in which the proposals of a step are paid each other's R."""
    proposer = proposer_of(arm)
    value = proposer.value

    def permuted(groups: Sequence[Group]) -> Sequence[float]:
        values = list(value(groups))
        first = groups[0].trajectories[0].seed if groups else 0
        return (
            permute(values, seed=derive_seed("proposals", seed, first)).values if len(values) > 1 else values
        )

    proposer.value = permuted
    return arm

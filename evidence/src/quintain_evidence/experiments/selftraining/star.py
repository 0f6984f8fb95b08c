"""STaR: does the answer as a hint find the right first step of questions that sampling alone does not solve?

A question (a, b) takes two steps: r from a table by its type a, then the answer y by (r, b), which all types share.
Half of the types are easy; hard ones begin almost sure of one wrong r. Questions of hard types are trained with three
of the six b. The method's own collection, stages and optimizer steps run for four loops; a hinted sample is drawn from
the model's own posterior given y, so that spurious r, which reach y by chance, occur as they should. The number is the
accuracy on hard types with the three held-out b: a right r carries over, a spurious one does not. The control draws
as many more samples of the same failures, without a hint, at temperature 1.5. In the null world all types are easy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.methods.selftraining import star
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn, derive_seed
from quintain_evidence.labs.exact import World
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.rounds import Play, RoundsRun, train_rounds
from quintain_evidence.labs.tabular import TablePolicy

TYPES, EASY, CONTEXTS, TRAINED, STEPS = 32, 16, 6, 3, 16
"""Types, easy ones among them, values of b, those of hard types that are trained, values of r and of y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is right: ``rule.answer[rule.first[a], b]`` is the answer to (a, b)."""

    first: NDArray[np.int64]
    """[types] right r"""
    answer: NDArray[np.int64]
    """[r, b] → y"""
    wrong: NDArray[np.int64]
    """[types] r that a hard type begins with"""

    def of(self, task: Task) -> tuple[int, int, int]:
        """Return a, b and y of a question."""
        a, b = divmod(task.seed, CONTEXTS)
        return a, b, int(self.answer[self.first[a], b])


class Question:
    """An episode: r, then y."""

    def __init__(self, task: Task, *, rule: Rule) -> None:
        self.type, self.context, self.answer = rule.of(task)
        self.step: int | None = None

    def row(self) -> int:
        """Return the type at first, then the step with the context."""
        return self.type if self.step is None else TYPES + self.step * CONTEXTS + self.context

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Take the first step, or answer."""
        if self.step is None:
            self.step = column
            return Moved()
        is_right = column == self.answer
        return Moved(reward=float(is_right), is_over=True, is_success=is_right)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the accuracy on hard types with contexts that were not trained."""
    loops, heat = int(options["loops"]), float(options["heat"])
    sure, right = float(options["sure"]), float(options["right"])
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("star", seed, number)
        rule = drawn_rule(own)
        hard, easy = starting_table(rule, sure, right, EASY), starting_table(rule, sure, right, TYPES)

        def learned(
            start: TablePolicy, again: Play, own: int = own, rule: Rule = rule, rationalises: bool = True
        ) -> RoundsRun:
            made = star.method(star.Config(tasks=len(trained_questions()), rationalises=rationalises))
            return train_rounds(
                start,
                made,
                num_rounds=loops,
                seed=own,
                rate=float(options["rate"]),
                pool=trained_questions(),
                play=partial(answered, rule=rule),
                play_wrapped=again,
                teach=partial(solutions, rule=rule),
            )

        hinted, hot = partial(rationalised, rule=rule), partial(answered, rule=rule, heat=heat)
        run, control = learned(hard, hinted), learned(hard, hot)
        shuffled = learned(hard, partial(rationalised, rule=rule, shift=1))
        found.append(
            {
                "method": accuracy(run.policy, rule),
                "control": accuracy(control.policy, rule),
                "null_method": accuracy(learned(easy, hinted).policy, rule),
                "null_control": accuracy(learned(easy, hot).policy, rule),
                "extra.other_hint": accuracy(shuffled.policy, rule),
                "extra.without": accuracy(learned(hard, hinted, rationalises=False).policy, rule),
                "extra.start": accuracy(hard, rule),
                "extra.easy": accuracy(run.policy, rule, hard=False),
                "extra.drawn": float(sum(run.collector.sampled)),
                "extra.control_drawn": float(sum(control.collector.sampled)),
                "extra.spurious_first": spurious(run, rule, 0),
                "extra.spurious_last": spurious(run, rule, loops - 1),
                "extra.spurious_fell": spurious(run, rule, 0) - spurious(run, rule, loops - 1),
            }
        )
    return found


def drawn_rule(seed: int) -> Rule:
    """Return a rule; of the easy types each has a right step of its own, and so have the hard ones."""
    rng = np.random.default_rng(derive_seed("rule", seed))
    first = np.concatenate([rng.permutation(STEPS), rng.permutation(STEPS)])
    return Rule(
        first=first,
        answer=rng.integers(0, STEPS, (STEPS, CONTEXTS)),
        wrong=(first + rng.integers(1, STEPS, TYPES)) % STEPS,
    )


def starting_table(rule: Rule, sure: float, right: float, num_easy: int) -> TablePolicy:
    """Return the table that knows answers and easy steps with probability `sure`, hard ones with `right`."""
    world = table_world()
    chances = torch.full(world.is_legal.shape, (1 - sure) / (STEPS - 1), dtype=torch.float64)
    for a in range(TYPES):
        if a < num_easy:
            chances[a, int(rule.first[a])] = sure
            continue
        chances[a] = (1 - 0.95 - right) / (STEPS - 2)
        chances[a, int(rule.wrong[a])] = 0.95
        chances[a, int(rule.first[a])] = right
    for r in range(STEPS):
        for b in range(CONTEXTS):
            chances[TYPES + r * CONTEXTS + b, int(rule.answer[r, b])] = sure
    return TablePolicy(world, chances.log())


def table_world() -> World:
    """Return the rows: types, then steps with contexts."""
    return observed_world(
        TYPES + STEPS * CONTEXTS, [str(n) for n in range(STEPS)], [question(0, 0)], horizon=2
    )


def question(a: int, b: int) -> Task:
    """Return the question (a, b)."""
    return Task(id=f"question/{a}/{b}", environment="questions", seed=a * CONTEXTS + b)


def trained_questions() -> list[Task]:
    """Return all questions of easy types, and those of hard ones with the trained contexts."""
    return [question(a, b) for a in range(TYPES) for b in range(CONTEXTS if a < EASY else TRAINED)]


def answered(
    policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int, *, rule: Rule, heat: float = 1.0
) -> list[Group]:
    """Return `size` episodes of each question, sampled at the temperature `heat`."""
    warm = TablePolicy(policy.world, policy.theta / heat)
    return play_games(warm, partial(Question, rule=rule), tasks, size=size, seed=seed)


def rationalised(
    policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int, *, rule: Rule, shift: int = 0
) -> list[Group]:
    """Return episodes of the posterior given the answer: p(r | a)·p(y | r, b); `shift` gives another question's."""
    chances = policy.probabilities()
    groups: list[Group] = []
    for place, task in enumerate(tasks):
        a, b, _ = rule.of(task)
        _, _, told = rule.of(tasks[(place + shift) % len(tasks)])
        rows = torch.arange(STEPS) * CONTEXTS + TYPES + b
        theta = policy.theta.detach().clone()
        theta[a] = (chances[a] * chances[rows, told]).log()
        theta[rows] = -1e9
        theta[rows, told] = 0.0
        given = TablePolicy(policy.world, theta)
        groups += play_games(
            given, partial(Question, rule=rule), [task], size=size, seed=derive_seed(seed, place)
        )
    return groups


def solutions(tasks: Sequence[Task], *, rule: Rule) -> list[Trajectory]:
    """Return what a teacher does on `tasks`: its last action is the answer."""
    found: list[Trajectory] = []
    for task in tasks:
        turn = Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(token_ids=(0,), logprobs=(0.0,), stop="stop"),
            action=Action(text=str(rule.of(task)[2])),
        )
        found.append(
            Trajectory(
                task=task,
                turns=(turn,),
                outcome=Score(value=1.0, is_success=True),
                stop=Stop.TERMINATED,
                seed=0,
                group=task.id,
                index=0,
            )
        )
    return found


def accuracy(policy: TablePolicy, rule: Rule, *, hard: bool = True) -> float:
    """Return the probability of right answers to hard questions with held-out contexts, or to easy ones, their mean."""
    chances = policy.probabilities().numpy()
    asked = (
        [(a, b) for a in range(EASY, TYPES) for b in range(TRAINED, CONTEXTS)]
        if hard
        else [(a, b) for a in range(EASY) for b in range(CONTEXTS)]
    )
    rows = np.arange(STEPS) * CONTEXTS + TYPES
    return float(np.mean([chances[a] @ chances[rows + b, rule.answer[rule.first[a], b]] for a, b in asked]))


def spurious(run: RoundsRun, rule: Rule, loop: int) -> float:
    """Return the share of what a loop imitated of hard types whose first step is not the right one."""
    wrong: list[bool] = []
    for example in run.chosen[loop][0].examples:
        a, _, _ = rule.of(example.trajectory.task)
        if a >= EASY:
            first = example.trajectory.turns[0].completion.token_ids[0] - run.policy.world.num_states
            wrong.append(first != int(rule.first[a]))
    return float(np.mean(wrong)) if wrong else 0.0

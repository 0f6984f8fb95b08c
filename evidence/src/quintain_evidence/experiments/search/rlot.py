"""RL of Thoughts: does a navigator that learned with one solver steer one that errs twice as often, by its scores?

A scripted solver of sums in steps (`solver?kind=chain`). For each seed a navigator learns with it as `rlot` trains it,
and is tried, as it is, with the solver of doubled errors. In the control the seven scores are dealt out anew among the
problems that are at the same block. The rival is the fixed sequence of up to six blocks that solves most with the first
solver, found exactly among all of them. In the null world the solver does the same whatever it is told, until nothing
is left to do. Printed beside: what value iteration comes to that knows everything, the navigator's share of its return
with the first solver where scores have no noise, and the lead over the control at other noises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from quintain.agents.navigated import Asked
from quintain.credit_lab.permute import derange
from quintain.methods.search.rlot import Config, Navigation
from quintain.types import (
    Action,
    Completion,
    Group,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    derive_seed,
)
from quintain.worlds.solver.chain import MISJUDGED, MISSED, MOST_BLOCKS, SPOILED, Chain, error_rate
from quintain.worlds.solver.problem import BEGIN, STOP

COST = 0.02
LONGEST = 6
"""Blocks of a fixed sequence."""
NOISE, OTHERS = 0.3, (0.0, 1.0, 2.0)
"""Noise of the scores that a navigator learns with, and others that it is tried with."""
WRITTEN = Completion(token_ids=(0,), logprobs=(), stop="stop")
"""What stands for the tokens of a choice."""
Steer = Callable[[Sequence[Asked], Sequence[Task], int], Sequence[str]]
"""(what is asked of all problems at a block, their tasks, the number of the block) → the blocks"""


class Played(NamedTuple):
    """What came of problems: ``Played(success=.8, calls=4.2, value=.7, episodes=[…])``."""

    success: float
    calls: float
    value: float
    """mean discounted return"""
    episodes: list[Trajectory]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: success of all arms on problems that no navigator has seen."""
    sequence = find_sequence(1.0)
    steps, count = int(options["steps"]), int(options["problems"])
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("rlot", seed, number)
        learned, test = train(own, steps=steps), draw_tasks(own, "eval", count)
        row: dict[str, float] = {}
        for noise in (NOISE, *OTHERS):
            found = play(test, best_of(learned), errors=2.0, noise=noise)
            dealt = play(test, best_of(learned, deal=own), errors=2.0, noise=noise)
            if noise == NOISE:
                row |= {"method": found.success, "control": dealt.success, "extra.calls": found.calls}
            row[f"extra.lead_{noise:g}"] = found.success - dealt.success
        fixed = play(test, follow(sequence), errors=2.0, noise=NOISE)
        exact = play(test, best_of(learned), errors=1.0, noise=0.0)
        null = train(own, steps=steps // 2, is_null=True)
        rows.append(
            {
                **row,
                "extra.fixed": fixed.success,
                "extra.fixed_calls": fixed.calls,
                "extra.fewer_calls": fixed.calls - row["extra.calls"],
                "extra.room": solve_exactly(2.0)[1] - success_of(sequence, 2.0),
                "extra.share_of_optimum": exact.value / solve_exactly(1.0)[0],
                "extra.length": float(len(sequence)),
                "null_method": play(test, best_of(null), errors=2.0, noise=NOISE, is_null=True).success,
                "null_control": play(
                    test, best_of(null, deal=own), errors=2.0, noise=NOISE, is_null=True
                ).success,
            }
        )
    return rows


def draw_tasks(seed: int, split: str, count: int, first: int = 0) -> list[Task]:
    """Return `count` tasks."""
    return [
        Task(
            id=f"solver/{split}/{k}",
            environment="solver",
            seed=derive_seed(seed, split, k),
            split="eval" if split == "eval" else "train",
        )
        for k in range(first, first + count)
    ]


def train(seed: int, *, steps: int, is_null: bool = False) -> Navigation:
    """Return what a navigator has learned after `steps` steps with the solver of usual errors."""
    config = Config()
    learned = Navigation(config, seed % (1 << 31))
    for step in range(steps):
        tasks = draw_tasks(seed, "train", config.tasks, step * config.tasks)

        def explore(asked: Sequence[Asked], of: Sequence[Task], number: int) -> list[str]:
            return [learned.explore(each, task, number) for each, task in zip(asked, of, strict=True)]

        played = play(tasks, explore, errors=1.0, noise=NOISE, is_null=is_null)
        learned.update([Group(task=t.task, trajectories=(t,)) for t in played.episodes])
    return learned


def best_of(learned: Navigation, deal: int = 0) -> Steer:
    """Return who takes the best block; with the seed `deal` by scores that are dealt out anew at each block."""

    def steer(asked: Sequence[Asked], _: Sequence[Task], number: int) -> list[str]:
        shown = list(asked)
        if deal and len(shown) > 1:
            order = derange(len(shown), derive_seed(deal, "dealt", number))
            shown = [
                each._replace(scores=asked[place].scores) for each, place in zip(shown, order, strict=True)
            ]
        return [learned.exploit(each) for each in shown]

    return steer


def follow(sequence: Sequence[str]) -> Steer:
    """Return who does `sequence`, whatever is shown, and stops."""
    return lambda asked, _, number: [(*sequence, STOP)[min(number, len(sequence))]] * len(asked)


def play(
    tasks: Sequence[Task], steer: Steer, *, errors: float, noise: float, is_null: bool = False
) -> Played:
    """Return what comes of `tasks`, all of them a block at a time."""
    rngs = [Random(task.seed) for task in tasks]
    problems = [Chain.draw(rng, steps=3, errors=errors, noise=noise) for rng in rngs]
    problems = [ask(problem, BEGIN, rng) for problem, rng in zip(problems, rngs, strict=True)]
    turns: list[list[Turn]] = [[] for _ in tasks]
    running = list(range(len(tasks)))
    for number in range(MOST_BLOCKS + 1):
        asked = [Asked(problems[k].scores, problems[k].legal()) for k in running]
        blocks = steer(asked, [tasks[k] for k in running], number)
        left: list[int] = []
        for k, block in zip(running, blocks, strict=True):
            before = problems[k]
            is_over = before.done == len(before.ops) if is_null else block == STOP
            if not is_over:
                problems[k] = ask(before, "step" if is_null else block, rngs[k])
                left.append(k)
            after = problems[k]
            reward = before.is_right - before.process if is_over else after.process - before.process
            turns[k].append(
                Turn(
                    observation=as_content(before.describe()),
                    prompt_ids=(0,),
                    completion=WRITTEN,
                    action=Action(text=block),
                    reward=reward - COST * (after.calls - before.calls),
                )
            )
        running = left
    discount = Config().discount
    episodes = [
        Trajectory(
            task=task,
            turns=tuple(mine),
            outcome=Score(value=sum(turn.reward for turn in mine), is_success=problem.is_right),
            stop=Stop.TERMINATED,
            seed=0,
            group=task.id,
            index=0,
        )
        for task, problem, mine in zip(tasks, problems, turns, strict=True)
    ]
    return Played(
        fmean(float(problem.is_right) for problem in problems),
        fmean(float(problem.calls) for problem in problems),
        fmean(sum(turn.reward * discount**n for n, turn in enumerate(t.turns)) for t in episodes),
        episodes,
    )


def ask(problem: Chain, block: str, rng: Random) -> Chain:
    """Return `problem` after the scripted solver did `block`."""
    said: list[str] = []
    while problem.ask(block, said):
        said.append(problem.answer(block, said, rng))
    return problem.apply(block, said)


class At(NamedTuple):
    """What counts of a chain, if everything is known."""

    steps: int
    is_hard: bool
    done: int = 0
    is_wrong: bool = False
    is_split: bool = False
    used: int = 0

    @property
    def process(self) -> float:
        """The score of the process."""
        return self.done / self.steps * (0.25 if self.is_wrong else 1.0)

    @property
    def is_right(self) -> bool:
        """Whether the answer is right."""
        return self.done == self.steps and not self.is_wrong

    def legal(self) -> tuple[str, ...]:
        """Return what may be done."""
        some = Chain(start=0, ops=(("+", 1),) * self.steps, is_hard=self.is_hard, value=0)
        return replace(some, done=self.done, plan="1" * self.is_split, used=self.used).legal()


STARTS = [At(steps, is_hard) for steps in (2, 3) for is_hard in (False, True)]


def follow_up(at: At, block: str, errors: float) -> list[tuple[float, At, int]]:
    """Return what may come of `block`, each with its chance and its calls."""
    then = at._replace(used=at.used + 1)
    if block == "decompose":
        return [(1.0, then._replace(is_split=True), 1)]
    if block == "refine":
        rate = min(0.9, errors * (MISSED if at.is_wrong else SPOILED))
        return [(rate, then._replace(is_wrong=True), 1), (1 - rate, then._replace(is_wrong=False), 1)]
    then = then._replace(done=min(at.steps, at.done + 1))
    wrong = then._replace(is_wrong=True)
    rate = error_rate(is_hard=at.is_hard, is_split=at.is_split, errors=errors)
    if block == "step":
        return [(1 - rate, then, 1), (rate, wrong, 1)]
    one, both = 2 * rate * (1 - rate), rate * rate
    return [
        ((1 - rate) ** 2, then, 2),
        (both / 4, wrong, 2),
        (one * (1 - MISJUDGED) + both * 3 / 4 * (1 - rate), then, 3),
        (one * MISJUDGED + both * 3 / 4 * rate, wrong, 3),
    ]


def solve_exactly(errors: float) -> tuple[float, float]:
    """Return discounted return and success of the best there is to do for one who knows everything."""
    discount = Config().discount

    @cache
    def value(at: At) -> tuple[float, float]:
        found: list[tuple[float, float]] = []
        for block in at.legal():
            if block == STOP:
                found.append((at.is_right - at.process, float(at.is_right)))
                continue
            behind = [
                (p, then.process - at.process - COST * calls, value(then))
                for p, then, calls in follow_up(at, block, errors)
            ]
            found.append(
                (
                    sum(p * (reward + discount * after[0]) for p, reward, after in behind),
                    sum(p * after[1] for p, _, after in behind),
                )
            )
        return max(found)

    return fmean(value(at)[0] for at in STARTS), fmean(value(at)[1] for at in STARTS)


def find_sequence(errors: float) -> tuple[str, ...]:
    """Return the sequence of up to six blocks that solves most, among all."""
    working = ("step", "decompose", "debate", "refine")
    every = [each for size in range(1, LONGEST + 1) for each in product(working, repeat=size)]
    return max(every, key=lambda sequence: success_of(sequence, errors))


def success_of(sequence: Sequence[str], errors: float) -> float:
    """Return the success of `sequence` exactly; -1 where it is not legal."""
    spread = dict.fromkeys(STARTS, 1 / len(STARTS))
    for block in sequence:
        new: dict[At, float] = {}
        for at, chance in spread.items():
            if block not in at.legal():
                return -1.0
            for p, then, _ in follow_up(at, block, errors):
                new[then] = new.get(then, 0.0) + chance * p
        spread = new
    return sum(chance for at, chance in spread.items() if at.is_right)

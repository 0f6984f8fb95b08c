"""RLSP: pay for thinking finds the long thought that helps, where the outcome alone seldom meets it.

A task is a page of scratch work: every useful step is a thought of its own, and an answer is right with probability .3
before four of them and .9 after. A mumble is a thought that leads nowhere. Every move is a
phrase of eleven tokens to the search term, which counts tokens. Thoughts are internal turns, so the search
term counts them with the answer that they lead to. The number is the exact share of right answers after training with
RLSP. The control pays every episode the search term of another episode of the batch: the same sums, for nothing that
was done. In the null world scratch work is useless: an answer is right as often after it as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import rlsp
from quintain.types import ALONE, Group, Score, Task, Trajectory, Turn, derive_seed, flatten_scored
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tabular import TablePolicy, TabularRun, train_table

STEPS, HELPFUL, HORIZON = 6, 4, 12
"""Useful steps that there are, after how many of them an answer is likely right, and turns of an episode."""
ANSWER, MUMBLE = 0, 1
"""Columns of the table; step k of the scratch work is column 2 + k."""
PHRASE = 11
"""Tokens of a move."""
THOUGHT = f"{ALONE}/thought"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact success after training."""
    found: list[dict[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("rlsp", seed, number)
        helps, useless = (
            thinker(world, own, thinks=float(options.get("thinks", 0.25)))
            for world in (scratch(0.3, 0.9), scratch(0.3, 0.3))
        )

        def train(start: TablePolicy, moves: bool = False, own: int = own, **config: Any) -> TabularRun:
            return trained(start, moved(own) if moves else same, options, own, **config)

        method, control = train(helps), train(helps, moves=True)
        row = {
            "method": method.objective,
            "control": control.objective,
            "extra.baseline": train(helps, outcome_fraction=1.0).objective,
            "extra.start": method.start,
            "extra.scratch": reached(method.policy),
            "extra.scratch_start": reached(helps),
        }
        row["extra.gain"] = row["method"] - row["extra.baseline"]
        if number % 2 == 0:
            null, null_control = train(useless), train(useless, moves=True)
            row |= {
                "null_method": null.objective,
                "null_control": null_control.objective,
                "extra.null_scratch": reached(null.policy) - reached(useless),
            }
        found.append(row)
    return found


def scratch(before: float, after: float) -> World:
    """Return one task whose answer is right with probability `before`, or `after` `HELPFUL` useful steps or more."""
    num, actions = STEPS + 1, ("answer", "mumble", *(f"step {k}" for k in range(STEPS)))
    following = np.full((num, len(actions)), END, np.int64)
    is_legal = np.zeros((num, len(actions)), np.bool_)
    chance = np.zeros((num, len(actions)))
    for state in range(num):
        is_legal[state, [ANSWER, MUMBLE]] = True
        following[state, MUMBLE] = state
        chance[state, ANSWER] = before if state < HELPFUL else after
        if state < STEPS:
            is_legal[state, 2 + state] = True
            following[state, 2 + state] = state + 1
    return World(
        tasks=(Task(id="scratch/train/0", environment="scratch", seed=0),),
        actions=actions,
        horizon=HORIZON,
        start=np.zeros(1, np.int64),
        next=following,
        reward=chance,
        is_legal=is_legal,
        is_success=np.zeros(chance.shape, np.bool_),
        task_of=np.zeros(num, np.int64),
        keys=tuple(f"{state} steps" for state in range(num)),
        expert=np.array([*range(2, 2 + HELPFUL), *[ANSWER] * (num - HELPFUL)]),
        distance=np.array([*range(HELPFUL + 1, 1, -1), *[1] * (num - HELPFUL)], np.float64),
        chance=chance,
    )


def thinker(world: World, seed: int, *, thinks: float) -> TablePolicy:
    """Return a policy that goes on with its scratch work with about the probability `thinks`, and seldom mumbles."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.3 * torch.randn(world.is_legal.shape, generator=generator, dtype=torch.float64)
    theta[:, ANSWER] += float(np.log((1 - thinks) / thinks))
    theta[:, MUMBLE] -= 1.0
    return TablePolicy(world, theta, torch.zeros(world.num_states, dtype=torch.float64))


Pay = Callable[[OnPolicy, Sequence[Group]], Sequence[Group]]


def same(method: OnPolicy, groups: Sequence[Group]) -> Sequence[Group]:
    """Pay as the method does."""
    return method.reward(groups)


def moved(seed: int) -> Pay:
    """Return the pay of the method with every search term given to another episode of the batch."""

    def pay(method: OnPolicy, groups: Sequence[Group]) -> Sequence[Group]:
        paid = method.reward(groups)
        episodes = flatten_scored(paid)
        terms = [t.turns[-1].reward_terms["search"] for t in episodes]
        others = permute(terms, seed=seed).values
        gain = {id(t): new - old for t, old, new in zip(episodes, terms, others, strict=True)}
        return [
            replace(group, trajectories=tuple(more(t, gain[id(t)]) for t in group.trajectories))
            for group in paid
        ]

    return pay


def more(trajectory: Trajectory, gain: float) -> Trajectory:
    """Return `trajectory` with `gain` added to what its last turn was paid."""
    *before, last = trajectory.turns
    assert isinstance(trajectory.outcome, Score), "episodes of a table have one"
    outcome = replace(trajectory.outcome, value=trajectory.outcome.value + gain)
    return replace(trajectory, turns=(*before, replace(last, reward=last.reward + gain)), outcome=outcome)


def trained(start: TablePolicy, pay: Pay, options: Mapping[str, Any], seed: int, **config: Any) -> TabularRun:
    """Train a copy of `start` by RLSP with `config`, paid as `pay` says."""
    whole = rlsp.method(rlsp.Config(**config))
    method = replace(whole, reward=lambda groups: shorten(pay(whole, thoughtful(groups)), groups))
    return train_table(
        start,
        method,
        num_batches=int(options.get("batches", 30)),
        size=int(options.get("episodes", 64)),
        seed=seed,
        rate=float(options.get("rate", 4.0)),
        num_minibatches=1,
    )


def thoughtful(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` whose moves are phrases, and whose turns that do not answer are thoughts; the last turn acts."""

    def phrase(turn: Turn) -> Turn:
        (move,) = turn.completion.token_ids
        said = turn.completion
        tokens = tuple(range(PHRASE * move, PHRASE * (move + 1)))
        return replace(turn, completion=replace(said, token_ids=tokens, logprobs=said.logprobs * PHRASE))

    def changed(trajectory: Trajectory) -> Trajectory:
        *before, last = map(phrase, trajectory.turns)
        return replace(trajectory, turns=(*(replace(turn, seat=THOUGHT) for turn in before), last))

    return [replace(group, trajectories=tuple(map(changed, group.trajectories))) for group in groups]


def shorten(paid: Sequence[Group], sampled: Sequence[Group]) -> list[Group]:
    """Return `paid` whose moves are what was sampled again."""

    def changed(told: Trajectory, own: Trajectory) -> Trajectory:
        turns = tuple(
            replace(turn, completion=old.completion) for turn, old in zip(told.turns, own.turns, strict=True)
        )
        return replace(told, turns=turns)

    return [
        replace(
            group,
            trajectories=tuple(
                changed(*pair) for pair in zip(group.trajectories, old.trajectories, strict=True)
            ),
        )
        for group, old in zip(paid, sampled, strict=True)
    ]


def reached(policy: TablePolicy) -> float:
    """Return the probability that an episode comes to the step after which an answer is likely right."""
    world = policy.world
    never = policy.probabilities().clone()
    stop = np.zeros(world.next.shape, np.bool_)
    stop[HELPFUL - 1, 2 + HELPFUL - 1] = True
    through = replace(
        world,
        next=np.where(stop, END, world.next),
        reward=stop.astype(np.float64),
        chance=None,
        is_success=stop,
    )
    return float(exact_values(through, never).objective)

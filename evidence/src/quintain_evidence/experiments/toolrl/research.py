"""ReSearch: where hardly an answer is right word for word, does F1 with a floor turn the gradient towards right ones?

An answer is two words, each out of eight; sixteen questions have a gold of their own. A table writes one after the
other, the second without regard to the first, and knows each word a little. The gradient of exact matches is known
exactly. The number is the cosine with it of the method's gradient. In the control an answer's F1 is with the gold of
another question. Beside it: the same floor on exact matches. In the null world answers are one word, where F1 and exact
match are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.methods.toolrl import research
from quintain.rewards.answers import exact_match, token_f1
from quintain.types import ANSWER, Group, Score, Task, Trajectory, derive_seed
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import TablePolicy, actions_of, assign, cosine, loss_gradient

TASKS, CHOICES = 16, 8
LETTERS = "pqrstuvw"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size = int(options.get("size", 8))
    method = research.method(research.Config(kl_coef=0.0, floor=float(options.get("floor", 0.1))))
    start, golds = writer(seed, float(options["knows"]))
    single, singles = writer(seed, float(options["knows"]), words=1)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("research", seed, batch)
        others = elsewhere(golds, own)

        def angle(policy: TablePolicy, groups: Sequence[Group]) -> float:
            gold = singles if policy is single else golds
            target = exact_gradient(policy, gold)
            return cosine(loss_gradient(policy, assign(policy, method, groups), method.update), target)

        groups, plain = start.sample(size=size, seed=own), single.sample(size=size, seed=own)
        right = angle(start, graded(groups, start, golds, token_f1))
        found.append(
            {
                "method": right,
                "control": angle(start, graded(groups, start, others, token_f1)),
                "null_method": angle(single, graded(plain, single, singles, token_f1)),
                "null_control": angle(single, graded(plain, single, singles, exact_match)),
                "extra.over_exact": right - angle(start, graded(groups, start, golds, exact_match)),
                "extra.exact": float(chance(start.theta.detach(), golds)),
                "extra.f1": fmean(
                    t.turns[-1].reward_terms[ANSWER]
                    for group in graded(groups, start, golds, token_f1)
                    for t in group.trajectories
                ),
            }
        )
    return found


def writer(seed: int, knows: float, *, words: int = 2) -> tuple[TablePolicy, NDArray[np.int64]]:
    """Return a table that writes answers of so many words and knows each gold word by `knows` in its logits; the golds
    [TASKS, words]."""
    rng = np.random.default_rng(derive_seed(seed, words))
    golds = rng.integers(0, CHOICES, (TASKS, words))
    first = np.arange(TASKS) * words
    following = np.full((TASKS * words, CHOICES), END, np.int64)
    if words == 2:
        following[first] = first[:, None] + 1
    shape = following.shape
    world = World(
        tasks=tuple(Task(id=f"write/train/{k}", environment="write", seed=k) for k in range(TASKS)),
        actions=tuple(f"write {letter}" for letter in LETTERS),
        horizon=words,
        start=first,
        next=following,
        reward=np.zeros(shape),
        is_legal=np.ones(shape, np.bool_),
        is_success=np.zeros(shape, np.bool_),
        task_of=np.repeat(np.arange(TASKS), words),
        keys=tuple(str(row) for row in range(len(following))),
        expert=golds.flatten(),
        distance=np.full(len(following), np.nan),
    )
    theta = 0.3 * rng.normal(size=shape)
    theta[np.arange(len(theta)), golds.flatten()] += knows
    return TablePolicy(world, torch.as_tensor(theta)), golds


def chance(theta: Tensor, golds: NDArray[np.int64]) -> Tensor:
    """Return the chance that all words of an answer are right, over all questions."""
    own = theta.softmax(1)[torch.arange(golds.size), torch.as_tensor(golds.flatten())]
    return own.view(golds.shape).prod(1).mean()


def exact_gradient(policy: TablePolicy, golds: NDArray[np.int64]) -> Tensor:
    """Return the gradient of `chance` by the table."""
    theta = policy.theta.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(chance(theta, golds), theta)
    return found


def elsewhere(golds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return `golds` of other questions: none keeps its own place."""
    return np.roll(golds, int(np.random.default_rng(seed).integers(1, len(golds))), 0)


def graded(groups: Sequence[Group], policy: TablePolicy, golds: NDArray[np.int64], score: Any) -> list[Group]:
    """Return `groups` whose last turns answer, with what `score` says of the words against `golds`."""

    def changed(trajectory: Trajectory, task: int) -> Trajectory:
        said = " ".join(LETTERS[action] for action in actions_of(trajectory, policy.world))
        gold = " ".join(LETTERS[word] for word in golds[task])
        value = float(score(said, [gold]))
        last = replace(trajectory.turns[-1], reward=value, reward_terms={ANSWER: value})
        outcome = Score(value=value, is_success=exact_match(said, [gold]) == 1)
        return replace(trajectory, turns=(*trajectory.turns[:-1], last), outcome=outcome)

    return [
        replace(group, trajectories=tuple(changed(t, group.task.seed) for t in group.trajectories))
        for group in groups
    ]

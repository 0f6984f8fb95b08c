"""MT-GRPO: the reward of the search is noise at the answer, and leaving it out there turns the gradient to success.

A task is a search and an answer: one of six queries finds what is asked for and is paid half, and of six answers one is
right, which the policy knows well where it has found, badly where it has not. A table stands for a model, so the
gradient of success is known exactly. The number is the cosine with it, over the states in which answers are given, of
the gradient by the method. The control gives A_T to the turn after the search instead of that before it, so all
magnitudes are kept. GRPO on the sum of both rewards is compared with it at the answer and at the search. In the null
world searches are paid nothing, A_T is 0, and the arms are the same bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from quintain.credit.group import group_relative
from quintain.credit.turn_group import turn_group_relative
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl import mt_grpo
from quintain.types import Credit, Group, Score, Task, Trajectory, derive_seed
from quintain_evidence.labs.exact import END, World, exact_gradient
from quintain_evidence.labs.tabular import TablePolicy, assign, cosine, loss_gradient

TASKS, CHOICES = 16, 6
ASKED, FOUND, LOST = range(3)
"""States of a task: before the search, and before the answer."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size = int(options.get("size", 8))
    start = searcher(seed, options)
    _, exact = exact_gradient(start.world, start.theta, outcome="success")
    method = mt_grpo.method(mt_grpo.Config(executed=0.0))
    wrong, summed = (
        replace(method, credit=credit) for credit in (misplaced, lambda groups, _: group_relative(groups))
    )
    searches = torch.arange(start.world.num_states) % 3 == ASKED

    def angle(arm: OnPolicy, groups: Sequence[Group], rows: Tensor) -> float:
        found = loss_gradient(start, assign(start, arm, groups), arm.update)
        return cosine(found[rows], exact[rows])

    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        groups = start.sample(size=size, seed=derive_seed("mt_grpo", seed, batch))
        free = [without_hits(group) for group in groups]
        right = angle(method, groups, ~searches)
        found.append(
            {
                "method": right,
                "control": angle(wrong, groups, ~searches),
                "null_method": angle(method, free, ~searches),
                "null_control": angle(wrong, free, ~searches),
                "extra.over_summed": right - angle(summed, groups, ~searches),
                "extra.search": angle(method, groups, searches) - angle(summed, groups, searches),
                "extra.success": start.objective("success"),
                "extra.found": float(np.mean([t.turns[0].reward > 0 for g in groups for t in g.scored])),
            }
        )
    return found


def searcher(seed: int, options: Mapping[str, Any]) -> TablePolicy:
    """Return a random policy that knows queries and answers by so much in their logits."""
    rng = np.random.default_rng(seed)
    first = np.arange(TASKS) * 3
    query, gold = rng.integers(0, CHOICES, TASKS), rng.integers(0, CHOICES, TASKS)
    following = np.full((3 * TASKS, CHOICES), END, np.int64)
    following[first] = (first + LOST)[:, None]
    following[first, query] = first + FOUND
    is_success = np.zeros((3 * TASKS, CHOICES), np.bool_)
    is_success[first + FOUND, gold] = is_success[first + LOST, gold] = True
    reward = is_success.astype(np.float64)
    reward[first, query] = float(options.get("hits", 0.5))
    world = World(
        tasks=tuple(Task(id=f"search/train/{k}", environment="search", seed=k) for k in range(TASKS)),
        actions=tuple(f"write {k}" for k in range(CHOICES)),
        horizon=2,
        start=first,
        next=following,
        reward=reward,
        is_legal=np.ones((3 * TASKS, CHOICES), np.bool_),
        is_success=is_success,
        task_of=np.repeat(np.arange(TASKS), 3),
        keys=tuple(f"{kind} {k}" for k in range(TASKS) for kind in ("asked", "found", "lost")),
        expert=np.stack([query, gold, gold], 1).flatten(),
        distance=np.tile([2.0, 1.0, 1.0], TASKS),
    )
    theta = 0.3 * rng.normal(size=following.shape)
    for kind, knows in ((ASKED, "searches"), (FOUND, "reads"), (LOST, "guesses")):
        theta[first + kind, world.expert[first + kind]] += float(options[knows])
    return TablePolicy(world, torch.as_tensor(theta))


def misplaced(groups: Sequence[Group], _: Estimates) -> Credit:
    """Return MT-GRPO's credit with what the turn's own reward adds at the search on the answer instead."""
    both, outcome = turn_group_relative(groups), turn_group_relative(groups, weight=0.0)
    advantages = tuple(
        (plain[0], (plain[1] + (whole[0] - plain[0])[:1]).astype(np.float32))
        for whole, plain in zip(both.advantages, outcome.advantages, strict=True)
    )
    return replace(both, advantages=advantages)


def without_hits(group: Group) -> Group:
    """Return `group` whose searches are paid nothing."""

    def changed(trajectory: Trajectory) -> Trajectory:
        search, answer = trajectory.turns
        score = replace(cast(Score, trajectory.outcome), value=answer.reward)
        return replace(trajectory, turns=(replace(search, reward=0.0), answer), outcome=score)

    return replace(group, trajectories=tuple(map(changed, group.trajectories)))

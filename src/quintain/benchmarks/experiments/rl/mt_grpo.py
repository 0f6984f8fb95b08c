"""MT-GRPO: the reward of the search is noise at the answer, and leaving it out there turns the gradient to success.

On synthetic questions with one search, episodes of at most two turns of a start that rests. The number is the cosine of
the gradient of the *answer's* tokens with the gradient of success by the same tokens from other episodes. The control
gives A_T to the turn after the search instead of that before it, so all magnitudes are kept. GRPO on the sum of both
rewards is reported beside it, with the cosine of the first turn. In the null world searches are paid nothing, A_T is 0,
and the arms are the same bit by bit. All arms are paid the same two rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from quintain.benchmarks.experiments.rl.frozen import Frozen, frozen, of_turns
from quintain.benchmarks.labs.gradient import Keep, cosine, success_credit
from quintain.credit.group import group_relative
from quintain.credit.turn_group import turn_group_relative
from quintain.training.job import Job
from quintain.types import Credit, Group, Score, Trajectory

TURNS, NUM_NULL = 2, 8
"""Turns of an episode that is looked at, and batches in which the null world is measured."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start."""
    num = int(options["seeds"])
    tasks, size = int(options.get("tasks", 4)), int(options.get("size", 8))
    root = options.get("root")
    job = Job(
        environment=str(options["world"]),
        model="mini?tokens=words",
        demonstrations=int(options.get("demonstrations", 600)),
        mistakes=float(options.get("mistakes", 0.4)),
        imitation_epochs=int(options.get("imitation_epochs", 12)),
    )
    enough, most = float(options.get("enough", 0.3)), float(options.get("most", 0.6))
    with frozen(job, seed, enough=enough, most=most, root=None if root is None else Path(root)) as start:
        found = [of_turns(groups, TURNS) for groups in start.batches(2 * num, tasks=tasks, size=size)]
        own, others = found[:num], found[num:]
        answers, searches = (reference(start, others, keep) for keep in (is_answer, is_search))
        return [row(start, groups, answers, searches, has_null=k < NUM_NULL) for k, groups in enumerate(own)]


def row(
    start: Frozen, groups: Sequence[Group], answers: Tensor, searches: Tensor, *, has_null: bool
) -> dict[str, float]:
    """Return what the arms make of one batch."""

    def angle(credit: Credit, keep: Keep = is_answer) -> float:
        wanted = answers if keep is is_answer else searches
        return cosine(start.lab.gradient(credit, keep=keep), wanted)

    method, summed = turn_group_relative(groups), group_relative(groups)
    right = angle(method)
    found = {
        "method": right,
        "control": angle(misplaced(groups)),
        "extra.over_summed": right - angle(summed),
        "extra.search": angle(method, is_search) - angle(summed, is_search),
        "extra.success": start.success,
        "extra.found": float(
            np.mean([t.turns[0].reward > 0 for g in groups for t in g.scored if len(t.turns) == TURNS] or [0])
        ),
    }
    if has_null:
        free = [without_hits(group) for group in groups]
        found |= {
            "null_method": angle(turn_group_relative(free)),
            "null_control": angle(misplaced(free)),
        }
    return found


def is_answer(trajectory: Trajectory, turn: int) -> bool:
    """Return whether `turn` is the answer after one search."""
    return len(trajectory.turns) == TURNS and turn == TURNS - 1


def is_search(trajectory: Trajectory, turn: int) -> bool:
    """Return whether `turn` is the search before an answer."""
    return len(trajectory.turns) == TURNS and turn == 0


def reference(start: Frozen, batches: Sequence[Sequence[Group]], keep: Keep) -> Tensor:
    """Return the gradient of success, summed over `batches`, by the tokens of the turns that `keep` names."""
    total: Tensor | None = None
    for groups in batches:
        own = start.lab.gradient(success_credit(groups), keep=keep)
        total = own if total is None else total + own
    assert total is not None, "there are batches"
    return total


def misplaced(groups: Sequence[Group]) -> Credit:
    """Return MT-GRPO's credit with what the turn's own reward adds at the search on the answer instead."""
    both, outcome = turn_group_relative(groups), turn_group_relative(groups, weight=0.0)
    advantages = tuple(
        tuple(
            own
            if len(plain) != TURNS
            else plain[k]
            if k == 0
            else (plain[k] + (whole[0] - plain[0])[:1]).astype(np.float32)
            for k, own in enumerate(whole)
        )
        for whole, plain in zip(both.advantages, outcome.advantages, strict=True)
    )
    return replace(both, advantages=advantages)


def without_hits(group: Group) -> Group:
    """Return `group` whose turns but the last of an episode are paid nothing."""

    def changed(trajectory: Trajectory) -> Trajectory:
        last = len(trajectory.turns) - 1
        turns = tuple(
            turn if k == last else replace(turn, reward=0.0) for k, turn in enumerate(trajectory.turns)
        )
        score = replace(cast(Score, trajectory.outcome), value=sum(turn.reward for turn in turns))
        return replace(trajectory, turns=turns, outcome=score)

    return replace(group, trajectories=tuple(changed(t) for t in group.trajectories))

"""Dr. MAS: does an agent's own baseline keep its gradient where others are paid unlike it?

Two agents and one answer as a table: A tells its card, B answers. What B's calls earned is raised by a constant, twice
the deviation of success, and nothing else is touched, so B's true gradient stays what it was. The number is the cosine
of B's gradient, through the method's own credit and loss, with the exact gradient of success in B's logits. In the
control the labels of the agents are dealt out anew within the episodes of a task, in the same numbers. The rival has
one baseline for both. In the null world nothing is added.

Beside it: the same lead for constants of 0, 1, 2 and 4 deviations; and what the paper's identity says the mean square
of B's advantages is under one baseline, against squared norms of the gradients of B's single calls, all over own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean, pvariance
from typing import Any

from torch import Tensor

from quintain.data.seats import split_seats
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.multiagent import dr_mas
from quintain.types import Group, Score, Trajectory, derive_seed
from quintain_evidence.labs.duo import exact_gradient, noisy_start, play, rows_of
from quintain_evidence.labs.tabular import TablePolicy, actions_of, assign, cosine, loss_gradient, states_of

SHIFTS = (0, 1, 2, 4)
B = rows_of("B")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications on one start."""
    policy = noisy_start(seed, skill=float(options["skill"]))
    return [
        replication(policy, options, derive_seed("dr_mas", seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(policy: TablePolicy, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the cosines of a batch under all arms and constants, means over `batches` of them."""
    config = dr_mas.Config()
    own, one = dr_mas.method(config), dr_mas.method(replace(config, statistics="all"))
    truth = exact_gradient(policy)[B]
    cosines: dict[str, list[float]] = {}
    norms: dict[str, list[float]] = {}
    for number in range(int(options["batches"])):
        base = derive_seed(seed, number)
        parts = split_seats(play(policy, tasks=config.tasks, size=config.group_size, seed=base))
        spread = pvariance(
            [t.outcome.value for g in parts for t in g.trajectories if isinstance(t.outcome, Score)]
        )
        for shift in SHIFTS:
            paid = raise_rewards(parts, shift * spread**0.5)
            arms = {
                "own": gradient(policy, own, paid),
                "all": gradient(policy, one, paid),
                "dealt": gradient(policy, own, deal_labels(paid, derive_seed(base, "labels"))),
            }
            for name, found in arms.items():
                cosines.setdefault(f"{name}{shift}", []).append(cosine(found, truth))
            for name, method in (("own", own), ("all", one)):
                norms.setdefault(f"{name}{shift}", []).append(square_norms(policy, method, paid))
            norms.setdefault(f"moment{shift}", []).append(identity(paid))
    mean = {name: fmean(values) for name, values in cosines.items()}
    ratio = {
        f"extra.identity{s}": fmean(norms[f"all{s}"]) / fmean(norms[f"own{s}"]) / fmean(norms[f"moment{s}"])
        for s in SHIFTS
    }
    return {
        "method": mean["own2"],
        "control": mean["dealt2"],
        "null_method": mean["own0"],
        "null_control": mean["dealt0"],
        "extra.all": mean["all2"],
        **{f"extra.lead{s}": mean[f"own{s}"] - mean[f"all{s}"] for s in SHIFTS},
        **ratio,
    }


def gradient(policy: TablePolicy, method: OnPolicy, parts: Sequence[Group]) -> Tensor:
    """Return the direction in which `method` moves B's logits."""
    return loss_gradient(policy, assign(policy, method, parts), method.update)[B]


def square_norms(policy: TablePolicy, method: OnPolicy, parts: Sequence[Group]) -> float:
    """Return the mean squared norm of the gradients of B's single calls, A ∇log π, under `method`."""
    credit = assign(policy, method, parts)
    chances = policy.probabilities()
    found: list[float] = []
    for trajectory, advantages in zip(credit.trajectories, credit.advantages, strict=True):
        if trajectory.turns[0].seat == "B":
            own = chances[states_of(trajectory)[0]]
            score = -own
            score[actions_of(trajectory, policy.world)[0]] += 1.0
            found.append(float(advantages[0][0]) ** 2 * float(score.square().sum()))
    return fmean(found)


def identity(groups: Sequence[Group]) -> float:
    """Return what the mean square of B's advantages is under one baseline: (σ_B² + (μ_B - μ)²) / σ², over tasks.

    Over tasks whose B varies, for its own baseline makes 1 of it there and 0 elsewhere.
    """
    found: list[float] = []
    for task in dict.fromkeys(group.task.id for group in groups):
        parts = [t for group in groups if group.task.id == task for t in group.trajectories]
        paid = [(t.turns[0].seat, t.outcome.value) for t in parts if isinstance(t.outcome, Score)]
        own, everybody = [value for seat, value in paid if seat == "B"], [value for _, value in paid]
        if pvariance(own):
            found.append((pvariance(own) + (fmean(own) - fmean(everybody)) ** 2) / pvariance(everybody))
    return fmean(found)


def raise_rewards(groups: Sequence[Group], amount: float) -> list[Group]:
    """Return `groups` in which B is paid `amount` more."""

    def paid(part: Trajectory) -> Trajectory:
        outcome = part.outcome
        if part.turns[0].seat != "B" or not isinstance(outcome, Score):
            return part
        return replace(part, outcome=replace(outcome, value=outcome.value + amount))

    return [replace(group, trajectories=tuple(map(paid, group.trajectories))) for group in groups]


def deal_labels(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return the parts of a task's episodes with the names of their groups, hence agents, dealt out anew."""
    rng = Random(seed)
    found: list[Group] = []
    for task in dict.fromkeys(group.task.id for group in groups):
        parts = [t for group in groups if group.task.id == task for t in group.trajectories]
        names = [part.group for part in parts]
        rng.shuffle(names)
        dealt = tuple(replace(part, group=name) for part, name in zip(parts, names, strict=True))
        found.append(Group(task=parts[0].task, trajectories=dealt))
    return found

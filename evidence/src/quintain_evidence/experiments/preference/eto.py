"""ETO: is it one's own failures that teach, or failures as such?

IRREV as a table whose rows hold in all tasks. The start imitated an episode of each of 48 tasks, of a teacher who
errs in three of ten turns, in each state in a way of its own. It explores these, and its failures stand against the
expert's episodes, through the pairs, samples and loss that ship. The number is the exact success on 48 others after 40
updates. The control has the failures of another teacher of equal rate, whose mistakes are others, in the same tasks and
of the same length, as rejected sides: the same expert's episodes, as many pairs. In the null world the start is the
expert and there is no pair.

Beside it: what imitation of the same better sides comes to, and by how much the log-probs of mistakes that the start
makes in held-out tasks fall, under ETO and under imitation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pack import pack
from quintain.data.pairs import Pairs
from quintain.data.samples import pair_samples
from quintain.losses.preference import nll_of_chosen
from quintain.methods.preference import eto
from quintain.methods.preference.exploring import Experts, contrast_episodes
from quintain.types import Group, Loss, Trajectory, derive_seed
from quintain_evidence.experiments.preference.blocks import (
    Blocks,
    blocks,
    expert_policy,
    solved_of,
    table_of,
)
from quintain_evidence.labs.tabular import TablePolicy, actions_of, states_of

SMOOTHING = 0.3
"""Added to every count of the start."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with teachers and a start of its own."""
    num = int(options.get("tasks", 48))
    made = blocks(2 * num, derive_seed("eto", seed) % 1_000_000)
    return [
        replication(made, num, options, derive_seed(seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(made: Blocks, num: int, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what one start comes to."""
    rate, tries = float(options.get("mistakes", 0.3)), int(options.get("tries", 2))
    own, foreign = (erring(made, rate, derive_seed(seed, who)) for who in ("own", "foreign"))
    start = fitted(made, own.sample(size=1, seed=derive_seed(seed, "shown"), tasks=range(num)))
    train, held_out = range(num), range(num, 2 * num)
    experts = shown(made, train)
    policy = made.policy(start)
    explored = policy.sample(size=tries, seed=derive_seed(seed, "explored"), tasks=train)
    failures = failures_of(foreign, train, seed)
    pairs, twins = matched(contrast_episodes(explored, experts, extra_turns=None), failures)
    later = [
        trajectory
        for group in policy.sample(size=tries, seed=derive_seed(seed, "later"), tasks=held_out)
        for trajectory in group.trajectories
        if not trajectory.is_success
    ]
    loss = eto.loss_of(0.1, eto.Config(imitation_weight=0.0))
    arms = {
        "method": learned(made, start, pairs, loss, options),
        "control": learned(made, start, twins, loss, options),
        "imitation": learned(made, start, pairs, nll_of_chosen(), options),
    }
    solved = {name: solved_of(made.policy(shared), held_out) for name, shared in arms.items()}
    fallen = {
        name: mistakes(made, policy, later) - mistakes(made, made.policy(shared), later)
        for name, shared in arms.items()
    }
    sure = table_of(made.world, expert_policy(made.world))
    none = contrast_episodes(sure.sample(size=tries, seed=seed, tasks=train), experts, extra_turns=None)
    at_expert = solved_of(sure, held_out) + float(len(none))
    return {
        "method": solved["method"],
        "control": solved["control"],
        "null_method": at_expert,
        "null_control": solved_of(sure, held_out),
        "extra.start": solved_of(policy, held_out),
        "extra.imitation": solved["imitation"],
        "extra.pairs": float(len(pairs)),
        "extra.falls": fallen["method"] - fallen["imitation"],
    }


def erring(made: Blocks, rate: float, seed: int) -> TablePolicy:
    """Return an expert who errs at a share `rate` of turns, in each shared state in a way drawn once."""
    world = made.world
    rng = np.random.default_rng(seed % (1 << 63))
    weights = rng.gamma(0.3, size=made.num_cells)[made.cells] + 1e-9
    best = expert_policy(world)
    wrong = np.where(world.is_legal & (best == 0), weights, 0.0)
    total = wrong.sum(1, keepdims=True)
    found = np.where(total > 0, (1 - rate) * best + rate * wrong / np.maximum(total, 1e-30), best)
    return table_of(world, found)


def fitted(made: Blocks, groups: Sequence[Group]) -> Tensor:
    """Return the shared logits [cells] that the smoothed counts of the episodes of `groups` come to."""
    counts = np.full(made.num_cells, SMOOTHING)
    for group in groups:
        for trajectory in group.trajectories:
            np.add.at(counts, made.cells[states_of(trajectory), actions_of(trajectory, made.world)], 1)
    return torch.from_numpy(np.log(counts))


def shown(made: Blocks, tasks: Sequence[int]) -> Experts:
    """Return the expert's episode of each of `tasks`."""
    sure = table_of(made.world, expert_policy(made.world))
    groups = sure.sample(size=1, seed=0, tasks=tasks)
    return Experts({group.task.id: group.trajectories[0] for group in groups})


def failures_of(
    policy: TablePolicy, tasks: Sequence[int], seed: int, size: int = 24
) -> dict[str, list[Trajectory]]:
    """Return failed episodes of `policy` on each of `tasks`, by the task's name."""
    groups = policy.sample(size=size, seed=derive_seed(seed, "failures"), tasks=tasks)
    return {group.task.id: [each for each in group.trajectories if not each.is_success] for group in groups}


def matched(pairs: Pairs, failures: Mapping[str, Sequence[Trajectory]]) -> tuple[Pairs, Pairs]:
    """Return `pairs` for which there is another failure of the same task and length, and the same with that."""
    left = {task: list(own) for task, own in failures.items()}
    kept, twins = [], []
    for pair in pairs:
        own = left[pair.rejected.task.id]
        twin = next((each for each in own if len(each.turns) == len(pair.rejected.turns)), None)
        if twin is not None:
            own.remove(twin)
            kept.append(pair)
            twins.append(replace(pair, rejected=twin))
    return Pairs(tuple(kept)), Pairs(tuple(twins))


def learned(made: Blocks, start: Tensor, pairs: Pairs, loss: Loss, options: Mapping[str, Any]) -> Tensor:
    """Return the shared logits after updates by `loss` on all of `pairs` at a time, against the start."""
    shared = start.clone()
    if not pairs:
        return shared
    batch = pack(pair_samples(list(pairs)))
    say = made.speaker(batch)
    batch = replace(batch, extra=replace(batch.extra, reference_logprobs=say(start).logprobs))
    shared.requires_grad_()
    optimizer = torch.optim.Adam([shared], lr=float(options.get("rate", 0.05)))
    for _ in range(int(options.get("updates", 40))):
        optimizer.zero_grad()
        loss(say(shared), batch).loss.backward()
        optimizer.step()
    return shared.detach()


def mistakes(made: Blocks, policy: TablePolicy, failed: Sequence[Trajectory]) -> float:
    """Return the mean log-prob of what is not the expert's in the `failed` episodes, before all hope is gone."""
    logs: NDArray[np.float32] = policy.logs().detach().numpy()
    found = [
        float(logs[state, action])
        for each in failed
        for state, action in zip(states_of(each), actions_of(each, made.world), strict=True)
        if np.isfinite(made.world.distance[state]) and made.world.expert[state] != action
    ]
    return float(np.mean(found)) if found else 0.0

"""PGPO: do rewards of plans point at the plans that are wrong, and not at those that had bad luck?

A form of two fields is filled in by a plan of two words, and who fills it in sees the plan alone. The expert has a word
for each value; the agent knows a second word that is as good, and one in six of its words is another value's. A field
is filled in as the plan says in four of five times, so that half of the right plans fail. Pairs of the expert's and the
agent's episodes are made as they ship, each plan valued by five ways on. The number is the cosine of what they do to
the plans' words with the exact gradient of success in other tasks. The control gives plans the values of plans of other
tasks. In the null world who fills in the form sees the task, and plans are decoration, so that values and outcomes are
luck; the gradient is that of the first world.

Beside it: the cosine with pairs of outcomes alone, the norms of the pair's and the likelihood's gradients, what success
with plans comes to when both kinds of tokens learn, and whether a plan of another task is still followed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit_lab.permute import permute
from quintain.data.pack import pack
from quintain.data.pairs import Deviation, Estimate, Pairs, step_pairs
from quintain.data.samples import pair_samples
from quintain.losses.preference import dpo, nll_of_chosen
from quintain.types import Loss, Task, Trajectory, derive_seed
from quintain_evidence.experiments.preference.blocks import Blocks
from quintain_evidence.experiments.preference.eto import learned
from quintain_evidence.labs.exact import END, World, exact_values, log_policy
from quintain_evidence.labs.tabular import TablePolicy, cosine, states_of

VALUES, ROLLOUTS = 4, 5
"""Values of a field; episodes that a plan is valued by."""
WORDS = 2 * VALUES
"""Of a field: number v says value v, and so does its second word, number `VALUES` + v."""
PLANNING, FILLING = "plan", "fill"


@cache
def form(*, sees_task: bool) -> Blocks:
    """Return the form, whose tasks are all pairs of values: planning two words, then filling in two fields.

    Rows of a plan's word are shared by tasks with the same value in that place, those of a field by plans with the same
    word there, or where who fills it in `sees_task` by tasks.
    """
    tasks = list(product(range(VALUES), repeat=2))
    plans = list(product(range(WORDS), repeat=2))
    names: list[tuple[int, str, tuple[int, ...]]] = []
    for number in range(len(tasks)):
        names.append((number, PLANNING, ()))
        names += [(number, PLANNING, (word,)) for word in range(WORDS)]
        names += [(number, FILLING, plan) for plan in plans]
        names += [(number, FILLING, (*plan, is_right)) for plan in plans for is_right in (0, 1)]
    place = {name: row for row, name in enumerate(names)}
    shape = (len(names), WORDS)
    following, is_legal = np.full(shape, END), np.zeros(shape, np.bool_)
    reward, cells = np.zeros(shape), np.zeros(shape, np.int64)
    shared: dict[tuple[object, ...], int] = {}
    for row, (task, kind, said) in enumerate(names):
        goal, field = tasks[task], len(said) if kind == PLANNING else len(said) - 2
        is_legal[row] = kind == PLANNING or np.arange(WORDS) < VALUES
        for action in np.flatnonzero(is_legal[row]).tolist():
            is_right = action == goal[field]
            if kind == PLANNING:
                after = (task, PLANNING if not said else FILLING, (*said, action))
                following[row, action] = place[after]
                key: tuple[object, ...] = (kind, field, goal[field], action)
            else:
                if not field:
                    following[row, action] = place[task, FILLING, (*said, int(is_right))]
                else:
                    reward[row, action] = float(is_right and said[2])
                key = (kind, field, goal[field] if sees_task else said[field] % VALUES, action)
            cells[row, action] = shared.setdefault(key, len(shared))
    made = World(
        tasks=tuple(Task(id=f"form/train/{k}", environment="form", seed=k) for k in range(len(tasks))),
        actions=tuple(map(str, range(WORDS))),
        horizon=4,
        start=np.array([place[number, PLANNING, ()] for number in range(len(tasks))]),
        next=following,
        reward=reward,
        is_legal=is_legal,
        is_success=reward > 0,
        task_of=np.array([task for task, _, _ in names]),
        keys=tuple(f"{kind} {said}" for _, kind, said in names),
        expert=np.array(
            [tasks[task][len(said) if kind == PLANNING else len(said) - 2] for task, kind, said in names]
        ),
        distance=np.ones(len(names)),
    )
    return Blocks(made, cells, len(shared))


def is_planning(made: Blocks) -> Tensor:
    """Return which of the shared logits are those of plans, [cells]."""
    found = torch.zeros(made.num_cells, dtype=torch.bool)
    rows = [row for row, key in enumerate(made.world.keys) if key.startswith(PLANNING)]
    found[torch.from_numpy(made.cells[rows])] = True
    return found


def beginner(made: Blocks, follows: float, seed: int) -> Tensor:
    """Return logits [cells]: a value's own word .45, its second .38, another one's else; as said with `follows`."""
    rng = np.random.default_rng(seed % (1 << 63))
    shared = np.zeros(made.num_cells)
    for row, key in enumerate(made.world.keys):
        value = int(made.world.expert[row])
        if key.startswith(PLANNING):
            chance = np.full(WORDS, 0.17 / (WORDS - 2))
            chance[[value, value + VALUES]] = 0.45, 0.38
        else:
            said = tuple(map(int, key.removeprefix(f"{FILLING} (").removesuffix(")").split(", ")))
            chance = np.full(WORDS, (1 - follows) / (VALUES - 1))
            chance[value if made is form(sees_task=True) else said[len(said) - 2] % VALUES] = follows
        legal = made.world.is_legal[row]
        shared[made.cells[row, legal]] = np.log(chance[legal])
    return torch.from_numpy(shared + 0.1 * rng.normal(size=made.num_cells))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return how pairs of one start lie to the success of others; tasks on a diagonal are held out."""
    made, blind = form(sees_task=False), form(sees_task=True)
    shift = seed % VALUES
    tasks = list(product(range(VALUES), repeat=2))
    held_out = [n for n, (one, other) in enumerate(tasks) if (one + other) % VALUES == shift]
    train = [n for n in range(len(tasks)) if n not in held_out]
    follows, margin = float(options.get("follows", 0.8)), float(options.get("margin", 0.3))
    start = beginner(made, follows, seed)
    judge = held_out_gradient(made, start, held_out)
    deviations = parted(made, start, train, options, seed)
    pairs = {
        "method": step_pairs(deviations, margin=margin),
        "control": step_pairs(of_others(deviations, seed), margin=margin),
        "extra.outcomes": step_pairs([undoubted(each) for each in deviations], margin=margin),
    }
    found = {name: cosine(direction(made, start, own, dpo(0.1)), judge) for name, own in pairs.items()}
    luck = parted(blind, beginner(blind, follows, seed), train, options, derive_seed(seed, "null"))
    for name, own in (("method", luck), ("control", of_others(luck, seed))):
        chosen = step_pairs(own, margin=margin)
        found[f"null_{name}"] = cosine(
            direction(blind, beginner(blind, follows, seed), chosen, dpo(0.1)), judge
        )
    after = learned(made, start, pairs["method"], dpo(0.1), options)
    solved = [success(made, shared, held_out) for shared in (start, after)]
    obeyed = [followed(made, shared, held_out) for shared in (start, after)]
    norms = [
        float(direction(made, start, pairs["method"], loss).norm()) for loss in (dpo(0.1), nll_of_chosen())
    ]
    return found | {
        "extra.pairs": float(len(pairs["method"])),
        "extra.start": solved[0],
        "extra.gain": solved[1] - solved[0],
        "extra.followed": obeyed[0],
        "extra.still_followed": obeyed[1] - obeyed[0],
        "extra.nll_to_pair": norms[1] / norms[0] if norms[0] else 0.0,
    }


def parted(
    made: Blocks, start: Tensor, tasks: Sequence[int], options: Mapping[str, Any], seed: int
) -> list[Deviation]:
    """Return the agent's episodes whose plan is not the expert's, each beside one of the expert, plans valued."""
    policy = made.policy(start)
    chances = exact_values(made.world, policy.probabilities()).v[2].detach().numpy()
    rng = np.random.default_rng(derive_seed(seed, "values") % (1 << 63))

    def value(trajectory: Trajectory) -> Estimate:
        draws = rng.random(ROLLOUTS) < chances[states_of(trajectory)[2]]
        return Estimate(tuple(draws.astype(float).tolist()))

    tries = int(options.get("tries", 12))
    own = policy.sample(size=tries, seed=derive_seed(seed, "own"), tasks=tasks)
    right = expert_of(made).sample(size=1, seed=0, tasks=tasks)
    return [
        Deviation(
            expert=shown.trajectories[0],
            agent=agent,
            turn=0,
            expert_value=value(shown.trajectories[0]),
            agent_value=value(agent),
        )
        for group, shown in zip(own, right, strict=True)
        for agent in group.trajectories
        if [t.completion.token_ids for t in agent.turns[:2]]
        != [t.completion.token_ids for t in shown.trajectories[0].turns[:2]]
    ]


def expert_of(made: Blocks) -> TablePolicy:
    """Return the policy that writes each value's own word, and fills in what is right."""
    logits = torch.full(made.world.is_legal.shape, -30.0, dtype=torch.float64)
    logits[torch.arange(len(logits)), torch.from_numpy(made.world.expert)] = 0.0
    return TablePolicy(made.world, logits)


def of_others(deviations: Sequence[Deviation], seed: int) -> list[Deviation]:
    """Return `deviations` whose agents' plans have the values of plans of other tasks."""
    moved = permute([each.agent_value for each in deviations], None, seed=seed, moves_all=False).values
    return [replace(each, agent_value=value) for each, value in zip(deviations, moved, strict=True)]


def undoubted(each: Deviation) -> Deviation:
    """Return `each` with the outcome of its own episodes in the place of values."""
    expert, agent = (Estimate((float(side.is_success),)) for side in (each.expert, each.agent))
    return replace(each, expert_value=expert, agent_value=agent)


def direction(made: Blocks, start: Tensor, pairs: Pairs, loss: Loss) -> Tensor:
    """Return where `loss` on `pairs` moves the logits of plans, [cells]; 0 for the others, and without pairs."""
    if not pairs:
        return torch.zeros_like(start)
    batch = pack(pair_samples(list(pairs)))
    say = made.speaker(batch)
    batch = replace(batch, extra=replace(batch.extra, reference_logprobs=say(start).logprobs))
    shared = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(say(shared), batch).loss, shared)
    return -gradient * is_planning(made)


def held_out_gradient(made: Blocks, start: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return the gradient of the exact success in `tasks` by the logits of plans, [cells].

    What a row of plans is moved by is a matter of its value and its place, and so is the same in all tasks.
    """
    shared = start.clone().requires_grad_()
    policy = log_policy(made.world, shared[torch.from_numpy(made.cells)]).exp()
    solved = exact_values(made.world, policy).by_task[list(tasks)].mean()
    (gradient,) = torch.autograd.grad(solved, shared)
    return gradient * is_planning(made)


def success(made: Blocks, shared: Tensor, tasks: Sequence[int]) -> float:
    """Return the exact success in `tasks`."""
    found = exact_values(made.world, made.policy(shared).probabilities()).by_task
    return float(found[list(tasks)].mean())


def followed(made: Blocks, shared: Tensor, tasks: Sequence[int]) -> float:
    """Return how often a field is filled in as a plan says that is another task's."""
    chances: NDArray[np.float64] = made.policy(shared).probabilities().numpy()
    found: list[float] = []
    for row, key in enumerate(made.world.keys):
        if made.world.task_of[row] in tasks and key.startswith(FILLING):
            said = tuple(map(int, key.removeprefix(f"{FILLING} (").removesuffix(")").split(", ")))
            word = said[len(said) - 2] % VALUES
            if word != made.world.expert[row]:
                found.append(float(chances[row, word]))
    return float(np.mean(found))

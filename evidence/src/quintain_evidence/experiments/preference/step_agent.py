"""StepAgent: is it one's own step that is to be rejected beside the expert's, or anybody's?

IRREV as a table whose rows hold in all tasks. The start imitated an episode of each of 48 tasks, of a teacher who errs
in three of ten turns, in each state in a way of its own. It acts in the states of the expert's episodes on these tasks,
and steps that are others than the expert's are rejected, through the pairs, samples and loss that ship. The number is
how seldom, exactly, it does what is on no shortest way, in the expert's states on 48 other tasks. The control has the
steps that a start of another such teacher takes in the same states as rejected sides: the same expert's steps, as many
pairs. In the null world the policy is the expert, and there is no pair.

Beside it: the start, imitation of the same expert's steps, and the area under the ROC of the discriminator that ships,
on steps that it was not fitted to: of the start against the expert, of the expert against itself, and with labels
permuted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pairs import Pairs
from quintain.losses.preference import dpo, nll_of_chosen
from quintain.methods.preference import step_agent
from quintain.types import Group, Pair, Trajectory, derive_seed, flatten_scored
from quintain_evidence.experiments.preference.blocks import (
    SPEC,
    Blocks,
    blocks,
    expert_policy,
    goal_of,
    renamed,
    table_of,
)
from quintain_evidence.experiments.preference.eto import erring, fitted, learned
from quintain_evidence.labs.exact import END
from quintain_evidence.labs.tabular import TablePolicy, actions_of, states_of

States = NDArray[np.int64]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with teachers and starts of its own."""
    num = int(options.get("tasks", 48))
    made = blocks(2 * num, derive_seed("step_agent", seed) % 1_000_000)
    goals = [goal_of(SPEC, task) for task in made.world.tasks]
    return [
        replication(made, goals, num, options, derive_seed(seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(
    made: Blocks, goals: Sequence[str], num: int, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Return what one start comes to."""
    rate, size = float(options.get("mistakes", 0.3)), int(options.get("samples", 2))
    train, held_out = range(num), range(num, 2 * num)
    start, foreign = (
        fitted(
            made,
            erring(made, rate, derive_seed(seed, who)).sample(
                size=1, seed=derive_seed(seed, "shown"), tasks=train
            ),
        )
        for who in ("own", "foreign")
    )
    sure = table_of(made.world, expert_policy(made.world))
    states, judged = visited(made, sure, train), visited(made, sure, held_out)
    experts = {group.task.id: group.trajectories[0] for group in acted(made, sure, states, 1, seed)}
    own, others = (
        step_agent.prefer_expert(acted(made, made.policy(each), states, size, seed), experts)
        for each in (start, foreign)
    )
    pairs, twins = matched(own, others, random.Random(seed))
    loss = dpo(0.1)
    arms = {
        "method": learned(made, start, pairs, loss, options),
        "control": learned(made, start, twins, loss, options),
        "imitation": learned(made, start, pairs, nll_of_chosen(), options),
        "start": start,
    }
    astray = {name: disagreement(made, made.policy(shared), judged) for name, shared in arms.items()}
    none = step_agent.prefer_expert(acted(made, sure, states, size, seed), experts)
    return {
        "method": 1 - astray["method"],
        "control": 1 - astray["control"],
        "null_method": float(len(none)),
        "null_control": 0.0,
        "extra.start": astray["start"],
        "extra.imitation": astray["imitation"],
        "extra.gain": astray["start"] - astray["method"],
        "extra.pairs": float(len(pairs)),
        "extra.likely": likely(made, start, pairs) - likely(made, start, twins),
        **discriminated(made, goals, made.policy(start), sure, judged, seed),
    }


def visited(made: Blocks, policy: TablePolicy, tasks: Sequence[int]) -> States:
    """Return the states of an episode of `policy` on each of `tasks`."""
    return np.array(
        [s for t in flatten_scored(policy.sample(size=1, seed=0, tasks=tasks)) for s in states_of(t)]
    )


def acted(made: Blocks, policy: TablePolicy, states: States, size: int, seed: int) -> list[Group]:
    """Return `size` steps of `policy` in each of `states`, each an episode of one turn; tasks are numbered."""
    world = made.world
    tasks = tuple(replace(world.tasks[int(world.task_of[s])], id=f"{n}") for n, s in enumerate(states))
    once = replace(world, start=states, tasks=tasks, horizon=1)
    return TablePolicy(once, policy.theta).sample(size=size, seed=derive_seed(seed, "acted"))


def matched(pairs: Pairs, others: Pairs, rng: random.Random) -> tuple[Pairs, Pairs]:
    """Return those of `pairs` in whose state another rejected step is known that is not the same, and these."""
    there: dict[str, list[Pair]] = {}
    for pair in others:
        there.setdefault(pair.rejected.task.id, []).append(pair)
    kept, twins = list[Pair](), list[Pair]()
    for pair in pairs:
        mine = said(pair.rejected)
        found = [each for each in there.get(pair.rejected.task.id, []) if said(each.rejected) != mine]
        if found:
            kept.append(pair)
            twins.append(replace(pair, rejected=rng.choice(found).rejected))
    return Pairs(tuple(kept)), Pairs(tuple(twins))


def said(step: Trajectory) -> str:
    """Return what is done in a step."""
    return step.turns[0].action.text


def likely(made: Blocks, start: Tensor, pairs: Pairs) -> float:
    """Return the mean log-prob that the start gives to the rejected steps."""
    logs = made.policy(start).logs().detach().numpy()
    return float(
        np.mean(
            [logs[states_of(pair.rejected)[0], actions_of(pair.rejected, made.world)[0]] for pair in pairs]
        )
    )


def disagreement(made: Blocks, policy: TablePolicy, states: States) -> float:
    """Return the mean probability of an action in `states` that is on no shortest way."""
    world = made.world
    after = np.where(world.next == END, np.where(world.is_success, 0.0, np.inf), world.distance[world.next])
    is_best = world.is_legal & (after == world.distance[:, None] - 1)
    return 1 - float((policy.probabilities().numpy() * is_best)[states].sum(1).mean())


def discriminated(
    made: Blocks, goals: Sequence[str], own: TablePolicy, sure: TablePolicy, states: States, seed: int
) -> dict[str, float]:
    """Return the areas under the ROC of discriminators fitted to one half of `states`, on the other half."""
    rng = np.random.default_rng(seed % (1 << 63))
    drawn = rng.permutation(states)
    halves = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]

    def rows(policy: TablePolicy, half: int, name: int) -> NDArray[np.float64]:
        steps = flatten_scored(acted(made, policy, halves[half], 1, derive_seed(seed, name)))
        return np.stack([step_agent.features(*told(made, goals, t)) for t in steps])

    found: dict[str, float] = {}
    for name, other in (("auc", own), ("auc_same", sure)):
        experts, others = rows(sure, 0, 0), rows(other, 0, 1)
        tests = rows(sure, 1, 2), rows(other, 1, 3)
        weights = step_agent.fit_discriminator(experts, others)
        found[f"extra.{name}"] = area(tests[0] @ weights, tests[1] @ weights)
        if name == "auc":
            mixed = rng.permutation(np.concatenate([experts, others]))
            blind = step_agent.fit_discriminator(mixed[: len(experts)], mixed[len(experts) :])
            found["extra.auc_blind"] = area(tests[0] @ blind, tests[1] @ blind)
    return found


def told(made: Blocks, goals: Sequence[str], step: Trajectory) -> tuple[str, str]:
    """Return the state of a step and what is done, one word a fact, with blocks named in the order that is shared."""
    state = states_of(step)[0]
    text, names = renamed(f"{goals[int(made.world.task_of[state])]} | {made.world.keys[state]}")
    done = re.sub(r"\b([a-h])\b", lambda found: names.get(found[1], found[1]), said(step))
    return " ".join(re.sub(r"\W", "", fact) for fact in re.split(r"[,|]", text)), done.replace(" ", "")


def area(experts: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return the share of pairs in which the expert's value is higher, equal ones a half."""
    return float(np.mean([(a > b) + 0.5 * (a == b) for a, b in product(experts, others)]))

"""DITS: does what one update on a pair changes tell a pair whose sides were swapped, where its value cannot?

Blocks that stay where they were stacked, as a table whose rows hold in all tasks. The start imitated an episode of each
task, of a teacher who errs in three of ten turns. Pairs are siblings of trees that are grown from it on outcomes; of a
quarter of them the sides are swapped and the value is raised to the highest, so that the value alone prefers what is
corrupt. An update is one step by the shipped loss from the start, and what it changes is exact: success on validation
tasks. The number is the area under the curve of influence for sound against corrupt pairs. The control is influence on
validation tasks of which half have their outcomes inverted: updates are as large, and what they are said to change has
nothing to do with the tasks. In the null world no pair is corrupt, and the same quarter is told from the rest.

Beside it: the same with blocks of 5 and of 20 pairs, and by outcomes of one episode of each validation task; whether an
update of twice the size has twice the influence; and the exact success on other tasks after training on the best
quarter by Q + γ·I, by Q alone and at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pairs import Pairs, siblings
from quintain.losses.preference import dpo
from quintain.methods.preference.dits import best_of, blocks_of, mix_values
from quintain.search.tree import Node
from quintain.types import Action, Completion, Pair, Score, Stop, Trajectory, Turn, derive_seed
from quintain_evidence.experiments.preference.agent_q import grown
from quintain_evidence.experiments.preference.blocks import Blocks, blocks, solved_of
from quintain_evidence.experiments.preference.eto import erring, fitted, learned
from quintain_evidence.labs.exact import exact_values

CORRUPT = 0.25
SIZES = (1, 5, 20)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with a start and trees of its own."""
    num = int(options.get("tasks", 36))
    made = blocks(3 * num, derive_seed("dits", seed) % 1_000_000)
    return [replication(made, num, options, derive_seed(seed, k)) for k in range(int(options["seeds"]))]


def replication(made: Blocks, num: int, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what influence tells of the pairs of one start: tasks to search in, to validate on, and to report on."""
    searched, validated, reported = range(num), range(num, 2 * num), range(2 * num, 3 * num)
    teacher = erring(made, float(options.get("mistakes", 0.3)), derive_seed(seed, "teacher"))
    start = fitted(made, teacher.sample(size=1, seed=derive_seed(seed, "shown"), tasks=searched))
    pairs, values = found(made, start, searched, options, seed)
    rng = np.random.default_rng(derive_seed(seed, "corrupt") % (1 << 63))
    is_corrupt = np.zeros(len(pairs), np.bool_)
    is_corrupt[rng.permutation(len(pairs))[: round(CORRUPT * len(pairs))]] = True
    given = [swapped(pair) if bad else pair for pair, bad in zip(pairs, is_corrupt, strict=True)]
    raised = np.where(is_corrupt, values.max(), values)
    signs = np.where(rng.permutation(num) < num // 2, 1.0, -1.0)

    def updated(block: Sequence[Pair], rate: float = 1.0) -> Tensor:
        own = {**options, "updates": 1, "rate": rate * float(options.get("rate", 0.05))}
        return learned(made, start, Pairs(tuple(block)), dpo(0.1), own)

    def moved(block: Sequence[Pair], rate: float = 1.0) -> NDArray[np.float64]:
        return by_task(made, updated(block, rate), validated) - before

    def played(shared: Tensor) -> float:
        groups = made.policy(shared).sample(size=1, seed=derive_seed(seed, "played"), tasks=validated)
        return float(np.mean([t.is_success for group in groups for t in group.trajectories]))

    before = by_task(made, start, validated)
    change = {
        size: spread_over(
            len(given), plan := blocks_of(len(given), size, seed),
            [moved([given[place] for place in block]) for block in plan],
        )
        for size in SIZES
    }  # fmt: skip
    sound = np.stack([moved([pair]) for pair in pairs])
    influence = change[1].mean(1)
    some = np.argsort(-np.abs(influence))[: max(4, len(given) // 10)]
    twice = np.array([moved([given[place]], 2.0).mean() for place in some])
    quarter = float(options.get("share", 0.25))
    singles = [[place] for place in range(len(given))]
    picks = {
        "both": best_of(mix_values(raised.tolist(), singles, influence.tolist(), 1.0), quarter),
        "value": best_of(raised.tolist(), quarter),
        "random": rng.permutation(len(given))[: max(1, int(quarter * len(given)))].tolist(),
    }
    after: dict[str, float] = {}
    for name, own in picks.items():
        ended = learned(made, start, Pairs(tuple(given[k] for k in own)), dpo(0.1), options)
        after[name] = solved_of(made.policy(ended), reported)
    return {
        "method": area(influence, is_corrupt),
        "control": area((change[1] * signs).mean(1), is_corrupt),
        "null_method": area(sound.mean(1), is_corrupt),
        "null_control": area((sound * signs).mean(1), is_corrupt),
        **{f"extra.block{size}": area(own.mean(1), is_corrupt) for size, own in change.items()},
        "extra.sampled": area(np.array([played(updated([pair])) for pair in given]), is_corrupt),
        "extra.linear": float(np.median(twice / influence[some])),
        "extra.value": area(raised, is_corrupt),
        "extra.both": after["both"],
        "extra.over_value": after["both"] - after["value"],
        "extra.over_random": after["both"] - after["random"],
        "extra.start": solved_of(made.policy(start), reported),
        "extra.pairs": float(len(given)),
    }


def found(
    made: Blocks, start: Tensor, tasks: Sequence[int], options: Mapping[str, Any], seed: int
) -> tuple[list[Pair], NDArray[np.float64]]:
    """Return the pairs of trees of `tasks`, and the mean outcome through the chosen side of each."""
    rng = np.random.default_rng(derive_seed(seed, "trees") % (1 << 63))
    sums = made.policy(start).probabilities().numpy().cumsum(1)
    worth: dict[int, float] = {}
    families: list[list[tuple[Trajectory, float]]] = []
    for task in tasks:
        tree = grown(made.world, sums, int(made.world.start[task]), options, rng)
        for family in tree.families():
            families.append([(way(made, node), node.value) for node in family])
            worth |= {id(child): value for child, value in families[-1]}
    pairs = list(siblings(families, margin=float(options.get("margin", 0.5))))
    return pairs, np.array([worth[id(pair.chosen)] for pair in pairs])


def way(made: Blocks, node: Node) -> Trajectory:
    """Return the one turn that leads to `node`: it is all that a pair of turns trains."""
    assert node.parent is not None, "the root has no turn"
    world, state = made.world, int(node.parent.seen.place)
    turn = Turn(
        observation=(),
        prompt_ids=(state,),
        completion=Completion(token_ids=(world.num_states + int(node.seen.key),), logprobs=(), stop="stop"),  # type: ignore[call-overload]
        action=Action(),
    )
    task = world.tasks[int(world.task_of[state])]
    score = Score(value=node.value, is_success=False)
    return Trajectory(
        task=task, turns=(turn,), outcome=score, stop=Stop.TERMINATED, seed=state, group=task.id, index=0
    )


def swapped(pair: Pair) -> Pair:
    """Return `pair` the other way round."""
    return replace(pair, chosen=pair.rejected, rejected=pair.chosen)


def by_task(made: Blocks, shared: Tensor, tasks: Sequence[int]) -> NDArray[np.float64]:
    """Return the exact success on each of `tasks`."""
    odds = made.policy(shared).probabilities()
    return exact_values(made.world, odds, outcome="success").by_task[list(tasks)].numpy()


def spread_over(
    num: int, plan: Sequence[Sequence[int]], changes: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return for each of `num` pairs the change of its block, [pairs, tasks]."""
    result = np.zeros((num, len(changes[0])))
    for block, change in zip(plan, changes, strict=True):
        result[list(block)] = change
    return result


def area(scores: NDArray[np.float64], is_corrupt: NDArray[np.bool_]) -> float:
    """Return the share of a sound and a corrupt pair in which the sound one scores higher, ties a half."""
    gaps = scores[~is_corrupt][:, None] - scores[is_corrupt][None]
    return float(np.mean(0.5 + 0.5 * np.sign(np.where(np.abs(gaps) > 1e-12, gaps, 0.0))))

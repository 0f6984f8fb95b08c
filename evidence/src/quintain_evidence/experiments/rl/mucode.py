"""muCode: is a right answer worth more where an attempt has failed than where it was found?

Sums are asked and may be mended twice: a state of a table for a task at first, and one after each wrong answer to it,
in which an untrained policy tends to say the same again. One turn leads from any of them to the solution. The number
is the probability of a right answer in the states after a wrong one, whichever it was, mean over the tasks. The method
puts the best answer of a task in the place of the last one of episodes that failed. The control imitates natural
successes alone, with as many samples: for each relabelled answer it imitates once more the last answer of an episode
of the same task that succeeded, in the state in which it was found. In the null world a wrong answer leaves no trace,
so that the failed attempt's state is the one in which right answers are found, and both arms imitate the same. A gate
says that it is this task's answer: above the same states with the answer of another task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import derange
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import mucode
from quintain.methods.rl.parts.relabelling import answers, with_answer
from quintain.types import ANSWER, Group, Task, Trajectory, derive_seed
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import TablePolicy, train_table

TASKS, ANSWERS, TURNS = 16, 6, 3
STATES = 1 + ANSWERS
"""States of a task: asked, and after each answer (that after the right one is never reached)."""

Change = Callable[[Sequence[Group], Sequence[Group], int], Sequence[Group]]
"""(sampled groups, groups that muCode keeps, number of the batch) → groups that are imitated"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact probability of a right answer after a wrong one."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("mucode", seed, number)
        asked, plain = (drawn(own, options, leaves_trace=leaves) for leaves in (True, False))
        row = {
            "method": asked.trained(relabelled, options, own),
            "control": asked.trained(as_many(own), options, own),
            "null_method": plain.trained(relabelled, options, own),
            "null_control": plain.trained(as_many(own), options, own),
            "extra.baseline": asked.trained(natural, options, own),
            "extra.other": asked.trained(of_others(own), options, own),
            "extra.start": asked.mended(asked.start),
        }
        row["extra.over_other"] = row["method"] - row["extra.other"]
        found.append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """The tasks, and the policy at the start."""

    start: TablePolicy
    gold: torch.Tensor
    """[tasks] the right answer"""
    after: torch.Tensor
    """[tasks, wrong answers] the state after each"""

    def mended(self, policy: TablePolicy) -> float:
        """Return the probability of a right answer after a wrong one, mean over wrong ones and tasks."""
        gold = self.gold[:, None].expand_as(self.after)
        return float(policy.probabilities()[self.after, gold].mean())

    def trained(self, change: Change, options: Mapping[str, Any], seed: int) -> float:
        """Return `mended` of what becomes of the start by muCode whose choice goes through `change`."""
        whole = mucode.method(mucode.Config(relabel=int(options.get("relabel", 3))))
        size, numbers = int(options.get("size", 8)), iter(range(1 << 30))

        def keep(groups: Sequence[Group]) -> Sequence[Group]:
            return change(groups, whole.keep(groups), next(numbers))

        def collect(policy: TablePolicy, number: int) -> list[Group]:
            return told(policy.sample(size=size, seed=derive_seed("sums", seed, number)))

        method: OnPolicy = replace(whole, keep=keep)
        run = train_table(
            self.start,
            method,
            num_batches=int(options.get("batches", 20)),
            size=size,
            seed=seed,
            rate=float(options.get("rate", 30.0)),
            collect=collect,
        )
        return self.mended(run.policy)


def drawn(seed: int, options: Mapping[str, Any], *, leaves_trace: bool) -> Asked:
    """Return the tasks with an untrained policy, which is right seldom and tends to repeat what was wrong.

    Without a trace a wrong answer leads back to the first state of its task.
    """
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, ANSWERS, TASKS)
    shape = (STATES * TASKS, ANSWERS)
    first = np.arange(0, STATES * TASKS, STATES)
    after = first[:, None] + (1 + np.arange(ANSWERS) if leaves_trace else 0)
    following = np.repeat(np.broadcast_to(after, (TASKS, ANSWERS)), STATES, 0).copy()
    own_gold = np.repeat(gold, STATES)
    states = np.arange(STATES * TASKS)
    following[states, own_gold] = END
    is_success = following == END
    theta = 0.3 * rng.normal(size=shape)
    for answer in range(ANSWERS):
        theta[first + 1 + answer, answer] += float(options.get("stubborn", 1.0))
    theta[states, own_gold] += float(options.get("skill", 0.0))
    world = World(
        tasks=tuple(Task(id=f"sums/train/{k}", environment="sums", seed=k) for k in range(TASKS)),
        actions=tuple(f"say {k}" for k in range(ANSWERS)),
        horizon=TURNS,
        start=first,
        next=following,
        reward=is_success.astype(np.float64),
        is_legal=np.ones(shape, np.bool_),
        is_success=is_success,
        task_of=np.repeat(np.arange(TASKS), STATES),
        keys=tuple(
            f"{kind} {k}" for k in range(TASKS) for kind in ("asked", *(f"not {a}" for a in range(ANSWERS)))
        ),
        expert=own_gold,
        distance=np.ones(STATES * TASKS),
    )
    wrong = [[k for k in range(ANSWERS) if k != right] for right in gold.tolist()]
    seen = np.take_along_axis(np.broadcast_to(after, (TASKS, ANSWERS)), np.array(wrong), 1)
    return Asked(
        start=TablePolicy(world, torch.as_tensor(theta)),
        gold=torch.as_tensor(gold),
        after=torch.as_tensor(seen.copy()),
    )


def told(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` whose turns are answers, with the reward term that the world "sums" gives."""

    def changed(trajectory: Trajectory) -> Trajectory:
        turns = (replace(turn, reward_terms={ANSWER: turn.reward}) for turn in trajectory.turns)
        return replace(trajectory, turns=tuple(turns))

    return [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in groups]


def relabelled(groups: Sequence[Group], kept: Sequence[Group], number: int) -> Sequence[Group]:
    """Imitate what muCode keeps."""
    return kept


def parts(kept: Sequence[Group], groups: Sequence[Group]) -> list[tuple[list[Trajectory], list[Trajectory]]]:
    """Return the natural successes of each group that muCode keeps, and its relabelled episodes."""
    sampled = {id(t) for g in groups for t in g.scored}
    return [
        ([t for t in g.trajectories if id(t) in sampled], [t for t in g.trajectories if id(t) not in sampled])
        for g in kept
    ]


def natural(groups: Sequence[Group], kept: Sequence[Group], number: int) -> Sequence[Group]:
    """Imitate natural successes, once each."""
    return [
        replace(g, trajectories=tuple(solved))
        for g, (solved, _) in zip(kept, parts(kept, groups), strict=True)
    ]


def as_many(seed: int) -> Change:
    """Imitate natural successes, and once more the last answer of one of them for each that was relabelled."""

    def change(groups: Sequence[Group], kept: Sequence[Group], number: int) -> Sequence[Group]:
        rng = np.random.default_rng(derive_seed("again", seed, number))
        found: list[Group] = []
        for group, (solved, other) in zip(kept, parts(kept, groups), strict=True):
            picked = [solved[k] for k in rng.integers(0, len(solved), len(other)).tolist()]
            again = [with_answer(t, answers(t)[-1], t.turns[-1]) for t in picked]
            found.append(replace(group, trajectories=(*solved, *again)))
        return found

    return change


def of_others(seed: int) -> Change:
    """Imitate what muCode keeps, but for relabelled episodes with the answer of another task."""

    def change(groups: Sequence[Group], kept: Sequence[Group], number: int) -> Sequence[Group]:
        both = parts(kept, groups)
        if len(kept) < 2:
            return natural(groups, kept, number)
        order = derange(len(kept), derive_seed("other", seed, number))
        found: list[Group] = []
        for place, (group, (solved, other)) in enumerate(zip(kept, both, strict=True)):
            answer = both[order[place]][0][0].turns[-1]
            wrong = [with_answer(t, 0, answer) for t in other]
            found.append(replace(group, trajectories=(*solved, *wrong)))
        return found

    return change

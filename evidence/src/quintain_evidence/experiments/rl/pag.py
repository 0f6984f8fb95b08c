"""PAG: where one role is paid ten times the other, whitening by role keeps the quieter one from being drowned.

A task is answered, the answer is judged, and an answer that was judged wrong is mended once: three states of a table
for each of sixteen tasks, and verdicts that are paid ten times what answers are. The critic is exact, so that it has
taken the mean of each role away already. The number is the exact accuracy of first answers after a fixed number of
steps of equal length. The control whitens by labels of as many turns of each kind, dealt to other turns; whitening
everything together is reported beside it. In the null world both roles are paid alike. The gate is the headline that
needs no training: on the start itself, answering again only where the verdict is "wrong" ends in more right answers
than always answering again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.credit_lab.permute import permute
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl import pag
from quintain.types import ANSWER, Credit, Group, Task, Trajectory, Turn, derive_seed, flatten_scored
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import TablePolicy, states_of, train_table

TASKS, ANSWERS = 16, 6
FIRST, RIGHT, WRONG, AGAIN = range(4)
"""States of a task: asked, judging a right answer, judging a wrong one, asked again."""
IS_RIGHT, IS_WRONG = 0, 1
"""Columns of the verdicts."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the exact accuracy of first answers after training."""
    found: list[Mapping[str, float]] = []
    loud = float(options.get("loud", 10.0))
    for number in range(int(options["seeds"])):
        own = derive_seed("pag", seed, number)
        asked = drawn(own)
        row = {"extra.start": asked.accuracy(), "extra.verdicts": asked.verdicts()}
        for scale, prefix in ((loud, ""), (1.0, "null_")):
            row[f"{prefix}method"] = asked.trained(whole(scale), options, own)
            row[f"{prefix}control"] = asked.trained(mislabelled(scale, own), options, own)
            if not prefix:
                row["extra.baseline"] = asked.trained(whole(scale, by_role=False), options, own)
        row["extra.selective"] = asked.selective() - asked.always()
        found.append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """The tasks, and the policy at the start."""

    start: TablePolicy
    gold: Tensor
    """[tasks] the right answer"""

    def chances(self, policy: TablePolicy, kind: int) -> Tensor:
        """Return π in the state `kind` of each task, [tasks, actions]."""
        return policy.probabilities()[kind::4]

    def accuracy(self, policy: TablePolicy | None = None, kind: int = FIRST) -> float:
        """Return the probability of a right answer in the state `kind`, mean over tasks."""
        return float(self._right(policy or self.start, kind).mean())

    def _right(self, policy: TablePolicy, kind: int) -> Tensor:
        return self.chances(policy, kind).gather(1, self.gold[:, None]).squeeze(1)

    def verdicts(self) -> float:
        """Return the share of true verdicts."""
        right = self._right(self.start, FIRST)
        true = self.chances(self.start, RIGHT)[:, IS_RIGHT], self.chances(self.start, WRONG)[:, IS_WRONG]
        return float((right * true[0] + (1 - right) * true[1]).mean())

    def selective(self) -> float:
        """Return the accuracy of last answers where only answers that were judged wrong are given again."""
        right, again = self._right(self.start, FIRST), self._right(self.start, AGAIN)
        kept = self.chances(self.start, RIGHT)[:, IS_RIGHT]
        mended = right * (1 - kept) + (1 - right) * self.chances(self.start, WRONG)[:, IS_WRONG]
        return float((right * kept + mended * again).mean())

    def always(self) -> float:
        """Return the accuracy of last answers where every answer is given again."""
        return self.accuracy(kind=AGAIN)

    def trained(self, method: OnPolicy, options: Mapping[str, Any], seed: int) -> float:
        """Return the accuracy of first answers after training by `method` in steps of equal length."""
        run = train_table(
            self.start,
            replace(method, reward=lambda groups: method.reward(self.told(groups))),
            num_batches=int(options.get("batches", 20)),
            size=int(options.get("size", 8)),
            seed=seed,
            rate=float(options.get("rate", 0.5)),
            num_epochs=1,
            optimizer=EqualSteps,
        )
        return self.accuracy(run.policy)

    def told(self, groups: Sequence[Group]) -> list[Group]:
        """Return `groups` with the reward terms that the world "sums" gives: answer or verdict, 1 where it is true."""

        def changed(trajectory: Trajectory) -> Trajectory:
            turns = zip(trajectory.turns, states_of(trajectory), strict=True)
            return replace(trajectory, turns=tuple(with_term(turn, state) for turn, state in turns))

        return [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in groups]


class EqualSteps(torch.optim.Optimizer):
    """Moves the logits by the same length at every step, along the gradient; the critic rests."""

    def __init__(self, parameters: list[Tensor], rate: float) -> None:
        super().__init__(parameters[:1], {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.norm() > 0:
                    parameter -= group["lr"] * parameter.grad / parameter.grad.norm()
        return None


def with_term(turn: Turn, state: int) -> Turn:
    """Return `turn` with the term of its job; what it was paid says whether it did it."""
    name = pag.VERDICT if state % 4 in (RIGHT, WRONG) else ANSWER
    return replace(turn, reward_terms={name: turn.reward})


def drawn(seed: int) -> Asked:
    """Return the tasks with an untrained policy: a third of its answers is right, and two thirds of its verdicts."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, ANSWERS, TASKS)
    shape = (4 * TASKS, ANSWERS)
    following, reward = np.full(shape, END, np.int64), np.zeros(shape)
    is_legal = np.ones(shape, np.bool_)
    theta = 0.3 * rng.normal(size=shape)
    for task in range(TASKS):
        first, right, wrong, again = range(4 * task, 4 * task + 4)
        following[first] = wrong
        following[first, gold[task]] = right
        following[[right, wrong], IS_WRONG] = again
        reward[[first, again], gold[task]] = 1.0
        reward[right, IS_RIGHT] = reward[wrong, IS_WRONG] = 1.0
        is_legal[[right, wrong], 2:] = False
        theta[[first, again], gold[task]] += 0.9
        theta[right, IS_RIGHT] += 0.7
        theta[wrong, IS_WRONG] += 0.7
    world = World(
        tasks=tuple(Task(id=f"sums/train/{k}", environment="sums", seed=k) for k in range(TASKS)),
        actions=tuple(f"say {k}" for k in range(ANSWERS)),
        horizon=3,
        start=np.arange(0, 4 * TASKS, 4),
        next=following,
        reward=reward,
        is_legal=is_legal,
        is_success=np.zeros(shape, np.bool_),
        task_of=np.repeat(np.arange(TASKS), 4),
        keys=tuple(f"{kind} {k}" for k in range(TASKS) for kind in ("first", "right", "wrong", "again")),
        expert=np.stack([gold, np.zeros(TASKS, np.int64), np.ones(TASKS, np.int64), gold], 1).flatten(),
        distance=np.tile([2.0, 1.0, 2.0, 1.0], TASKS),
    )
    policy = TablePolicy(world, torch.as_tensor(theta))
    values = (policy.probabilities() * torch.as_tensor(reward)).sum(-1)
    return Asked(start=TablePolicy(world, torch.as_tensor(theta), values), gold=torch.as_tensor(gold))


def whole(scale: float, *, by_role: bool = True) -> OnPolicy:
    """Return PAG with verdicts that are paid `scale` times as much, and a critic that knows it."""
    method = pag.method(pag.Config(by_role=by_role))

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return method.credit(groups, louder_values(groups, estimates, scale))

    return replace(method, reward=lambda groups: louder(method.reward(groups), scale), credit=credit)


def mislabelled(scale: float, seed: int) -> OnPolicy:
    """Return the same whitened by the roles of other turns: as many of each, on turns drawn at random."""
    method = whole(scale)

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        values = louder_values(groups, estimates, scale)
        advantages = gae_tokens(groups, values.critic, turn_discount=0.0, gae_lambda=1.0)
        places = [(t, turn) for t in flatten_scored(groups) for turn in t.turns]
        dealt = permute([pag.role(t, turn) for t, turn in places], seed=seed, moves_all=False).values
        names = iter(dealt)
        return whiten(advantages, by=lambda _t, _turn: next(names))

    return replace(method, credit=credit)


def louder(groups: Sequence[Group], scale: float) -> list[Group]:
    """Return `groups` whose verdicts are paid `scale` times as much."""

    def paid(trajectory: Trajectory) -> Trajectory:
        turns = (
            replace(turn, reward=turn.reward * (scale if pag.role(trajectory, turn) == "verifier" else 1.0))
            for turn in trajectory.turns
        )
        return replace(trajectory, turns=tuple(turns))

    return [replace(g, trajectories=tuple(map(paid, g.trajectories))) for g in groups]


def louder_values(groups: Sequence[Group], estimates: Estimates, scale: float) -> Estimates:
    """Return `estimates` whose values of verdicts are as much larger."""
    critic = estimates.critic
    values = [
        [
            array * (scale if pag.role(t, turn) == "verifier" else 1.0)
            for turn, array in zip(t.turns, arrays, strict=True)
        ]
        for t, arrays in zip(flatten_scored(groups), critic.values, strict=True)
    ]
    return replace(estimates, values=replace(critic, values=values))

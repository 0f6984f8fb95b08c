"""LLMs are Greedy Agents: does the bonus for what is untried widen what is tried, and is it its place that does it?

A table over what four arms have shown so far (untried, paying well, paying badly), the same for all bandits, begins as
a greedy player that seldom leaves what it tried. It learns by the method's own reward, credit and loss. The number is
the share of arms that are tried in held-out bandits. The control hands the bonuses of every episode to another episode
of the batch: as many, of the same size, in turns as early. A player without any bonus is measured beside them, for its
regret. In the null world the start tries everything already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

import torch

from quintain.credit.layout import outcome_of
from quintain.credit_lab.permute import derange
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import greedy
from quintain.types import Group, Score, Task, Trajectory, derive_seed
from quintain.worlds.bandit.arms import Arms, draw_arms
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

UNTRIED, BAD, GOOD = range(3)
"""what an arm has shown"""
TERM = "untried"


class Bandit:
    """An episode of a bandit whose observation is what each arm has shown."""

    def __init__(self, arms: Arms) -> None:
        self.arms = arms
        self.pulled = [0] * len(arms.rates)
        self.won = [0] * len(arms.rates)

    def row(self) -> int:
        """Return what the arms have shown, as digits to the base three."""
        found = 0
        for pulled, won in zip(self.pulled, self.won, strict=True):
            shown = UNTRIED if not pulled else GOOD if 2 * won > pulled else BAD
            found = 3 * found + shown
        return found

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Pull an arm; all chance is in the task."""
        paid = self.arms.pays[column][self.pulled[column]]
        self.pulled[column] += 1
        self.won[column] += paid
        return Moved(reward=paid / len(self.arms.pays[0]), is_over=sum(self.pulled) == len(self.arms.pays[0]))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of coverage of held-out bandits."""
    num_arms, pulls, gap = (
        int(options.get("arms", 4)),
        int(options.get("pulls", 40)),
        float(options.get("gap", 0.8)),
    )
    batches, episodes = int(options.get("batches", 20)), int(options.get("episodes", 32))
    held_out, rate = int(options.get("held_out", 256)), float(options.get("rate", 1.0))
    method = greedy.method(greedy.Config(bonus=float(options.get("bonus", 1.0)), num_epochs=1))
    without = greedy.method(greedy.Config(bonus=0.0, num_epochs=1))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("greedy", seed, number)

        def make(task: Task) -> Bandit:
            return Bandit(draw_arms(num_arms, pulls, gap, Random(task.seed)))

        def tasks(name: str, count: int, own: int = own) -> list[Task]:
            return [
                Task(id=f"{name}/{i}", environment="bandit", seed=derive_seed(own, name, i))
                for i in range(count)
            ]

        def learned(start: TablePolicy, arm: OnPolicy, own: int = own) -> TablePolicy:
            run = train_table(
                start,
                arm,
                num_batches=batches,
                size=1,
                seed=own,
                rate=rate,
                collect=lambda policy, batch: play_games(
                    policy, make, tasks(f"train {batch}", episodes), size=1, seed=derive_seed(own, batch)
                ),
            )
            return run.policy

        def tried(policy: TablePolicy, own: int = own) -> tuple[float, float]:
            played = play_games(policy, make, tasks("eval", held_out), size=1, seed=derive_seed(own, "eval"))
            return coverage(played, num_arms), regret(played, num_arms, pulls, gap)

        exchanged = replace(method, reward=elsewhere(method.reward, own))
        start = player(num_arms, pulls, own, stays=float(options.get("stays", 4.0)))
        curious = player(num_arms, pulls, own, stays=-float(options.get("tries", 8.0)))
        paid, blind, plain = (tried(learned(start, arm)) for arm in (method, exchanged, without))
        found.append(
            {
                "method": paid[0],
                "control": blind[0],
                "null_method": tried(learned(curious, method))[0],
                "null_control": tried(learned(curious, exchanged))[0],
                "extra.start": tried(start)[0],
                "extra.curious": tried(curious)[0],
                "extra.without": plain[0],
                "extra.more_regret": paid[1] / max(plain[1], 1e-9) - 1,
            }
        )
    return found


def player(num_arms: int, pulls: int, seed: int, *, stays: float) -> TablePolicy:
    """Return a table that prefers arms that paid well, and by `stays` nats those it tried to those it did not."""
    world = observed_world(3**num_arms, [f"pull {arm}" for arm in range(num_arms)], [NO_TASK], horizon=pulls)
    theta = torch.zeros(world.is_legal.shape, dtype=torch.float64)
    for row in range(3**num_arms):
        for arm in range(num_arms):
            shown = row // 3 ** (num_arms - 1 - arm) % 3
            theta[row, arm] = {UNTRIED: 0.0, BAD: stays, GOOD: stays + 2.0}[shown]
    noise = torch.Generator().manual_seed(seed % (1 << 63))
    return TablePolicy(world, theta + 0.3 * torch.randn(theta.shape, generator=noise, dtype=torch.float64))


NO_TASK = Task(id="none", environment="bandit", seed=0)


def elsewhere(
    reward: Callable[[Sequence[Group]], Sequence[Group]], seed: int
) -> Callable[[Sequence[Group]], Sequence[Group]]:
    """Return `reward` with the bonuses of each episode, turn by turn, handed to another episode of the batch."""

    def changed(groups: Sequence[Group]) -> Sequence[Group]:
        paid = reward(groups)
        episodes = [t for group in paid for t in group.trajectories]
        order = derange(len(episodes), derive_seed(seed, "elsewhere", episodes[0].seed))
        bonuses = [[turn.reward_terms[TERM] for turn in episodes[other].turns] for other in order]
        new = iter([with_bonuses(t, own) for t, own in zip(episodes, bonuses, strict=True)])
        return [replace(group, trajectories=tuple(next(new) for _ in group.trajectories)) for group in paid]

    return changed


def with_bonuses(trajectory: Trajectory, bonuses: Sequence[float]) -> Trajectory:
    """Return `trajectory` with other bonuses; its turn rewards and outcome follow."""
    turns = tuple(
        replace(
            turn,
            reward=turn.reward + bonus - turn.reward_terms[TERM],
            reward_terms={**turn.reward_terms, TERM: bonus},
        )
        for turn, bonus in zip(trajectory.turns, bonuses, strict=True)
    )
    gained = sum(bonuses) - sum(turn.reward_terms[TERM] for turn in trajectory.turns)
    assert isinstance(trajectory.outcome, Score), "games are scored"
    return replace(
        trajectory, turns=turns, outcome=replace(trajectory.outcome, value=outcome_of(trajectory) + gained)
    )


def coverage(groups: Sequence[Group], num_arms: int) -> float:
    """Return the mean share of arms that an episode tried."""
    return fmean(
        len({turn.action.text for turn in t.turns}) / num_arms for g in groups for t in g.trajectories
    )


def regret(groups: Sequence[Group], num_arms: int, pulls: int, gap: float) -> float:
    """Return what the pulls of an episode cost on average, against pulling the best arm each time."""
    lost: list[float] = []
    for group in groups:
        best = draw_arms(num_arms, pulls, gap, Random(group.task.seed)).best
        lost += [
            gap * sum(turn.action.text != f"pull {best}" for turn in t.turns) for t in group.trajectories
        ]
    return fmean(lost)

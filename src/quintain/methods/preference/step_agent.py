"""StepAgent (arXiv 2411.03817): prefers the expert's action to the policy's own in each state.

The policy imitates the expert first. Then it acts in the states of the expert's episodes, one step in each, and where
it does the same nothing is learned. Two ways to learn from the rest:

- implicit: L = -log σ(β [log π/π_ref (expert's step) - log π/π_ref (own step)]), the start as reference;
- inverse: a discriminator D(s, a) tells the expert's steps from the policy's, in turns with the policy, which is paid
  log D - log(1 - D) for a step, with the clipped surrogate of PPO.

The environment's rewards enter neither.

Differences to the paper: D is a logistic regression on the words of what is seen and done, balanced and with a ridge,
where the paper has a model; the baseline of PPO is the mean of several steps in the same state and not a critic;
with ``implicit`` the expert's step is imitated as well (RPO, 2404.19733), unless `imitation_weight` is 0 as published.
A step that was cut off is no other step.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quintain.agents.deliberation import describe_action
from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.data.pairs import Pairs, check_pairs
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.methods.rl.parts.contexts import Contexts, single
from quintain.methods.rl.parts.measures import Decode
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Pair, Trajectory, as_content, as_text, flatten_scored

WORD = re.compile(r"\w+|[^\w\s]")
SIZE = 512
"""Features that words are hashed to."""
NEWTON = 12
"""Steps of Newton's method that the discriminator is fitted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of StepAgent."""

    steps: int = 3
    """Rounds, or with ``inverse`` steps."""
    demonstrations: int | str | None = 20
    """The expert's episodes: they are imitated first, then inspected."""
    reward: Literal["implicit", "inverse"] = "implicit"
    """How a step is learned from: as a preference, or paid by a discriminator."""
    tasks: PositiveInt = 128
    """States of a round in which the policy acts."""
    group_size: PositiveInt = 4
    """Steps that it takes in each."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the start, with ``implicit``."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the expert's step as well, with ``implicit``; 0 is as published."""


def method(config: Config) -> Rounds | OnPolicy:
    """Return StepAgent as `config` describes it."""
    inspection = Inspection()
    needs = Needs(environment=False, branches=True, expert=True)
    if config.reward == "implicit":
        return Rounds(
            collect=lambda collector, step: inspection.collect(
                collector, step, config.tasks, config.group_size
            ),
            build=lambda groups: prefer_expert(groups, inspection.experts),
            update=update_on_pairs(dpo_or_rpo(config.beta, config.imitation_weight)),
            needs=replace(needs, reference=True),
            measure=inspection.measure,
        )
    judge = Judge(inspection)
    return OnPolicy(
        prepare=inspection.prepare,
        collect=lambda collector, step: inspection.collect(collector, step, config.tasks, config.group_size),
        reward=partial(apply_all, terms=(Term(name="expert_like", measure=judge.measure),)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio()),
        needs=needs,
        state=CombinedState(judge),
        measure=lambda groups, decode: {**inspection.measure(groups, decode), **judge.metrics(groups)},
    )


@dataclass(slots=True)
class Inspection:
    """The states of the expert's episodes, and what it did there: ``inspection.collect(collector, 1, 32, 4)``."""

    contexts: Contexts = field(default_factory=lambda: Contexts("all"))
    experts: dict[str, Trajectory] = field(default_factory=dict[str, Trajectory])
    """state, ``TASK@TURN`` → the expert's step in it, as an episode of one turn"""
    goals: dict[str, str] = field(default_factory=dict[str, str])
    """state → what was seen first in its episode"""

    def prepare(self, collector: Collector) -> None:
        """Take the expert's episodes apart."""
        self.contexts.prepare(collector)
        for t in collector.demonstrations():
            for number in range(len(t.turns)):
                name = f"{t.task.id}@{number}"
                if name in self.contexts.wanted:
                    self.experts[name] = single(t, number)
                    self.goals[name] = as_text(t.turns[0].observation) if number else ""

    def collect(self, collector: Collector, step: int, tasks: int, size: int) -> list[Group]:
        """Return `size` steps of the policy in each of `tasks` states of the expert's, each an episode of one turn."""
        if not self.experts:
            self.prepare(collector)
            collector.begin_step()  # what was played again to prepare is no part of a step, resumed or not
        return self.contexts.collect(collector, step, tasks=tasks, size=size)

    def measure(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return the share of steps in which the policy does something else than the expert."""
        own = [t for t in flatten_scored(groups) if t.task.id in self.experts]
        other = sum(not does_the_same(t, self.experts[t.task.id]) for t in own)
        return {"step_agent/other": other / max(len(own), 1)}

    def words(self, step: Trajectory) -> tuple[str, str]:
        """Return what was seen before a step, the beginning of its episode with it, and what was done."""
        turn = step.turns[-1]
        seen = as_text(as_content(turn.observation))
        return f"{self.goals.get(step.task.id, '')} {seen}", describe_action(turn.action)


def prefer_expert(groups: Sequence[Group], experts: Mapping[str, Trajectory]) -> Pairs:
    """Return the expert's step against each different one of the policy's in the same state; equal ones drop out.

    Steps are the same that do the same, however they are written. Outcomes are not looked at.
    """
    found: list[Pair] = []
    for group in groups:
        expert = experts.get(group.task.id)
        if expert is None:
            continue
        chosen = replace(expert, task=group.task)
        known: set[str] = set()
        for own in group.scored:
            said = describe_action(own.turns[-1].action)
            if own.turns[-1].completion.stop != "stop" or does_the_same(own, expert) or said in known:
                continue
            known.add(said)
            found.append(Pair(chosen=chosen, rejected=replace(own, stop=expert.stop)))
    return check_pairs(found, margin=None)


def does_the_same(one: Trajectory, other: Trajectory) -> bool:
    """Return whether two steps do the same."""
    return describe_action(one.turns[-1].action) == describe_action(other.turns[-1].action)


class Judge:
    """The discriminator of a run, fitted anew to the steps of each batch: ``Judge(inspection)``."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.weights = np.zeros(SIZE)

    def update(self, groups: Sequence[Group]) -> None:
        """Fit it to the steps of `groups` and the expert's in the same states."""
        own = [t for t in flatten_scored(groups) if t.task.id in self.inspection.experts]
        if own:
            experts = [self.inspection.experts[t.task.id] for t in own]
            self.weights = fit_discriminator(self._rows(experts), self._rows(own))

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Learn nothing from metrics."""

    def measure(self, step: Trajectory) -> float:
        """Return log D - log(1 - D) of a step."""
        return float(self._rows([step])[0] @ self.weights)

    def metrics(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return the mean of D over the policy's steps; .5 where it cannot be told from the expert."""
        own = [t for t in flatten_scored(groups) if t.task.id in self.inspection.experts]
        chances = [probability(self.measure(t)) for t in own]
        return {"step_agent/expert_like": sum(chances) / len(chances)} if chances else {}

    def _rows(self, steps: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the features of `steps`, [steps, SIZE]."""
        return np.stack([features(*self.inspection.words(step)) for step in steps])


def features(seen: str, done: str) -> NDArray[np.float64]:
    """Return how often the words of what is done occur, by themselves and beside each word that is seen, [SIZE]."""
    found = np.zeros(SIZE)
    words = set(WORD.findall(seen.lower()))
    for act in WORD.findall(done.lower()) or [""]:
        for name in (act, *(f"{word} {act}" for word in words)):
            found[zlib.crc32(name.encode()) % SIZE] += 1.0
    return found


def fit_discriminator(
    experts: NDArray[np.float64], own: NDArray[np.float64], *, ridge: float = 1.0
) -> NDArray[np.float64]:
    """Return the weights of a logistic regression that tells rows of the expert's steps from those of one's `own`.

    Both sides count the same in all. Where they are the same rows, all weights are 0 and D is .5.

    It minimises -Σ_e log D/n_e - Σ_o log(1 - D)/n_o + ridge/(n_e + n_o)·|w|², by Newton's method.
    """
    rows = np.concatenate([experts, own])
    labels = np.concatenate([np.ones(len(experts)), np.zeros(len(own))])
    share = np.concatenate([np.full(len(experts), 1 / len(experts)), np.full(len(own), 1 / len(own))])
    penalty = 2 * ridge / len(rows)
    weights = np.zeros(rows.shape[1])
    for _ in range(NEWTON):
        chances = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (share * (chances - labels)) + penalty * weights
        curve = (rows * (share * chances * (1 - chances))[:, None]).T @ rows
        weights = weights - np.linalg.solve(curve + penalty * np.eye(len(weights)), slope)
    return weights


def probability(reward: float) -> float:
    """Return D of which `reward` is log D - log(1 - D). Example: 1.3862944: .8."""
    return float(1 / (1 + np.exp(-reward)))

"""BacktrackAgent (arXiv 2505.20660): learns to act, to judge what an action led to, and to do better where it did not.

A_t = A_O + w·(v_t - mean v), v_t = 1 if attempt t was kept, 0 if it was taken back.

The policy acts through `backtracked` (`quintain.search.backtracking`): after each action it says whether that helped,
and where it did not the state before is brought back and it acts again, told what was tried. It begins by imitating a
teacher who errs in the share `error_rate` of its attempts: verdicts, and what is done after an attempt was taken back,
are imitated as the actions are; attempts that were taken back are not. Then generator and reflector learn from
outcomes: A_O is the outcome of an episode, normalised within its group, and v, the verdict of verifier and judger, is
compared with those of all attempts of the group. Verdicts are not trained by what they say: a judge that is paid for
its own consent would consent.

Differences to the paper: one model is generator, judger and reflector; it is told apart by what it is asked. What
helped says in demonstrations the environment's expert, or that more of a task is done. The judge rests after the
imitation, and rewards are those of attempts that were carried out, none of simulated ones. No code is public. Measured
on a small web of text, where the paper has pictures of phones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, Share
from quintain.credit.group import normalise
from quintain.credit.layout import by_group, credit_of, group_metrics, outcome_of, repeat_over_tokens
from quintain.data.pipeline import Pipeline, weigh_stage
from quintain.data.searched import number_actions, split_head
from quintain.data.stages import keep_solved
from quintain.environments.noisy import NoisyExpert, noisy
from quintain.environments.protocol import Environment, Expert
from quintain.errors import ConfigError
from quintain.learning.train_config import ColdStart, GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.imitation.supervised import choose_trajectories
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.types import Action, Credit, Group, Observation, Trajectory, flatten_scored

HARNESS = "backtracked"
"""The wrapper that takes actions back; it stands in front of the configuration's agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of BacktrackAgent."""

    environment: str = "web?goal=order&irreversible=false"
    agent: str = HARNESS
    demonstrations: NonNegativeInt | str | None = 200
    """Episodes of a teacher who errs and is judged; or a file, folder or run of recorded ones; 0 for none."""
    error_rate: Share = 0.3
    """Share of the teacher's attempts that are mistakes, which teach what a mistake leads to."""
    judged_weight: NonNegativeFloat = 0.5
    """w: weight of the verdict on an attempt beside the outcome of its episode."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.agent.split("+")[0].split("?")[0] != HARNESS:
            raise ConfigError(
                f"agent: got {self.agent}, which takes nothing back; put {HARNESS}+ in front of it"
            )


def method(config: Config) -> OnPolicy:
    """Return BacktrackAgent as `config` describes it."""
    is_told = isinstance(config.demonstrations, str)
    return OnPolicy(
        cold_start=ColdStart(
            choose=lambda shown, _: choose_trajectories(
                shown, choose_attempts(), "imitating attempts and verdicts"
            ),
            teachers=() if is_told else (err_and_judge(config.error_rate),),
        ),
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: credit_attempts(groups, weight=config.judged_weight),
        update=Update(loss=clip_ratio()),
        needs=Needs(snapshots=True, expert=not is_told and config.demonstrations != 0),
        measure=lambda groups, _: measure_attempts(groups),
    )


def err_and_judge(rate: float) -> NoisyExpert:
    """Return the teacher who errs at `rate` where it acts, and never where it judges."""
    err = noisy(rate)

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        if split_head(seen[-1])[0] == "judge" and isinstance(environment, Expert):
            return environment.expert_action()
        return err(environment, rng, seen)

    return act


def choose_attempts() -> Pipeline:
    """Return what is imitated: solved episodes, but for the attempts in them that were taken back."""
    return Pipeline(
        keep_solved(),
        weigh_stage(
            "kept",
            "attempts that were taken back have no weight",
            lambda t: [float(was_kept is not False) for was_kept in read_attempts(t)],
        ),
    )


def read_attempts(trajectory: Trajectory) -> list[bool | None]:
    """Return of each turn of an episode whether what was done then was kept; None of a verdict.

    A turn in which nothing is done counts as the attempt that it leads to.
    """
    _, way, _ = split_head(trajectory.final_observation)
    return [
        None if split_head(turn.observation)[0] == "judge" else number in way
        for turn, number in zip(trajectory.turns, number_actions(trajectory), strict=True)
    ]


def credit_attempts(groups: Sequence[Group], *, weight: float) -> Credit:
    """Give each attempt A_O + `weight`·(v - mean v of its group); verdicts are not trained.

    Example: outcomes 1 and 0 of two episodes of one attempt each, the first kept: ±.7071 ± .5·`weight`.
    """
    trajectories = flatten_scored(groups)
    found = [read_attempts(t) for t in trajectories]
    per_turn: list[list[float]] = [[] for _ in trajectories]
    for indices in by_group(trajectories):
        outcomes = normalise([outcome_of(trajectories[i]) for i in indices])
        mean = fmean([float(v) for i in indices for v in found[i] if v is not None] or [0.0])
        for index, outcome in zip(indices, outcomes, strict=True):
            per_turn[index] = [0.0 if v is None else outcome + weight * (v - mean) for v in found[index]]
    metrics = group_metrics(trajectories, outcome_of)
    credit = credit_of(trajectories, repeat_over_tokens(trajectories, per_turn), metrics=metrics)
    return replace(credit, is_trained=tuple(tuple(v is not None for v in own) for own in found))


def measure_attempts(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return the attempts of an episode, the share of them that was taken back, and the verdicts for each."""
    found = [read_attempts(t) for t in flatten_scored(groups)]
    attempts = [v for own in found for v in own if v is not None]
    if not attempts:
        return {}
    return {
        "backtrack/attempts": len(attempts) / len(found),
        "backtrack/undone": 1 - fmean(map(float, attempts)),
        "backtrack/verdicts": sum(v is None for own in found for v in own) / len(attempts),
    }

"""Layer 0 row by row: the world of its comparison, and what both arms are paid for the same episodes."""

from dataclasses import replace
from random import Random

from quintain.curriculum.streams import TaskStream
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.methods.find import find_method
from quintain.methods.method import TransformGroups, same_groups
from quintain.rollout.collect import Limits, Rollout
from quintain.types import Group, Trajectory, derive_seed
from quintain.warm_start.start import harness, make_start, teacher
from quintain_evidence.layers.league import BASELINE, METHOD, Entry
from quintain_evidence.layers.objective import audit_world, compare_rewards
from quintain_evidence.layers.verdict import Check

NUM_PAID = 32
"""Recorded episodes that both arms' rewards are tried on."""
SHARE_INVALID = 0.2
"""Share of their turns that are marked as invalid, for rewards that read it."""


def audit_objective(entry: Entry) -> tuple[Check, ...]:
    """Return whether the world of `entry` pays for what is measured, and both arms the same for the same episodes."""
    world = audit_world(entry.benchmark.environment)
    method, baseline = (reward_of(entry, arm) for arm in (METHOD, BASELINE))
    paid = compare_rewards(recorded(entry), baseline, method)
    if entry.reward and not paid.has_passed:
        paid = Check(
            name=paid.name, has_passed=True, detail=f"{paid.detail}, which is under test: {entry.reward}"
        )
    return (*world.checks, paid)


def reward_of(entry: Entry, arm: str) -> TransformGroups:
    """Return how an arm changes what recorded episodes were paid."""
    found = entry.trial(arm, 0, None)
    method = find_method(found.recipe).make(found.config)
    return getattr(method, "reward", same_groups)


def recorded(entry: Entry) -> list[Group]:
    """Return episodes of an expert who errs in half of the turns, through the harness of the baseline.

    An expert's mistakes can be carried out, so a share of the turns is marked as if they could not.
    """
    config = entry.trial(BASELINE, 0, None).config
    make_environment = find(config.environment)
    _, tokenizer = make_start(config.model, make_environment, seed=0)
    agent = harness(config, tokenizer, make_environment)
    rollout = Rollout(agent, make_environment, None, limits=Limits(max_failure_share=0.5))
    try:
        tasks = TaskStream(tasks_of(make_environment)).draw(0, NUM_PAID)
        demonstrator = teacher(make_environment, expert_noise=0.5)
        found = rollout.demonstrations(tasks, demonstrator, seed=derive_seed(0, "objective"))
    finally:
        rollout.close()
    return [
        replace(group, trajectories=tuple(with_invalid(t, Random(t.seed)) for t in group.trajectories))
        for group in found
    ]


def with_invalid(trajectory: Trajectory, rng: Random) -> Trajectory:
    """Return the episode with some of its turns marked as invalid."""
    turns = tuple(
        replace(turn, is_valid=turn.is_valid and rng.random() > SHARE_INVALID) for turn in trajectory.turns
    )
    return replace(trajectory, turns=turns)

"""What became of an episode: done, done or tried against a rule, not done, unreadable, or broken.

A rate of success alone puts an agent that did something forbidden beside one that did nothing, and what the machinery
broke beside what the agent could not do. Silence is not legality: who does nothing is ``not_done``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from quintain.safety.guard import REFUSED
from quintain.types import Failure, Trajectory

OutcomeKind = Literal["done", "illegal", "not_done", "unreadable", "broken"]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
RULES = ("illegal", REFUSED)
"""Reward terms that count, in a turn, what broke a rule, and what a guard refused of what was tried."""


def outcome_of(trajectory: Trajectory) -> OutcomeKind:
    """Return what became of `trajectory`; the first that is so of broken, illegal, done, unreadable, not_done.

    Unreadable is an episode that was not solved and whose last action could not be read.
    """
    if isinstance(trajectory.outcome, Failure):
        return "broken"
    acted = [turn for turn in trajectory.turns if not turn.is_internal]
    if any(turn.reward_terms.get(rule, 0.0) > 0 for turn in acted for rule in RULES):
        return "illegal"
    if trajectory.is_success:
        return "done"
    return "unreadable" if acted and acted[-1].action.error is not None else "not_done"


def count_outcomes(trajectories: Sequence[Trajectory]) -> Mapping[OutcomeKind, int]:
    """Return how many of `trajectories` came to each kind, the five of them in order."""
    counts = Counter(map(outcome_of, trajectories))
    return {kind: counts[kind] for kind in KINDS}

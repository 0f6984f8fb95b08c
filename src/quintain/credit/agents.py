"""A = (R - mean) / (std + ε) over the calls of an agent, or of all agents: whose calls set the baseline (Dr. MAS).

arXiv 2602.08847. Under statistics of all agents the mean square of agent k's advantages is (σ_k² + (μ_k - μ)²) / σ²: an
agent that is paid, or called, unlike the others has gradients too large and all of one sign. With its own mean and
deviation it is 1. Takes parts of episodes, one for each agent (`data.seats.split_seats`). Unit: a call, so that
an agent that was called three times in an episode counts three times, or an episode, whose calls count as their mean.
Singleton rule: an agent with one episode in the group → 0, never the raw reward. No variance → exactly 0.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, get_args

from quintain.credit.group import Std, normalise
from quintain.credit.layout import credit_of, group_metrics, outcome_of, repeat_over_tokens, turn_rewards
from quintain.errors import UsageError, suggestion
from quintain.types import Credit, Group, Trajectory, flatten_scored

Whose = Literal["agent", "all"]
Unit = Literal["call", "episode"]
Pays = Literal["outcome", "turn"]


def over_agents(
    groups: Sequence[Group],
    *,
    by: Whose = "agent",
    unit: Unit = "call",
    std: Std = "unbiased",
    pays: Pays = "outcome",
    penalty: float = 0.0,
    epsilon: float = 1e-6,
) -> Credit:
    """Give each call its episode's outcome, less `penalty` where it was invalid, normalised over the calls `by` whom.

    Where it `pays` the turn, a call is given its own reward in the place of the outcome (MARTI). With `unit` episode
    all calls of an episode share the mean, penalties with it. Logs ``credit/moment/AGENT``, the mean square of the
    advantages of its calls. Example: A is paid 1, 0, 0, 1 and B 3, 3, 2, 2, 3, 3; over all, the
    moments are 1.28 and .64 (1.43 and .72 with the biased deviation), by agent .75 and .83 (1 and 1).

    Raises:
        UsageError: `by`, `unit` or `pays` is another word.
    """
    for asked, got, known in (
        ("statistics", by, get_args(Whose)),
        ("unit of the statistics", unit, get_args(Unit)),
        ("pays of the statistics", pays, get_args(Pays)),
    ):
        if got not in known:
            raise UsageError(f"{asked} over agents: got {got!r}; {suggestion(got, known)}")
    trajectories = flatten_scored(groups)
    scores = [_call_scores(trajectory, penalty, pays) for trajectory in trajectories]
    if unit == "episode":
        scores = [[fmean(own)] * len(own) for own in scores]
    pools: dict[tuple[str, str], list[int]] = {}
    for place, trajectory in enumerate(trajectories):
        name = trajectory.group if by == "agent" else whole_group(trajectory)
        pools.setdefault((trajectory.task.id, name), []).append(place)
    found: list[list[float]] = [[] for _ in trajectories]
    for members in pools.values():
        counted = [scores[i] if unit == "call" else scores[i][:1] for i in members]
        flat = iter(normalise([score for own in counted for score in own], std=std, epsilon=epsilon))
        for i, own in zip(members, counted, strict=True):
            values = [next(flat) if len(members) > 1 else 0.0 for _ in own]
            found[i] = values if unit == "call" else values * len(scores[i])
    metrics = group_metrics(trajectories, outcome_of)
    return credit_of(
        trajectories,
        repeat_over_tokens(trajectories, found),
        metrics={**metrics, **_moments(trajectories, found)},
    )


def whole_group(trajectory: Trajectory) -> str:
    """Return the group of the episode that `trajectory` is one agent's part of; its own group where it is whole."""
    if not trajectory.turn_numbers:
        return trajectory.group
    first = trajectory.turns[0]
    name = next(name for name in (first.seat, first.speaker) if trajectory.group.endswith(f"/{name}"))
    return trajectory.group.removesuffix(f"/{name}")


def _call_scores(trajectory: Trajectory, penalty: float, pays: Pays) -> list[float]:
    earned = turn_rewards(trajectory) if pays == "turn" else [outcome_of(trajectory)] * len(trajectory.turns)
    return [
        value - penalty * (not turn.is_valid) for value, turn in zip(earned, trajectory.turns, strict=True)
    ]


def _moments(trajectories: Sequence[Trajectory], found: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the mean square of the advantages of each agent's calls, by its name."""
    squares: dict[str, list[float]] = {}
    for trajectory, own in zip(trajectories, found, strict=True):
        squares.setdefault(trajectory.turns[0].speaker, []).extend(value**2 for value in own)
    return {f"credit/moment/{name}": fmean(values) for name, values in sorted(squares.items())}

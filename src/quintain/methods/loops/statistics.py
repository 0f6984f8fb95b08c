"""What a step's rewards and kinds of task come to, for every method.

The journal has episodes as they were played, so that other rewards can be tried on them; terms of a method's own are
put on afterwards. An episode that a term fails on is the judge's failure: it is left out, counted, and too many of them
stop the run. In a mixed run, one environment whose rewards are ten times as large as the others' would take over the
update unseen, so each kind of task (the environment that it names) has numbers of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from quintain.credit.layout import outcome_of
from quintain.rewards.terms import mean_terms
from quintain.rollout.failures import check_failures
from quintain.types import Credit, Failure, Group


def measure_rewards(before: Sequence[Group], after: Sequence[Group], *, most: float) -> Mapping[str, float]:
    """Return ``reward/TERM``, the mean over episodes of what a term paid in each, and ``reward/failed``.

    `after` are the groups `before` with the rewards of the method; {} where it has none of its own. ``reward/failed``
    is the share of episodes that were scored and no longer are.

    Raises:
        FailureRateError: these are more than the share `most`; a single one is borne.
    """
    if after is before:
        return {}
    known = {id(t.outcome) for group in before for t in group.trajectories if isinstance(t.outcome, Failure)}
    episodes = [t for group in after for t in group.trajectories]
    failures = [t.outcome for t in episodes if isinstance(t.outcome, Failure) and id(t.outcome) not in known]
    check_failures(failures, finished=len(episodes), total=len(episodes), most=most)
    paid = {f"reward/{name}": value for name, value in mean_terms(episodes).items()}
    return {**paid, "reward/failed": len(failures) / max(len(episodes), 1)}


def measure_task_kinds(groups: Sequence[Group], credit: Credit | None = None) -> dict[str, float]:
    """Return for each kind of task success, mean and deviation of the outcomes, and with `credit` its share of Σ|A|.

    Σ|A| runs over the sampled tokens: on-policy and with a mean over tokens, it bounds the norm of the policy gradient;
    a mean over episodes first lets long episodes weigh less than this says. {} for one kind.
    """
    kinds = sorted({group.task.environment for group in groups})
    if len(kinds) < 2:
        return {}
    size = dict.fromkeys(kinds, 0.0)
    if credit is not None:
        for trajectory, arrays in zip(credit.trajectories, credit.advantages, strict=True):
            size[trajectory.task.environment] += sum(float(np.abs(array).sum()) for array in arrays)
    total = sum(size.values()) or 1.0
    metrics: dict[str, float] = {}
    for kind in kinds:
        scored = [t for group in groups if group.task.environment == kind for t in group.scored]
        if not scored:
            continue
        outcomes = [outcome_of(t) for t in scored]
        wins = [t.is_success for t in scored]
        metrics |= {
            f"task/{kind}/success": float(np.mean(wins)),
            f"task/{kind}/reward": float(np.mean(outcomes)),
            f"task/{kind}/reward_std": float(np.std(outcomes)),
        }
        if credit is not None:
            metrics[f"task/{kind}/gradient_share"] = size[kind] / total
    return metrics

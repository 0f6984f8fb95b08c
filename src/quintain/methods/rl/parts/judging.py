"""What the reward terms of a method come to in a step, by name, and what could not be said, counted.

The journal has episodes as they were played, so that other rewards can be tried on them; terms of a method's own are
put on afterwards. The one rule: an episode that a term fails on is the judge's failure: it is left out, counted, and
too many of them stop the run.
"""

from collections.abc import Mapping, Sequence

from quintain.rewards.terms import mean_terms
from quintain.rollout.failures import check_failures
from quintain.types import Failure, Group


def judged(before: Sequence[Group], after: Sequence[Group], *, most: float) -> Mapping[str, float]:
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

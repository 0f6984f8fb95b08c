"""What a set of episodes says about an agent: success with an interval, lengths, and what broke.

Rates and means are over scored episodes; failures are counted beside them, with their owner.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.errors import DataError, FailureRateError
from quintain.eval.statistics import pass_at_k, pass_hat_k, wilson
from quintain.rewards.terms import mean_terms
from quintain.types import NOTHING, Failure, Score, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Statistics of a set of episodes: ``Evaluation(num=10, num_failed=1, success=0.8, low=0.49, high=0.94, …)``."""

    num: int
    """scored episodes; failures are not among them"""
    num_failed: int
    success: float
    """solved share of the scored episodes"""
    low: float
    """Wilson 95 % interval of `success`, over independent episodes"""
    high: float
    mean_return: float
    mean_turns: float
    mean_tokens: float
    """sampled tokens per scored episode"""
    by_stop: Mapping[str, int] = NOTHING
    """why episodes ended, failures among them"""
    by_owner: Mapping[str, int] = NOTHING
    """who broke the failed ones"""
    terms: Mapping[str, float] = NOTHING
    """what each reward term came to in a scored episode, on average, by name"""

    def metrics(self, prefix: str = "eval/") -> dict[str, float]:
        """Return the numbers under the names that the metrics of a run use: ``{"eval/success": 0.8, …}``."""
        return {
            f"{prefix}success": self.success,
            f"{prefix}low": self.low,
            f"{prefix}high": self.high,
            f"{prefix}return": self.mean_return,
            f"{prefix}turns": self.mean_turns,
            f"{prefix}tokens": self.mean_tokens,
            f"{prefix}tokens_per_turn": self.mean_tokens / self.mean_turns if self.mean_turns else 0.0,
            f"{prefix}episodes": float(self.num),
            f"{prefix}failures": float(self.num_failed),
            **{f"{prefix}reward/{name}": value for name, value in self.terms.items()},
        }

    def __str__(self) -> str:
        """Return one line: ``success 80.0 % [49.0, 94.3], 10 episodes, 1 failed``."""
        failed = f", {self.num_failed} failed" if self.num_failed else ""
        interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"success {100 * self.success:.1f} % {interval}, {self.num} episodes{failed}"


def evaluate(trajectories: Sequence[Trajectory]) -> Evaluation:
    """Return success, lengths and failures of `trajectories`.

    Raises:
        DataError: there is no trajectory.
        FailureRateError: every one of them failed, so there is nothing to take a rate of.
    """
    scores = [t.outcome for t in trajectories if isinstance(t.outcome, Score)]
    scored = [t for t in trajectories if isinstance(t.outcome, Score)]
    failures = [t.outcome for t in trajectories if isinstance(t.outcome, Failure)]
    by_owner = dict(sorted(Counter(failure.owner for failure in failures).items()))
    check_scored(len(scores), failures, by_owner)
    wins = sum(score.is_success for score in scores)
    low, high = wilson(wins, len(scores))
    return Evaluation(
        num=len(scores),
        num_failed=len(failures),
        success=wins / len(scores),
        low=low,
        high=high,
        mean_return=sum(score.value for score in scores) / len(scores),
        mean_turns=sum(len(t.turns) for t in scored) / len(scores),
        mean_tokens=sum(t.num_sampled for t in scored) / len(scores),
        by_stop=dict(sorted(Counter(t.stop.value for t in trajectories).items())),
        by_owner=by_owner,
        terms=mean_terms(scored),
    )


def evaluate_by_environment(trajectories: Sequence[Trajectory]) -> dict[str, Evaluation]:
    """Return the same for each environment that has scored episodes, by name; {} where there is only one."""
    names = sorted({trajectory.task.environment for trajectory in trajectories})
    parts = {name: [t for t in trajectories if t.task.environment == name] for name in names}
    scored = {name: any(isinstance(t.outcome, Score) for t in part) for name, part in parts.items()}
    return {name: evaluate(parts[name]) for name in names if scored[name]} if len(names) > 1 else {}


def check_scored(num_scored: int, failures: Sequence[Failure], by_owner: Mapping[str, int]) -> None:
    """Raise when no episode was scored."""
    if num_scored:
        return
    if not failures:
        raise DataError("an evaluation needs episodes: got none; ask for one or more")
    owners = ", ".join(f"{owner} {count}" for owner, count in by_owner.items())
    raise FailureRateError(
        f"an evaluation needs scored episodes: got {len(failures)} failures of {len(failures)} ({owners}; "
        f"the first: {failures[0].kind}: {failures[0].message}); repair what broke"
    )


def outcomes_by_task(trajectories: Sequence[Trajectory]) -> dict[str, list[Score]]:
    """Return the scores of each task id, in order of arrival; tasks with failures only are left out."""
    scores: dict[str, list[Score]] = {}
    for trajectory in trajectories:
        if isinstance(trajectory.outcome, Score):
            scores.setdefault(trajectory.task.id, []).append(trajectory.outcome)
    return scores


def pass_rates(trajectories: Sequence[Trajectory], k: int) -> tuple[float, float]:
    """Return (pass@k, pass^k), averaged over the tasks with at least `k` scored episodes.

    Raises:
        DataError: no task has that many.
    """
    counts = [
        (len(s), sum(x.is_success for x in s)) for s in outcomes_by_task(trajectories).values() if len(s) >= k
    ]
    if not counts:
        raise DataError(
            f"pass@{k} needs a task with {k} scored episodes: got none; sample more episodes per task"
        )
    at_least_one = sum(pass_at_k(num, wins, k) for num, wins in counts) / len(counts)
    every = sum(pass_hat_k(num, wins, k) for num, wins in counts) / len(counts)
    return at_least_one, every

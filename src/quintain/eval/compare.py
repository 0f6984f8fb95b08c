"""Runs against a baseline, task by task: the difference in success, its interval and a p-value.

Only tasks that both sides scored are paired; several episodes of a task count as their mean, and the interval of a
rate is then over tasks. With more than one
comparison the p-values are corrected (Holm). The uncertainty is over tasks: it says which of these models is better,
not which method is; for that, compare several training seeds of each. What could not be paired is said, not guessed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.errors import DataError, UsageError, suggestion
from quintain.eval.evaluate import Evaluation, outcomes_by_task
from quintain.eval.report import TASK, cluster_of, evaluate_clustered
from quintain.eval.statistics import (
    Difference,
    bootstrap_pairs,
    clustered_mean,
    holm,
    mcnemar,
    permute_pairs,
    subtract_pairs,
    wilson,
)
from quintain.types import NOTHING, Score, Task, Trajectory

COLUMNS = ("run", "success", "95 % interval", "return", "turns", "failed", "paired", "difference", "p")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One run: its evaluation, and its difference in success from the baseline (None for the baseline)."""

    name: str
    evaluation: Evaluation
    difference: Difference | None = None
    """success minus the baseline's, over paired tasks; None also when no task is shared"""
    p_value: float | None = None
    """McNemar, exact (sign-flip test with several episodes per task); corrected for the number of rows"""

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts, one for each of `COLUMNS`."""
        e, d = self.evaluation, self.difference
        change = "" if d is None else f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
        return (
            self.name,
            f"{100 * e.success:.1f} %",
            f"[{100 * e.low:.1f}, {100 * e.high:.1f}]",
            f"{e.mean_return:.3f}",
            f"{e.mean_turns:.1f}",
            str(e.num_failed),
            "" if d is None else str(d.num),
            change,
            "" if self.p_value is None else f"{self.p_value:.2g}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rows in the order given, the baseline among them: ``Comparison(baseline="a", rows=(…))``."""

    baseline: str
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()
    """what the runs differ in besides their training, a line each"""


def compare(
    runs: Mapping[str, Sequence[Trajectory]],
    *,
    baseline: str | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cluster: str = "",
) -> Comparison:
    """Compare the evaluation episodes of `runs` with those of `baseline` (the first one unless named).

    Their `settings` are looked at for what they differ in besides their training. Tasks of one `cluster` (see
    `report.cluster_of`) are not independent: intervals and tests are then over clusters.

    Raises:
        UsageError: fewer than two runs, or a baseline that is not one of them.
    """
    if len(runs) < 2:
        raise UsageError(f"a comparison needs two runs or more: got {len(runs)}; name another run")
    base = next(iter(runs)) if baseline is None else baseline
    if base not in runs:
        raise UsageError(f"baseline of the comparison: got {base!r}; {suggestion(base, runs)}")
    known = outcomes_by_task(runs[base])
    clusters = {t.task.id: cluster_of(t.task, cluster) for t in runs[base]} if cluster else {}
    found = {
        name: compare_pairs(known, outcomes_by_task(trajectories), seed, clusters)
        for name, trajectories in runs.items()
        if name != base
    }
    tested = {name: result for name, result in found.items() if result is not None}
    corrected = dict(zip(tested, holm([p_value for _, p_value in tested.values()]), strict=True))
    rows = tuple(
        ComparisonRow(
            name=name,
            evaluation=evaluate_clustered(
                trajectories, cluster or (TASK if is_repeated(trajectories) else "")
            ),
            difference=tested[name][0] if name in tested else None,
            p_value=corrected.get(name),
        )
        for name, trajectories in runs.items()
    )
    what = "scored tasks of two clusters or more" if cluster else "scored task"
    apart = [f"{name} shares no {what} with {base}" for name in found if name not in tested]
    return Comparison(baseline=base, rows=rows, notes=(*differences(settings or {}), *apart))


def differences(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what runs with these `settings`, by name, differ in, so that a comparison is not of training alone."""

    def values(read: Callable[[Mapping[str, Any]], object]) -> dict[str, str]:
        found = {name: str(read(config) or "") for name, config in settings.items()}
        return found if len(set(found.values())) > 1 else {}

    told = values(lambda config: config.get("eval_environment") or config.get("environment"))
    if told:
        where = ", ".join(f"{name} in {world}" for name, world in told.items())
        yield f"these runs were not evaluated on the same tasks: {where}"
    for option, what in (("agent", "act through the same agent"), ("model", "begin with the same model")):
        if told := values(lambda config, option=option: config.get(option)):
            which = ", ".join(f"{name} {value or '(none named)'}" for name, value in told.items())
            yield f"these runs do not {what}, so that they differ in more than their training: {which}"


def compare_pairs(
    first: Mapping[str, Sequence[Score]],
    second: Mapping[str, Sequence[Score]],
    seed: int,
    clusters: Mapping[str, str] = NOTHING,
) -> tuple[Difference, float] | None:
    """Return the difference in success over shared tasks and its p-value, or None when there are none.

    With the `clusters` of tasks, the interval is that of clusters, and the test flips the signs of whole clusters.

    There is none where all shared tasks are of one cluster, either: it says nothing of others.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared or (clusters and len({clusters[name] for name in shared}) < 2):
        return None
    before = [success_rate(first[name]) for name in shared]
    after = [success_rate(second[name]) for name in shared]
    if clusters:
        changes, own = subtract_pairs(before, after), [clusters[name] for name in shared]
        sums = [float(changes[[place == name for place in own]].sum()) for name in sorted(set(own))]
        p_value = permute_pairs([0.0] * len(sums), sums, seed=seed)
        return difference_over_clusters(changes.tolist(), own), p_value
    difference = bootstrap_pairs(before, after, seed=seed)
    if all(len(first[name]) == len(second[name]) == 1 for name in shared):
        pairs = list(zip(before, after, strict=True))
        return difference, mcnemar(sum(a > b for a, b in pairs), sum(a < b for a, b in pairs))
    return difference, permute_pairs(before, after, seed=seed)


def difference_over_clusters(changes: Sequence[float], clusters: Sequence[str]) -> Difference:
    """Return the mean of `changes` of a rate by task, with its interval over `clusters`, within -1 and 1.

    Where all changed by 1, or all by -1, it is Wilson's over as many tasks as there are clusters, as a rate's is.
    """
    found = clustered_mean(changes, clusters)
    low, high = max(-1.0, found.low), min(1.0, found.high)
    if abs(found.mean) == 1:
        share = wilson(found.num_clusters, found.num_clusters)[0]
        low, high = (2 * share - 1, 1.0) if found.mean > 0 else (-1.0, 1 - 2 * share)
    return Difference(mean=found.mean, low=low, high=high, num=len(changes))


def check_shared(tasks: Mapping[str, Sequence[Task]], cluster: str) -> None:
    """Refuse to compare those whose `tasks` share some with the first, but of one `cluster` only.

    Raises:
        DataError: there is such a one.
    """
    (base, first), *others = tasks.items()
    for name, own in others:
        names = {task.id for task in own}
        shared = {cluster_of(task, cluster) for task in first if task.id in names}
        if len(shared) == 1:
            raise DataError(
                f"comparing {name} with {base}: got tasks in common of one {cluster} only ({min(shared)}), which says "
                "nothing of others; evaluate more tasks, or cluster by something else"
            )


def is_repeated(trajectories: Sequence[Trajectory]) -> bool:
    """Whether some of several tasks has several scored episodes, which are then not independent."""
    scores = outcomes_by_task(trajectories)
    return 1 < len(scores) < sum(map(len, scores.values()))


def success_rate(scores: Sequence[Score]) -> float:
    """Return the solved share of `scores`."""
    return sum(score.is_success for score in scores) / len(scores)

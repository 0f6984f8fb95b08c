"""What an evaluation says besides its rate: pass@k, clustered intervals, outcomes, cost, abilities, and each task.

Episodes of one task are not independent: with several trials the interval of the success rate is that of the clusters
`task`, or of whatever else is said to belong together, such as the ten wordings of one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from quintain.errors import DataError, UsageError
from quintain.eval.evaluate import Evaluation, evaluate, outcomes_by_task, pass_rates
from quintain.eval.outcomes import OutcomeKind, count_outcomes, outcome_of
from quintain.eval.statistics import ClusteredMean, clustered_mean, wilson
from quintain.types import Failure, Score, Task, Trajectory

ABILITIES = ("planning", "tools", "memory", "self-improvement", "reasoning", "perception")
"""Tags of a task that say what it asks for."""
TASK, ENVIRONMENT = "task", "environment"
"""Clusters that need no data of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What episodes took, summed: ``Cost(model_calls=12, tool_calls=9, prompt_tokens=800, sampled_tokens=240, …)``."""

    model_calls: int
    """completions, those in which an agent spoke to itself among them"""
    tool_calls: int
    prompt_tokens: int
    """tokens that were read; what a conversation said before counts once"""
    sampled_tokens: int
    seconds: float
    """of all episodes, one after another"""

    def per_task(self, num: int) -> str:
        """Return what a task took on average of `num`: ``3.0 calls of the model, 2.0 of tools, …``."""
        return (
            f"{self.model_calls / num:.1f} calls of the model, {self.tool_calls / num:.1f} of tools, "
            f"{self.prompt_tokens / num:,.0f} tokens read, {self.sampled_tokens / num:,.0f} sampled, "
            f"{self.seconds / num:.2g} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Success of some episodes: ``Rate(success=0.5, low=0.1, high=0.9, num=4)``."""

    success: float
    low: float
    high: float
    num: int

    def __str__(self) -> str:
        """Return ``50.0 % [9.5, 90.5] of 4``."""
        return f"{100 * self.success:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}] of {self.num}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task and what became of each of its episodes: ``TaskReport(id="guess/eval/3", success=0.5, …)``."""

    id: str
    environment: str
    abilities: tuple[str, ...]
    success: float | None
    """solved share of the scored episodes; None where none was scored"""
    episodes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An evaluation in full: ``make_report(trajectories, trials=4)``."""

    evaluation: Evaluation
    """its interval is the clustered one where there are clusters"""
    clusters: str
    """what belongs together; empty: episodes are independent"""
    num_clusters: int
    error: float | None
    """clustered standard error of the success rate"""
    pass_at: Mapping[int, float]
    """k → chance that one of k episodes of a task solves it"""
    pass_hat: Mapping[int, float]
    """k → chance that all of k do"""
    outcomes: Mapping[OutcomeKind, int]
    cost: Cost
    by_round: Mapping[int, float]
    """number of attempts → share of the tasks that were solved in so many; each after the first knows of a failure"""
    abilities: Mapping[str, Rate]
    """success on the tasks that ask for an ability, by name; nothing where all tasks ask for the same"""
    environments: Mapping[str, Rate]
    """success in each environment of a mixture, the worst first; nothing where there is one"""
    tasks: tuple[TaskReport, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, the numbers of the evaluation at the top."""
        row = asdict(self)
        return {**row.pop("evaluation"), **row}


def make_report(
    trajectories: Sequence[Trajectory],
    *,
    trials: int = 1,
    cluster: str = "",
    attempts: Sequence[Trajectory] = (),
) -> Report:
    """Return what `trajectories` say, up to `trials` of each task; see `cluster_of` for `cluster`.

    Where they are the last of several `attempts`, those are all there were: success is told by round, and all cost.

    Raises:
        DataError: there is no scored episode, or only one cluster.
        UsageError: a task does not say what it belongs to.
    """
    key = cluster or (TASK if trials > 1 else "")
    found = evaluate_clustered(trajectories, key)
    scored = [t for t in trajectories if isinstance(t.outcome, Score)]
    mean = _mean_of_clusters(trajectories, key) if key else None
    most = min(trials, max(map(len, outcomes_by_task(scored).values())))
    passed = {k: pass_rates(scored, k) for k in range(1, most + 1)}
    return Report(
        evaluation=found,
        clusters=key,
        num_clusters=0 if mean is None else mean.num_clusters,
        error=None if mean is None else mean.error,
        pass_at={k: rates[0] for k, rates in passed.items()},
        pass_hat={k: rates[1] for k, rates in passed.items()},
        outcomes=count_outcomes(trajectories),
        cost=sum_cost(attempts or trajectories),
        by_round=rate_rounds(attempts) if attempts else {},
        abilities=rate_abilities(scored, key),
        environments=rate_environments(scored, key),
        tasks=describe_tasks(trajectories),
    )


def cluster_of(task: Task, key: str) -> str:
    """Return what `task` belongs to by `key`: itself (task), its environment, or what its data says under that name.

    Raises:
        UsageError: its data does not say.
    """
    if key in (TASK, ENVIRONMENT):
        return task.id if key == TASK else task.environment
    if key not in task.data:
        known = ", ".join((TASK, ENVIRONMENT, *sorted(task.data)))
        raise UsageError(f"cluster {key!r}: got {task.id}, whose data does not say it; choose one of {known}")
    return str(task.data[key])


def evaluate_clustered(trajectories: Sequence[Trajectory], cluster: str) -> Evaluation:
    """Return the evaluation of `trajectories`, with the interval of the success rate over clusters where there are any.

    Where all episodes come to the same, it is Wilson's over as many episodes as there are clusters.

    Raises:
        DataError: there is one cluster, which says nothing of others.
        UsageError: a task does not say what it belongs to.
    """
    found = evaluate(trajectories)
    if not cluster:
        return found
    names, values = _scored_clusters(trajectories, cluster)
    num = count_clusters(names)
    if len(set(values)) == 1:
        low, high = wilson(num if values[0] else 0, num)
        return replace(found, low=low, high=high)
    mean = _mean_of_clusters(trajectories, cluster)
    return replace(found, low=max(0.0, mean.low), high=min(1.0, mean.high))


def _scored_clusters(trajectories: Sequence[Trajectory], cluster: str) -> tuple[list[str], list[float]]:
    """Return the cluster and the success of each scored episode."""
    scored = [t for t in trajectories if isinstance(t.outcome, Score)]
    return [cluster_of(t.task, cluster) for t in scored], [float(t.is_success) for t in scored]


def _mean_of_clusters(trajectories: Sequence[Trajectory], cluster: str) -> ClusteredMean:
    """Return the success rate of the scored episodes with its error over each `cluster`."""
    names, values = _scored_clusters(trajectories, cluster)
    return clustered_mean(values, names)


def check_clusters(tasks: Sequence[Task], cluster: str) -> None:
    """Raise where `tasks` have no interval over each `cluster`; there is nothing to be said against none.

    Raises:
        DataError: there is one cluster, which says nothing of others.
        UsageError: a task does not say what it belongs to.
    """
    if cluster:
        count_clusters([cluster_of(task, cluster) for task in tasks])


def count_clusters(names: Sequence[str]) -> int:
    """Return how many clusters `names` are.

    Raises:
        DataError: there is one, which says nothing of others.
    """
    num = len(set(names))
    if num < 2:
        raise DataError(
            f"a clustered interval needs two clusters or more: got {num} of {len(names)}; evaluate more tasks, or "
            "cluster by something else"
        )
    return num


def last_attempts(attempts: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the last of `attempts` at each task, in the order in which tasks come first."""
    return list({trajectory.task.id: trajectory for trajectory in attempts}.values())


def rate_rounds(attempts: Sequence[Trajectory]) -> dict[int, float]:
    """Return the share of the tasks that were solved in up to 1, 2, … of their `attempts`.

    A task of which every attempt broke is in no rate.
    """
    scored = {t.task.id for t in attempts if isinstance(t.outcome, Score)}
    solved: dict[str, list[bool]] = {}
    for trajectory in attempts:
        if trajectory.task.id in scored:
            solved.setdefault(trajectory.task.id, []).append(trajectory.is_success)
    most = max(map(len, solved.values()))
    return {k: sum(any(own[:k]) for own in solved.values()) / len(solved) for k in range(1, most + 1)}


def sum_cost(trajectories: Sequence[Trajectory]) -> Cost:
    """Return what `trajectories` took."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    return Cost(
        model_calls=len(turns),
        tool_calls=sum(len(turn.action.tool_calls) for turn in turns),
        prompt_tokens=sum(len(turn.prompt_ids) for turn in turns),
        sampled_tokens=sum(trajectory.num_sampled for trajectory in trajectories),
        seconds=sum(trajectory.seconds for trajectory in trajectories),
    )


def rate_abilities(scored: Sequence[Trajectory], cluster: str) -> dict[str, Rate]:
    """Return success by what tasks ask for, over each `cluster`; {} where all ask for the same, or none says."""
    asked = [frozenset(ABILITIES) & trajectory.task.tags for trajectory in scored]
    found: dict[str, Rate] = {}
    for ability in ABILITIES if len(set(asked)) > 1 else ():
        own = [t for t, tags in zip(scored, asked, strict=True) if ability in tags]
        if own:
            found[ability] = _rate(own, cluster)
    return found


def rate_environments(scored: Sequence[Trajectory], cluster: str) -> dict[str, Rate]:
    """Return success in each environment, over each `cluster`, the lowest first; {} where there is one."""
    by_name: dict[str, list[Trajectory]] = {}
    for trajectory in scored:
        by_name.setdefault(trajectory.task.environment, []).append(trajectory)
    rates = {name: _rate(own, cluster) for name, own in by_name.items()}
    ranked = sorted(rates.items(), key=lambda each: (each[1].success, each[0]))
    return dict(ranked) if len(rates) > 1 else {}


def _rate(own: Sequence[Trajectory], cluster: str) -> Rate:
    """Return the success of scored episodes, with its interval over each `cluster` where they are of several."""
    is_alone = len(set(_scored_clusters(own, cluster or TASK)[0])) < 2
    rate = evaluate_clustered(own, "" if is_alone else cluster)
    return Rate(success=rate.success, low=rate.low, high=rate.high, num=rate.num)


def describe_tasks(trajectories: Sequence[Trajectory]) -> tuple[TaskReport, ...]:
    """Return the tasks of `trajectories` in order, each with its episodes."""
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task.id, []).append(trajectory)
    return tuple(_describe_task(own) for own in by_task.values())


def _describe_task(episodes: Sequence[Trajectory]) -> TaskReport:
    """Return what became of one task in `episodes`."""
    task = episodes[0].task
    scored = [t.is_success for t in episodes if isinstance(t.outcome, Score)]
    return TaskReport(
        id=task.id,
        environment=task.environment,
        abilities=tuple(ability for ability in ABILITIES if ability in task.tags),
        success=sum(scored) / len(scored) if scored else None,
        episodes=tuple(_describe_episode(trajectory) for trajectory in episodes),
    )


def _describe_episode(trajectory: Trajectory) -> dict[str, Any]:
    """Return the row of one episode."""
    outcome = trajectory.outcome
    cost = asdict(sum_cost([trajectory]))
    row = {"outcome": outcome_of(trajectory), "stop": trajectory.stop.value, **cost}
    if isinstance(outcome, Failure):
        return {**row, "failure": f"{outcome.owner}/{outcome.kind}: {outcome.message}"}
    return {**row, "return": outcome.value}

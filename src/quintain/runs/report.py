"""The numbers of a step, under the names that every method uses for them."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from quintain.data.seats import mean_seat_returns
from quintain.eval.evaluate import evaluate, evaluate_by_environment
from quintain.learning.learner import StepReport
from quintain.rollout.measures import call_metrics, tool_metrics
from quintain.types import Failure, Group, Score, Trajectory


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Return success, reward, lengths and failures of the step's episodes; {} when there were none."""
    trajectories = [t for group in groups for t in group.trajectories]
    scored = [(t, t.outcome) for t in trajectories if isinstance(t.outcome, Score)]
    if not scored:
        return {}
    count = len(scored)
    turns = [turn for trajectory, _ in scored for turn in trajectory.turns]
    return {
        "train/success": sum(score.is_success for _, score in scored) / count,
        "train/reward": sum(score.value for _, score in scored) / count,
        **reward_error(groups),
        **{f"train/reward/{seat}": value for seat, value in mean_seat_returns(trajectories).items()},
        "train/turns": len(turns) / count,
        "train/tokens": sum(trajectory.num_sampled for trajectory, _ in scored) / count,
        "train/invalid": sum(not turn.is_valid for turn in turns) / max(len(turns), 1),
        "train/failures": sum(isinstance(t.outcome, Failure) for t in trajectories) / len(trajectories),
        "train/truncated": sum(t.stop.is_truncation for t, _ in scored) / count,
        **tool_metrics(trajectories),
        **call_metrics(trajectories),
    }


def reward_error(groups: Sequence[Group]) -> dict[str, float]:
    """Return the standard error of the step's mean reward: by tasks, or of one task by episodes; {} for one episode."""
    by_task = [returns for group in groups if (returns := group.returns)]
    drawn = [fmean(returns) for returns in by_task] if len(by_task) != 1 else by_task[0]
    return {"train/reward_error": stdev(drawn) / sqrt(len(drawn))} if len(drawn) > 1 else {}


def report_metrics(report: StepReport) -> dict[str, float]:
    """Return what one optimizer step did."""
    return {
        "train/loss": report.loss,
        "train/grad_norm": report.grad_norm,
        "train/skipped": float(report.is_skipped),
        "train/lr_scale": report.lr_scale,
        "time/update": report.seconds,
        **report.metrics,
    }


def evaluation_metrics(trajectories: Sequence[Trajectory], tools: Sequence[str] = ()) -> dict[str, float]:
    """Return ``eval/…`` over all of `trajectories`, and of a mixture ``eval/task/NAME/…`` of each environment.

    ``eval/worst_success`` is that of the environment of a mixture that is solved least, which no mean hides.
    ``eval/calls/TOOL`` is how often each of `tools` was called in a scored episode, on average.
    """
    found = evaluate(trajectories)
    counts = tool_metrics([t for t in trajectories if isinstance(t.outcome, Score)])
    calls = {f"eval/calls/{tool}": counts.get(f"tools/{tool}/calls", 0.0) / found.num for tool in tools}
    metrics = found.metrics() | calls
    metrics |= {f"eval/return/{seat}": value for seat, value in mean_seat_returns(trajectories).items()}
    parts = evaluate_by_environment(trajectories)
    for name, part in parts.items():
        metrics |= part.metrics(f"eval/task/{name}/")
    return metrics | ({"eval/worst_success": min(each.success for each in parts.values())} if parts else {})

"""What methods share that contrast an agent's own episodes with an expert's: both play the tasks of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quintain.data.pairs import Pairs, expert_and_agent
from quintain.methods.method import Collector
from quintain.types import Batch, Group, Loss, LossReport, Outputs, Stop, Trajectory


@dataclass(frozen=True, slots=True)
class Experts:
    """The expert's episodes of the round's tasks, by the names of the tasks; they are shown, not recorded."""

    by_task: Mapping[str, Trajectory]


def explore_shown(collector: Collector, step: int, tasks: int, size: int) -> tuple[list[Group], Experts]:
    """Return `size` episodes of each of `tasks` tasks that the expert has shown, and what was shown."""
    drawn = collector.expert_tasks(step, tasks)
    shown = Experts({each.task.id: each for each in collector.expert_episodes(drawn)})
    return collector.sample(step, drawn, size=size), shown


@dataclass(slots=True)
class Later:
    """The loss of the first round, and of those after it: ``Later(dpo(0.1), dpo(0.5))``, a state of the rounds."""

    first: Loss
    later: Loss
    number: int = 0
    """of the round, from 1"""

    def update(self, groups: Sequence[Group]) -> None:
        """See `State.update`."""
        self.number += 1

    def loss(self, outputs: Outputs, batch: Batch) -> LossReport:
        """Return the loss of the round that is trained."""
        return (self.first if self.number <= 1 else self.later)(outputs, batch)


def contrast_episodes(
    groups: Sequence[Group],
    experts: Experts,
    *,
    margin: float = 0.0,
    extra_turns: int | None = None,
    counts_turn_limit: bool = True,
) -> Pairs:
    """Return the agent's episodes against the expert's (ETO, arXiv 2403.02502).

    A rejected episode of the agent keeps the turns of the expert's and `extra_turns` more: failures are long, and a
    loss that sums over tokens would be about their length. Without `counts_turn_limit` an episode that ran out of the
    task's own turns is in no pair; one that a limit of whoever collected it cut never is.
    """
    given = [
        replace(
            group,
            trajectories=tuple(
                each
                for each in group.trajectories
                if counts_turn_limit or each.stop is not Stop.MAX_TURNS or each.is_success
            ),
        )
        for group in groups
    ]
    found = expert_and_agent(given, experts.by_task, margin=margin)
    if extra_turns is None:
        return found
    shortened = (
        replace(pair, rejected=_shorten(pair.rejected, len(pair.chosen.turns) + extra_turns))
        if pair.chosen is experts.by_task.get(pair.chosen.task.id)
        else pair
        for pair in found
    )
    return replace(found, pairs=tuple(shortened))


def _shorten(trajectory: Trajectory, turns: int) -> Trajectory:
    """Return `trajectory` with its first `turns` turns at most; no name of the journal stands for what is left."""
    if len(trajectory.turns) <= turns:
        return trajectory
    return replace(trajectory, turns=trajectory.turns[:turns])

"""What a step is worth to the starting policy, where an agent's way parts from the expert's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from quintain.data.pairs import Deviation, Estimate
from quintain.methods.method import Collector
from quintain.methods.preference.exploring import Experts
from quintain.rollout.replay import ReplayedEpisode
from quintain.rollout.views import Prefix
from quintain.types import Group, Score, Trajectory


@dataclass(frozen=True, slots=True)
class ValuedSteps:
    """The deviations of a round from the expert's episodes, and what their values cost."""

    deviations: Sequence[Deviation]
    num_turns: int
    """turns that were played to value steps"""

    def metrics(self, method: str) -> Mapping[str, float]:
        """Return how many deviations there were, the mean variance of a step's value, and what values cost.

        They stand under the name of the `method`.
        """
        variances = [
            value.variance for each in self.deviations for value in (each.expert_value, each.agent_value)
        ]
        return {
            f"{method}/deviations": float(len(self.deviations)),
            f"{method}/value_turns": float(self.num_turns),
            **({f"{method}/value_variance": fmean(variances)} if variances else {}),
        }


def find_parted(
    collector: Collector, step: int, experts: Experts
) -> list[tuple[ReplayedEpisode, int, Trajectory]]:
    """Return where the agent goes on otherwise than the expert, from each of the turns that this one showed."""
    walks = collector.replay_episodes(list(experts.by_task.values()))
    places = [(walk, turn) for walk in walks for turn in range(len(walk.trajectory.turns))]
    ways = collector.continue_from(
        step, [walk.prefix(turn) for walk, turn in places], size=1, phase="explored"
    )
    return [
        (walk, turn, group.scored[0])
        for (walk, turn), group in zip(places, ways, strict=True)
        if group.scored and parts_at(walk.trajectory, group.scored[0], turn)
    ]


def value_steps(
    collector: Collector,
    step: int,
    parted: Sequence[tuple[ReplayedEpisode, int, Trajectory]],
    rollouts: int,
) -> ValuedSteps:
    """Return both turns of each deviation, valued by `rollouts` episodes of the starting policy."""
    own = collector.replay_episodes([agent for _, _, agent in parted])
    after: dict[tuple[int, bool], Prefix] = {}
    for number, ((walk, turn, _), agent) in enumerate(zip(parted, own, strict=True)):
        for is_expert, each in ((True, walk), (False, agent)):
            if turn + 1 < len(each.trajectory.turns):
                after[number, is_expert] = each.prefix(turn + 1)
    played = collector.continue_from(
        step,
        list(after.values()),
        size=rollouts,
        seed=collector.seed("step values", step),
        phase="step_values",
        by="reference",
    )
    found = dict(zip(after, played, strict=True))
    num_turns = sum(
        len(each.turns) - len(prefix.turns)
        for prefix, group in zip(after.values(), played, strict=True)
        for each in group.trajectories
    )
    deviations = [
        Deviation(
            expert=walk.trajectory,
            agent=agent,
            turn=turn,
            expert_value=estimate(walk.trajectory, found.get((number, True))),
            agent_value=estimate(agent, found.get((number, False))),
        )
        for number, (walk, turn, agent) in enumerate(parted)
        if all(found[key].scored for key in ((number, True), (number, False)) if key in found)
    ]
    return ValuedSteps(deviations, num_turns)


def parts_at(expert: Trajectory, agent: Trajectory, turn: int) -> bool:
    """Return whether the agent samples something else than the expert in `turn`."""
    if len(agent.turns) <= turn:
        return False
    return expert.turns[turn].completion.token_ids != agent.turns[turn].completion.token_ids


def estimate(trajectory: Trajectory, group: Group | None) -> Estimate:
    """Return the value of a step by the scored episodes of `group`; without any, by the outcome that it ended in."""
    if group is None:
        assert isinstance(trajectory.outcome, Score), "only scored episodes are valued"
        return Estimate((trajectory.outcome.value,))
    return Estimate(tuple(group.returns))

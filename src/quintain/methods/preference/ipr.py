"""L = Σ over pairs of whole episodes and of steps of -log σ(βΔ) + NLL of the better side: IPR (arXiv 2406.11176).

From before every turn of the expert's episode the policy plays on. Both turns, the expert's and the policy's, are worth
the mean return of `rollouts` episodes that the *starting* policy plays on after them: step rewards by Monte Carlo.
A pair needs a higher outcome and a higher step value, each by more than `margin`; its sides are what follows the shared
turns, or with `is_action_only` the one turn in which they part. Whole episodes are paired as in ETO. Scorer and
reference are the starting policy in all rounds.

Differences to the paper: new tasks in every round; sampled episodes; the margin is .5, where the scripts say .01, at
which two equal steps are a false pair at a third of the turns. Where the policy does the same as the expert nothing is
scored, for both are in the same state; ties in the outcome are no pairs, where the code prefers the shorter one in one
world. The better side's likelihood is summed, as the code has it: it outweighs the pairs as many times as a side has
tokens (`preference/nll_gradient` beside `preference/pair_gradient`). ``likelihood="mean"`` is per token, and the pairs
then push rejected sides down by hundreds of nats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import Deviation, Estimate, joined, step_pairs
from quintain.learning.job import RoundsJob
from quintain.losses.preference import dpo, rpo
from quintain.methods.method import Collector, Needs, Rounds
from quintain.methods.preference.exploring import Experts, contrasted
from quintain.methods.preference.updating import update_on_pairs
from quintain.rollout.replay import Walk
from quintain.rollout.views import Prefix
from quintain.types import Group, Loss, Score, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsJob):
    """Configuration of IPR."""

    rollouts: PositiveInt = 5
    """Episodes of the starting policy that a step's value is the mean of."""
    margin: NonNegativeFloat = 0.5
    """Difference of outcomes, and of step values, above which two steps are a pair."""
    is_action_only: bool = False
    """Whether a step pair is the one turn alone, not what follows it as well."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    likelihood: Literal["sum", "mean", "none"] = "sum"
    """The better side's likelihood in the loss: its sum (as the code has it), its mean per token, or none."""


def method(config: Config) -> Rounds:
    """Return IPR as `config` describes it."""
    steps = Steps(rollouts=config.rollouts)
    return Rounds(
        collect=steps.explore(config.tasks),
        build=lambda groups: joined(
            contrasted(groups, steps.experts, margin=config.margin),
            step_pairs(steps.deviations, margin=config.margin, is_action_only=config.is_action_only),
        ),
        update=update_on_pairs(loss_of(config)),
        needs=Needs(branches=True, expert=True, reference=True, reference_acts=True),
        measure=lambda _groups, _decode: steps.metrics(),
    )


def loss_of(config: Config) -> Loss:
    """Return DPO with the likelihood of the better side."""
    if config.likelihood == "none":
        return dpo(config.beta)
    return rpo(config.beta, is_summed=config.likelihood == "sum")


@dataclass(slots=True)
class Steps:
    """The deviations of a round from the expert's episodes, and what their values cost."""

    rollouts: int
    experts: Experts = field(default_factory=Experts)
    deviations: list[Deviation] = field(default_factory=list[Deviation])
    num_turns: int = 0
    """turns that were played to value steps"""

    def explore(self, tasks: int) -> Callable[[Collector, int], list[Group]]:
        """Return the collection of a round: an episode of each task, and ways on from each of the expert's turns."""

        def collect(collector: Collector, step: int) -> list[Group]:
            groups = self.experts.explore(tasks, 1)(collector, step)
            shown = list(self.experts.by_task.values())
            walks = collector.walks(shown)
            places = [(walk, turn) for walk in walks for turn in range(len(walk.trajectory.turns))]
            ways = collector.continue_from(
                step, [walk.prefix(turn) for walk, turn in places], size=1, phase="explored"
            )
            parted = [
                (walk, turn, group.scored[0])
                for (walk, turn), group in zip(places, ways, strict=True)
                if group.scored and parts_at(walk.trajectory, group.scored[0], turn)
            ]
            self.value(collector, step, parted)
            return groups

        return collect

    def value(self, collector: Collector, step: int, parted: Sequence[tuple[Walk, int, Trajectory]]) -> None:
        """Value both turns of each deviation by the starting policy."""
        own = collector.walks([agent for _, _, agent in parted])
        after: dict[tuple[int, bool], Prefix] = {}
        for number, ((walk, turn, _), agent) in enumerate(zip(parted, own, strict=True)):
            for is_expert, each in ((True, walk), (False, agent)):
                if turn + 1 < len(each.trajectory.turns):
                    after[number, is_expert] = each.prefix(turn + 1)
        played = collector.continue_from(
            step,
            list(after.values()),
            size=self.rollouts,
            seed=collector.seed("step values", step),
            phase="step_values",
            by="reference",
        )
        found = dict(zip(after, played, strict=True))
        self.num_turns = sum(
            len(each.turns) - len(prefix.turns)
            for prefix, group in zip(after.values(), played, strict=True)
            for each in group.trajectories
        )
        self.deviations = [
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

    def metrics(self, method: str = "ipr") -> Mapping[str, float]:
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

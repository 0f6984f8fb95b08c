"""Agent0 (arXiv 2511.16043): a proposer of tasks and an executor that learns from its own majority.

The proposer is paid R = max(0, 1 - 2|p - ½| + γ·min(N, C) - λ·|cluster|/B), p the share of the k answers to a task
that agree with most (arXiv 2511.16043), N the tool calls that were carried out. The executor is trained on the tasks
with p in [.3, .8]; what most of its answers say stands for the truth. Where p is low the majority is less to be
trusted: the advantage is scaled by m + (1 - m)·clip((p - .3)/.5, 0, 1), and the ratio may rise more, to 1 + ε +
.1·(.8 - p)/.5 (ADPO).

Differences to the paper: the proposer chooses among levels, the parts of `mix:sums?digits=1,sums?digits=2`, and does
not write tasks, so its form is never wrong and proposals of one level are a cluster; with `proposer` the environment
or a model behind an endpoint says tasks, of which equal ones are a cluster, but whoever says them does not learn, and
R is measured alone; proposer and executor learn in every step, not in phases of their own. To the code: max(0, ·) is
there, answers count as wholes (what cannot be read, or did not end the task, is none and is paid 0), calls are those
that were carried out, and the loss reads the bound of each episode. Measured on a table of questions whose answers are
hidden, where the paper has mathematics.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from quintain.agents.deliberation import describe_action
from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.credit.group import group_relative
from quintain.curriculum.levels import Chooser, Proposer, level_of, levels_in, take
from quintain.errors import ConfigError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_each_ratio
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.methods.proposals import check_proposer, collect_proposals, proposer_at
from quintain.rewards.efficiency import num_calls
from quintain.types import Credit, Group, Score, Stop, Task, Trajectory, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of Agent0."""

    renamed: ClassVar[Mapping[str, str]] = {
        "reach": "oversample_factor",
        "proposer_rate": "proposer_lr",
        "most_calls": "max_calls",
        "least_scale": "min_scale",
    }
    """earlier names of options"""

    tasks: PositiveInt = 16
    """B: proposals of a step."""
    group_size: int = 10
    """k: answers of the executor to a proposal."""
    oversample_factor: PositiveInt = 8
    """Tasks that are looked at for each proposal; a level with fewer than were proposed has fewer."""
    proposer_lr: PositiveFloat = 1.0
    """Learning rate of the proposer's logits."""
    tool_weight: NonNegativeFloat = 0.05
    """γ: what a tool call that was carried out is worth to the proposer."""
    max_calls: PositiveInt = 4
    """C: tool calls that count."""
    repetition_weight: NonNegativeFloat = 1.0
    """λ: what proposing the same level as all others costs."""
    low: Share = 0.3
    """Share of agreeing answers from which on a task is learned."""
    high: Share = 0.8
    """Share of agreeing answers up to which a task is learned."""
    min_scale: Share = 0.6
    """m: factor on advantages of tasks at the lower end."""
    clip: PositiveFloat = 0.2
    """ε: the ratio is clipped to 1 - this, and above to 1 + this and more where few answers agree."""
    proposer: str = ""
    """Who names tasks: empty for a proposer of levels that learns, world for what the environment says could be asked
    for (which may be impossible), or the chat endpoint of a model, http://…/v1?model=NAME&temperature=1."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if not self.low < self.high:
            raise ConfigError(f"low: got {self.low} with high {self.high}; give low < high")
        check_proposer(self.proposer, self.max_staleness)


def method(config: Config) -> OnPolicy:
    """Return Agent0 as `config` describes it."""

    def values(groups: Sequence[Group]) -> list[float]:
        return proposal_values(
            groups,
            tool_weight=config.tool_weight,
            max_calls=config.max_calls,
            repetition_weight=config.repetition_weight,
            cluster=words_of if config.proposer else level_of,
        )

    proposer = Proposer(values, rate=config.proposer_lr)
    bounds: list[float] = []

    def credit(groups: Sequence[Group], _: Estimates) -> Credit:
        found = group_relative(groups)
        shares = [agreement(group) for group in groups for _ in group.scored]
        bounds[:] = [upper_clip(p, config.clip, low=config.low, high=config.high) for p in shares]
        factors = [trust(p, config.min_scale, low=config.low, high=config.high) for p in shares]
        scaled = tuple(
            tuple((array * np.float32(factor)).astype(np.float32) for array in arrays)
            for arrays, factor in zip(found.advantages, factors, strict=True)
        )
        return replace(found, advantages=scaled)

    return OnPolicy(
        collect=collect_proposals(config.tasks, config.group_size, proposer_at(config.proposer))
        if config.proposer
        else sample_proposed(proposer, config.tasks, config.group_size, config.oversample_factor),
        reward=majority_paid,
        keep=lambda groups: uncertain(groups, config.low, config.high),
        credit=credit,
        update=Update(loss=clip_each_ratio(config.clip, bounds), aggregation="sequence_mean"),
        state=CombinedState(proposer),
        measure=lambda groups, _: {
            **measure_majority(groups, proposer),
            "agent0/proposal_value": sum(values(groups)) / max(len(groups), 1),
        },
        needs=Needs(proposals=bool(config.proposer)),
    )


def sample_proposed(
    chooser: Chooser, tasks: int, size: int, reach: int
) -> Callable[[Collector, int], list[Group]]:
    """Return the collection of `size` episodes of each of the tasks that `chooser` proposes."""

    def collect(collector: Collector, step: int) -> list[Group]:
        pool = collector.tasks(step, tasks * reach)
        levels = chooser.choose(levels_in(pool), tasks, collector.seed("levels", step))
        return collector.sample(step, take(pool, levels), size=size)

    return collect


def answer_of(trajectory: Trajectory) -> str | None:
    """Return the whole of what an episode says last; None where that is no answer.

    It is none where it cannot be read, is empty, or where the task did not end with it: the episode ran out of turns,
    tokens or time.
    """
    if trajectory.stop is not Stop.TERMINATED or not trajectory.turns:
        return None
    last = trajectory.turns[-1].action
    return None if last.error is not None else describe_action(last).strip() or None


def majority(answers: Sequence[str | None]) -> tuple[str | None, float]:
    """Return what most of `answers` say, the first of equals, and the share of all that says it.

    What is no answer (None) agrees with nobody. Example: None, None, None, 7, 7: 7 and .4; of none None and 0.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    if not counts:
        return None, 0.0
    best = max(counts, key=lambda answer: counts[answer])
    return best, counts[best] / len(answers)


def agreement(group: Group) -> float:
    """Return p of the executor's answers in `group`; 0 where there is none."""
    return majority([answer_of(trajectory) for trajectory in group.scored])[1]


def proposal_value(
    p: float,
    calls: float,
    share: float,
    *,
    is_valid: bool = True,
    tool_weight: float = 0.05,
    max_calls: int = 4,
    repetition_weight: float = 1.0,
) -> float:
    """Return R of a proposal; `share` is that of the step's proposals which are like it. A broken one has 0.

    Example: p .5, no calls, one of ten alike: .9; p 1: 0, for max(0, ·).
    """
    uncertainty = 1 - 2 * abs(p - 0.5)
    value = uncertainty + tool_weight * min(calls, max_calls) - repetition_weight * share
    return max(0.0, value) if is_valid else 0.0


def proposal_values(
    groups: Sequence[Group],
    *,
    tool_weight: float,
    max_calls: int,
    repetition_weight: float,
    cluster: Callable[[Task], str] = level_of,
) -> list[float]:
    """Return R of each proposal of a step, from the executor's recorded episodes; those of one `cluster` are alike."""
    like = Counter(cluster(group.task) for group in groups)
    return [
        proposal_value(
            agreement(group),
            sum(map(count_executed, group.scored)) / max(len(group.scored), 1),
            like[cluster(group.task)] / len(groups),
            is_valid=bool(group.scored),
            tool_weight=tool_weight,
            max_calls=max_calls,
            repetition_weight=repetition_weight,
        )
        for group in groups
    ]


def words_of(task: Task) -> str:
    """Return what a proposed task asks for."""
    return json.dumps(dict(task.data), sort_keys=True, default=str)


def count_executed(trajectory: Trajectory) -> int:
    """Count the tool calls that were carried out, but for the one that answers."""
    done = tuple(turn for turn in trajectory.turns if turn.is_valid and turn.action.error is None)
    return num_calls(replace(trajectory, turns=done))


def majority_paid(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` paid 1 for the answer of the majority, in the last turn; the truth stays hidden.

    An episode without an answer is paid 0.
    """

    def pay(trajectory: Trajectory, best: str | None) -> Trajectory:
        if not isinstance(trajectory.outcome, Score) or not trajectory.turns:
            return trajectory
        value = float(best is not None and answer_of(trajectory) == best)
        turns = [replace(turn, reward=0.0) for turn in trajectory.turns]
        turns[-1] = replace(turns[-1], reward=value, reward_terms={"majority": value})
        return replace(trajectory, turns=tuple(turns), outcome=replace(trajectory.outcome, value=value))

    found: list[Group] = []
    for group in groups:
        best, _ = majority([answer_of(trajectory) for trajectory in group.scored])
        found.append(replace(group, trajectories=tuple(pay(t, best) for t in group.trajectories)))
    return found


def uncertain(groups: Sequence[Group], low: float, high: float) -> list[Group]:
    """Return the groups with p from `low` to `high`, both ends included."""
    return [group for group in groups if low - 1e-9 <= agreement(group) <= high + 1e-9]


def trust(p: float, least: float, *, low: float = 0.3, high: float = 0.8) -> float:
    """Return ADPO's factor on advantages: `least` at `low`, 1 at `high`."""
    return least + (1 - least) * min(max((p - low) / (high - low), 0.0), 1.0)


def upper_clip(p: float, clip: float, *, low: float = 0.3, high: float = 0.8) -> float:
    """Return ADPO's bound above 1 for the ratio: `clip` at `high`, .1 more at `low`."""
    return clip + 0.1 * min(max((high - p) / (high - low), 0.0), 1.0)


def measure_majority(groups: Sequence[Group], proposer: Proposer) -> Mapping[str, float]:
    """Return the mean agreement, how often the majority is right, and the proposer's entropy over levels (nats)."""
    chances = proposer.chances(list(proposer.logits)) if proposer.logits else [1.0]
    right: list[float] = []
    for group in groups:
        if group.scored:
            best, _ = majority([answer_of(trajectory) for trajectory in group.scored])
            right.append(float(any(t.is_success and answer_of(t) == best for t in group.scored if best)))
    episodes = flatten_scored(groups)
    return {
        "agent0/agreement": sum(map(agreement, groups)) / max(len(groups), 1),
        "agent0/majority_right": sum(right) / max(len(right), 1),
        "agent0/level_entropy": -sum(p * math.log(p) for p in chances if p > 0),
        "agent0/episodes": float(len(episodes)),
        "agent0/unread": sum(answer_of(t) is None for t in episodes) / max(len(episodes), 1),
    }

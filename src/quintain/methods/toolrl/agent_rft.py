"""Agent RFT: fine-tuning on tools and a grader elsewhere, which charges for tokens and calls.

r = score - λ·score·max(0, n - b)/b for tokens and for calls.

As hosted services define it (OpenAI's, from its documentation and talks): the policy calls the customer's tools while
it is sampled, the customer's grader says what an episode is worth, and every call and the grading carry one rollout id
(``http-tools/FILE.toml``). Before training the first items are tried `probes` times each: how much their scores vary is
reported, and items on which they never differ are left out of training. A small penalty on tokens and calls over their
budgets is a share of the score, so that a right answer stays above a wrong one. An endpoint that fails is asked again;
an episode it still breaks is excluded, never scored 0, and the others of its group stay.

Differences to the service, whose algorithm is not published: groups are compared as in GRPO, the ratio clipped to .8 …
1.28. With partial credit an answer that is little better and much longer may fall below the other. Measured with a
local server; the talks have a hardened FinQA.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, pvariance

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveInt
from quintain.credit.group import group_relative
from quintain.credit.layout import outcome_of
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, Needs, differs
from quintain.rewards.conduct import environment_reward
from quintain.rewards.efficiency import efficiency, num_calls, num_tokens
from quintain.rewards.terms import Term, apply_all
from quintain.types import Failure, Group, Task, flatten_scored

LARGEST = 0.05
"""λ at most: with more, saving pays before being right does."""
DRAWS = 4
"""Times the tasks of a step that are looked through for items that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of Agent RFT."""

    environment: str = "calc?names=0&steps=1&digits=1&checks=0"
    probe_items: NonNegativeInt = 16
    """Items that are tried before training; 0 for none."""
    probes: PositiveInt = 4
    """Times that each of them is tried."""
    token_budget: PositiveInt = 64
    """Sampled tokens of an episode that cost nothing."""
    call_budget: PositiveInt = 4
    """Tool calls of an episode that cost nothing."""
    token_penalty: NonNegativeFloat = 0.02
    """λ of tokens: what once the budget over it takes off the score, at most 0.05."""
    call_penalty: NonNegativeFloat = 0.02
    """λ of calls, at most 0.05."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        for name, value in (("token_penalty", self.token_penalty), ("call_penalty", self.call_penalty)):
            if value > LARGEST:
                raise ConfigError(
                    f"{name}: got {value}; give at most {LARGEST}, so that being right comes first"
                )
        if self.probe_items and self.probes < 2:
            raise ConfigError(f"probes: got {self.probes}, and one score does not vary; give 2 or more")


def method(config: Config) -> OnPolicy:
    """Return Agent RFT as `config` describes it."""
    flight = Flight(items=config.probe_items, probes=config.probes)
    return OnPolicy(
        prepare=flight.prepare,
        collect=partial(flight.collect, tasks=config.tasks, size=config.group_size),
        reward=partial(apply_all, terms=rewards(config)),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, 0.28), aggregation="sequence_mean"),
        needs=Needs(tools=True),
        measure=lambda groups, _: {**flight.report, **conduct(groups)},
    )


def rewards(config: Config) -> tuple[Term, ...]:
    """Return the grader's score, and what tokens and calls over their budgets take off it."""
    score = environment_reward()
    return (
        score,
        efficiency(score, num_tokens, budget=config.token_budget, strength=config.token_penalty, limit=0.25),
        efficiency(score, num_calls, budget=config.call_budget, strength=config.call_penalty, limit=0.25),
    )


@dataclass(slots=True, kw_only=True)
class Flight:
    """Items that are tried before training: ``Flight(items=16, probes=4)``."""

    items: int
    probes: int
    constant: set[str] = field(default_factory=set[str])
    """Items whose scores never differed."""
    report: Mapping[str, float] = field(default_factory=dict[str, float])

    def prepare(self, collector: Collector) -> None:
        """Try the first items; a resumed run reads its journal.

        Raises:
            UsageError: no item is left to learn from.
        """
        if not self.items:
            return
        groups = collector.starting_groups(tasks=self.items, size=self.probes)
        self.constant = {item_of(group.task) for group in groups if group.scored and not differs(group)}
        self.report = variance(groups)

    def collect(self, collector: Collector, step: int, *, tasks: int, size: int) -> list[Group]:
        """Return the episodes of the next items that are not left out.

        Raises:
            UsageError: all that come are.
        """
        drawn = collector.tasks(step, tasks * DRAWS if self.constant else tasks)
        kept = [task for task in drawn if item_of(task) not in self.constant][:tasks]
        if not kept:
            raise UsageError(
                f"items to learn from: got none, for on all {len(self.constant)} of them every try had the same score; "
                "give harder or easier items, a grader with partial credit, or --probe-items 0"
            )
        return collector.sample(step, kept, size=size)


def item_of(task: Task) -> str:
    """Return the name of the item that `task` is: its row where tasks are rows, which come again."""
    return f"row {task.data['row']}" if "row" in task.data else task.id


def variance(groups: Sequence[Group]) -> dict[str, float]:
    """Return the mean variance of an item's scores, and the shares of items that are always 0, always 1, or differ.

    What endpoints broke is left out; an item of which nothing is left counts as none of these.
    """
    values = [[outcome_of(t) for t in group.scored] for group in groups]
    known = [scores for scores in values if scores]
    num = max(len(values), 1)
    return {
        "preflight/variance": fmean(map(pvariance, known)) if known else 0.0,
        "preflight/always_0": sum(set(scores) == {0.0} for scores in known) / num,
        "preflight/always_1": sum(set(scores) == {1.0} for scores in known) / num,
        "preflight/differ": sum(len(set(scores)) > 1 for scores in known) / num,
        "preflight/broken": (len(values) - len(known)) / num,
    }


def conduct(groups: Sequence[Group]) -> dict[str, float]:
    """Return calls and tokens of an episode, and the share of episodes that was excluded, by who broke them."""
    every = [t for group in groups for t in group.trajectories]
    graded = flatten_scored(groups)
    failures = [t.outcome for t in every if isinstance(t.outcome, Failure)]
    return {
        "agent_rft/calls": fmean(map(num_calls, graded)) if graded else 0.0,
        "agent_rft/tokens": fmean(map(num_tokens, graded)) if graded else 0.0,
        **{
            f"agent_rft/excluded_{owner}": sum(failure.owner == owner for failure in failures)
            / max(len(every), 1)
            for owner in ("tool", "judge")
        },
    }

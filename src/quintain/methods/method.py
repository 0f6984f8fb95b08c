"""What a method is: anything that says what it needs, and trains a run.

A method's file has a frozen dataclass `Config` and a function ``method(config)`` that returns a `Method`. Most return a
value of one of four loops, whose fields they fill in (`quintain.methods.loops`):

- `OnPolicy`: collect → reward → keep → credit → update, with the policy as it is at every step;
- `Offline`: a data set of samples or preference pairs → update;
- `Rounds`: collect → build data → train on it offline, again;
- `Replay`: collect → buffer → updates of the critics → updates of the policy.

One that fits none of them is a class of its own, with `needs` and ``train(run, config)``. A field that a method leaves
out does nothing. Whatever a method remembers from step to step is a fold over recorded episodes and metrics (`State`),
so that a resumed run knows what the first one knew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from quintain.credit.layout import outcome_of
from quintain.data.seats import comparable_groups
from quintain.learning.train_config import MAIN, PolicySpec
from quintain.learning.update import Update
from quintain.types import (
    NOTHING,
    Group,
    Loss,
    is_constant,
)

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.runs.collector import Collector
    from quintain.store.run import Run
else:
    Collector = Any
    """For annotations: a method's file loads nothing of a run."""


CRITIC = "critic"
"""Name of a policy beside the main one whose values the credit reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a method asks of the run: ``Needs(critic=True)``. What is missing is refused before the first episode."""

    critic: bool = False
    """values that the credit reads: of a value head on the main policy, or of the one among `others` that is named
    ``critic``"""
    reference: bool = False
    """the frozen starting policy, as the policy ``reference``"""
    renews_reference: int = 0
    """steps, or rounds, after which ``reference`` becomes the policy as it is; 0: it stays as the run began (`Rounds`,
    `Replay`)"""
    reference_acts: bool = False
    """that ``reference`` samples as well, for episodes that are continued by it"""
    reward_model: PolicySpec | None = None
    """the policy ``reward_model``, whose scores of the episodes the credit reads"""
    others: Mapping[str, PolicySpec] = NOTHING
    """more policies beside the main one, by name"""
    reference_logprobs: bool = False
    """log-probs of the sampled tokens under the policy ``reference``, which the credit reads"""
    state_keys: bool = False
    """an environment that can recognise its states"""
    turn_rewards: bool = False
    """rewards before the last turn"""
    answers: bool = False
    """turns that the environment calls answers, by the reward term ``answer``"""
    branches: bool = False
    """episodes that are taken up again at their turns: states are recorded where the environment tells them apart"""
    snapshots: bool = False
    """an environment that can be brought back to an earlier state"""
    environment: bool | None = None
    """an environment to act in; None: as `Traits.acts` has it"""
    expert: bool = False
    """an environment that knows a good next action, or recorded episodes of an expert (demonstrations=FILE)"""
    expert_anywhere: bool = False
    """that the expert is asked in states that the policy came to, of which no recording says anything"""
    tools: bool = False
    """an environment with tools, whose calls are counted"""
    legal_actions: bool = False
    """an environment that lists its legal actions"""
    privileged: bool = False
    """an environment that says what it hides from agents"""
    proposals: bool = False
    """an environment that knows what could be asked for, whether or not it can be done"""

    def is_renewed_at(self, step: int) -> bool:
        """Whether ``reference`` becomes the policy as it is when `step` begins."""
        return self.renews_reference > 0 and (step - 1) % self.renews_reference == 0

    @property
    def critic_policy(self) -> str:
        """The policy whose values the credit reads."""
        return CRITIC if CRITIC in self.others else MAIN

    @property
    def policies(self) -> dict[str, PolicySpec]:
        """The policies beside the main one, by name."""
        follows = MAIN if self.renews_reference else ""
        spec = PolicySpec(follows=follows, polyak=1.0 - bool(follows), acts=self.reference_acts)
        has_reference = (
            self.reference or self.renews_reference or self.reference_acts or self.reference_logprobs
        )
        return {
            **({"reference": spec} if has_reference else {}),
            **({"reward_model": self.reward_model} if self.reward_model is not None else {}),
            **self.others,
        }


Learns = Literal["reinforcement", "imitation", "preference", "critic"]
"""What a method learns from: outcomes, what somebody did, which of two is better, or what a critic is to say."""
KINDS: Mapping[str, Learns] = {"imitation": "imitation", "reward_model": "critic"}
"""The last part of the module of a loss → what a training by it learns from; others compare two sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is asked of a method beside its needs, by what fits a configuration to it: ``Traits(acts=False)``.

    A method without a property `traits` has the defaults.
    """

    acts: bool = True
    """whether the policy acts before it can learn, where ``needs.environment`` says nothing"""
    learns: Learns | None = "reinforcement"
    """what from; None: there is no policy to be trained"""
    is_on_policy: bool = False
    """whether each step learns from the episodes that it has sampled"""
    has_warm_start: bool = True
    """whether demonstrations are imitated before the first step"""
    has_own_start: bool = False
    """whether what it begins with is part of it, and nothing that comparisons give to every method"""
    unread: Collection[str] = ()
    """options of every method that it does not read"""
    rates: Mapping[str, float] = NOTHING
    """policy → factor on its learning rate"""
    own_rates: Collection[str] = ()
    """policies whose learning rate does not depend on the model's"""


class Method(Protocol):
    """A way to train: what it needs, and the training itself. What it needs is refused before, where it is missing."""

    @property
    def needs(self) -> Needs:
        """What it asks of the run."""
        ...

    def train(self, run: Run, config: Any) -> None:
        """Train as `config` says, continuing where `run` was left; every step is recorded there when it ends."""
        ...


def traits_of(method: Method) -> Traits:
    """Return what `method` says of itself beside its needs."""
    return getattr(method, "traits", Traits())


def learns_by(loss: Loss) -> Learns:
    """Return what training on data by `loss` learns from."""
    return KINDS.get(loss.__module__.rpartition(".")[2], "preference")


def unread_counts(updates: Iterable[Update]) -> set[str]:
    """Return which of ``num_epochs`` and ``num_minibatches`` none of `updates` leaves to the configuration."""
    made = list(updates)
    return {
        name
        for name in ("num_epochs", "num_minibatches")
        if all(getattr(update, name) is not None for update in made)
    }


def rates_of(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the largest factor on the learning rate of each policy among `parts`, at least 1."""
    found: dict[str, float] = {}
    for policy, rate in parts:
        found[policy] = max(found.get(policy, 1.0), rate)
    return found


class State(Protocol):
    """What a method knows from earlier steps, such as how often a state was visited."""

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step, before they are rewarded."""
        ...

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take in the metrics of a step that is done."""
        ...


class CombinedState:
    """Several states as one; those that are None are left out: ``CombinedState(visits, None)``.

    A part may have `update`, `observe` or both.
    """

    def __init__(self, *parts: Any) -> None:
        self.parts = [part for part in parts if part is not None]

    def update(self, groups: Sequence[Group]) -> None:
        """Let every part take in the recorded groups of the next step."""
        for part in self.parts:
            if hasattr(part, "update"):
                part.update(groups)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Let every part take in the metrics of a step that is done."""
        for part in self.parts:
            if hasattr(part, "observe"):
                part.observe(metrics)


Collect = Callable[[Collector, int], list[Group]]
"""(collector, step) → the episodes of the step"""
TransformGroups = Callable[[Sequence[Group]], Sequence[Group]]
"""groups → groups with other rewards, or fewer groups"""

Measure = Callable[[Sequence[Group], Callable[[Sequence[int]], str]], Mapping[str, float]]
"""(sampled groups, decode) → metrics of the method's own"""


def same_groups(groups: Sequence[Group]) -> Sequence[Group]:
    """Return `groups`: rewards and filters that change nothing."""
    return groups


def no_metrics(_: Sequence[Group], __: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Measure nothing of the method's own."""
    return NOTHING


def sample_groups(
    tasks: int,
    size: int,
    *,
    max_turns: Callable[[int], int | None] = lambda _: None,
    agent: Callable[[Agent], Agent] | None = None,
) -> Collect:
    """Return the collection of `size` episodes of each of `tasks` tasks, of at most `max_turns`(step) turns.

    Evaluations keep the environment's own limit and the plain agent. An episode that this limit cuts is truncated, not
    terminated.
    """
    return lambda collector, step: collector.sample(
        step,
        collector.tasks(step, tasks),
        size=size,
        max_turns=max_turns(step),
        agent=agent,
        later_turns=max_turns,
    )


def sample_until_mixed(tasks: int, size: int, *, attempts: int) -> Collect:
    """Return the collection of groups until `tasks` of them have different outcomes, in up to `attempts` draws.

    Dynamic sampling (DAPO, arXiv 2503.14476). All groups are returned and recorded, equal ones too; the credit
    leaves those without a difference at 0. What is sampled in excess of `tasks` differing groups is kept.
    """

    def collect(collector: Collector, step: int) -> list[Group]:
        drawn = collector.tasks(step, tasks * attempts)
        groups: list[Group] = []
        for attempt in range(attempts):
            groups += collector.sample(step, drawn[attempt * tasks : (attempt + 1) * tasks], size=size)
            if sum(map(differs, groups)) >= tasks:
                break
        return groups

    return collect


def differs(group: Group) -> bool:
    """Return whether the outcomes of `group` are not all the same, for one of its seats; those of no episode are."""
    return any(not is_constant([outcome_of(t) for t in part.scored]) for part in comparable_groups([group]))

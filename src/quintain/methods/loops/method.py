"""What a method of the family is: the functions that its file names, in the order in which the loop calls them.

    episodes → rewards → filters → credit → update

A field that a method leaves out does nothing. The one rule: whatever a method remembers from step to step is a
fold over the recorded episodes (`Memory`), so that a resumed run knows what the first one knew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quintain.training.learner import StepReport
from quintain.training.work import Work
from quintain.types import NOTHING, Credit, Group

Collect = Callable[[Work, int], list[Group]]
"""(work, step) → the episodes of the step, as they are recorded"""
Change = Callable[[Sequence[Group]], Sequence[Group]]
"""Groups → groups with other rewards, or fewer groups"""
Assign = Callable[[Work, Sequence[Group]], Credit]
"""(work, groups) → how much each sampled token mattered"""
Update = Callable[[Work, int, Credit], StepReport | None]
"""(work, step, credit) → what the optimizer did, None where there was nothing to learn from"""
Measure = Callable[[Sequence[Group]], Mapping[str, float]]
"""The recorded groups of a step → metrics of the method's own"""


class Memory(Protocol):
    """What a method knows from earlier episodes, such as how often a state was visited."""

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step."""
        ...


class Memories:
    """Several memories as one; those that are None are left out: ``Memories(visits, None)``."""

    def __init__(self, *parts: Memory | None) -> None:
        self.parts = [part for part in parts if part is not None]

    def update(self, groups: Sequence[Group]) -> None:
        """Let every part take in the recorded groups of the next step."""
        for part in self.parts:
            part.update(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a method asks of the environment and the learner: ``Needs(critic=True)``."""

    critic: bool = False
    """a value head on the policy"""
    reference: bool = False
    """a frozen copy of the starting policy"""
    state_keys: bool = False
    """an environment that can recognise its states"""
    turn_rewards: bool = False
    """rewards before the last turn"""
    snapshots: bool = False
    """an environment that can be brought back to an earlier state"""
    expert: bool = False
    """an environment that knows a good next action"""
    tools: bool = False
    """an environment with tools, whose calls are counted"""
    legal_actions: bool = False
    """an environment that lists its legal actions"""


def unchanged(groups: Sequence[Group]) -> Sequence[Group]:
    """Return `groups`."""
    return groups


def unprepared(_: Work) -> None:
    """Do nothing."""


def unmeasured(_: Sequence[Group]) -> Mapping[str, float]:
    """Return no metrics."""
    return NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method: ``Method(collect=grouped(8, 8), credit=…, update=policy_update(clipped()))``."""

    collect: Collect
    credit: Assign
    update: Update
    reward: Change = unchanged
    keep: Change = unchanged
    needs: Needs = Needs()
    prepare: Callable[[Work], None] = unprepared
    """is called once before the first step, also by a resumed run"""
    memory: Memory | None = None
    """sees the episodes of a step before they are rewarded"""
    measure: Measure = unmeasured

"""What a guard is: it says of each action whether it may happen.

A guard sees what the agent sees, and nothing else: the task's first observation, what calls came to, and the actions
themselves. It stands innermost, at the environment (`quintain.agents.guarded`), so that no harness can act behind its
back, and it goes back with the environment where that goes back. A refusal is an observation, never a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from quintain.types import Action, Observation, Task

Effect = Literal["allow", "forbid", "ask", "end"]
REFUSED = "refused"
"""Reward term that counts the refused calls of a turn; it is no part of the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to happen to an action: ``Verdict(effect="forbid", says="refund: order must be …", rule="refund 2")``."""

    effect: Effect
    """allow it, forbid it, ask a person, or end the episode"""
    says: str = ""
    """what the agent is told where it is not allowed"""
    rule: str = ""
    """which rule decided; empty: none did"""


ALLOWED = Verdict(effect="allow")


class Guard(Protocol):
    """Says of each action whether it may happen: a policy over tool calls, a formula over time, a program of yours."""

    def begin(self, task: Task, observation: Observation) -> None:
        """Begin an episode of `task`, of which `observation` is all that is known."""
        ...

    def judge(self, action: Action) -> Verdict:
        """Return whether `action`, which holds one call at most, may happen; what it allows is then carried out."""
        ...

    def see(self, actions: tuple[Action, ...], observation: Observation) -> None:
        """Take in what `actions`, which were carried out together, came to; a rule may hold now that did not before."""
        ...

    def snapshot(self) -> Any:
        """Return the state as a value that later calls do not change."""

    def restore(self, state: Any) -> None:
        """Continue from `state`."""

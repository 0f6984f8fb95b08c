"""What a method on the replay loop may ask the policies about recorded episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quintain.learning.job import MAIN
from quintain.types import Trajectory

if TYPE_CHECKING:
    from quintain.credit.layout import Critic, TokenArrays
    from quintain.credit.turn_td import TurnValues


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What could be said in a turn of a recorded episode: ``Way(episode=t, weight=0.5)``."""

    episode: Trajectory
    """the turns before, and this one as its last; it was not carried out"""
    weight: float
    """how much it counts among the ways of its turn, which add up to 1"""


Ways = Sequence[Sequence[Sequence[Way]]]
"""[episode][turn] → ways"""


class Consultation(Protocol):
    """What a method on the replay loop asks the policies about recorded episodes; only what is asked is computed."""

    @property
    def step(self) -> int:
        """The step of the run."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens of the longest stream that the policies can read."""
        ...

    def token_values(self, episodes: Sequence[Trajectory], *, by: str) -> Critic:
        """Return the values of the sampled tokens by the policy `by`, which has a value head."""
        ...

    def turn_values(self, episodes: Sequence[Trajectory], *, by: str) -> TurnValues:
        """Return V before and Q after each turn by the policy `by`, which has a value head."""
        ...

    def last_values(self, episodes: Sequence[Trajectory], *, by: str) -> list[float]:
        """Return Q after the last turn of each of `episodes` by the policy `by`, as `turn_values` has it."""
        ...

    def logprobs(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the log-probs of the sampled tokens by the policy `by`: [episode][turn] → [tokens]."""
        ...

    def entropies(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the entropy of the policy `by` where each token was sampled: [episode][turn] → [tokens]."""
        ...

    def ways(self, episodes: Sequence[Trajectory], *, size: int = 1, by: str = MAIN) -> Ways:
        """Return `size` ways, each of weight 1/size, that the policy `by` as it is says in each turn of `episodes`.

        Nothing is carried out: the environment takes no step. In a step of the run they are the same whenever they are
        asked for, until that policy has learned; those of a policy that rests are the same in the whole run.
        """
        ...

    def legal_ways(self, episodes: Sequence[Trajectory]) -> Ways:
        """Return every legal action as a way in each turn of `episodes`, its weight its probability among them.

        The environment lists its legal actions (``Needs(legal_actions=True)``) and the agent writes them.
        """
        ...

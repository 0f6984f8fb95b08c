"""What each action is thought to cost, in steps to the goal, told beside what is seen (LIET, arXiv 2506.07232).

Each seat reads its own observations alone, the first and the last, and the actions that are open to it: nothing of
another seat gets into what it is told. The steps come from a regression (`quintain.memory.utility`); the model may
follow them or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from quintain.agents.deliberation import Deliberation, with_words
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.memory.utility import StepsToGo, load_utility
from quintain.types import Observation, as_text

HEAD = "Steps to go, as far as known:"


@dataclass(frozen=True, slots=True)
class Costed:
    """A harness that is told what actions cost: ``costed?utility=runs/NAME/utility.json``."""

    agent: Agent
    utility: str = ""
    """File of weights, as a run of `liet` keeps them."""
    most: int = 8
    """Actions that are told, those with the fewest steps."""
    model: StepsToGo | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the weights, where a file is named.

        Raises:
            DataError: it holds none.
            UsageError: no action would be told.
        """
        if self.most < 1:
            raise UsageError(f"costed: got most={self.most}; give 1 or more")
        if self.utility:
            object.__setattr__(self, "model", load_utility(Path(self.utility)))

    def open(self, brief: Brief) -> CostedSession:
        """See `Agent.open`.

        Raises:
            UsageError: the environment lists no actions.
        """
        if self.model is not None and not brief.legal_actions:
            raise UsageError(
                f"costed: got {brief.task.environment}, which does not list what can be done; take an environment with "
                "legal_actions"
            )
        return CostedSession(self, brief)


def tell_costs(agent: Agent, model: StepsToGo) -> Costed:
    """Return `agent` as it is told what `model` says of actions."""
    told = Costed(agent)
    object.__setattr__(told, "model", model)
    return told


class CostedSession(Deliberation):
    """An episode of `Costed`."""

    def __init__(self, settings: Costed, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings, self._legal, self._begins = settings, brief.legal_actions, ""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; what is seen is followed by what the actions cost, once that was learned."""
        model, seen = self._settings.model, as_text(observation)
        self._legal, self._begins = legal_actions or self._legal, self._begins or seen
        if model is None or not model.is_fitted:
            return super().observe(observation, legal_actions)
        costs = model.values(self._begins, seen, self._legal)
        best = sorted(zip(costs, self._legal, strict=True), key=lambda pair: pair[0])[: self._settings.most]
        words = f"{HEAD} {'; '.join(f'{action} {max(cost, 1.0):.1f}' for cost, action in best)}."
        return super().observe(with_words(observation, words), legal_actions)

"""A harness that says after the first observation how an attempt is to turn out: NAT (arXiv 2402.11651).

What was done right is shown under one label and what was done wrong under another, so that failures teach how things
are done and not that they should be done so; the policy acts under the label `right`. Labels are sentences of equally
many words that say nothing of the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from quintain.agents.deliberation import Deliberation, with_words
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError, suggestion
from quintain.types import Observation

Label = Literal["right", "partly", "wrong"]
SENTENCES: Mapping[Label, str] = {
    "right": "This attempt is to turn out right.",
    "partly": "This attempt is to turn out partly.",
    "wrong": "This attempt is to turn out wrong.",
}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A harness under a label: ``Labelled(JsonTools(chat), label="wrong")``."""

    agent: Agent
    label: Label = "right"
    """How the attempt is to turn out: right, partly, or wrong."""

    def open(self, brief: Brief) -> LabelledSession:
        """See `Agent.open`.

        Raises:
            UsageError: there is no such label.
        """
        if self.label not in SENTENCES:
            raise UsageError(f"label: got {self.label!r}; {suggestion(self.label, get_args(Label))}")
        return LabelledSession(self, brief)


class LabelledSession(Deliberation):
    """An episode of `Labelled`."""

    def __init__(self, settings: Labelled, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._words: str | None = SENTENCES[settings.label]

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the first observation is followed by the label."""
        words, self._words = self._words, None
        told = observation if words is None else with_words(observation, words)
        return super().observe(told, legal_actions)

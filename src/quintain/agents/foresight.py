"""A harness that says what would come of an action before it is done: speculative inference of E2CL
(arXiv 2409.03256).

The agent drafts an action and is asked what the environment would say to it. `FINE` has the draft carried out;
anything else is an error, and the agent is asked for another action, which is. All three are turns, sampled and
trained; in the first and, before another action, in the second nothing is done.

Differences to the paper: one conversation, where the paper has a prompt for each of the three and the state in each;
what is to come is said of drafts that are in order, too, by one word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation, Words, describe_action
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation

FINE = "fine"
"""What is said of an action that the environment will carry out."""
FORETELL = "What will come of it?"
CORRECT = "Do something else."


@dataclass(frozen=True, slots=True)
class Foresight:
    """Foresight: ``Foresight(PlainText(chat), chat)``."""

    agent: Agent
    chat: Chat
    max_tokens: int = 16
    """Tokens of what is foretold."""

    def open(self, brief: Brief) -> ForesightSession:
        """See `Agent.open`."""
        return ForesightSession(self, brief)


class ForesightSession(Deliberation):
    """An episode of `Foresight`."""

    def __init__(self, settings: Foresight, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._words = Words(settings.chat, settings.max_tokens)
        self._legal = brief.legal_actions
        self._draft: Action | None = None
        self._is_correcting = False

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the answer is a draft."""
        self._legal = legal_actions or self._legal
        self._draft, self._is_correcting = None, False
        return replace(super().observe(observation, legal_actions), role="draft")

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a draft, what would come of it, or another action."""
        if self._draft is not None:
            return self._read_foretold(self._draft, completion)
        action = self._inner_read(completion)
        if self._next is None and not self._is_correcting:
            self._draft = action
            self._next = self._words.ask(self._inner.observe(FORETELL, self._legal), "feedback", FORETELL)
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; who does the draft again says that it is fine, others what would come of it."""
        if self._draft is None:
            return self._inner.write(action)
        is_same = describe_action(action) == describe_action(self._draft)
        return self._words.write(FINE if is_same else action.text)

    def _read_foretold(self, draft: Action, completion: Completion) -> Action:
        """Carry out the draft, or ask for another action."""
        self._inner_ends(completion)
        self._draft = None
        if self._words.read(completion) != FINE:
            self._is_correcting = True
            self._next = replace(self._inner.observe(CORRECT, self._legal), role="correction", shows=CORRECT)
        return draft

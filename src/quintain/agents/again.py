"""Check again before you stop: what would end the episode is a draft, and the agent is asked to look once more.

More interaction without training (TTI, arXiv 2506.07976): whoever answers may have stopped too early. An action that
stops, by the name of a tool or by its first word, is not carried out the first `times` times; the agent is told so, and
what it says next is done: the same answer, another one, or a look at something that it had not seen.

Differences to the paper: the words are ours; what stops is `ends`, where web agents have one action for it. A draft is
a turn like others, sampled and trained, in which nothing is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.types import ANSWER, Action, Completion, Observation

CHECK = "Before you stop, check again: is there something that you have not looked at? Then look, else answer again."


@dataclass(frozen=True, slots=True)
class Again:
    """Looking once more: ``Again(JsonTools(chat), times=1)``, in the catalogue ``again?times=1+tools``."""

    agent: Agent
    times: int = 1
    """Times in an episode that an action which stops is asked about."""
    ends: str = ANSWER
    """What stops, by the name of a tool or the first word of an action: answer, or several with commas."""

    def open(self, brief: Brief) -> AgainSession:
        """See `Agent.open`.

        Raises:
            UsageError: `times` is negative, or nothing that can be done here stops.
        """
        if self.times < 0:
            raise UsageError(f"again: got times={self.times}; give 0 or more")
        names = [tool.name for tool in brief.tools]
        if names and not self.names().intersection(names):
            raise UsageError(
                f"again: got ends={self.ends}, and here are {', '.join(sorted(set(names))[:8])}; name what stops"
            )
        return AgainSession(self, brief)

    def names(self) -> frozenset[str]:
        """Return what stops."""
        return frozenset(name.strip() for name in self.ends.split(",") if name.strip())


class AgainSession(Deliberation):
    """An episode of `Again`."""

    def __init__(self, settings: Again, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._legal = brief.legal_actions
        self._left = settings.times

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the answer may be a draft."""
        self._legal = legal_actions or self._legal
        return self._name_draft(super().observe(observation, legal_actions))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; what stops is asked about, while there are times left."""
        action = self._inner_read(completion)
        if self._next is None and self._left and self._stops(action):
            self._left -= 1
            asked = self._inner.observe(CHECK, self._legal)
            self._next = replace(self._name_draft(asked), shows=CHECK)
        return action

    def _name_draft(self, prompt: Prompt) -> Prompt:
        """Return `prompt`, whose completion is a draft where it is not carried out."""
        return replace(prompt, role=prompt.role or "draft") if self._left else prompt

    def _stops(self, action: Action) -> bool:
        """Whether `action` can be read and ends the episode."""
        names = self._settings.names()
        if action.error is not None:
            return False
        if action.tool_calls:
            return any(call.name in names for call in action.tool_calls)
        return (action.text.split() or [""])[0] in names

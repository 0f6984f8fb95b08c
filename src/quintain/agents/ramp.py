"""A ramp of temperature: who says next to nothing is asked again, each time a little warmer.

From the code of Reflexion (arXiv 2303.11366).

``ramp+react`` at temperature 0: an answer of less than five characters is sampled again at .2, .4, … 1.0; the last is
taken as it is. The prompt is the same to the token, in a stream of its own, and the harness inside never learns of the
empty answer, which is a turn in which nothing was done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation

HOTTEST = 1.0
"""Temperature at which the last answer is taken as it is."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """Asks again where an answer is empty: ``Ramp(ReAct(chat, temperature=0.0), chat)``."""

    agent: Agent
    chat: Chat
    step: float = 0.2
    """Rise of the temperature from one answer to the next."""
    least: int = 5
    """Characters of an answer that is not asked for again."""

    def __post_init__(self) -> None:
        """Refuse a ramp that does not rise."""
        if self.step <= 0 or self.least < 1:
            raise UsageError(
                f"ramp: got step={self.step}, least={self.least}; give a step above 0 and 1 character or more"
            )

    def open(self, brief: Brief) -> RampSession:
        """See `Agent.open`."""
        return RampSession(self, brief)


class RampSession(Deliberation):
    """An episode of `Ramp`."""

    def __init__(self, settings: Ramp, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._stream: tuple[int, ...] = ()
        """the stream up to the answer, as the inner session knows it"""
        self._asked: Prompt | None = None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        return self._ask(self._inner.observe(observation, legal_actions))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; an empty answer is not read by the inner session."""
        asked = self._asked
        assert asked is not None, "a session is asked before it answers"
        text = self._settings.chat.text(completion.token_ids).strip()
        warmer = next_temperature(asked.sampling.temperature, self._settings.step)
        if len(text) < self._settings.least and warmer is not None:
            again = replace(asked.sampling, temperature=warmer)
            self._asked = self._next = replace(
                asked, token_ids=self._stream, starts_segment=True, sampling=again
            )
            return Action(text=text)
        self._stream += tuple(completion.token_ids)
        action = self._inner_read(completion)
        if self._next is not None:
            self._ask(self._next)
        return action

    def _ask(self, prompt: Prompt) -> Prompt:
        """Return `prompt`, and remember the stream that it goes on with."""
        self._stream = (() if prompt.starts_segment else self._stream) + prompt.token_ids
        self._asked = prompt
        return prompt


def next_temperature(temperature: float, step: float) -> float | None:
    """Return the temperature to ask again at, `HOTTEST` at most; None where it is reached."""
    return None if temperature >= HOTTEST else min(HOTTEST, temperature + step)

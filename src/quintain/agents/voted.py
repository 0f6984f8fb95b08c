"""Several samples of the same turn, of which the commonest is done (ARIES' ensemble of a policy, arXiv 2502.21208).

``voted?samples=5+text``: where legal actions are listed, the model answers the same prompt `samples` times, each in a
stream of its own, in turns in which nothing is done. What most of them say is then said in the first one's words and
carried out; answers that are not legal do not count, unless none is. Elsewhere it is the harness inside. Samples at
temperature 0 are all alike: vote at a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.agents.backoff import majority
from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Capability
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Grammar, Observation

ROLE = "vote"


@dataclass(frozen=True, slots=True)
class Voted:
    """A vote of several samples: ``Voted(PlainText(chat), chat, samples=5)``."""

    agent: Agent
    chat: Chat
    samples: int = 5
    """Answers of a turn that are voted on; 1: none."""
    needs: ClassVar[frozenset[Capability]] = frozenset({"tokens"})
    """What the engine must be able to do."""

    def __post_init__(self) -> None:
        """Refuse a vote of nobody."""
        if self.samples < 1:
            raise UsageError(f"voted: got samples={self.samples}; give 1 or more")

    def open(self, brief: Brief) -> VotedSession:
        """See `Agent.open`."""
        return VotedSession(self, brief)


class VotedSession(Deliberation):
    """An episode of `Voted`."""

    def __init__(self, settings: Voted, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._stream: tuple[int, ...] = ()
        """the stream up to the answer, as the inner session knows it"""
        self._asked: Prompt | None = None
        """what is voted on; None: nothing"""
        self._legal: tuple[str, ...] = ()
        self._votes: list[tuple[int, ...]] = []

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        prompt = self._note(self._inner.observe(observation, legal_actions))
        if not legal_actions or self._settings.samples == 1:
            return prompt
        self._legal, self._votes, self._asked = legal_actions, [], prompt
        return replace(prompt, role=ROLE)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a vote, which the inner session does not see, or what is done."""
        asked, ids = self._asked, tuple(completion.token_ids)
        if asked is None:
            self._stream += ids
            action = self._inner_read(completion)
            if self._next is not None:
                self._note(self._next)
            return action
        self._votes.append(ids)
        again = replace(asked, token_ids=self._stream, starts_segment=True)
        if len(self._votes) < self._settings.samples:
            self._next = replace(again, role=ROLE)
        else:
            chosen = self._votes[count_votes(list(map(self._say, self._votes)), self._legal)]
            sampling = replace(asked.sampling, candidates=None, max_tokens=len(chosen))
            self._next = replace(again, sampling=sampling.under(Grammar.of_tokens(chosen), is_masked=False))
            self._asked = None
        return Action(text=self._say(ids))

    def _say(self, ids: Sequence[int]) -> str:
        """Return the words of an answer."""
        return self._settings.chat.words(tuple(ids)).strip()

    def _note(self, prompt: Prompt) -> Prompt:
        """Return `prompt`, and remember the stream that it goes on with."""
        self._stream = (() if prompt.starts_segment else self._stream) + prompt.token_ids
        return prompt


def count_votes(said: Sequence[str], legal: Sequence[str]) -> int:
    """Return the place of the first of `said` that most say, among those that are `legal`; of all, where none is.

    Example: ``count_votes(["hop", "up", "down", "down"], ["up", "down"])`` is 2.
    """
    counted = majority([each if each in legal else "" for each in said])[0] or majority(said)[0]
    return said.index(counted)

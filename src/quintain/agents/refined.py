"""What a search returned is condensed before it enters the chain: Reason-in-Documents of Search-o1 (arXiv 2501.05366).

After a call of a tool another prompt, a stream of its own, holds the reasoning so far, the query and the documents, and
nothing else; what is said to it takes the documents' place in the chain, which then goes on from the very ids that it
had. So the chain grows by a sentence where it would grow by pages. A query that was made before, and one beyond
`max_searches`, is not made: a notice says so.

Differences to the paper: one model both reasons and condenses, as there, and both are turns that can be trained;
markers and stop tokens are those of the inner harness; there is no limit of tokens of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation, Words, describe_action
from quintain.agents.harness import SENTENCE_END
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Message, Observation, Trajectory, as_content, as_text

NOTHING_HELPFUL = "No helpful information found."
REPEATED = "You have searched for that; read what was found, or search for something else."
NONE_LEFT = "There are no searches left; answer."
INSTRUCTIONS = (
    "Read the documents for what the query asks and the reasoning needs next. Say only that, in a sentence; if they do "
    f"not hold it, say: {NOTHING_HELPFUL}"
)
ROLE = "refine"


@dataclass(frozen=True, slots=True)
class Refined:
    """Condensing: ``Refined(Tagged(chat), chat)``, in the catalogue ``refined+tags``."""

    agent: Agent
    chat: Chat
    max_tokens: int = 96
    """Tokens of what is condensed."""
    max_searches: int = 10
    """Calls of tools in an episode, but for the one that answers; a later one is not made."""
    answer: str = "answer"
    """Tool that ends the episode, whose calls are always made."""

    def open(self, brief: Brief) -> RefinedSession:
        """See `Agent.open`.

        Raises:
            UsageError: `max_searches` is negative.
        """
        if self.max_searches < 0:
            raise UsageError(f"max_searches of refined: got {self.max_searches}; give 0 or more")
        return RefinedSession(self, brief)


class RefinedSession(Deliberation):
    """An episode of `Refined`."""

    def __init__(self, settings: Refined, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self._chain: tuple[int, ...] = ()
        self._said: list[str] = []
        self._queries: list[str] = []
        self._searched: str | None = None
        """the query whose documents come next"""
        self._documents: str | None = None
        """what is being condensed"""
        self._sampling: Prompt | None = None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; what a search returned is shown to the refiner alone."""
        if self._searched is None:
            return self._extend_chain(super().observe(observation, legal_actions))
        self._documents = as_text(observation)
        return self._ask(self._searched, self._documents)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: what the documents come to, or the next thought and call."""
        if self._documents is not None:
            text = self._words.read(completion)
            self._searched = self._documents = None
            told = self._extend_chain(self._inner.observe(text))
            self._next = replace(told, token_ids=self._chain, starts_segment=True, shows=text)
            return Action(text=text)
        self._chain += completion.token_ids
        self._said.append(self._settings.chat.text(completion.token_ids).strip())
        action = self._inner_read(completion)
        calls = [call for call in action.tool_calls if call.name != self._settings.answer]
        if self._next is not None or not calls or action.error is not None:
            return action
        query = describe_action(replace(action, tool_calls=tuple(calls)))
        if query in self._queries or len(self._queries) >= self._settings.max_searches:
            notice = REPEATED if query in self._queries else NONE_LEFT
            return Action(text=action.text, error=notice)
        self._queries.append(query)
        self._searched = query
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstration says the sentence that has all words of the query, or that none has."""
        if self._documents is None:
            return self._inner.write(action)
        return self._words.write(find_sentence(self._searched or "", self._documents))

    def _extend_chain(self, prompt: Prompt) -> Prompt:
        """Return `prompt`, by which the chain has grown."""
        self._chain = prompt.token_ids if prompt.starts_segment else self._chain + prompt.token_ids
        self._sampling = prompt
        return prompt

    def _ask(self, query: str, documents: str) -> Prompt:
        """Return the prompt of the refiner: reasoning, query and documents, in a stream of its own."""
        assert self._sampling is not None, "a search follows a prompt"
        told = "\n".join(self._said)
        user = f"Reasoning:\n{told}\n\nQuery: {query}\n\nDocuments:\n{documents}"
        messages = [
            Message(role="system", content=as_content(INSTRUCTIONS)),
            Message(role="user", content=as_content(user)),
        ]
        ids = self._settings.chat.conversation().prompt(messages)
        prompt = replace(self._sampling, token_ids=ids.token_ids, starts_segment=True)
        return self._words.ask(prompt, ROLE)


def find_sentence(query: str, documents: str) -> str:
    """Return the first sentence of `documents` that has all words of `query`'s argument; `NOTHING_HELPFUL` without one.

    Example: ``find_sentence('search[{"query":"seat Orbit"}]', "The seat of Orbit is Rome. The sky.")``.
    """
    _, _, rest = query.partition("[")
    values: Sequence[object] = (
        list(json.loads(rest.removesuffix("]")).values()) if rest.startswith("{") else []
    )
    wanted = {word for value in values for word in str(value).lower().split()}
    for sentence in SENTENCE_END.split(documents):
        if wanted and wanted <= set(sentence.lower().rstrip(".!?").split()):
            return sentence
    return NOTHING_HELPFUL


def context_cost(trajectory: Trajectory) -> tuple[int, int]:
    """Return the tokens of the chain when it ended, and those of the refiner's streams, of an episode."""
    chain = refined = 0
    for turn in trajectory.turns:
        length = len(turn.prompt_ids) + len(turn.completion.token_ids)
        if turn.seat.endswith(f"/{ROLE}"):
            refined += length
        else:
            chain = length if turn.starts_segment else chain + length
    return chain, refined

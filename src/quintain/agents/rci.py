"""Criticise and improve: RCI (arXiv 2303.17491) around any harness.

The agent drafts an action, is asked what is wrong with it, and drafts again, `rounds` times at most (explicit RCI); a
critique that says there is no problem accepts the draft. A draft that cannot be read is asked for again with the
error, `retries` times, without a step of the environment (implicit RCI). Drafts and critiques are turns like others,
sampled and trained, in which nothing is done.

With `grounds` three turns come before an action is drafted, each an answer to the one before: the next step of the plan
(grounded in the task), how it is done in what is seen (in the state), and the action in the form that is read (in the
agent). A plan for the whole task is criticised by ``plan?critiques=1``: ``plan?critiques=1+rci?rounds=0&grounds=true``
is the paper's agent.

Differences to the paper: an action may be criticised like a plan; limits end in the last draft instead of an exception.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation, Words, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation

ACCEPTED = "no problem"
CRITICISE = f"Review your answer and find problems with it. If there is none, write: {ACCEPTED}"
IMPROVE = "Based on the problems you found, improve your answer. Write only the answer."
GROUNDS = ("What is the next step of the plan?", "How is that step done in what you see now?")
"""Asked before an action is drafted: in the task, in the state."""
DRAFT = "Write that as an action, in the form that is read."
"""The last one: in the agent."""


def accepts(critique: str) -> bool:
    """Return whether a `critique` finds no problem."""
    return ACCEPTED in critique.lower()


@dataclass(frozen=True, slots=True)
class Critique:
    """RCI: ``Critique(ReAct(chat), chat, rounds=1)``."""

    agent: Agent
    chat: Chat
    rounds: int = 1
    """Times that a draft may be criticised."""
    retries: int = 1
    """Times that an unreadable draft is asked for again."""
    max_tokens: int = 96
    """Tokens of a critique, and of what an action is grounded in."""
    grounds: bool = False
    """Whether the next step and how it is done are said before an action is drafted."""

    def open(self, brief: Brief) -> CritiqueSession:
        """See `Agent.open`."""
        return CritiqueSession(self, brief)


class CritiqueSession(Deliberation):
    """An episode of `Critique`."""

    def __init__(self, settings: Critique, brief: Brief) -> None:
        """Open the inner session.

        Raises:
            UsageError: an action is to be grounded of a harness that speaks before it acts.
        """
        super().__init__(settings.agent, brief)
        if settings.grounds and isinstance(self._inner, Deliberates):
            raise UsageError(
                "rci with grounds: got a harness inside that speaks before it acts; put that in front: plan+rci+text"
            )
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self._legal = brief.legal_actions
        self._rounds = self._retries = 0
        self._draft: Action | None = None
        self._grounds: list[str] = []
        """what is still asked before the action is drafted, the question that is open first"""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the answer is a draft."""
        self._legal = legal_actions or self._legal
        self._rounds, self._retries = self._settings.rounds, self._settings.retries
        self._draft = None
        self._grounds = [*GROUNDS] if self._settings.grounds else []
        if self._grounds:
            observation = with_words(observation, self._grounds[0])
        prompt = super().observe(observation, legal_actions)
        return (
            self._words.ask(prompt, "ground")
            if self._grounds
            else replace(prompt, role=prompt.role or "draft")
        )

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: what an action is grounded in, a draft, or a critique of it."""
        if self._grounds:
            return self._read_ground(completion)
        if self._draft is not None:
            return self._read_critique(self._draft, completion)
        draft = self._inner_read(completion)
        if self._next is None and draft.error is not None and self._retries:
            self._retries -= 1
            self._next = self._ask(f"Error: {draft.error}")
        elif self._next is None and draft.error is None and self._rounds:
            self._rounds -= 1
            self._draft = draft
            self._next = self._words.ask(self._inner.observe(CRITICISE, self._legal), "critique", CRITICISE)
        return draft

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstration finds no problem, and knows the action from the beginning."""
        if self._grounds:
            return self._words.write(describe_action(action))
        return self._words.write(ACCEPTED) if self._draft is not None else self._inner.write(action)

    def _read_critique(self, draft: Action, completion: Completion) -> Action:
        """Accept the draft, or ask for a better one."""
        self._inner_ends(completion)
        self._draft = None
        if not accepts(self._words.read(completion)):
            self._next = self._ask(IMPROVE)
        return draft

    def _read_ground(self, completion: Completion) -> Action:
        """Ask for what comes next before an action is drafted, or for the draft."""
        self._inner_ends(completion)
        del self._grounds[0]
        if self._grounds:
            words = self._grounds[0]
            self._next = self._words.ask(self._inner.observe(words, self._legal), "ground", words)
        else:
            self._next = self._ask(DRAFT)
        return Action(text=self._words.read(completion))

    def _ask(self, words: str) -> Prompt:
        """Return the prompt that asks for a draft with `words`."""
        return replace(self._inner.observe(words, self._legal), role="draft", shows=words)

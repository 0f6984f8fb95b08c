"""ReAct's back-offs (arXiv 2210.03629): act or think alone, and go over to the other where that comes to nothing.

``backoff+react``: who has acted `steps` times without an answer thinks instead: `samples` chains of thought, each a
stream of its own that sees the task and none of what was done, and the answer that most of them give is given.
``backoff?first=think+react`` begins with the chains, and acts where the commonest answer is that of less than half.
Chains are turns of the role ``chain``, sampled and recorded like others, in which nothing is done.

Differences to the paper: a chain is asked for without worked examples; a demonstration never backs off: it acts, and
its chains, where they come first, give no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.agents.deliberation import Deliberation
from quintain.agents.harness import ReAct
from quintain.agents.protocol import Agent, Brief, Prompt, Session
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.parse import write_react
from quintain.types import Action, Completion, Observation

ROLE = "chain"
THINK = "Think step by step, look nothing up, and then give your answer at once."
UNSURE = "I do not know."
"""What a demonstration says in the place of a chain."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Acts or thinks, whichever comes to something: ``Backoff(ReAct(chat), chat, steps=7, samples=21)``."""

    agent: Agent
    chat: Chat
    steps: int = 7
    """Actions after which whoever has no answer thinks instead."""
    samples: int = 21
    """Chains of thought."""
    warmth: float = 0.7
    """Temperature of the chains."""
    first: Literal["act", "think"] = "act"
    answer: str = "answer"
    """Tool that gives the answer; where there are no tools, every action does."""
    max_tokens: int = 128
    """Tokens of a chain."""

    def __post_init__(self) -> None:
        """Refuse what could neither act nor think."""
        if min(self.steps, self.samples) < 1 or self.samples > 60:
            raise UsageError(
                f"backoff: got steps={self.steps}, samples={self.samples}; give 1 or more, and 60 samples at most"
            )

    def open(self, brief: Brief) -> BackoffSession:
        """See `Agent.open`."""
        names = [tool.name for tool in brief.tools]
        if names and self.answer not in names:
            raise UsageError(
                f"answer of backoff: got {self.answer!r}; the tools are {', '.join(names)}: name the one that ends it"
            )
        return BackoffSession(self, brief)


class BackoffSession(Deliberation):
    """An episode of `Backoff`."""

    def __init__(self, settings: Backoff, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._first: Observation | None = None
        self._shown: tuple[Observation, tuple[str, ...]] = ("", ())
        self._num_acted = 0
        self._thinks = False
        self._session: Session | None = None
        """the conversation of the chain that is being thought"""
        self._answers: list[str] = []
        self._actions: dict[str, Action] = {}

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        is_begin, self._shown = self._first is None, (observation, legal_actions)
        if self._first is None:
            self._first = observation
        if (is_begin and self._settings.first == "think") or (
            self._settings.first == "act" and self._num_acted == self._settings.steps
        ):
            self._thinks = True
            return self._ask_chain()
        return self._inner.observe(observation, legal_actions)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a chain, or the inner session's turn."""
        if self._session is None:
            action = self._inner_read(completion)
            self._num_acted += self._next is None
            return action
        action = self._session.read(completion)
        self._note(action)
        if len(self._answers) < self._settings.samples:
            self._next = self._ask_chain()
            return action
        self._session = None
        found, count = majority(self._answers)
        if found and (self._settings.first == "act" or not must_back_off(count, self._settings.samples)):
            return self._actions[found]
        self._next = self._inner.observe(*self._shown)
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`: an expert is not sure before it has acted."""
        return self._inner.write(action) if self._session is None else self._settings.chat.write(UNSURE)

    def _ask_chain(self) -> Prompt:
        """Return the prompt of another chain, in a stream of its own."""
        chain = ReAct(self._settings.chat, self._settings.warmth, self._settings.max_tokens)
        told = f"{self._brief.instructions}\n\n{THINK}".strip()
        self._session = chain.open(replace(self._brief, instructions=told))
        assert self._first is not None, "chains see the first observation"
        prompt = self._session.observe(self._first)
        return replace(prompt, role=ROLE, shows=THINK)

    def _note(self, action: Action) -> None:
        """Note the answer that a chain came to; empty where it came to none."""
        calls = action.tool_calls
        is_answer = action.error is None and (
            bool(calls) and calls[0].name == self._settings.answer if self._brief.tools else bool(action.text)
        )
        said = write_react(action) if is_answer else ""
        self._answers.append(said)
        self._actions.setdefault(said, action)


def majority(answers: Sequence[str]) -> tuple[str, int]:
    """Return the commonest of `answers` and how many gave it, of equals the first; empty ones are none.

    Example: ``majority(["7", "", "8", "8"])`` is ``("8", 2)``.
    """
    given = [answer for answer in answers if answer]
    return Counter(given).most_common(1)[0] if given else ("", 0)


def must_back_off(count: int, num: int) -> bool:
    """Whether an answer that `count` of `num` chains gave is that of less than half."""
    return 2 * count < num

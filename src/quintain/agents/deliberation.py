"""A base for harnesses around a harness: what is said before it acts, and how much of that it keeps.

`Deliberation` holds an inner session, passes its prompts on and reads what comes back through it. What is asked in
between is one more message of the inner conversation, so that tokens are still only appended. The action that is
carried out was read by the inner harness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt, Session
from quintain.engines.protocol import Sampling
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.parse import write_react
from quintain.types import Action, Completion, Observation, Text, as_content


@dataclass(frozen=True, slots=True)
class Words:
    """Text that is no action: ended by the chat's own tokens and at most `max_tokens` long."""

    chat: Chat
    max_tokens: int

    def __post_init__(self) -> None:
        """Refuse a limit that leaves room for nothing."""
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens of what is not an action: got {self.max_tokens}; give at least 1")

    def ask(self, prompt: Prompt, role: str, shows: str | None = None) -> Prompt:
        """Return `prompt` as a question for text that is a `role`."""
        sampling = Sampling(
            temperature=prompt.sampling.temperature, max_tokens=self.max_tokens, stop_ids=self.chat.stop_ids
        )
        return replace(prompt, sampling=sampling, role=role, shows=shows)

    def read(self, completion: Completion) -> str:
        """Return what was said."""
        return self.chat.text(completion.token_ids).strip()

    def write(self, text: str) -> tuple[int, ...]:
        """Return the ids that say `text`; where that is too long, its first words are left out."""
        words = text.split(" ")
        while len(ids := self.chat.write(" ".join(words))) > self.max_tokens and words:
            words = words[max(1, len(words) // 8) :]
        return ids


class Deliberation:
    """A session around the inner session of `agent`; a subclass overrides what it changes."""

    def __init__(self, agent: Agent, brief: Brief) -> None:
        """Open the inner session."""
        self._agent = agent
        self._brief = brief
        self._inner: Session = agent.open(brief)
        self._next: Prompt | None = None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`."""
        return self._inner.observe(observation, legal_actions)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        return self._inner_read(completion)

    def more(self) -> Prompt | None:
        """See `Deliberates.more`."""
        found, self._next = self._next, None
        return found

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`."""
        return self._inner.write(action)

    def _inner_read(self, completion: Completion) -> Action:
        """Read `completion` with the inner session; if that wants to say more, this comes next."""
        action = self._inner.read(completion)
        if isinstance(self._inner, Deliberates):
            self._next = self._inner.more()
        return action

    def _inner_ends(self, completion: Completion) -> None:
        """Show the inner session a `completion` that is no action of its own."""
        self._inner.read(completion)
        if isinstance(self._inner, Deliberates):
            self._inner.more()

    def _reopen(self, told: str = "") -> None:
        """Open a new inner session, which is `told` something besides its instructions."""
        instructions = "\n\n".join(part for part in (self._brief.instructions, told) if part)
        self._inner = self._agent.open(replace(self._brief, instructions=instructions))


def with_words(observation: Observation, words: str) -> Observation:
    """Return `observation` with `words` after it."""
    if isinstance(observation, str):
        return f"{observation}\n\n{words}"
    return (*as_content(observation), Text(text=f"\n\n{words}"))


def describe_action(action: Action) -> str:
    """Return `action` in a few words: its text, or its calls as ``name[arguments]``."""
    if not action.tool_calls:
        return action.text
    calls = (write_react(Action(tool_calls=(call,))) for call in action.tool_calls)
    return ", ".join(call.removeprefix("Action: ") for call in calls)

"""A base for harnesses around a harness: what is said before it acts, and how much of that it keeps.

`Deliberation` holds an inner session, passes its prompts on and reads what comes back through it. What is asked in
between is one more message of the inner conversation, so that tokens are still only appended. The action that is
carried out was read by the inner harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt, Session
from quintain.engines.protocol import Sampling
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.parse import write_react
from quintain.types import Action, Completion, Observation, Text, as_content, as_text

TASK = "The task, as it began:"
"""What stands before the first observation where that is repeated in the place of `Task.prompt`."""


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
        return self.chat.words(completion.token_ids).strip()

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


class Reopening(Deliberation):
    """A session that rewrites history: it opens its inner session anew within an episode, and never without the task.

    Most environments state the task in the first observation and nowhere else. That is kept, and takes the place of
    an empty `Task.prompt` in every session that is opened after it (`brief_without`), so that a wrapper within a
    wrapper sees it too. Of a first observation with pictures the text alone is kept.
    """

    def __init__(self, agent: Agent, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(agent, brief)
        self._first: Observation | None = None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; a subclass overrides `_prompt`."""
        if self._first is None:
            self._first = observation
        return self._prompt(observation, legal_actions)

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """Return the prompt after `observation`."""
        return self._inner.observe(observation, legal_actions)

    def brief_without(self, shown: Sequence[Observation]) -> Brief:
        """Return what a session knows of the episode that is `shown` these observations and no others.

        Where the first one is not among them and the task has no prompt, the first one is its prompt.
        """
        task = self._brief.task
        if task.prompt or self._first is None or self._first in shown:
            return self._brief
        return replace(self._brief, task=replace(task, prompt=f"{TASK}\n{as_text(self._first)}"))

    def _reopen(self, brief: Brief, told: str = "") -> None:
        """Open a new inner session with `brief`, which is `told` something besides its instructions."""
        instructions = "\n\n".join(part for part in (brief.instructions, told) if part)
        self._inner = self._agent.open(replace(brief, instructions=instructions))


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

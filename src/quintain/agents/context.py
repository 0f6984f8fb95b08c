"""How much of an episode stays in the prompt: a window of turns, a summary, or a memory that is rewritten.

Without a wrapper the whole episode stays. Where history is rewritten a new segment starts: its prompt holds the ids
that were sampled, as they were, and only the newest turn of it is trained there. A context policy changes what a
prompt holds, never what was sampled. The task is in every prompt: where an environment states it in the first
observation alone, new segments begin with that (`quintain.agents.deliberation.Reopening`).

`Memory` is the state of MEM1 (arXiv 2506.15841) and MemAgent (2507.02259): each turn sees the task, the memory and
the newest observation. Differences: the memory and the action are two completions of one stream, not tags within one;
segments take the place of a 4-D attention mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quintain.agents.deliberation import Reopening, Words, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, as_text

SUMMARIZE = "Before you go on: sum up what happened and what you learned. Only your summary will remain."
REMEMBER = "First write your memory anew: everything you must know later. Only the memory will remain."
ACT = "Now act."


@dataclass(frozen=True, slots=True)
class Exchange:
    """An observation and the completions that it was answered with (several where a harness deliberates)."""

    observation: Observation
    legal_actions: tuple[str, ...]
    completions: list[Completion] = field(default_factory=list[Completion])


class Rewriting(Reopening):
    """A session whose history can be replaced: a new inner session is shown what is kept."""

    def __init__(self, agent: Agent, brief: Brief) -> None:
        """Begin with an empty history."""
        super().__init__(agent, brief)
        self._history: list[Exchange] = []

    def kept(self, history: Sequence[Exchange]) -> Sequence[Exchange] | None:
        """Return what is shown before the newest observation; None leaves everything as it is."""
        raise NotImplementedError

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`; a new segment starts where history is rewritten."""
        kept = self.kept(self._history)
        if kept is None:
            prompt = super()._prompt(observation, legal_actions)
        else:
            self._history = list(kept)
            self._reopen(self.brief_without([*(exchange.observation for exchange in kept), observation]))
            shown: tuple[int, ...] = ()
            for exchange in kept:
                shown = self._replay_exchange(exchange, shown)
            prompt = super()._prompt(observation, legal_actions)
            ids = prompt.token_ids if prompt.starts_segment else (*shown, *prompt.token_ids)
            prompt = replace(prompt, token_ids=ids, starts_segment=True)
        self._history.append(Exchange(observation, legal_actions))
        return prompt

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        self._history[-1].completions.append(completion)
        return super().read(completion)

    def _replay_exchange(self, exchange: Exchange, shown: tuple[int, ...]) -> tuple[int, ...]:
        """Show `exchange` to the inner session and return the ids of the stream with it."""
        prompt: Prompt | None = self._inner.observe(exchange.observation, exchange.legal_actions)
        for completion in exchange.completions:
            assert prompt is not None, "an inner session repeats itself when it is shown the same"
            before = prompt.token_ids if prompt.starts_segment else (*shown, *prompt.token_ids)
            shown = (*before, *completion.token_ids)
            self._inner.read(completion)
            prompt = self._inner.more() if isinstance(self._inner, Deliberates) else None
        return shown


@dataclass(frozen=True, slots=True)
class Window:
    """The last `turns` turns: ``Window(JsonTools(chat), turns=4)``.

    With `slack` the window may grow by so many turns before it is cut, which starts fewer segments.
    """

    agent: Agent
    turns: int = 4
    slack: int = 0

    def open(self, brief: Brief) -> WindowSession:
        """See `Agent.open`.

        Raises:
            UsageError: the window or its slack is negative.
        """
        if self.turns < 0 or self.slack < 0:
            raise UsageError(f"window: got turns={self.turns}, slack={self.slack}; give 0 or more")
        return WindowSession(self, brief)


class WindowSession(Rewriting):
    """An episode of `Window`."""

    def __init__(self, settings: Window, brief: Brief) -> None:
        """Begin with an empty history."""
        super().__init__(settings.agent, brief)
        self._settings = settings

    def kept(self, history: Sequence[Exchange]) -> Sequence[Exchange] | None:
        """See `Rewriting.kept`."""
        if len(history) <= self._settings.turns + self._settings.slack:
            return None
        return history[len(history) - self._settings.turns :]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary in the place of the turns so far, every so many turns: ``Summary(agent, chat, every=8)``."""

    agent: Agent
    chat: Chat
    every: int = 8
    """Actions after which a summary is asked for."""
    max_tokens: int = 128
    """Tokens of a summary."""

    def open(self, brief: Brief) -> SummarySession:
        """See `Agent.open`.

        Raises:
            UsageError: `every` is less than 1.
        """
        if self.every < 1:
            raise UsageError(f"summary: got every={self.every}; give 1 or more")
        return SummarySession(self, brief)


class SummarySession(Reopening):
    """An episode of `Summary`."""

    def __init__(self, settings: Summary, brief: Brief) -> None:
        """Begin without a summary."""
        super().__init__(settings.agent, brief)
        self._words = Words(settings.chat, settings.max_tokens)
        self._every = settings.every
        self._seen: tuple[Observation, tuple[str, ...]] = ("", ())
        self._done: list[str] = []
        self._since = 0
        self._is_asked = False

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`: asks for a summary when one is due."""
        self._seen = (observation, legal_actions)
        if self._since < self._every:
            return super()._prompt(observation, legal_actions)
        self._is_asked = True
        prompt = super()._prompt(with_words(observation, SUMMARIZE), legal_actions)
        return self._words.ask(prompt, "summary", f"{as_text(observation)}\n\n{SUMMARIZE}")

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a summary, or an action."""
        if self._is_asked:
            self._is_asked, self._since = False, 0
            text = self._words.read(completion)
            self._reopen(self.brief_without([self._seen[0]]), f"What happened so far: {text}")
            self._next = self._inner.observe(*self._seen)
            return Action(text=text)
        action = self._inner_read(completion)
        if self._next is None:
            self._since += 1
            self._done.append(f"{' '.join(as_text(self._seen[0]).split())} > {describe_action(action)}")
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstrated summary is what was seen and done, in order."""
        return self._words.write("; ".join(self._done)) if self._is_asked else self._inner.write(action)


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that is rewritten at every turn and is all that remains: ``Memory(agent, chat)``."""

    agent: Agent
    chat: Chat
    max_tokens: int = 128
    """Tokens of the memory."""

    def open(self, brief: Brief) -> MemorySession:
        """See `Agent.open`."""
        return MemorySession(self, brief)


class MemorySession(Reopening):
    """An episode of `Memory`."""

    def __init__(self, settings: Memory, brief: Brief) -> None:
        """Begin with an empty memory."""
        super().__init__(settings.agent, brief)
        self._words = Words(settings.chat, settings.max_tokens)
        self._seen: tuple[Observation, tuple[str, ...]] = ("", ())
        self._is_asked = False
        self._last = ""
        self.memory = ""
        """What is remembered."""

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`: a new segment that asks for the memory."""
        self._seen = (observation, legal_actions)
        self._is_asked = True
        told = [f"Memory: {self.memory}"] if self.memory else []
        told += [f"Your last action: {self._last}"] if self._last else []
        self._reopen(self.brief_without([observation]), "\n".join(told))
        prompt = super()._prompt(with_words(observation, REMEMBER), legal_actions)
        return self._words.ask(prompt, "memory", f"{as_text(observation)}\n\n{REMEMBER}")

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: the memory, or an action."""
        if self._is_asked:
            self._is_asked = False
            self.memory = self._words.read(completion)
            self._inner_ends(completion)
            self._next = replace(self._inner.observe(ACT, self._seen[1]), shows=ACT)
            return Action(text=self.memory)
        action = self._inner_read(completion)
        if self._next is None:
            self._last = describe_action(action)
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstrated memory is what was seen and done, the newest last."""
        if not self._is_asked:
            return self._inner.write(action)
        parts = (self.memory, self._last, as_text(self._seen[0]))
        return self._words.write(" | ".join(" ".join(part.split()) for part in parts if part))

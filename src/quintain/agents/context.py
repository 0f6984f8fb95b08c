"""How much of an episode stays in the prompt: a window of turns, a summary, or a memory that is rewritten.

Without a wrapper the whole episode stays. Where history is rewritten a new segment starts: its prompt holds the ids
that were sampled, as they were, and only the newest turn of it is trained there. A context policy changes what a
prompt holds, never what was sampled. The task is in every prompt: where an environment states it in the first
observation alone, new segments begin with that (`quintain.agents.deliberation.Reopening`).

`Memory` is a memory of bounded length that is all that remains. With ``form="two"`` it is written in a stream of its
own, of the task, the memory before and the newest observation; the action follows in another, of the task and the
memory alone, so that nothing is known that is not in it (MemAgent, arXiv 2507.02259, whose pages come by themselves in
`quintain.agents.reading`). With ``form="one"`` it is the internal state of MEM1 (2506.15841): one completion holds the
state between tags and the action behind them, and the next prompt has the task, both of these, and what the action
showed. What else a completion holds, in front of the state, is gone a turn later. Segments take the place of a 4-D
attention mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from quintain.agents.deliberation import Reopening, Words, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Deliberates, Foresees, Prompt
from quintain.environments.protocol import Environment, TakesNotes
from quintain.errors import UsageError, suggestion
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, as_text

SUMMARIZE = "Before you go on: sum up what happened and what you learned. Only your summary will remain."
REMEMBER = "First write your memory anew: everything you must know later. Only the memory will remain."
ACT = "Now act."
STATE = (
    "Write what you must know later between <state> and </state>, then act. Only that, your action and what it shows "
    "will remain."
)
OPEN, CLOSE = "<state>", "</state>"
Form = Literal["two", "one"]


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
    form: Form = "two"
    """two: the memory is a completion, and the action, which sees it alone, is another. one: a completion has the
    memory between <state> and </state>, and the action behind it, which sees both."""

    def open(self, brief: Brief) -> Remembering:
        """See `Agent.open`.

        Raises:
            UsageError: the form is neither.
        """
        if self.form not in get_args(Form):
            raise UsageError(f"form of memory: got {self.form!r}; {suggestion(self.form, get_args(Form))}")
        return StateSession(self, brief) if self.form == "one" else MemorySession(self, brief)


class Remembering(Reopening):
    """A session whose prompts have the task, a memory, and what is said besides; `memory` is what is remembered.

    A demonstrated memory is what the environment notes of what was shown (`TakesNotes`); where it takes no notes, it is
    all that was seen and done, the newest last.
    """

    def __init__(self, agent: Agent, brief: Brief, words: Words) -> None:
        """Begin with an empty memory."""
        super().__init__(agent, brief)
        self._words = words
        self._seen: tuple[Observation, tuple[str, ...]] = ("", ())
        self._last = ""
        self._notes: str | None = None
        self.memory = ""
        """What is remembered."""

    def foresee(self, environment: Environment) -> Action | None:
        """See `Foresees`: take the environment's notes for the memory that is written next."""
        self._notes = environment.notes() if isinstance(environment, TakesNotes) else None
        return self._inner.foresee(environment) if isinstance(self._inner, Foresees) else None

    def _ask_for_memory(
        self, observation: Observation, legal_actions: tuple[str, ...], brief: Brief
    ) -> Prompt:
        """Return the prompt of a new segment that asks for the memory after `observation`."""
        self._reopen(brief, self._describe())
        prompt = self._inner.observe(with_words(observation, REMEMBER), legal_actions)
        return self._words.ask(prompt, "memory", f"{as_text(observation)}\n\n{REMEMBER}")

    def _ask_to_act(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """Return the prompt of a new segment that asks to act by the memory and `observation`."""
        self._reopen(self.brief_without([observation]), self._describe())
        return self._inner.observe(observation, legal_actions)

    def _describe(self) -> str:
        """Return what is told of the memory and the last action."""
        told = [f"Memory: {self.memory}"] if self.memory else []
        return "\n".join([*told, *([f"Your last action: {self._last}"] if self._last else [])])

    def _draft(self) -> str:
        """Return the memory that is demonstrated now."""
        if self._notes is not None:
            return self._notes
        parts = (self.memory, self._last, as_text(self._seen[0]))
        return " | ".join(" ".join(part.split()) for part in parts if part)


class MemorySession(Remembering):
    """An episode of `Memory` in two completions."""

    def __init__(self, settings: Memory, brief: Brief) -> None:
        """Begin with an empty memory."""
        super().__init__(settings.agent, brief, Words(settings.chat, settings.max_tokens))
        self._is_asked = False

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`: a new segment that asks for the memory."""
        self._seen = (observation, legal_actions)
        self._is_asked = True
        return self._ask_for_memory(observation, legal_actions, self.brief_without([observation]))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: the memory, or an action."""
        if self._is_asked:
            self._is_asked, self._last = False, ""
            self.memory = self._words.read(completion)
            self._next = replace(self._ask_to_act(ACT, self._seen[1]), shows=ACT)
            return Action(text=self.memory)
        action = self._inner_read(completion)
        if self._next is None:
            self._last = describe_action(action)
        return action

    def foresee(self, environment: Environment) -> Action | None:
        """See `Foresees`; a thought is for the action, not for the memory."""
        found = super().foresee(environment)
        return None if self._is_asked else found

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`."""
        return self._words.write(self._draft()) if self._is_asked else self._inner.write(action)


class StateSession(Remembering):
    """An episode of `Memory` in one completion: the state, and the action behind it."""

    def __init__(self, settings: Memory, brief: Brief) -> None:
        """Begin with an empty state."""
        super().__init__(settings.agent, brief, Words(settings.chat, settings.max_tokens))
        self._chat = settings.chat

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`: a new segment of the task, the state, the last action and what it showed."""
        self._seen = (observation, legal_actions)
        self._reopen(self.brief_without([observation]), self._describe())
        prompt = self._inner.observe(with_words(observation, STATE), legal_actions)
        sampling = prompt.sampling
        if sampling.candidates is not None or sampling.stop_ids != self._chat.stop_ids:
            raise UsageError(
                "memory: got form=one around a harness that chooses among actions, behind which no state fits; name "
                "one that writes: text, tools, react"
            )
        tags = len(self._chat.answer_ids(f"{OPEN}{CLOSE}\n"))
        more = sampling.max_tokens + self._words.max_tokens + tags
        return replace(prompt, sampling=replace(sampling, max_tokens=more))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; a completion without a state leaves it as it was, and one that is too long is cut."""
        state, ids = self._split(completion.token_ids)
        if state is not None:
            bound = self._chat.answer_ids(state)[: self._words.max_tokens]
            self.memory = self._chat.text(bound).strip()
        action = self._inner_read(replace(completion, token_ids=ids))
        if self._next is None:
            self._last = describe_action(action)
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`: the state, and the action in the words of the inner session."""
        state = self._chat.text(self._words.write(self._draft()))
        return (*self._chat.answer_ids(f"{OPEN}{state}{CLOSE}\n"), *self._inner.write(action))

    def _split(self, ids: tuple[int, ...]) -> tuple[str | None, tuple[int, ...]]:
        """Return the state that `ids` say, None where there is none, and the ids behind it.

        Where a token says the end of the state and more, what is behind is encoded anew: the action is read from it,
        and nothing is trained on.
        """
        before, found, text = self._chat.text(ids).partition(CLOSE)
        if not found:
            return None, ids
        state = before.rpartition(OPEN)[2].strip()
        for place in range(1, len(ids) + 1):
            head = self._chat.text(ids[:place])
            if CLOSE in head:
                is_whole = not head.partition(CLOSE)[2].strip()
                return state, ids[place:] if is_whole else self._chat.write(text.strip())
        return state, ids

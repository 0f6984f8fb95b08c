"""The four basic harnesses: plain text, ReAct, JSON tool calls, and a choice among legal actions.

They differ in how an action is written and read, and in what ends a completion; the conversation is the same. The
system message is the environment's instructions and the task's prompt. `write(action)` gives the ids that a policy
would sample to take `action`, and `read` takes them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import ClassVar

from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Sampling
from quintain.environments.mixture import MixedEnvironment
from quintain.environments.protocol import Environment, Legal, Thinks
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat, WrittenIds
from quintain.text.parse import (
    parse_choice,
    parse_react,
    parse_text,
    tools_text,
    write_react,
    write_text,
)
from quintain.text.reading import Answer
from quintain.text.tool_formats import FORMATS, format_named
from quintain.types import (
    Action,
    CallResult,
    Completion,
    Message,
    Observation,
    ToolCall,
    ToolSpec,
    as_content,
    as_text,
    derive_seed,
)

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
REACT_INSTRUCTIONS = "Answer with one thought and one action:\nThought: why\nAction: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How a harness reads an action out of an answer's words and writes one: ``parse(write(action)) == action``."""

    parse: Callable[[str], Action]
    write: Callable[[Action], str]
    say: Callable[[str, Action], str] | None = None
    """(words in front of it, an action that calls tools) → text, for answers that others wrote; None: the words go"""
    has_tool_role: bool = False
    """whether the results of calls are tool messages, not those of the user"""
    has_own_thoughts: bool = False
    """whether ``<think>`` is markup of the harness itself, and `parse` reads it"""
    has_calls: bool = False
    """whether calls are the model's own: its template writes them, and they are read as its format has them"""
    has_words: bool = True
    """whether the words of an action are written before its calls, where `has_calls`"""


class ChatSession:
    """One episode as a chat: observations are user messages, tool messages after a call of its `tools`."""

    keeps_words: ClassVar[bool] = True
    """Whether the words that stood beside a recorded action are written with it."""

    def __init__(
        self,
        chat: Chat,
        sampling: Sampling,
        wording: Wording,
        system: str,
        tools: tuple[ToolSpec, ...] = (),
        *,
        has_tools: bool = False,
    ) -> None:
        """Open the chat with the message `system`, unless it is empty.

        The chat template shows `tools`; `has_tools` says that there are some which `system` shows.
        """
        self._chat = chat
        self._sampling = sampling
        self._wording = wording
        self._conversation = chat.conversation(tools)
        self._unsent = [Message(role="system", content=as_content(system))] if system else []
        self._has_tools = has_tools or bool(tools)
        self._awaits_tool = False
        self._said: tuple[tuple[int, ...], Message] | None = None
        """an answer that others wrote, as ids, until it is read"""

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; `legal_actions` are not shown. Results of several calls are a message each."""
        if not self._awaits_tool:
            return self._show([Message(role="user", content=as_content(observation))])
        parts = as_content(observation)
        results = [part for part in parts if isinstance(part, CallResult)]
        if not results or not self._wording.has_calls:
            return self._show([Message(role="tool", content=parts)])
        rest = tuple(part for part in parts if not isinstance(part, CallResult))
        shown = [Message(role="tool", content=(part,)) for part in results]
        return self._show([*shown, *([Message(role="user", content=rest)] if rest else [])])

    @property
    def has_unsent(self) -> bool:
        """Whether there is a system message that no prompt has shown yet."""
        return bool(self._unsent)

    def show(self, messages: Sequence[Message]) -> Prompt:
        """Return the prompt after `messages` that others wrote, in the roles that this harness gives them."""
        has_role = self._wording.has_tool_role
        return self._show(
            [replace(m, role="user") if m.role == "tool" and not has_role else m for m in messages]
        )

    def say(self, message: Message) -> WrittenIds:
        """Return the ids of an assistant's `message` that others wrote, as the policy would have sampled it.

        Raises:
            DataError: it calls tools, for which the harness or the model's template has no form.
        """
        wording, words = self._wording, as_text(message.content)
        if message.tool_calls and not wording.has_calls:
            action = Action(text=words, tool_calls=message.tool_calls)
            text = wording.write(action) if wording.say is None else wording.say(words.strip(), action)
            message = Message(role="assistant", content=as_content(text), reasoning=message.reasoning)
        written = self._conversation.write(message)
        self._said = written.token_ids, written.message
        return written

    def _show(self, messages: Sequence[Message]) -> Prompt:
        """Append `messages` and return the prompt after them."""
        ids = self._conversation.prompt([*self._unsent, *messages])
        self._unsent = []
        return Prompt(token_ids=ids.token_ids, starts_segment=ids.starts_segment, sampling=self._sampling)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; thoughts end before an action is looked for."""
        ids = tuple(completion.token_ids)
        said, self._said = self._said, None
        self._conversation.record(ids, said[1] if said is not None and said[0] == ids else None)
        action = self._read(ids)
        self._awaits_tool = self._has_tools and bool(action.tool_calls)
        return action

    def _read(self, ids: tuple[int, ...]) -> Action:
        """Return the action that the completion `ids` is."""
        wording, conversation = self._wording, self._conversation
        if wording.has_calls and not self._chat.reads_plainly:
            return action_of(conversation.read(ids))
        words = conversation.text_with_thoughts(ids) if wording.has_own_thoughts else conversation.words(ids)
        return wording.parse(words)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`."""
        wording = self._wording
        if wording.has_calls and action.tool_calls:
            words = action.text if wording.has_words else ""
            message = Message(role="assistant", content=as_content(words), tool_calls=action.tool_calls)
        else:
            message = Message(role="assistant", content=as_content(wording.write(action)))
        return self._conversation.write(message).token_ids


def action_of(answer: Answer) -> Action:
    """Return the action that an answer is: its calls, if all of them can be carried out, else its words."""
    broken = next((call for call in answer.calls if call.arguments is None or not call.name), None)
    text = "".join(dict.fromkeys(call.raw for call in answer.calls)) or answer.content.strip()
    if broken is not None:
        return Action(text=text, error=broken.problem)
    calls = tuple(
        ToolCall(name=call.name, arguments=call.arguments or {}, id=call.id) for call in answer.calls
    )
    return Action(text=text, tool_calls=calls)


@dataclass(frozen=True, slots=True)
class PlainText:
    """The completion is the action: ``PlainText(chat, temperature=1.0, max_tokens=64)``."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 64

    def open(self, brief: Brief) -> ChatSession:
        """See `Agent.open`."""
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        wording = Wording(parse=parse_text, write=write_text)
        return ChatSession(self.chat, sampling, wording, system_text(brief))


@dataclass(frozen=True, slots=True)
class ReAct:
    """A thought and an action in words (arXiv 2210.03629): ``Thought: ...`` then ``Action: name[argument]``.

    Where the environment has tools, the action is a tool call and the tools are listed in the system message;
    elsewhere it is the text after ``Action:``. Demonstrations have the thoughts that an environment knows (`Thinks`),
    or none; with `filler` sentences of the instructions take their place, drawn anew for each, as verbose models repeat
    what they were told.
    """

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 256
    filler: int = 0
    """Sentences that a demonstration repeats before its action."""
    thoughts: bool = True
    """Whether a demonstration thinks before it acts, where the environment knows what."""

    def open(self, brief: Brief) -> ReActSession:
        """See `Agent.open`.

        Raises:
            UsageError: `filler` is negative.
        """
        if self.filler < 0:
            raise UsageError(f"filler of react: got {self.filler}; give 0 or more sentences")
        return ReActSession(self, brief)

    def fill(self, brief: Brief, action: Action) -> str:
        """Return the filler that the task of `brief` and the words of `action` draw."""
        sentences = [part for part in SENTENCE_END.split(brief.instructions) if part]
        chance = Random(derive_seed("filler", brief.task.id, write_react(action)))
        drawn = [chance.choice(sentences) for _ in range(self.filler if sentences else 0)]
        return " ".join(drawn)


class ReActSession(ChatSession):
    """An episode of `ReAct`."""

    def __init__(self, settings: ReAct, brief: Brief) -> None:
        """Open the chat."""
        self._settings, self._noted = settings, [""]
        super().__init__(
            settings.chat,
            sampling_of(settings.chat, settings.temperature, settings.max_tokens),
            Wording(
                parse=partial(parse_react, tools=brief.tools),
                write=partial(write_thoughtfully, settings, brief, self._noted),
                say=lambda words, action: write_react(action, words),
            ),
            system_text(brief, react_text(brief.tools)),
        )

    def foresee(self, environment: Environment) -> None:
        """Note what a demonstrator thinks now; it says no more than its next action. See `Foresees`."""
        thinks = self._settings.thoughts and not self._settings.filler
        self._noted[0] = environment.thought() if thinks and isinstance(environment, Thinks) else ""


def write_thoughtfully(settings: ReAct, brief: Brief, noted: Sequence[str], action: Action) -> str:
    """Return `action` after the thought that was `noted` for it, or after filler; no session is held."""
    return write_react(action, noted[0] or settings.fill(brief, action))


@dataclass(frozen=True, slots=True)
class JsonTools:
    """Tool calls as JSON, several in one turn if the model likes; text around them is ignored where it can be.

    By default calls are written and read as the chat template has them, and the tools go where it puts them; where it
    knows none, or writes calls in a way that nobody can read, they are in Hermes style and the tools in the system
    message. `calls` names another way (`quintain.text.tool_formats`: hermes, llama, mistral).
    """

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 256
    calls: str = "auto"
    thoughts: bool = False
    """Whether demonstrations write the words of an action before its calls."""

    def open(self, brief: Brief) -> ChatSession:
        """See `Agent.open`."""
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        form = FORMATS["hermes"] if self.calls == "auto" else format_named(self.calls)
        template = self.chat.template

        def say(words: str, action: Action) -> str:
            return words + "\n" * bool(words) + form.write(action.tool_calls, "")

        def write(action: Action) -> str:
            return say(action.text if self.thoughts else "", action) if action.tool_calls else action.text

        wording = Wording(
            parse=form.parse,
            write=write,
            say=say,
            has_tool_role=True,
            has_calls=self.calls == "auto" and template.entries.takes_calls,
            has_words=self.thoughts,
        )
        if wording.has_calls:
            return ChatSession(
                self.chat, sampling, wording, system_text(brief), brief.tools, has_tools=bool(brief.tools)
            )
        told = tools_text(brief.tools, form.form) if brief.tools else ""
        return ChatSession(
            self.chat, sampling, wording, system_text(brief, told), has_tools=bool(brief.tools)
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """Legal actions as ids, and the tokens that end a completion among them."""

    written: dict[str, tuple[int, ...]]
    """action → the ids that take it, the token that stops it included"""
    stop_ids: frozenset[int]
    longest: int


def choices(chat: Chat, legal_actions: Sequence[str]) -> Choices:
    """Return how each of `legal_actions` is written.

    A token that ends some action and stands in no action before its end stops the completion at once, so that
    a one-token action costs one decoding step. An action that does not end so is closed with the chat's end
    token.
    """
    ids = {action: chat.answer_ids(action.strip()) for action in legal_actions}
    inner = {token for tokens in ids.values() for token in tokens[:-1]}
    stops = chat.stop_ids | ({tokens[-1] for tokens in ids.values() if tokens} - inner)
    written = {
        action: tokens if tokens and tokens[-1] in stops else (*tokens, chat.end_id)
        for action, tokens in ids.items()
    }
    return Choices(written=written, stop_ids=stops, longest=max(map(len, written.values()), default=1))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the legal actions, word for word: ``Choice(chat, temperature=1.0)``.

    A completion ends with the last token of an action (see `choices`) and is cut at the length of the longest
    legal one, or at `max_tokens` if that is less. With `list_actions` each observation is followed by the
    legal actions.
    """

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 64
    list_actions: bool = False

    def open(self, brief: Brief) -> ChoiceSession:
        """See `Agent.open`."""
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        return ChoiceSession(self.chat, sampling, brief, list_actions=self.list_actions)


class ChoiceSession(ChatSession):
    """An episode of `Choice`; the legal actions may change with every observation.

    Conversations that others wrote come without them (`show`): whether an action was legal is known only where it was
    taken, and the record says so.
    """

    keeps_words: ClassVar[bool] = False

    def __init__(self, chat: Chat, sampling: Sampling, brief: Brief, *, list_actions: bool) -> None:
        """Begin with the legal actions of `brief`."""
        wording = Wording(parse=parse_text, write=lambda action: action.text)
        super().__init__(chat, sampling, wording, system_text(brief))
        self._legal = brief.legal_actions
        self._list_actions = list_actions
        self._known: dict[tuple[str, ...], Choices] = {}

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; without `legal_actions` those of before stay.

        Raises:
            UsageError: no legal action was ever given.
        """
        self._legal = legal_actions or self._legal
        if not self._legal:
            raise UsageError(
                "a choice among legal actions: got none from the environment; "
                "use PlainText, or define legal_actions"
            )
        if self._list_actions:
            observation = f"{as_text(observation)}\nActions: {', '.join(self._legal)}"
        prompt = super().observe(observation)
        here = self._choices()
        limit = min(prompt.sampling.max_tokens, here.longest)
        return replace(prompt, sampling=replace(prompt.sampling, stop_ids=here.stop_ids, max_tokens=limit))

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`.

        Raises:
            DataError: `action` is not legal.
        """
        chosen = self._read_choice(action.text)
        if chosen.error is not None:
            raise DataError(f"writing a choice: {chosen.error}")
        return self._choices().written[chosen.text]

    def _read(self, ids: tuple[int, ...]) -> Action:
        """Return the action that a completion is: any that is said where nobody ever told which are legal."""
        text = self._conversation.words(ids)
        return self._read_choice(text) if self._legal else Action(text=text.strip())

    def _read_choice(self, text: str) -> Action:
        return parse_choice(text, self._legal)

    def _choices(self) -> Choices:
        found = self._known.get(self._legal)
        if found is None:
            found = self._known[self._legal] = self._write()
        return found

    def _write(self) -> Choices:
        return choices(self._chat, self._legal)


def for_environment(
    chat: Chat, environment: Environment, *, temperature: float = 1.0, max_tokens: int = 128
) -> Agent:
    """Return the harness that fits `environment`: JSON tools, else a choice, else plain text."""
    if isinstance(environment, MixedEnvironment):
        return Fitting(chat, temperature, max_tokens)
    if environment.tools():
        return JsonTools(chat, temperature, max_tokens)
    if isinstance(environment, Legal):
        return Choice(chat, temperature, max_tokens)
    return PlainText(chat, temperature, max_tokens)


@dataclass(frozen=True, slots=True)
class Fitting:
    """For each task the harness that fits what its `Brief` lists, as a mixture of environments needs it."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 128

    def open(self, brief: Brief) -> ChatSession:
        """See `Agent.open`."""
        kind = JsonTools if brief.tools else Choice if brief.legal_actions else PlainText
        return kind(self.chat, self.temperature, self.max_tokens).open(brief)


def sampling_of(chat: Chat, temperature: float, max_tokens: int) -> Sampling:
    """Return the sampling of a harness: completions end with the chat's own end tokens.

    Raises:
        UsageError: the temperature is negative or not a number, or there is no room for a token.
    """
    if not 0 <= temperature < float("inf"):
        raise UsageError(f"temperature of sampling: got {temperature}; give 0 (greedy) or a positive number")
    if max_tokens < 1:
        raise UsageError(f"max_tokens of a completion: got {max_tokens}; give at least 1")
    return Sampling(temperature=temperature, max_tokens=max_tokens, stop_ids=chat.stop_ids)


def system_text(brief: Brief, *more: str) -> str:
    """Return the system message: instructions, the task's prompt and `more`, empty ones left out."""
    return "\n\n".join(part for part in (brief.instructions, brief.task.prompt, *more) if part)


def react_text(tools: Sequence[ToolSpec]) -> str:
    """Return how a ReAct answer is written, with `tools` if there are any."""
    if not tools:
        return f"{REACT_INSTRUCTIONS}the action"
    listed = tools_text(tools).rpartition("\n")[0]
    return f"{listed}\n{REACT_INSTRUCTIONS}name[arguments as a JSON object]"

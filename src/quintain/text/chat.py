"""The chat format of a model: prompts that grow, answers as its template writes them, answers read back.

Everything that a model is shown and everything that it is taught to write is the difference of two renderings of its
own chat template. Where the template merely appends, a turn costs work in proportion to its own text. Where it rewrites
what came before (Qwen3 drops earlier thoughts), the chat is rendered in full and a new segment starts. Sampled ids are
never encoded again within a segment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import DataError, InvariantError, ModelError
from quintain.text.additions import AdditionFinder, AnswerKind, GivenAnswer
from quintain.text.entries import ANSWER, NAME, USER, Entry
from quintain.text.parse import json_text
from quintain.text.probe_chats import PROBE_TOOLS, PROBES
from quintain.text.reading import (
    PLAIN,
    Answer,
    AnswerFormat,
    AnswerReader,
    FormatSample,
    choose_format,
    load_formats,
)
from quintain.text.settings import ChatSettings, settings_of
from quintain.text.template import Template
from quintain.text.tokenizer import encoder_of
from quintain.text.writing import PROBE_CALL, AnswerWriter, Written
from quintain.types import NOTHING, Message, ToolCall, ToolSpec, as_content, as_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CALL_TAGS = ("<tool_call>", "</tool_call>")
"""What must not stand in the arguments of a call in Hermes style: a reader would end the call there."""
MAX_ANSWERS = 4_096
"""Answers whose ids are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """Ids to sample after: they continue the stream, or are a whole new one when `starts_segment`."""

    token_ids: tuple[int, ...]
    starts_segment: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenIds:
    """An answer as ids: ``WrittenIds(token_ids=(5, 7, 2))``; the last one ends it."""

    token_ids: tuple[int, ...]
    message: Message
    """What they say."""
    is_closed: bool = True
    """Whether the last one is the template's own end, and not the beginning of the message that comes next."""
    lost: tuple[str, ...] = ()
    """What of the message that was asked for the template cannot write there: reasoning, words, or its form."""


class Chat:
    """The chat format of a tokenizer; shared by all conversations of a run."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template_options: Mapping[str, Any] = NOTHING
    ) -> None:
        """Probe the chat template of `tokenizer`; `template_options` are passed to every rendering.

        Options, date and ends that were stored with the tokenizer (`quintain.text.settings`) apply as well. A tokenizer
        without a template gets the compact one if it has the house's markers, else plain lines.

        Raises:
            ModelError: the tokenizer is not a fast one, its template cannot be rendered, or nothing ends an
            answer.
        """
        self.tokenizer = tokenizer
        self.settings: ChatSettings = settings_of(tokenizer)
        self.encoder = encoder_of(tokenizer)
        options = {**self.settings.template_options, **template_options}
        self.template = Template(tokenizer, self.encoder, options, self.settings.today)
        eos = cast("int | None", tokenizer.eos_token_id)
        named = [*self.settings.end_ids] if eos is None else [eos, *self.settings.end_ids]
        self.writer = AnswerWriter(self.template, self.encoder, named)
        self.additions = AdditionFinder(self.template, self.writer)
        self._written: OrderedDict[object, WrittenIds] = OrderedDict()
        self.format: AnswerFormat | None = self._find_format()
        """How answers are read: what the model's folder says, else the table that reads what its template writes."""
        self.end_id = self.writer.plain_end_id
        """The token that ends a plain answer."""
        table = self.format.ends if self.format is not None else ()
        known = (self.encoder.markup_id(end) for end in (*self.writer.known_ends, *table))
        self.stop_ids = frozenset(found for found in (self.end_id, *named, *known) if found is not None)
        """Tokens that end an answer when sampled: those that the template, the tokenizer, the model's configuration and
        the table of its format name."""

    @property
    def is_append_only(self) -> bool:
        """Whether no probe chat, with or without system text, saw the template rewrite earlier turns."""
        plain, called = AnswerKind(True, False, 0, False), AnswerKind(False, False, 1, False)
        kinds = [(("user",), plain), (("user",), plain._replace(has_reasoning=True))]
        if self.template.takes_tool_role:
            kinds.append((("tool",), called if self.template.takes_tools else plain))
        return all(
            self.additions.is_appending(roles, kind, has_system=has_system, has_tools=roles == ("tool",))
            for roles, kind in kinds
            for has_system in (False, True)
        )

    @cached_property
    def reads_plainly(self) -> bool:
        """Whether an answer is its words, but for a thought in front and calls in Hermes style."""
        if self.format is None:
            return True
        body = self.write_marked(Message(role="assistant", content=as_content(ANSWER))).body
        lead = self.writer.empty_thought.match(body)
        bare = body[lead.end() :] if lead is not None else body
        return self.format.name in ("hermes", PLAIN) and bare.strip() == ANSWER

    @property
    def name(self) -> str:
        """What the format is, in a few words: ``the model's template, calls as qwen3-xml``."""
        if self.format is None or not self.template.entries.takes_calls:
            return "the model's template, calls as text of our own"
        shown = "" if self.template.takes_tools else ", tools in the system text"
        return f"the model's template, calls as {self.format.name}{shown}"

    def conversation(self, tools: tuple[ToolSpec, ...] = ()) -> Conversation:
        """Return an empty conversation in which the model may call `tools`."""
        return Conversation(self, tools)

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of the answer `text` behind a prompt of a user, as `write` gives them, without the end."""
        return self.write(text)[:-1]

    def write(self, text: str) -> tuple[int, ...]:
        """Return the ids that say `text` behind a prompt of a user, and end the answer."""
        found = self._written.get(text)
        if found is None:
            found = self.write_message(Message(role="assistant", content=as_content(text)))
            self.keep_written(text, found)
        return found.token_ids

    def write_message(self, message: Message) -> WrittenIds:
        """Return the ids that say `message` behind a prompt of a user, and end the answer."""
        return self.ids_of(self.write_marked(message))

    def write_marked(self, message: Message) -> Written:
        """Return `message` as the template writes it behind a prompt of a user, as marked text."""
        tools = PROBE_TOOLS if message.tool_calls and self.template.takes_tools else ()
        return self.writer.write([USER], message, tools)

    def ids_of(self, written: Written) -> WrittenIds:
        """Return what was written as ids."""
        body = self.encoder.encode_marked(written.body, continues=True)
        blank = written.end[: len(written.end) - len(written.end.lstrip())] if not written.is_closed else ""
        between = self.encoder.encode_marked(blank, continues=True) if blank else ()
        return WrittenIds(
            token_ids=(*body, *between, written.end_id),
            message=written.message,
            is_closed=written.is_closed,
            lost=written.lost,
        )

    def keep_written(self, key: object, written: WrittenIds) -> None:
        """Keep `written` for the next time that it is asked for."""
        while len(self._written) >= MAX_ANSWERS:
            self._written.popitem(last=False)
        self._written[key] = written

    def find_written(self, key: object) -> WrittenIds | None:
        """Return what was kept under `key`."""
        return self._written.get(key)

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without its end token; other special tokens show as text."""
        has_end = bool(token_ids) and token_ids[-1] in self.stop_ids
        return self.encoder.decode(token_ids[:-1] if has_end else token_ids)

    def words(self, token_ids: Sequence[int], prefix: str | None = None) -> str:
        """Return the words of a completion, its thoughts left out; `prefix` is the end of the prompt before it."""
        text = self.text(token_ids)
        before = self.template.header if prefix is None else prefix
        if self.reads_plainly:
            return without_thought(text, self.template.thought_marks, before)
        answer = self.read(text, prefix=before)
        return "".join([answer.content, *dict.fromkeys(call.raw for call in answer.calls)])

    def read(self, text: str, *, prefix: str = "", tools: Sequence[ToolSpec] = ()) -> Answer:
        """Return thoughts, words and calls of a completion's `text`; `prefix` is the end of the prompt before it."""
        return self._reader(prefix, tools, [text]).close()

    def read_in_pieces(
        self, text: str, size: int, *, prefix: str = "", tools: Sequence[ToolSpec] = ()
    ) -> Answer:
        """Return `read` of a text that comes in pieces of `size` characters."""
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        return self._reader(prefix, tools, pieces).close()

    def _reader(self, prefix: str, tools: Sequence[ToolSpec], pieces: Sequence[str]) -> AnswerReader:
        """Return a reader of an answer that was fed `pieces`."""
        reader = (self.format or load_formats()["hermes"]).stream(prefix=prefix, tools=tools)
        for number, piece in enumerate(pieces):
            is_last = number == len(pieces) - 1
            reader.feed(piece.removesuffix(self.closing) if is_last and self.closing else piece)
        return reader

    @cached_property
    def closing(self) -> str:
        """What the template writes behind the words of an answer, before its end, where no format knows of it."""
        if self.format is not None:
            return ""
        body = self.write_marked(Message(role="assistant", content=as_content(ANSWER))).body
        return body.rpartition(ANSWER)[2].strip()

    def _find_format(self) -> AnswerFormat | None:
        """Return the format that reads what the template writes, and give up the template's calls where none does."""
        own = self.settings.response_template
        if own is not None and any(own == known.table for known in load_formats().values()):
            own = None  # a table of ours, which training saved: it is found again
        samples = self._samples()
        found = choose_format(samples, own).format
        reads_calls = found is not None and found.name != PLAIN
        if self.template.entries.takes_calls and not reads_calls:
            self.template.decline_tools()
            return choose_format(self._samples(), own).format
        if found is not None and found.name == "hermes":
            self.template.entries.hats = CALL_TAGS
        if self.template.entries.takes_calls and not self.template.takes_tools:
            written = self.writer.write(
                [USER], Message(role="assistant", content=(), tool_calls=(PROBE_CALL,)), ()
            )
            self.template.call_form = written.body.strip().replace(NAME, "NAME")
        return found

    def _samples(self) -> list[FormatSample]:
        """Return what the template writes for the answers of the probe chats."""
        tools = PROBE_TOOLS if self.template.takes_tools else ()
        found: list[FormatSample] = []
        knows_thoughts = (
            self.template.entries.shape.reasoning != "inline" or "<think>" in self.template.header
        )
        for messages in PROBES.values():
            first = next(at for at, message in enumerate(messages) if message.role == "assistant")
            is_ours = bool(messages[first].tool_calls) and not self.template.entries.takes_calls
            if is_ours or (messages[first].reasoning and not knows_thoughts):
                continue
            history = self.template.opening_entries(
                [self.template.entries.entry(message) for message in messages[:first]], PROBE_TOOLS
            )
            try:
                prompt = self.template.render(history, tools)
                written = self.writer.write(history, messages[first], tools)
            except (ModelError, DataError):
                continue
            found.append(
                FormatSample(
                    message=written.message,
                    prompt=prompt[-len(self.template.header) :] if self.template.header else "",
                    written=written.body,
                    tools=PROBE_TOOLS,
                )
            )
        return found


class Conversation:
    """One chat: call `prompt` with new messages, sample, call `record` with what came, and again."""

    def __init__(self, chat: Chat, tools: tuple[ToolSpec, ...] = ()) -> None:
        """See `Chat.conversation`."""
        self._chat = chat
        self._tools = tools
        self._history: list[Entry] = []
        self._sampled: tuple[int, ...] | None = None
        self._given: Message | None = None
        """what the recorded answer says, where whoever wrote it knows"""
        self._calls: tuple[ToolCall, ...] = ()
        """calls of the last answer, whose results are due"""
        self._names: tuple[str, ...] = ()
        """what those who send the results call them"""
        self._num_calls = 0
        self.prefix = ""
        """What the last prompt ended with, from the header of the answer on."""
        self._read: tuple[tuple[int, ...], str, Answer | None] = (), "", None
        """what was decoded last, since an answer is read when it comes and again when it becomes history"""

    def prompt(self, messages: Sequence[Message]) -> PromptIds:
        """Append `messages` and return the ids up to where the model answers.

        Results of tools that have no id or name get those of the calls before them, in order.

        Raises:
            InvariantError: the last prompt has not been answered with `record`.
            ModelError: the template refuses the chat.
        """
        template = self._chat.template
        if self._history and self._sampled is None:
            raise InvariantError("a prompt needs the last one answered: got two in a row; call sampled first")
        given = self._answer() if self._history else None
        entries = [template.entries.entry(message) for message in self._name_results(messages)]
        if given is None:
            self._history = template.opening_entries(entries, self._tools)
            return self._restart()
        added = template.continuing_entries(entries)
        sampled = cast("tuple[int, ...]", self._sampled)
        try:
            delta = self._chat.additions.find(self._history, given, added, self._tools)
        except (
            DataError,
            ModelError,
        ):  # what was sampled is nothing that the template would write: it stays text
            given, delta = GivenAnswer(message=self._raw(sampled)), None
            told = [
                {"role": "user" if e["role"] == "tool" else e["role"], "content": e["content"]}
                for e in entries
            ]
            added = template.continuing_entries(told)
        self._history += [template.entries.entry(given.message), *added]
        self._sampled = self._given = None
        if delta is None:
            return self._restart()
        rest = self._without_end(delta, sampled)
        self.prefix = template.header if delta.endswith(template.header) else ""
        return PromptIds(
            token_ids=self._chat.encoder.encode_marked(rest, continues=True), starts_segment=False
        )

    def record(
        self, token_ids: Sequence[int], message: Message | None = None, *, names: Sequence[str] = ()
    ) -> None:
        """Record the completion that the model sampled, as it was sampled, or that somebody wrote to say `message`.

        Results of its calls may be sent with the ids that the calls have here, or with `names`, one for each.

        Raises:
            InvariantError: there is no open prompt.
        """
        if not self._history or self._sampled is not None:
            raise InvariantError("a completion answers a prompt: got one without; call prompt first")
        self._sampled = tuple(token_ids)
        self._given, self._names = message, tuple(names)

    def write(self, message: Message) -> WrittenIds:
        """Return the ids in which the model's template says `message` behind the prompt, its end included.

        Without an open prompt it is written behind one of a user.

        Raises:
            DataError: the template cannot write it.
            ModelError: the template refuses the chat.
        """
        chat, message = self._chat, self._with_ids(message)
        if not self._history or self._sampled is not None:
            return chat.write_message(message)
        key = (as_key(message), self.prefix, self._history[-1]["role"]) if chat.writer.is_free else None
        found = chat.find_written(key) if key is not None else None
        if found is None:
            tools = self._tools if chat.template.takes_tools else ()
            found = chat.ids_of(chat.writer.write(self._history, message, tools))
            if key is not None:
                chat.keep_written(key, found)
        return found

    def read(self, token_ids: Sequence[int]) -> Answer:
        """Return thoughts, words and calls of a completion behind the open prompt."""
        ids = tuple(token_ids)
        if ids != self._read[0] or self._read[2] is None:
            text, header = self.text(ids), self._chat.template.header
            # a template that opens no answer behind the results of tools lets the model write the header
            repeats = not self.prefix and header and text.startswith(header)
            said, prefix = (text[len(header) :], header) if repeats else (text, self.prefix)
            self._read = ids, text, self._chat.read(said, prefix=prefix, tools=self._tools)
        return cast(Answer, self._read[2])

    def words(self, token_ids: Sequence[int]) -> str:
        """Return the words of a completion behind the open prompt, its thoughts left out."""
        return self._chat.words(token_ids, self.prefix)

    def text_with_thoughts(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion, with the mark of a thought that the prompt opened."""
        opened, closed = self._chat.template.thought_marks
        is_open = self.prefix.rfind(opened) > self.prefix.rfind(closed)
        return opened * is_open + self.text(token_ids)

    def branch(self) -> Conversation:
        """Return a conversation that goes on from here by itself; what is added to either is not in the other."""
        other = Conversation(self._chat, self._tools)
        other._history, other._sampled, other._given = [*self._history], self._sampled, self._given
        other._calls, other._names, other._num_calls = self._calls, self._names, self._num_calls
        other.prefix, other._read = self.prefix, self._read
        return other

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without the token that ended it."""
        ids = tuple(token_ids)
        if ids != self._read[0]:
            self._read = ids, self._chat.text(ids), None
        return self._read[1]

    def _answer(self) -> GivenAnswer:
        """Return the recorded answer as a message, and note its calls."""
        ids = cast("tuple[int, ...]", self._sampled)
        text = self.text(ids)
        message = self._with_ids(self._given or self._message(ids))
        self._calls = message.tool_calls
        self._num_calls += len(message.tool_calls)
        begins = self._chat.writer.empty_thought.match(text) is not None
        return GivenAnswer(message=message, begins_with_thought=begins)

    def _message(self, ids: tuple[int, ...]) -> Message:
        """Return what the sampled `ids` say, as the template is to show it from now on.

        Where a thought or a call is not written to its end, the text stands as it was sampled.
        """
        chat, raw = self._chat, self._raw(ids)
        has_calls = bool(self._tools) and chat.template.entries.takes_calls
        is_inline = chat.template.entries.shape.reasoning == "inline"
        if is_inline and not has_calls:
            return raw
        answer = self.read(ids)
        if not answer.is_reasoning_complete or any(call.arguments is None for call in answer.calls):
            return raw
        calls = answer.calls if has_calls else ()
        if (answer.calls or is_inline) and not calls:
            return raw
        return Message(
            role="assistant",
            content=as_content(answer.content),
            reasoning=answer.reasoning.strip(),
            tool_calls=tuple(
                ToolCall(name=call.name, arguments=call.arguments or {}, id=call.id) for call in calls
            ),
        )

    def _raw(self, ids: tuple[int, ...]) -> Message:
        """Return the text of the sampled `ids` as a message."""
        return Message(role="assistant", content=as_content(self.text(ids)))

    def _with_ids(self, message: Message) -> Message:
        """Return `message` with an id for each of its calls."""
        if all(call.id for call in message.tool_calls):
            return message
        made = self._chat.template.entries.make_call_id
        calls = tuple(
            call if call.id else replace(call, id=made(call.name, self._num_calls + number))
            for number, call in enumerate(message.tool_calls)
        )
        return replace(message, tool_calls=calls)

    def _name_results(self, messages: Sequence[Message]) -> list[Message]:
        """Return `messages`; results of tools have the ids and names of their calls."""
        due = list(self._calls)
        ids = {name: call.id for name, call in zip(self._names, due, strict=False)}
        named: list[Message] = []
        for message in messages:
            if message.role == "tool":
                message = replace(message, tool_call_id=ids.get(message.tool_call_id, message.tool_call_id))
                own = next((call for call in due if call.id and call.id == message.tool_call_id), None)
                call = own or (due[0] if due and not message.tool_call_id else None)
                if call is not None:
                    due.remove(call)
                    message = replace(
                        message, tool_call_id=message.tool_call_id or call.id, name=message.name or call.name
                    )
            elif message.role == "assistant":
                message = self._with_ids(message)
                due = list(message.tool_calls)
                self._num_calls += len(due)
            named.append(message)
        self._calls = tuple(due)
        return named

    def _without_end(self, delta: str, sampled: tuple[int, ...]) -> str:
        """Return `delta` without the token that ended the answer, where it begins with that."""
        if not sampled or sampled[-1] not in self._chat.stop_ids:
            return delta
        mark = self._chat.encoder.decode(sampled[-1:])
        bare = delta.lstrip()
        return bare[len(mark) :] if bare.startswith(mark) else delta

    def _restart(self) -> PromptIds:
        template = self._chat.template
        text = template.render_opening(self._history, self._tools)
        self.prefix = template.header if text.endswith(template.header) else ""
        return PromptIds(
            token_ids=self._chat.encoder.encode_marked(text, continues=False), starts_segment=True
        )


def without_thought(text: str, marks: tuple[str, str], prefix: str) -> str:
    """Return `text` less the thoughts in front of it; one that is not ended is all of the text.

    Example: ``"<think>a</think>b"`` → ``"b"``; behind the prefix ``"<think>"`` also ``"a</think>b"`` → ``"b"``.
    """
    opened, closed = marks
    is_open = prefix.rfind(opened) > prefix.rfind(closed)
    while is_open or text.lstrip().startswith(opened):
        _, found, rest = text.partition(closed)
        if not found:
            return ""
        text, is_open = rest, False
    return text


def as_key(message: Message) -> tuple[object, ...]:
    """Return what two answers that are written alike have in common."""
    calls = tuple((call.name, json_text(call.arguments), call.id) for call in message.tool_calls)
    return (as_text(message.content), message.reasoning, calls)

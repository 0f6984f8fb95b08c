"""Chats as token ids that only grow: each turn appends what it adds, and what was sampled stays as it was.

Where a template merely appends, a turn costs work in proportion to its own text. Where it rewrites what came before
(Qwen3 drops earlier `<think>` blocks), the chat is rendered in full and a new segment starts. Sampled ids are never
encoded again within a segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import InvariantError
from quintain.text.pieces import after_answer, after_unthinking
from quintain.text.template import Entry, Template, answer
from quintain.text.tokenizer import encoder_of
from quintain.types import NOTHING, Message, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


END_OF_CALLS = "<|eom_id|>"
"""Ends an answer of Llama 3 that is a call it expects the result of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """Ids to sample after: they continue the stream, or are a whole new one when `starts_segment`."""

    token_ids: tuple[int, ...]
    starts_segment: bool


class Chat:
    """The chat format of a tokenizer; shared by all conversations of a run."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template_options: Mapping[str, Any] = NOTHING
    ) -> None:
        """Probe the chat template of `tokenizer`; `template_options` are passed to every rendering.

        A tokenizer without a template gets the compact one if it has the house's markers, else plain lines.

        Raises:
            ModelError: the tokenizer is not a fast one, its template cannot be rendered, or nothing ends an
            answer.
        """
        self.tokenizer = tokenizer
        self.encoder = encoder_of(tokenizer)
        self.template = Template(tokenizer, self.encoder, template_options)
        self.end_id = self.template.end_id
        """The token that ends an answer."""
        eos = cast("int | None", tokenizer.eos_token_id)
        calls_end = self.encoder.markup_id(END_OF_CALLS)
        self.stop_ids = frozenset(found for found in (self.end_id, eos, calls_end) if found is not None)
        """Tokens that end an answer when sampled: the template's, the tokenizer's, Llama's after tool calls."""

    @property
    def is_append_only(self) -> bool:
        """Whether no probe chat, with or without system text, saw the template rewrite earlier turns."""
        probes = [
            self.template.is_appending((role,), has_system=has_system, has_tools=role == "tool")
            for role in ("user", "tool" if self.template.takes_tool_role else "user")
            for has_system in (False, True)
        ]
        return all(probes)

    def conversation(self, tools: tuple[ToolSpec, ...] = ()) -> Conversation:
        """Return an empty conversation in which the model may call `tools`."""
        return Conversation(self, tools)

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text` as the model would write it, without the end token.

        The markup of tool calls (`<tool_call>`, `[TOOL_CALLS]`) gives its id; other special tokens stay plain
        text.
        """
        return self.encoder.encode_marked(self.encoder.defuse_answer(text), continues=True)

    def write(self, text: str) -> tuple[int, ...]:
        """Return the ids that say `text` and end the answer."""
        return (*self.answer_ids(text), self.end_id)

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without its end token; other special tokens show as text."""
        has_end = bool(token_ids) and token_ids[-1] in self.stop_ids
        return self.encoder.decode(token_ids[:-1] if has_end else token_ids)


class Conversation:
    """One chat: call `prompt` with new messages, sample, call `record` with what came, and again."""

    def __init__(self, chat: Chat, tools: tuple[ToolSpec, ...] = ()) -> None:
        """See `Chat.conversation`."""
        self._chat = chat
        self._tools = tools
        self._history: list[Entry] = []
        self._sampled: tuple[int, ...] | None = None
        self._read: tuple[tuple[int, ...], str] = (), ""
        """what was decoded last, since an answer is read when it comes and again when it becomes history"""

    def prompt(self, messages: Sequence[Message]) -> PromptIds:
        """Append `messages` and return the ids up to where the model answers.

        Raises:
            InvariantError: the last prompt has not been answered with `record`.
            ModelError: the template refuses the chat.
        """
        template = self._chat.template
        entries = [template.as_entry(message) for message in messages]
        if not self._history:
            self._history = template.opening_entries(entries, self._tools)
            return self._restart()
        if self._sampled is None:
            raise InvariantError("a prompt needs the last one answered: got two in a row; call sampled first")
        said = answer(self._chat.encoder.defuse_answer(self.text(self._sampled)))
        added = template.continuing_entries(entries)
        has_system = self._history[0]["role"] == "system"
        delta = template.find_addition(added, has_system=has_system, has_tools=bool(self._tools))
        if delta is None:
            delta = self._rendered_delta(said, added)
        ends = self._sampled[-1:] == (self._chat.end_id,)
        self._history += [said, *added]
        self._sampled = None
        if delta is None:
            return self._restart()
        rest = delta.removeprefix(template.end_text) if ends else delta
        return PromptIds(
            token_ids=self._chat.encoder.encode_marked(rest, continues=True), starts_segment=False
        )

    def record(self, token_ids: Sequence[int]) -> None:
        """Record the completion that the model sampled, as it was sampled.

        Raises:
            InvariantError: there is no open prompt.
        """
        if not self._history or self._sampled is not None:
            raise InvariantError("a completion answers a prompt: got one without; call prompt first")
        self._sampled = tuple(token_ids)

    def branch(self) -> Conversation:
        """Return a conversation that goes on from here by itself; what is added to either is not in the other."""
        other = Conversation(self._chat, self._tools)
        other._history, other._sampled, other._read = [*self._history], self._sampled, self._read
        return other

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without the token that ended it."""
        ids = tuple(token_ids)
        if ids != self._read[0]:
            self._read = ids, self._chat.text(ids)
        return self._read[1]

    def _restart(self) -> PromptIds:
        text = self._chat.template.render_opening(self._history, self._tools)
        return PromptIds(
            token_ids=self._chat.encoder.encode_marked(text, continues=False), starts_segment=True
        )

    def _rendered_delta(self, said: Entry, added: Sequence[Entry]) -> str | None:
        """Return the text after the answer in the full rendering; None if what precedes it was rewritten."""
        template = self._chat.template
        tools = self._tools if template.takes_tools else ()
        before = template.render(self._history, tools)
        after = template.render([*self._history, said, *added], tools)
        delta = after_answer(before, said["content"], after)
        return after_unthinking(before, said["content"], after) if delta is None else delta

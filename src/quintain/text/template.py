"""Render a chat template as marked text, learn what it accepts, and fold what it refuses into what it takes.

Templates run only in transformers' sandbox (`apply_chat_template`). What they take (a system role, tools, several
user messages in a row) is found by rendering small probe chats, never by reading their source; what a template
refuses is folded into what it takes. A template that came with a model is first tried in a process of its own
(`text.probe`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import ModelError
from quintain.text import probe
from quintain.text.encoder import TextEncoder
from quintain.text.entries import (
    ANSWER,
    PROBE_TOOL,
    RESULT,
    THOUGHT,
    USER,
    Entry,
    EntryMaker,
    MessageShape,
    answer,
    as_schema,
    find_shape,
    probe_call,
    probe_result,
    with_reasoning,
)
from quintain.text.parse import CALL_FORM, tools_text
from quintain.text.pieces import PAD, Pieces, common_prefix, pieces_of
from quintain.text.settings import LONGEST_TEMPLATE
from quintain.text.tokenizer import COMPACT_TEMPLATE, SPECIAL_TOKENS
from quintain.types import ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TemplateBoundError(Exception):
    """A template wrote too much."""


RENDER_ERRORS = (*probe.ERRORS, MemoryError, TemplateBoundError)
"""What a template can raise."""
LONGEST_TEXT = 1 << 26
"""Characters of a rendered chat."""
NEW = "quintainnew"
SYSTEM: Entry = {"role": "system", "content": "quintainsystem"}
OTHER_USER: Entry = {"role": "user", "content": "quintainother"}
DATE_FORMAT = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1""")
DATE_MACRO = "{%- macro strftime_now(format) -%}{{ quintain_dates[format] }}{%- endmacro %}{{ '' }}"
"""Takes the place of the function that gives templates the date of the clock."""
MAX_OPENINGS = 256
"""Kinds of opening whose pieces are kept."""
PLAIN_TEMPLATE = (
    "{%- for message in messages -%}{{ message.role | capitalize + ':\n' + message.content }}"
    "{%- if message.role == 'assistant' -%}{{ eos_token }}{%- endif -%}{{ '\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:\n' }}{%- endif -%}"
)
"""For a tokenizer without template and markers: ``User:``, content on the next line, eos after answers."""


class Template:
    """The chat template of a tokenizer, probed; see the head of the module."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        encoder: TextEncoder,
        options: Mapping[str, Any],
        today: date | None = None,
    ) -> None:
        """Probe the template; `options` are passed to it (``enable_thinking=False``), `today` is its date.

        Raises:
            ModelError: there is no usable template.
        """
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._options = dict(options)
        self._source = template_of(tokenizer)
        own = cast("str | dict[str, str] | None", tokenizer.chat_template)
        self._openings: dict[tuple[tuple[str, ...], str], Pieces | None] = {}
        self._has_parts, self._no_tools = False, cast("list[dict[str, Any]] | None", None)
        self._always_opens, self.header = False, ""
        self._check()
        if today is not None and isinstance(own, str):
            self._source, self._options["quintain_dates"] = with_date(own, today)
        if self.attempt([USER]) is None:  # templates that are for tools only want a list of them, be it empty
            self._no_tools = []
        shown = self.render([USER])
        if USER["content"] not in shown and not self._has_parts:
            self._has_parts = True
            self._has_parts = USER["content"] in (self.attempt([USER]) or "")
        self._find_header(shown)
        self.takes_system = self._shows([SYSTEM, USER], "quintainsystem")
        self.takes_repeats = self._shows([USER, OTHER_USER], "quintainother")
        context = [USER, answer(ANSWER)]
        self.takes_late_system = self._shows([*context, SYSTEM, OTHER_USER], "quintainsystem")
        self.entries = EntryMaker(encoder, find_shape(self.attempt))
        shape = self.entries.shape
        self.shows_tools = self._shows([USER], PROBE_TOOL.description, (PROBE_TOOL,))
        """Whether the template shows which tools there are."""
        self.takes_tools = self.shows_tools and shape.writes_calls
        """Whether tools are given to the template; else the system text shows them."""
        self.entries.takes_calls = shape.writes_calls
        self.call_form = CALL_FORM
        """How a call is written, for a system text that shows tools."""
        called = (
            [USER, probe_call(shape), probe_result()] if shape.writes_calls else [*context, probe_result()]
        )
        tools = (PROBE_TOOL,) if self.shows_tools and shape.writes_calls else ()
        self.takes_tool_role = self._shows(called, RESULT, tools)
        self.thought_marks, self.thought_close = self._find_thought()

    def decline_tools(self) -> None:
        """Show tools in the system text from now on, and give calls as text: nobody could read the template's own."""
        self.takes_tools = self.entries.takes_calls = False
        self.takes_tool_role = self._shows([USER, answer(ANSWER), probe_result()], RESULT)

    def render(self, entries: Sequence[Entry], tools: Sequence[ToolSpec] = (), *, opens: bool = True) -> str:
        """Return the marked text of the chat; with `opens` it ends with the header of the next answer.

        Raises:
            ModelError: the template refuses the chat or fails.
        """
        schemas = [as_schema(tool, self._encoder.defuse) for tool in tools]
        try:
            rendered = self._tokenizer.apply_chat_template(
                [as_parts(entry) for entry in entries] if self._has_parts else list(entries),
                tools=cast(Any, schemas or self._no_tools),
                chat_template=self._source,
                add_generation_prompt=opens,
                tokenize=False,
                **self._options,
            )
            text = cast(str, rendered)
            if len(text) > LONGEST_TEXT:
                raise TemplateBoundError(f"{len(text)} characters")
            if not opens and self._always_opens:
                text = text.removesuffix(self.header)
        except RENDER_ERRORS as error:
            release_frames(error)
            roles = ", ".join(entry["role"] for entry in entries)
            raise ModelError(
                f"rendering a chat of {roles} with the model's template: "
                f"got {type(error).__name__}: {error}; set a tokenizer.chat_template that renders these roles"
            ) from error
        return text

    def attempt(
        self, entries: Sequence[Entry], tools: Sequence[ToolSpec] = (), *, opens: bool = True
    ) -> str | None:
        """Return `render`, None where the template refuses."""
        try:
            return self.render(entries, tools, opens=opens)
        except ModelError:
            return None

    def _check(self) -> None:
        """Raise `ModelError` where small chats take the model's own template too much time or memory."""
        own = cast("str | dict[str, str]", self._tokenizer.chat_template) if self._source is None else {}
        sources = [
            source
            for source in (own.values() if isinstance(own, dict) else [own])
            if source != COMPACT_TEMPLATE  # ours, as new tokenizers have it: it need not be tried
        ]
        if not sources:
            return
        said, called = with_reasoning(answer(ANSWER), THOUGHT, "inline"), probe_call(MessageShape())
        long = [{**entry, "content": entry["content"] * 99} for entry in [USER, said] * 50]
        given = {**self._tokenizer.special_tokens_map, **self._options}
        chats = [
            {**given, "messages": messages, "tools": tools, "add_generation_prompt": opens}
            for messages in (
                [USER],
                [SYSTEM, USER, said, OTHER_USER],
                [USER, called, probe_result()],
                [USER, said, SYSTEM],
                long,
            )
            for tools, opens in (
                (None, False),
                (None, True),
                ([as_schema(PROBE_TOOL, self._encoder.defuse)], True),
            )
        ]
        for source in sources:
            problem = probe.hazard(source, json.dumps(chats, default=str))
            if problem and not probe.hazard(source, json.dumps(list(map(with_parts, chats)), default=str)):
                self._has_parts, problem = True, ""
            if problem:
                raise ModelError(
                    f"trying the model's chat template in a process of its own: got {problem}; "
                    "set a tokenizer.chat_template that renders small chats within "
                    f"{probe.SECONDS:g} s and {probe.MEMORY_BYTES >> 20} MiB"
                )

    def render_opening(self, entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> str:
        """Return `render` of a chat that begins with `entries`, from its pieces where it has fixed ones.

        Groups and worlds open thousands of chats that differ in their contents only.
        """
        tools = tools if self.takes_tools else ()
        contents = [entry["content"] for entry in entries]
        is_plain = all(
            entry.keys() == {"role", "content"}
            and isinstance(entry["content"], str)
            and "</think>" not in entry["content"]
            for entry in entries
        )
        if not is_plain or not all(map(str.strip, contents)):
            return self.render(entries, tools)
        shown = json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools], default=dict)
        key = (tuple(entry["role"] for entry in entries), shown)
        if key not in self._openings:
            if len(self._openings) >= MAX_OPENINGS:
                self._openings.clear()
            self._openings[key] = opening_pieces(entries, lambda chat: self.attempt(chat, tools))
        pieces = self._openings[key]
        return self.render(entries, tools) if pieces is None else pieces.fill(contents)

    def opening_entries(self, entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> list[Entry]:
        """Return the entries of a chat's start; a system text or tools the template refuses are folded in."""
        started = list(entries)
        if tools and not self.takes_tools:
            text = self._encoder.defuse(tools_text(tools, self.call_form))
            if started and started[0]["role"] == "system":
                started[0] = {"role": "system", "content": f"{started[0]['content']}\n\n{text}"}
            else:
                started.insert(0, {"role": "system", "content": text})
        if self.takes_system and started and started[0]["role"] == "system":
            return [started[0], *self.continuing_entries(started[1:])]
        return self.continuing_entries(started)

    def continuing_entries(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return `entries` with refused roles turned into user messages, joined where they must alternate."""
        adapted: list[Entry] = []
        joins = False
        for entry in entries:
            role = entry["role"]
            is_late_system = role == "system" and not self.takes_late_system
            if is_late_system or (role == "tool" and not self.takes_tool_role):
                entry = {"role": "user", "content": entry["content"]}
            previous = adapted[-1] if adapted else None
            follows = previous is not None and previous["role"] == entry["role"] == "user"
            if previous is not None and follows and (joins or not self.takes_repeats):
                adapted[-1] = {"role": "user", "content": f"{previous['content']}\n\n{entry['content']}"}
            else:
                adapted.append(entry)
            joins = is_late_system
        return adapted

    def _find_header(self, opened: str) -> None:
        """Find what a generation prompt adds to a chat, also where the template adds it whether asked to or not."""
        closed = self.render([USER], opens=False)
        answered = [USER, answer(ANSWER)]
        said = self.attempt(answered) or ""
        if opened == closed and said and said == self.attempt(answered, opens=False):
            shared = common_prefix(opened[::-1], said[::-1])[::-1]
            shared = shared[next(iter(self._encoder.marks_at(shared)), 0) :]
            marks = self._encoder.marks_in(shared)
            eos = cast("str | None", self._tokenizer.eos_token)
            if len(marks) > 1 and eos and shared.startswith(eos):
                self._always_opens, self.header = True, shared.partition(eos)[2]
        elif opened.startswith(closed):
            self.header = opened[len(closed) :]

    def _find_thought(self) -> tuple[tuple[str, str], str]:
        """Return what opens and closes a thought, and all that stands between thought and answer.

        Where the template shows no thought, these are Qwen's and DeepSeek's.
        """
        entry = with_reasoning(answer(ANSWER), THOUGHT, self.entries.shape.reasoning)
        shown = self.attempt([USER, entry], opens=False) or ""
        before, found, after = shown.rpartition(THOUGHT)
        between = after.partition(ANSWER)[0]
        if not found or self.entries.shape.reasoning == "inline":
            return ("<think>", "</think>"), "\n</think>\n\n"
        opens, closes = self._encoder.marks_in(before), self._encoder.marks_in(between)
        marks = (opens[-1], closes[0]) if opens and closes else ("<think>", "</think>")
        return marks, between

    def _shows(self, entries: Sequence[Entry], text: str, tools: Sequence[ToolSpec] = ()) -> bool:
        shown = self.attempt(entries, tools)
        return shown is not None and text in shown


def with_date(source: str, today: date) -> tuple[str, dict[str, str]]:
    """Return the template `source` with `today` as the date that it asks for, and what its formats give."""
    formats = {found[2] for found in DATE_FORMAT.finditer(source)}
    return DATE_MACRO + source, {each: today.strftime(each) for each in formats}


def as_parts(entry: Entry) -> Entry:
    """Return `entry` with its text as a list of one typed part."""
    text = entry["content"]
    return {**entry, "content": [{"type": "text", "text": text}]} if isinstance(text, str) else entry


def with_parts(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a template is given for `chat`, its contents as typed parts."""
    return {**chat, "messages": [as_parts(entry) for entry in chat["messages"]]}


def opening_pieces(
    entries: Sequence[Entry], attempt: Callable[[Sequence[Entry]], str | None]
) -> Pieces | None:
    """Return the pieces of chats like `entries`, as `attempt` renders them; None unless they give these."""
    names = [f"{NEW}{index}" for index in range(len(entries))]
    bare, padded, own = (
        attempt([{**entry, "content": text} for entry, text in zip(entries, texts, strict=True)])
        for texts in (names, [PAD + name + PAD for name in names], [entry["content"] for entry in entries])
    )
    pieces = None if bare is None or padded is None else pieces_of(bare, padded, names)
    return (
        pieces if pieces is not None and pieces.fill([entry["content"] for entry in entries]) == own else None
    )


def template_of(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the template to pass on; None means the tokenizer's own.

    Without one, a tokenizer that has the house's markers gets the compact template and any other with an end
    token gets plain ``User:`` and ``Assistant:`` lines.

    Raises:
        ModelError: the template is longer than a mebibyte, or there is none and no end token either.
    """
    own = cast("str | dict[str, str] | None", tokenizer.chat_template)
    if own is not None:
        if len(json.dumps(own)) > LONGEST_TEMPLATE:
            raise ModelError(
                f"the chat template of the model: got more than {LONGEST_TEMPLATE} characters; "
                "set a shorter one"
            )
        return None
    if set(SPECIAL_TOKENS) <= set(cast("dict[str, int]", tokenizer.added_tokens_encoder)):
        return COMPACT_TEMPLATE
    if cast("str | None", tokenizer.eos_token) is None:
        raise ModelError(
            "a chat with this model: got a tokenizer with neither chat template nor end token; "
            "set tokenizer.chat_template and tokenizer.eos_token"
        )
    return PLAIN_TEMPLATE


def release_frames(error: BaseException) -> None:
    """Let go of the frames that `error` holds.

    Those that jinja makes for a template's lines hold one another, and with them whoever called, models and all.
    """
    place = error.__traceback__
    error.__traceback__ = None
    while place is not None:
        frame = place.tb_frame
        while frame is not None:
            try:
                frame.clear()
            except RuntimeError:  # it still runs
                break
            frame = frame.f_back
        place = place.tb_next

"""Render a chat template as marked text, learn what it accepts, and find the text that a new turn adds.

Templates run only in transformers' sandbox (`apply_chat_template`). What they take (a system role, tools, several
user messages in a row) is found by rendering small probe chats, never by reading their source; what a template
refuses is folded into what it takes. A template that came with a model is first tried in a process of its own
(`text.probe`). `Pieces` are used only where every probe chat showed that the template merely appends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import ModelError
from quintain.text import probe
from quintain.text.encoder import Defuser, TextEncoder
from quintain.text.parse import tools_text, write_tool_calls
from quintain.text.pieces import PAD, Pieces, after_answer, pieces_of
from quintain.text.tokenizer import COMPACT_TEMPLATE, SPECIAL_TOKENS
from quintain.text.tool_formats import CallFormat, format_of
from quintain.types import Message, ToolCall, ToolSpec, as_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Entry = dict[str, Any]
"""A message as a template sees it; its texts are already defused."""


class TemplateBoundError(Exception):
    """A template wrote too much."""


RENDER_ERRORS = (*probe.ERRORS, MemoryError, TemplateBoundError)
"""What a template can raise."""
LONGEST_TEMPLATE = 1 << 20
LONGEST_TEXT = 1 << 26
"""Characters of a rendered chat."""
NEW = "quintainnew"
ANSWERS = ("quintainanswer", "<think>\nquintainthought\n</think>\n\nquintainanswer")
SYSTEM: Entry = {"role": "system", "content": "quintainsystem"}
USER: Entry = {"role": "user", "content": "quintainuser"}
OTHER_USER: Entry = {"role": "user", "content": "quintainother"}
TOOL: Entry = {"role": "tool", "content": "quintaintool"}
PROBE_TOOL = ToolSpec(name="quintainlook", description="quintaindescription", parameters={"type": "object"})
CALL_ID = "quintain1"
"""Mistral's templates ask for ids of nine letters and digits."""
MOST_OPENINGS = 256
"""Kinds of opening whose pieces are kept."""
PLAIN_TEMPLATE = (
    "{%- for message in messages -%}{{ message.role | capitalize + ':\n' + message.content }}"
    "{%- if message.role == 'assistant' -%}{{ eos_token }}{%- endif -%}{{ '\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:\n' }}{%- endif -%}"
)
"""For a tokenizer without template and markers: ``User:``, content on the next line, eos after answers."""


def answer(text: str) -> Entry:
    """Return the entry of an assistant message."""
    return {"role": "assistant", "content": text}


@dataclass(frozen=True, slots=True)
class ProbedTurn:
    """What probe chats showed of new messages: whether the template only appends, its pieces if fixed."""

    appends: bool
    pieces: Pieces | None = None


class Template:
    """The chat template of a tokenizer, probed; see the head of the module."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, encoder: TextEncoder, options: Mapping[str, Any]
    ) -> None:
        """Probe the template; `options` are passed to it (``enable_thinking=False``).

        Raises:
            ModelError: there is no usable template, or no token ends an answer.
        """
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._options = dict(options)
        self._source = template_of(tokenizer)
        self._turns: dict[tuple[tuple[str, ...], bool, bool], ProbedTurn] = {}
        self._openings: dict[tuple[tuple[str, ...], str], Pieces | None] = {}
        self._check()
        self.render([USER])
        self.takes_system = self._shows([SYSTEM, USER], "quintainsystem")
        self.takes_repeats = self._shows([USER, OTHER_USER], "quintainother")
        context = [USER, answer(ANSWERS[0])]
        self.takes_late_system = self._shows([*context, SYSTEM, OTHER_USER], "quintainsystem")
        self.takes_tool_role = self._shows([*context, TOOL], "quintaintool")
        self.end_text, self.end_id = self._ending()
        found = self._call_format()
        self.call_format: CallFormat | None = found[0] if found else None
        """How the template writes tool calls; None if it takes no tools, or writes them in no known form."""
        self.call_padding = found[1] if found else ""
        """What the template writes around the JSON of a call (a newline for Qwen)."""

    @property
    def takes_tools(self) -> bool:
        """Whether tools are shown and calls written as they are read; else the system text shows them."""
        return self.call_format is not None

    def render(self, entries: Sequence[Entry], tools: Sequence[ToolSpec] = (), *, opens: bool = True) -> str:
        """Return the marked text of the chat; with `opens` it ends with the header of the next answer.

        Raises:
            ModelError: the template refuses the chat or fails.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                list(entries),
                tools=[self._schema(tool) for tool in tools] or None,
                chat_template=self._source,
                add_generation_prompt=opens,
                tokenize=False,
                **self._options,
            )
            if len(text) > LONGEST_TEXT:
                raise TemplateBoundError(f"{len(text)} characters")
        except RENDER_ERRORS as error:
            roles = ", ".join(entry["role"] for entry in entries)
            raise ModelError(
                f"rendering a chat of {roles} with the model's template: "
                f"got {type(error).__name__}: {error}; set a tokenizer.chat_template that renders these roles"
            ) from error
        return cast(str, text)

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
        calls = [
            {"id": CALL_ID, "type": "function", "function": {"name": PROBE_TOOL.name, "arguments": {"at": 1}}}
        ]
        said, called = answer(ANSWERS[1]), {**answer(""), "tool_calls": calls}
        long = [{**entry, "content": entry["content"] * 99} for entry in [USER, said] * 50]
        given = {**self._tokenizer.special_tokens_map, **self._options}
        chats = [
            {**given, "messages": messages, "tools": tools, "add_generation_prompt": opens}
            for messages in (
                [USER],
                [SYSTEM, USER, said, OTHER_USER],
                [USER, called, TOOL],
                [USER, said, SYSTEM],
                long,
            )
            for tools, opens in ((None, False), (None, True), ([self._schema(PROBE_TOOL)], True))
        ]
        given_chats = json.dumps(chats, default=str)
        for source in sources:
            if problem := probe.hazard(source, given_chats):
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
        if any(entry.keys() != {"role", "content"} for entry in entries) or not all(map(str.strip, contents)):
            return self.render(entries, tools)
        shown = json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools], default=dict)
        key = (tuple(entry["role"] for entry in entries), shown)
        if key not in self._openings:
            if len(self._openings) >= MOST_OPENINGS:
                self._openings.clear()
            self._openings[key] = opening_pieces(entries, lambda chat: self._attempt(chat, tools))
        pieces = self._openings[key]
        return self.render(entries, tools) if pieces is None else pieces.fill(contents)

    def as_entry(self, message: Message) -> Entry:
        """Return `message` for the template, its texts defused."""
        text = as_text(message.content)
        if message.role != "assistant":
            return {"role": message.role, "content": self._encoder.defuse(text)}
        written = answer(self._encoder.defuse_answer(text))
        if not message.tool_calls:
            return written
        if not self.takes_tools:
            said = write_tool_calls(message.tool_calls)
            return answer(written["content"] + self._encoder.defuse_answer(said))
        defuse = self._encoder.defuse
        functions = (
            {"name": defuse(call.name), "arguments": defuse_all(call.arguments, defuse)}
            for call in message.tool_calls
        )
        calls = [{"id": CALL_ID, "type": "function", "function": each} for each in functions]
        return {**written, "tool_calls": calls}

    def opening_entries(self, entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> list[Entry]:
        """Return the entries of a chat's start; a system text or tools the template refuses are folded in."""
        started = list(entries)
        if tools and not self.takes_tools:
            text = self._encoder.defuse(tools_text(tools))
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

    def is_appending(self, roles: tuple[str, ...], *, has_system: bool, has_tools: bool) -> bool:
        """Whether new messages of `roles` left all probe chats before them as they were."""
        return self._turn(roles, has_system, has_tools).appends

    def find_addition(self, entries: Sequence[Entry], *, has_system: bool, has_tools: bool) -> str | None:
        """Return the text that new `entries` add after any answer; None where history may be rewritten.

        The work is that of the new entries alone: their pieces are filled, or they are rendered after a probe
        chat.
        """
        roles = tuple([entry["role"] for entry in entries])
        if "assistant" in roles:
            return None
        turn = self._turn(roles, has_system, has_tools)
        contents = [entry["content"] for entry in entries]
        if not turn.appends:
            return None
        if turn.pieces is not None and all(map(str.strip, contents)):
            return turn.pieces.fill(contents)
        context = [SYSTEM, USER] if has_system else [USER]
        return self._delta(context, ANSWERS[0], entries, (PROBE_TOOL,) if has_tools else ())

    def _turn(self, roles: tuple[str, ...], has_system: bool, has_tools: bool) -> ProbedTurn:
        key = (roles, has_system and self.takes_system, has_tools and self.takes_tools)
        if key not in self._turns:
            self._turns[key] = self._probe(*key)
        return self._turns[key]

    def _probe(self, roles: tuple[str, ...], has_system: bool, has_tools: bool) -> ProbedTurn:
        """Add messages of `roles` to several chats, after several answers, and compare what that adds."""
        tools = (PROBE_TOOL,) if has_tools else ()
        start = [SYSTEM, USER] if has_system else [USER]
        contexts = [start, *([*start, answer(said), OTHER_USER] for said in ANSWERS)]
        if has_tools and self.takes_tool_role:
            contexts.append([*start, answer(ANSWERS[1]), TOOL])
        names = [f"{NEW}{index}" for index in range(len(roles))]
        found: dict[str, str] = {}
        for pad in ("", PAD):
            new = [
                {"role": role, "content": pad + name + pad} for role, name in zip(roles, names, strict=True)
            ]
            try:
                deltas = {self._delta(chat, said, new, tools) for chat in contexts for said in ANSWERS}
            except ModelError:
                return ProbedTurn(appends=False)
            delta = deltas.pop()
            if deltas or delta is None:
                return ProbedTurn(appends=False)
            found[pad] = delta
        return ProbedTurn(appends=True, pieces=pieces_of(found[""], found[PAD], names))

    def _delta(
        self, context: Sequence[Entry], said: str, new: Sequence[Entry], tools: Sequence[ToolSpec]
    ) -> str | None:
        """Return what `new` adds after `context` and the answer `said`; None if anything before changes."""
        return after_answer(
            self.render(context, tools), said, self.render([*context, answer(said), *new], tools)
        )

    def _ending(self) -> tuple[str, int]:
        """Return the text that closes an answer, up to its end token, and the id of that token.

        Where nothing closes an answer but a message begins with a marker (GLM), that marker ends it.
        """
        chat = [USER, answer(ANSWERS[0])]
        closing = self.render(chat, opens=False).partition(ANSWERS[0])[2]
        following = self.render([*chat, OTHER_USER]).partition(ANSWERS[0])[2]
        found = self._encoder.first_markup(closing)
        if found is not None and following.startswith(closing[: found[0]]):
            return closing[: found[0]], found[1]
        begins = self._encoder.first_markup(following.partition(OTHER_USER["content"])[0])
        if not closing and begins is not None:
            return following[: begins[0]], begins[1]
        end = cast("int | None", self._tokenizer.eos_token_id)
        if end is None:
            raise ModelError(
                "finding the token that ends an answer: got a chat template that writes none and "
                "a tokenizer without an end token; set tokenizer.eos_token"
            )
        return "", end

    def _call_format(self) -> tuple[CallFormat, str] | None:
        """Return how a call is written, and what stands around its JSON; None where calls have another form."""
        call = ToolCall(name=PROBE_TOOL.name, arguments={"at": 1})
        function = {"name": call.name, "arguments": dict(call.arguments)}
        calls = [{"id": CALL_ID, "type": "function", "function": function}]
        said = {**answer(""), "tool_calls": calls}
        shown = self._attempt([USER, said, OTHER_USER]) or self._attempt([USER, said])
        if shown is None or not self._shows([USER], PROBE_TOOL.description, (PROBE_TOOL,)):
            return None
        written = shown.partition(USER["content"])[2].partition(OTHER_USER["content"])[0]
        return format_of(written, self.end_text, call)

    def _shows(self, entries: Sequence[Entry], text: str, tools: Sequence[ToolSpec] = ()) -> bool:
        shown = self._attempt(entries, tools)
        return shown is not None and text in shown

    def _attempt(self, entries: Sequence[Entry], tools: Sequence[ToolSpec] = ()) -> str | None:
        try:
            return self.render(entries, tools)
        except ModelError:
            return None

    def _schema(self, tool: ToolSpec) -> dict[str, Any]:
        defuse = self._encoder.defuse
        function = {
            "name": defuse(tool.name),
            "description": defuse(tool.description),
            "parameters": defuse_all(tool.parameters, defuse),
        }
        return {"type": "function", "function": function}


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


def defuse_all(value: Any, defuse: Defuser) -> Any:
    """Return the JSON `value` with every string in it, keys included, defused."""
    if isinstance(value, str):
        return defuse(value)
    if isinstance(value, Mapping):
        return {
            defuse(str(key)): defuse_all(item, defuse)
            for key, item in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [defuse_all(item, defuse) for item in cast("Sequence[Any]", value)]
    return value

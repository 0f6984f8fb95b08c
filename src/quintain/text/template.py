"""Render a chat template as marked text, learn what it accepts, and find the text that a new turn adds.

Templates run only in transformers' sandbox (`apply_chat_template`). What they take (a system role, tools,
several user messages in a row) is found by rendering small probe chats, never by reading their source; what a
template refuses is folded into what it takes. The one rule: `Pieces` are used only where every probe chat
showed that the template merely appends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import jinja2

from quintain.errors import ModelError
from quintain.text.encoder import Defuser, TextEncoder
from quintain.text.parse import tools_text, write_tool_calls
from quintain.text.tokenizer import COMPACT_TEMPLATE, SPECIAL_TOKENS
from quintain.types import Message, ToolSpec, as_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Entry = dict[str, Any]
"""A message as a template sees it; its texts are already defused."""

RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template can raise; jinja2's own errors include those of its sandbox."""
LONGEST_TEMPLATE = 1 << 20
NEW = "quintainnew"
PAD = " \n "
ANSWERS = ("quintainanswer", "<think>\nquintainthought\n</think>\n\nquintainanswer")
SYSTEM: Entry = {"role": "system", "content": "quintainsystem"}
USER: Entry = {"role": "user", "content": "quintainuser"}
OTHER_USER: Entry = {"role": "user", "content": "quintainother"}
TOOL: Entry = {"role": "tool", "content": "quintaintool"}
PROBE_TOOL = ToolSpec(name="quintainlook", description="quintaindescription", parameters={"type": "object"})
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
class Pieces:
    """What a turn adds: template text around the new contents, and which of their edges are trimmed."""

    texts: tuple[str, ...]
    trims: tuple[tuple[bool, bool], ...]

    def fill(self, contents: Sequence[str]) -> str:
        """Return the text that new messages of `contents` add."""
        parts = [self.texts[0]]
        for content, (left, right), text in zip(contents, self.trims, self.texts[1:], strict=True):
            trimmed = content.lstrip() if left else content
            parts += (trimmed.rstrip() if right else trimmed, text)
        return "".join(parts)


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
        self._pieces: dict[tuple[tuple[str, ...], bool, bool], Pieces | None] = {}
        self.render([USER])
        self.takes_system = self._shows([SYSTEM, USER], "quintainsystem")
        self.takes_repeats = self._shows([USER, OTHER_USER], "quintainother")
        context = [USER, answer(ANSWERS[0])]
        self.takes_late_system = self._shows([*context, SYSTEM, OTHER_USER], "quintainsystem")
        self.takes_tool_role = self._shows([*context, TOOL], "quintaintool")
        self.takes_tools = self._shows([USER], "quintainlook", (PROBE_TOOL,))
        self.end_text, self.end_id = self._ending()
        self.call_padding = self._call_padding()

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
        except RENDER_ERRORS as error:
            roles = ", ".join(entry["role"] for entry in entries)
            raise ModelError(
                f"rendering a chat of {roles} with the model's template: "
                f"got {type(error).__name__}: {error}; set a tokenizer.chat_template that renders these roles"
            ) from error
        return cast(str, text)

    def entry(self, message: Message) -> Entry:
        """Return `message` for the template, its texts defused."""
        text = as_text(message.content)
        if message.role != "assistant":
            return {"role": message.role, "content": self._encoder.defuse(text)}
        written = answer(self._encoder.defuse_answer(text))
        if not message.tool_calls:
            return written
        if not self.takes_tools:
            calls = write_tool_calls(message.tool_calls)
            return answer(written["content"] + self._encoder.defuse_answer(calls))
        defuse = self._encoder.defuse
        functions = (
            {"name": defuse(call.name), "arguments": defused(call.arguments, defuse)}
            for call in message.tool_calls
        )
        return {**written, "tool_calls": [{"type": "function", "function": each} for each in functions]}

    def opening(self, entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> list[Entry]:
        """Return the entries of a chat's start; a system text or tools the template refuses are folded in."""
        started = list(entries)
        if tools and not self.takes_tools:
            text = self._encoder.defuse(tools_text(tools))
            if started and started[0]["role"] == "system":
                started[0] = {"role": "system", "content": f"{started[0]['content']}\n\n{text}"}
            else:
                started.insert(0, {"role": "system", "content": text})
        if self.takes_system and started and started[0]["role"] == "system":
            return [started[0], *self.continuing(started[1:])]
        return self.continuing(started)

    def continuing(self, entries: Sequence[Entry]) -> list[Entry]:
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

    def pieces(self, roles: tuple[str, ...], *, has_system: bool, has_tools: bool) -> Pieces | None:
        """Return what new messages of `roles` add after an answer; None where history may be rewritten."""
        key = (roles, has_system, has_tools)
        if key not in self._pieces:
            self._pieces[key] = self._probed(*key)
        return self._pieces[key]

    def _probed(self, roles: tuple[str, ...], has_system: bool, has_tools: bool) -> Pieces | None:
        tools = (PROBE_TOOL,) if has_tools and self.takes_tools else ()
        start = [SYSTEM, USER] if has_system and self.takes_system else [USER]
        contexts = [start, [*start, answer(ANSWERS[0]), OTHER_USER], [*start, answer(ANSWERS[1]), OTHER_USER]]
        if has_tools and self.takes_tool_role:
            contexts.append([*start, answer(ANSWERS[1]), TOOL])
        try:
            found = {
                pieces
                for context in contexts
                for said in ANSWERS
                for pieces in (self._added(context, answer(said), roles, tools),)
            }
        except ModelError:
            return None
        return found.pop() if len(found) == 1 else None

    def _added(
        self, context: list[Entry], said: Entry, roles: tuple[str, ...], tools: Sequence[ToolSpec]
    ) -> Pieces | None:
        """Return what messages of `roles` add after `said`; None if anything before changes."""
        names = [f"{NEW}{index}" for index in range(len(roles))]
        before = self.render(context, tools)
        deltas: list[str] = []
        for pad in ("", PAD):
            new = [
                {"role": role, "content": pad + name + pad} for role, name in zip(roles, names, strict=True)
            ]
            after = self.render([*context, said, *new], tools)
            delta = after_answer(before, said["content"], after)
            if delta is None:
                return None
            deltas.append(delta)
        texts = split_at(deltas[0], names)
        if texts is None:
            return None
        trims = trimmed_edges(deltas[1], texts, names)
        return None if trims is None else Pieces(tuple(texts), trims)

    def _ending(self) -> tuple[str, int]:
        """Return the text that closes an answer, up to its end token, and the id of that token."""
        chat = [USER, answer(ANSWERS[0])]
        closing = self.render(chat, opens=False).partition(ANSWERS[0])[2]
        found = self._encoder.first_markup(closing)
        following = self.render([*chat, OTHER_USER]).partition(ANSWERS[0])[2]
        if found is not None and following.startswith(closing[: found[0]]):
            return closing[: found[0]], found[1]
        end = cast("int | None", self._tokenizer.eos_token_id)
        if end is None:
            raise ModelError(
                "finding the token that ends an answer: got a chat template that writes none and "
                "a tokenizer without an end token; set tokenizer.eos_token"
            )
        return "", end

    def _call_padding(self) -> str:
        """Return what the template writes between a tool call's tags and its JSON: a newline or nothing."""
        shown = self._attempt([USER], (PROBE_TOOL,)) if self.takes_tools else None
        return "\n" if shown is not None and "<tool_call>\n" in shown else ""

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
            "parameters": defused(tool.parameters, defuse),
        }
        return {"type": "function", "function": function}


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


def after_answer(before: str, said: str, after: str) -> str | None:
    """Return what follows `before` and the answer `said` in `after`; None where it begins otherwise.

    Blanks that a template puts or trims around answers are not a rewriting: the stream keeps what was
    sampled.
    """
    if not after.startswith(before):
        return None
    tail = after[len(before) :]
    for text, spoken in ((tail, said), (tail.lstrip(), said.lstrip()), (tail.lstrip(), said.strip())):
        if text.startswith(spoken):
            return text[len(spoken) :]
    return None


def split_at(text: str, names: Sequence[str]) -> list[str] | None:
    """Return the texts around `names`, or None unless each stands in `text` exactly once, in order."""
    texts: list[str] = []
    for name in names:
        before, found, text = text.partition(name)
        if not found or name in text:
            return None
        texts.append(before)
    return [*texts, text]


def trimmed_edges(
    text: str, texts: Sequence[str], names: Sequence[str]
) -> tuple[tuple[bool, bool], ...] | None:
    """Return which edges of the padded `names` were trimmed in `text`; None if something else was done."""
    trims: list[tuple[bool, bool]] = []
    rest = text.removeprefix(texts[0])
    for name, after in zip(names, texts[1:], strict=True):
        left = not rest.startswith(PAD)
        rest = rest.removeprefix(PAD).removeprefix(name)
        right = not rest.startswith(PAD)
        rest = rest.removeprefix(PAD).removeprefix(after)
        trims.append((left, right))
    padded = [PAD + name + PAD for name in names]
    return tuple(trims) if Pieces(tuple(texts), tuple(trims)).fill(padded) == text else None


def defused(value: Any, defuse: Defuser) -> Any:
    """Return the JSON `value` with every string in it, keys included, defused."""
    if isinstance(value, str):
        return defuse(value)
    if isinstance(value, Mapping):
        return {
            defuse(str(key)): defused(item, defuse) for key, item in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [defused(item, defuse) for item in cast("Sequence[Any]", value)]
    return value

"""What a chat template writes for an answer behind the prompt, and with which token it ends.

An answer is written as the difference of two renderings: the chat with the answer less the chat up to where the model
writes. Where the prompt opens a thought that the template leaves out of its history (R1), the thought is closed as the
family closes it. Nothing beside this writes an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from quintain.errors import DataError, ModelError
from quintain.text.encoder import TextEncoder
from quintain.text.entries import (
    ANSWER,
    CALL_ID,
    NAME,
    PROBE_TOOL,
    RESULT,
    USER,
    VALUE,
    Entry,
    answer,
    probe_result,
    take_hats,
)
from quintain.text.pieces import common_prefix
from quintain.text.template import OTHER_USER, Template
from quintain.types import INLINE_REASONING, Message, ToolCall, ToolSpec, as_content, as_text

LONGEST_SCAFFOLD = 200
"""Characters at the end of a prompt in which an empty thought of its own is looked for."""
TAGGED = re.compile(r"<think>(.*?)</think>\s*", re.DOTALL)
"""A thought that stands in the words, which templates of thinking models take out of them."""
PROBE_CALL = ToolCall(name=NAME, arguments={"at": VALUE}, id=CALL_ID)
ENDS_OF_CALLS = ("<|call|>", "<|eom_id|>", "<|observation|>")
"""Special tokens that end an answer in some family, beside those that templates end plain answers with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An answer as the template writes it: ``Written(body="At noon.", end="<|im_end|>")``."""

    message: Message
    """What is written of the message that was given."""
    body: str
    """Marked text behind the prompt, up to its end."""
    end: str
    """What closes it, up to and with the token that ends it; empty where the template writes nothing of the kind."""
    end_id: int
    """The token that ends it."""
    is_closed: bool
    """Whether the rendering of the chat that ends with it has the end itself, and not only the message after it."""
    stem: int | None = None
    """Where the answer begins in the prompt, if the template does not keep all of the prompt in front of it."""
    lost: tuple[str, ...] = ()
    """What of the message the template cannot write: words, reasoning."""


class AnswerWriter:
    """Writes answers: ``AnswerWriter(template, encoder, ends).write(history, message, tools)``."""

    def __init__(self, template: Template, encoder: TextEncoder, end_ids: Sequence[int]) -> None:
        """Find what ends a plain answer; `end_ids` are those that the model and its tokenizer name.

        Raises:
            ModelError: nothing ends an answer.
        """
        self._template, self._encoder = template, encoder
        self._named = tuple(end_ids)
        self._endings: dict[bool, tuple[str, int]] = {}
        self.closed_thoughts: set[str] = set()
        """Empty thoughts that prompts end with, and of which the history has nothing."""
        self.known_ends = {encoder.decode([number]) for number in end_ids} | set(ENDS_OF_CALLS)
        self.plain_end, self.plain_end_id = self._ending(has_calls=False)
        if self.plain_end.strip():
            self.known_ends.add(self.plain_end.strip())
        if template.entries.shape.writes_calls:
            self._ending(has_calls=True)

    @cached_property
    def empty_thought(self) -> re.Pattern[str]:
        """What an empty thought looks like, at the beginning of an answer or the end of a prompt."""
        opened, closed = map(re.escape, self._template.thought_marks)
        return re.compile(rf"\s*(?:{opened}\w*\s*)?{closed}\s*")

    @cached_property
    def is_free(self) -> bool:
        """Whether an answer is written alike whatever came before it, as far as the probe chats show."""
        entry = self._template.entries.entry
        thought = Message(role="assistant", content=as_content(ANSWER), reasoning="quintainthought")
        plain = Message(role="assistant", content=as_content(ANSWER))
        called = Message(role="assistant", content=as_content(""), tool_calls=(PROBE_CALL,))
        tools = (PROBE_TOOL,) if self._template.takes_tools else ()
        starts: list[list[Entry]] = [
            [USER],
            [USER, entry(plain), OTHER_USER],
            [USER, entry(thought), OTHER_USER],
        ]
        if tools and self._template.takes_tool_role:
            starts.append([USER, entry(called), probe_result(), entry(plain), OTHER_USER])
        for message in (plain, thought, called) if tools else (plain, thought):
            try:
                written = {self.write(start, message, tools).body for start in starts}
            except (ModelError, DataError):
                return False
            if len(written) > 1:
                return False
        return True

    @cached_property
    def _keeps_words_before_calls(self) -> bool:
        """Whether words beside a call stay before its result, once that is there."""
        if not self._template.takes_tools:
            return True
        called = Message(role="assistant", content=as_content(ANSWER), tool_calls=(PROBE_CALL,))
        chat = [USER, self._template.entries.entry(called), probe_result()]
        shown = self._template.attempt(chat, (PROBE_TOOL,))
        return shown is None or ANSWER in shown.partition(RESULT)[0]

    def find_closed_thought(self, prompt: str) -> int | None:
        """Return where an empty thought begins that `prompt` ends with, None where it ends otherwise."""
        for closed in sorted(self.closed_thoughts, key=len, reverse=True):
            if prompt.endswith(closed):
                return len(prompt) - len(closed)
        tail = prompt[-LONGEST_SCAFFOLD:]
        found = next((m for m in self.empty_thought.finditer(tail) if m.end() == len(tail)), None)
        if found is None:
            return None
        return len(prompt) - len(tail) + found.start() + len(found[0]) - len(found[0].lstrip())

    def write(self, history: Sequence[Entry], message: Message, tools: Sequence[ToolSpec]) -> Written:
        """Return how the template writes `message` behind `history`.

        Where it cannot write all of it, words go into the thought, or the thought or the words are left out: `lost`.

        Raises:
            ModelError: it writes none of it.
            DataError: what it would write is not what is asked for, such as a call without its name.
        """
        prompt = self._template.render(history, tools)
        error: ModelError | None = None
        for each, lost in forms_of(message):
            if each.tool_calls and as_text(each.content).strip() and not self._keeps_words_before_calls:
                continue
            entry = self._template.entries.entry(each)
            try:
                shown = self._template.render([*history, entry], tools, opens=False)
            except ModelError as refused:
                error = error or refused
                continue
            found = self._behind(prompt, shown, each)
            place = None if found is None else self._place_of(found[0], each)
            if found is None or place is None:
                continue
            text, stem = found
            if self._template.entries.hats and message.tool_calls:
                text = take_hats(text, self._template.entries.hats)
            return self._split_end(each, text, place, stem, lost)
        if not message.tool_calls:  # it stands as it is: the probe says that the template differs
            thought = INLINE_REASONING.format(message.reasoning.strip()) if message.reasoning.strip() else ""
            body = self._encoder.defuse_answer(thought + as_text(message.content))
            return Written(
                message=message, body=body, end="", end_id=self.plain_end_id, is_closed=False, lost=("form",)
            )
        raise error or DataError(
            "writing an answer as the model's template does: got one that the template does not show whole "
            f"({shape_of(message)}); give the model another template with --chat-template"
        )

    def _behind(self, prompt: str, shown: str, message: Message) -> tuple[str, int | None] | None:
        """Return what of `shown` is behind the prompt, and where it begins if not at the end of the prompt.

        None where the template writes something else there than the prompt ends with.
        """
        if shown.startswith(prompt):
            return shown[len(prompt) :], None
        same = len(common_prefix(prompt, shown))
        last = self._encoder.last_mark_end(prompt)
        if same >= last and prompt[last:].strip():  # only text behind the last mark differs
            stem = max(last, prompt.rfind("\n", last, same) + 1)
        else:
            stem = max((at for at in self._encoder.marks_at(prompt) if at <= same), default=None)
        found = None
        if stem is not None and prompt[stem:].strip() and stem <= same and self._is_opener(prompt[stem:]):
            found = self._behind_opener(prompt[stem:], shown[stem:], message)
            return None if found is None else (found, stem)
        return self._behind_header(prompt, shown, same)

    def _is_opener(self, text: str) -> bool:
        """Whether the end `text` of a prompt is what begins an answer: all of the header, or a thought of it."""
        header = self._template.header
        return bool(header) and header.endswith(text) and not self._encoder.marks_in(text)[2:]

    def _behind_opener(self, opener: str, rest: str, message: Message) -> str | None:
        """Return the answer that is to stand behind `opener`, which the prompt ends with and the history has not.

        `rest` is what the history has in its place.
        """
        opened, closed = self._template.thought_marks
        marks = self._encoder.marks_in(opener)
        if opener == self._template.header:  # of which the history has nothing
            return rest
        if len(marks) > 1 or closed in marks:  # the prompt says that nothing is thought
            self.closed_thoughts.add(opener)
            bare = rest.lstrip()
            return None if message.reasoning else bare[len(closed) :] if bare.startswith(closed) else rest
        if marks and opened not in marks:
            return None
        thought, close = self._encoder.defuse_answer(message.reasoning.strip()), self._template.thought_close
        if marks and rest.startswith(opened):
            rest = rest[len(opened) :]
            return thought + rest if rest.lstrip().startswith(closed) else rest
        if (
            thought and thought in rest
        ):  # the template has the thought, but begins it otherwise than the prompt
            behind = rest.partition(thought)[2]
            rest = (
                behind.partition(closed)[2].lstrip("\n") if closed in behind else behind.removeprefix(close)
            )
        return thought + close + rest

    def _behind_header(self, prompt: str, shown: str, same: int) -> tuple[str, int | None] | None:
        """Return what of `shown` is behind the last header like the prompt's, where texts before it moved."""
        last = self._encoder.marks_at(prompt)[-1:]
        header = prompt[last[0] :] if last else ""
        at = shown.rfind(header) if header else -1
        return None if at < 0 or at + len(header) < same else (shown[at + len(header) :], None)

    def _place_of(self, text: str, message: Message) -> int | None:
        """Return where in `text` the last part of `message` ends; None where not all of it is shown."""
        defuse = self._encoder.defuse_answer
        parts = [defuse(message.reasoning.strip()), defuse(as_text(message.content).strip())]
        last = place = 0
        for part in parts:
            if (at := text.find(part)) < 0:
                return None
            last = max(last, at + len(part))
        for call in message.tool_calls:
            if (at := text.find(self._encoder.defuse(call.name), place)) < 0:
                return None
            place = at + len(call.name)
        return max(last, place)

    def _split_end(
        self, message: Message, text: str, place: int, stem: int | None, lost: tuple[str, ...]
    ) -> Written:
        """Return `text` parted into body and end: the first end behind `place`, where all has been said."""
        found = [(at, end) for end in self.known_ends if end and (at := text.find(end, place)) >= 0]
        for at, end in sorted(found):
            if (number := self._encoder.markup_id(end)) is not None:
                return Written(
                    message=message,
                    body=text[:at],
                    end=end,
                    end_id=number,
                    is_closed=True,
                    stem=stem,
                    lost=lost,
                )
        has_calls = bool(message.tool_calls) and self._template.entries.takes_calls
        end, number = self._ending(has_calls=has_calls)
        return Written(
            message=message, body=text, end=end, end_id=number, is_closed=False, stem=stem, lost=lost
        )

    def _ending(self, *, has_calls: bool) -> tuple[str, int]:
        """Return the text that closes an answer, up to its end token, and the id of that token.

        Where nothing closes an answer but a message begins with a marker (GLM), that marker ends it: after calls
        the one before their results.
        """
        if has_calls in self._endings:
            return self._endings[has_calls]
        self._endings[has_calls] = self._find_calls_end() if has_calls else self._find_plain_end()
        return self._endings[has_calls]

    def _find_plain_end(self) -> tuple[str, int]:
        chat = [USER, answer(ANSWER)]
        closing = self._template.render(chat, opens=False).rpartition(ANSWER)[2]
        following = (self._template.attempt([*chat, OTHER_USER]) or "").rpartition(ANSWER)[2]
        shared = self._encoder.marks_in(common_prefix(closing, following))
        own = [mark for mark in self._encoder.marks_in(closing) if self._encoder.is_special(mark)]
        if end := (shared or own)[-1:]:
            return end[0], cast(int, self._encoder.markup_id(end[0]))
        begins = self._encoder.first_markup(following.partition(OTHER_USER["content"])[0])
        if not closing.strip() and begins is not None:
            return following[: begins[0]], begins[1]
        return "", self._find_end_token()

    def _find_calls_end(self) -> tuple[str, int]:
        shape = self._template.entries.shape
        called = self._template.entries.entry(
            Message(role="assistant", content=as_content(""), tool_calls=(PROBE_CALL,))
        )
        tools = (PROBE_TOOL,) if self._template.takes_tools else ()
        closing = self._template.attempt([USER, called], tools, opens=False) or ""
        shown = self._template.attempt([USER, called, probe_result()], tools) or ""
        rest = shown[len(closing.rstrip()) :] if shown.startswith(closing.rstrip()) else ""
        rest = rest.partition(RESULT)[0]
        begins = self._encoder.first_markup(rest)
        mark = "" if begins is None else self._encoder.marks_in(rest)[0]
        is_first = bool(mark) and rest.lstrip().startswith(mark)
        is_end = is_first and self._encoder.is_special(mark) and mark not in self._user_header()
        if shape.writes_calls and begins is not None and is_end:
            return rest[: begins[0]], begins[1]
        last = self._encoder.marks_in(closing)[-1:]
        if (
            shape.writes_calls
            and last
            and closing.rstrip().endswith(last[0])
            and self._encoder.is_special(last[0])
        ):
            self.known_ends.add(last[0])
            return last[0], cast(int, self._encoder.markup_id(last[0]))
        return "", self._find_end_token()

    def _user_header(self) -> str:
        """Return what the template begins the message of a user with, behind an answer."""
        shown = self._template.attempt([USER, answer(ANSWER), OTHER_USER]) or ""
        return shown.rpartition(ANSWER)[2].partition(OTHER_USER["content"])[0]

    def _find_end_token(self) -> int:
        """Return the token that the tokenizer ends texts with.

        Raises:
            ModelError: it has none.
        """
        if not self._named:
            raise ModelError(
                "finding the token that ends an answer: got a chat template that writes none and "
                "a tokenizer without an end token; set tokenizer.eos_token"
            )
        return self._named[0]


def forms_of(message: Message) -> list[tuple[Message, tuple[str, ...]]]:
    """Return `message` and what can be written of it where a template cannot write it whole, with what is lost."""
    words = as_text(message.content).strip()
    mute = as_content("")
    found: list[tuple[Message, tuple[str, ...]]] = [(message, ())]
    thought = ("reasoning",) if message.reasoning else ()
    if message.tool_calls and words:
        moved = "\n\n".join(filter(None, (message.reasoning.strip(), words)))
        found.append((replace(message, content=mute, reasoning=moved), ("words",)))
    if message.reasoning:
        found.append((replace(message, reasoning=""), thought))
    if message.tool_calls and words:
        found.append((replace(message, content=mute), ("words",)))
        found += [(replace(message, content=mute, reasoning=""), (*thought, "words"))] * bool(thought)
    if (tagged := TAGGED.match(words)) and not message.reasoning:
        rest = words[tagged.end() :]
        found.insert(1, (replace(message, content=as_content(rest), reasoning=tagged[1].strip()), ()))
        found.append((replace(message, content=as_content(rest)), ("reasoning",)))
    return found


def shape_of(message: Message) -> str:
    """Return what a message has, in words: ``a thought, words and 2 calls``."""
    has = [
        "a thought" if message.reasoning else "",
        "words" if as_text(message.content).strip() else "",
        f"{len(message.tool_calls)} calls" if message.tool_calls else "",
    ]
    return ", ".join(filter(None, has)) or "nothing"

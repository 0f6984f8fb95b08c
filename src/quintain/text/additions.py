"""What new messages add to a chat behind an answer: the difference of two renderings of it.

The chat with answer and new messages is rendered, and the chat up to the answer. Where the second begins the first,
their difference is what is appended; where the template rewrites what came before (thoughts leave the history), there
is none, and a new stream begins. Probe chats show for which kinds of answers and messages the difference never depends
on what came before: for these, small chats are rendered in place of the whole one, or fixed pieces filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from quintain.errors import DataError, ModelError
from quintain.text.entries import ANSWER, CALL_ID, NAME, PROBE_TOOL, RESULT, THOUGHT, USER, VALUE, Entry
from quintain.text.pieces import PAD, Pieces, pieces_of
from quintain.text.template import NEW, OTHER_USER, SYSTEM, Template
from quintain.text.writing import AnswerWriter, Written
from quintain.types import Message, ToolCall, ToolSpec, as_content, as_text


class AnswerKind(NamedTuple):
    """What an answer is made of, as far as templates treat answers differently."""

    has_words: bool
    has_reasoning: bool
    num_calls: int
    thinks_first: bool
    """whether it begins with the empty thought that the template writes, where it writes one"""


class TurnKey(NamedTuple):
    """What an addition may depend on, besides its texts."""

    roles: tuple[str, ...]
    kind: AnswerKind
    has_system: bool
    has_tools: bool


@dataclass(frozen=True, slots=True)
class ProbedTurn:
    """What probe chats showed of new messages: whether the template only appends, its pieces if fixed."""

    appends: bool
    pieces: Pieces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer that stands in a stream: its message, and whether it begins with an empty thought."""

    message: Message
    begins_with_thought: bool = False

    @property
    def kind(self) -> AnswerKind:
        """Return what it is made of."""
        return AnswerKind(
            bool(as_text(self.message.content).strip()),
            bool(self.message.reasoning) or has_thought(as_text(self.message.content)),
            min(len(self.message.tool_calls), 2),
            self.begins_with_thought,
        )


class AdditionFinder:
    """Finds what new messages add: ``AdditionFinder(template, writer).find(history, answer, added, tools)``."""

    def __init__(self, template: Template, writer: AnswerWriter) -> None:
        self._template, self._writer = template, writer
        self._turns: dict[TurnKey, ProbedTurn] = {}

    def is_appending(
        self, roles: tuple[str, ...], kind: AnswerKind, *, has_system: bool = False, has_tools: bool = False
    ) -> bool:
        """Whether new messages of `roles` left all probe chats before them as they were."""
        return self._turn(TurnKey(roles, kind, has_system, has_tools)).appends

    def find(
        self, history: Sequence[Entry], given: GivenAnswer, added: Sequence[Entry], tools: Sequence[ToolSpec]
    ) -> str | None:
        """Return the text that `added` adds behind the answer, its end included; None where a new stream begins.

        The work is that of the new messages alone where probes allow it.

        Raises:
            DataError: the template does not show the answer whole.
            ModelError: it refuses the chat.
        """
        roles = tuple([entry["role"] for entry in added])
        has_system = history[0]["role"] == "system"
        if "assistant" not in roles:
            turn = self._turn(TurnKey(roles, given.kind, has_system, bool(tools)))
            contents = [entry["content"] for entry in added]
            if turn.pieces is not None and all(map(str.strip, contents)):
                return turn.pieces.fill(contents)
            if turn.appends:
                context = [SYSTEM, USER] if has_system and self._template.takes_system else [USER]
                found = self._difference(context, given, added, (PROBE_TOOL,) if tools else ())
                if found is not None:
                    return found
        return self._difference(history, given, added, tools)

    def _turn(self, key: TurnKey) -> ProbedTurn:
        key = key._replace(
            has_system=key.has_system and self._template.takes_system,
            has_tools=key.has_tools and self._template.takes_tools,
        )
        if key not in self._turns:
            self._turns[key] = self._probe(key)
        return self._turns[key]

    def _probe(self, key: TurnKey) -> ProbedTurn:
        """Add messages to several chats, after an answer of the kind, and compare what that adds."""
        tools = (PROBE_TOOL,) if key.has_tools else ()
        start = [SYSTEM, USER] if key.has_system else [USER]
        given = GivenAnswer(message=message_of(key.kind), begins_with_thought=key.kind.thinks_first)
        entry = self._template.entries.entry
        contexts = [start]
        for before in (
            message_of(AnswerKind(True, False, 0, False)),
            message_of(AnswerKind(True, True, 0, False)),
        ):
            contexts.append([*start, entry(before), OTHER_USER])
        if key.has_tools and self._template.takes_tool_role:
            called = message_of(AnswerKind(False, False, 1, False), first_id=5)
            contexts.append([*start, entry(called), *results_of(called, [RESULT])])
        names = [f"{NEW}{index}" for index in range(len(key.roles))]
        found: dict[str, str] = {}
        variants = [("", ""), (PAD, ""), *([("", "x")] if "tool" in key.roles else [])]
        others = (replace(PROBE_TOOL, description="quintainlater"),) if key.has_tools else ()
        for pad, suffix in variants:
            texts = [pad + name + pad for name in names]
            new = new_entries(key.roles, texts, given.message, suffix)
            try:
                deltas = {self._difference(chat, given, new, tools) for chat in contexts}
                if others and not pad and not suffix:  # the tools may stand behind the answer, too
                    deltas.add(self._difference(start, given, new, others))
            except (ModelError, DataError):
                return ProbedTurn(appends=False)
            delta = deltas.pop()
            if deltas or delta is None:
                return ProbedTurn(appends=False)
            found[pad + suffix] = delta
        if found.get("x", found[""]) != found[""]:  # ids or names of calls are written
            return ProbedTurn(appends=True)
        return ProbedTurn(appends=True, pieces=pieces_of(found[""], found[PAD], names))

    def _difference(
        self, history: Sequence[Entry], given: GivenAnswer, added: Sequence[Entry], tools: Sequence[ToolSpec]
    ) -> str | None:
        """Return what `added` adds behind the answer; None if anything before it changes."""
        template, writer = self._template, self._writer
        tools = tools if template.takes_tools else ()
        prompt = template.render(history, tools)
        written = writer.write(history, given.message, tools)
        has_reasoning = bool(given.message.reasoning) or has_thought(as_text(given.message.content))
        if has_reasoning and (written.stem is not None or "reasoning" in written.lost):
            return None
        said = template.entries.entry(written.message)
        after = template.render([*history, said, *added], tools)
        stems = [prompt] if written.stem is None else [prompt[: written.stem]]
        bare = self._without_empty_thought(written, given)
        if (closed := writer.find_closed_thought(prompt)) is not None and not has_reasoning:
            stems.append(prompt[:closed])  # an empty thought of the prompt's own leaves the history
        end = written.end if written.is_closed else ""
        for stem in stems:
            whole = stem + bare
            if not after.startswith(whole):
                continue
            rest = after[len(whole) :]
            if rest.startswith(end):
                return rest
        return None

    def _without_empty_thought(self, written: Written, given: GivenAnswer) -> str:
        """Return what is written less the empty thought that the template begins it with and the stream has not."""
        lead = self._writer.empty_thought.match(written.body)
        if lead is None or given.begins_with_thought or written.message.reasoning:
            return written.body
        return written.body[lead.end() :]


def has_thought(text: str) -> bool:
    """Whether a thought stands in `text`, as templates look for one."""
    return "</think>" in text


def message_of(kind: AnswerKind, first_id: int = 0) -> Message:
    """Return an answer of `kind`, whose calls are numbered from `first_id` on."""
    calls = [
        ToolCall(name=NAME, arguments={"at": f"{VALUE}{number}"}, id=CALL_ID[:-1] + str(first_id + number))
        for number in range(kind.num_calls)
    ]
    return Message(
        role="assistant",
        content=as_content(ANSWER if kind.has_words or not calls else ""),
        reasoning=THOUGHT if kind.has_reasoning else "",
        tool_calls=tuple(calls),
    )


def results_of(message: Message, texts: Sequence[str], suffix: str = "") -> list[Entry]:
    """Return entries of what the calls of `message` came to, with names and ids that end with `suffix`."""
    found: list[Entry] = []
    for number, text in enumerate(texts):
        call = message.tool_calls[number] if number < len(message.tool_calls) else None
        entry: Entry = {"role": "tool", "content": text}
        if call is not None:
            entry["tool_call_id"] = call.id[: len(call.id) - len(suffix)] + suffix
            entry["name"] = call.name + suffix
        found.append(entry)
    return found


def new_entries(roles: Sequence[str], texts: Sequence[str], answer: Message, suffix: str) -> list[Entry]:
    """Return new messages of `roles` that say `texts`; results of tools answer the calls of `answer`."""
    told = [text for role, text in zip(roles, texts, strict=True) if role == "tool"]
    results = iter(results_of(answer, told, suffix))
    return [
        next(results) if role == "tool" else {"role": role, "content": text}
        for role, text in zip(roles, texts, strict=True)
    ]

"""Is a model's chat template followed? Our stream against the template's own rendering, chat by chat.

Each probe chat is gone through as an episode is: prompts are appended, answers written, read back, streamed. At every
answer the stream must be what the template renders of the same messages, the answer must be read back as it was, in
pieces as in one, and end with a token that stops the engine. `check_template` says of each chat what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.errors import DataError, ModelError
from quintain.text.chat import Chat, Conversation
from quintain.text.entries import Entry
from quintain.text.pieces import common_prefix
from quintain.text.probe_chats import PROBE_TOOLS, PROBES
from quintain.text.reading import Answer
from quintain.types import INLINE_REASONING, Message, as_content, as_text

Verdict = Literal["exact", "limited", "differs"]
SHOWN = 40
"""Characters around the first difference that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What became of a probe chat: ``ProbeResult(chat="thought", verdict="exact")``."""

    chat: str
    verdict: Verdict
    """exact: the stream is the template's rendering; limited: the template itself cannot show the chat; differs: the
    stream is another, or is read back otherwise than it was written."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """What the probe chats showed of a chat format: ``check_template(chat).is_followed``."""

    name: str
    ends: tuple[str, ...]
    results: tuple[ProbeResult, ...]

    @property
    def is_followed(self) -> bool:
        """Whether no stream differs from the template's rendering."""
        return all(result.verdict != "differs" for result in self.results)

    @property
    def line(self) -> str:
        """Return the report in one line, for the start of a run."""
        differing = [result for result in self.results if result.verdict == "differs"]
        limited = [result for result in self.results if result.verdict == "limited"]
        ends = " ".join(self.ends)
        if differing:
            first = differing[0]
            more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
            return f"{self.name}; DIFFERS from the template in the chat {first.chat!r}{more}: {first.detail}"
        what = "; ".join(dict.fromkeys(result.detail for result in limited))
        cannot = f"; the template cannot show {what}" if what else ""
        return f"{self.name}; followed byte for byte, ends {ends}{cannot}"


def check_template(chat: Chat, chats: Mapping[str, Sequence[Message]] = PROBES) -> TemplateReport:
    """Return what became of each probe chat."""
    ends = tuple(sorted(chat.encoder.decode([token]) for token in chat.stop_ids))
    results = tuple(check_chat(chat, name, messages) for name, messages in chats.items())
    return TemplateReport(name=chat.name, ends=ends, results=results)


def check_chat(chat: Chat, name: str, messages: Sequence[Message]) -> ProbeResult:
    """Return what became of the chat `messages`, which is called `name`."""
    conversation = chat.conversation(PROBE_TOOLS)
    pending: list[Message] = []
    stream, bare = "", None
    done: list[Message] = []
    limits: list[str] = []
    for message in messages:
        if message.role != "assistant":
            pending.append(message)
            continue
        done += pending
        try:
            prompt = conversation.prompt(pending)
            expected = render_prompt(chat, done)
        except ModelError as error:
            return ProbeResult(chat=name, verdict="limited", detail=f"{name!r} ({reason(error)})")
        text = chat.encoder.decode(prompt.token_ids)
        stream = text if prompt.starts_segment else stream + text
        found = difference(stream, expected, chat)
        if (
            found is not None and bare is not None
        ):  # the end of an answer is the beginning of another message than came
            text = chat.encoder.decode(prompt.token_ids)
            found = difference(bare + text, expected, chat)
            stream = bare + text if found is None else stream
        if found is not None:
            return ProbeResult(chat=name, verdict="differs", detail=f"before an answer {found}")
        try:
            written = conversation.write(message)
        except (ModelError, DataError) as error:
            return ProbeResult(chat=name, verdict="limited", detail=f"{name!r} ({reason(error)})")
        if "form" in written.lost:
            return ProbeResult(
                chat=name,
                verdict="differs",
                detail="an answer is not what the template writes behind its own prompt",
            )
        limits += [
            f"{part} beside {'calls' if part == 'words' else 'such an answer'}" for part in written.lost
        ]
        if problem := check_answer(chat, conversation, written.token_ids, written.message):
            return ProbeResult(chat=name, verdict="differs", detail=problem)
        said = chat.encoder.decode(written.token_ids)
        ending = chat.encoder.decode(written.token_ids[-1:])
        bare = None if written.is_closed else stream + said[: len(said) - len(ending)]
        stream += said
        conversation.record(written.token_ids, written.message)
        done.append(written.message)
        pending = []
    if limits:
        return ProbeResult(chat=name, verdict="limited", detail=", ".join(dict.fromkeys(limits)))
    return ProbeResult(chat=name, verdict="exact")


def check_answer(chat: Chat, conversation: Conversation, ids: tuple[int, ...], message: Message) -> str:
    """Return what is wrong with the answer `ids` that says `message`; empty where nothing is."""
    if ids[-1] not in chat.stop_ids:
        return f"an answer ends with {chat.encoder.decode(ids[-1:])!r}, at which nothing stops"
    early = next((token for token in ids[:-1] if token in chat.stop_ids), None)
    if early is not None:
        return f"{chat.encoder.decode([early])!r} ends answers, and the template writes it inside of one"
    if not chat.template.entries.takes_calls and message.tool_calls:
        return ""  # text of our own, which the harness reads
    answer = conversation.read(ids)
    if message.reasoning and chat.template.entries.shape.reasoning == "inline" and not answer.reasoning:
        thought = INLINE_REASONING.format(message.reasoning)
        message = replace(message, reasoning="", content=as_content(thought + as_text(message.content)))
    words = as_text(message.content)
    if message.tool_calls and words and not message.reasoning and answer.reasoning:
        message = replace(
            message, reasoning=words, content=()
        )  # gpt-oss writes words before a call as a thought
    if not says(answer, message):
        return f"an answer is read back otherwise than it was written: {chat.text(ids)[:SHOWN]!r}"
    text = chat.text(ids)
    whole = chat.read(text, prefix=conversation.prefix, tools=PROBE_TOOLS)
    for size in (1, 7):
        if chat.read_in_pieces(text, size, prefix=conversation.prefix, tools=PROBE_TOOLS) != whole:
            return f"an answer is read otherwise in pieces of {size}: {text[:SHOWN]!r}"
    return ""


def says(answer: Answer, message: Message) -> bool:
    """Whether `answer` is what `message` says."""
    calls = [(call.name, dict(call.arguments or {})) for call in answer.calls]
    return (
        calls == [(call.name, dict(call.arguments)) for call in message.tool_calls]
        and answer.reasoning.strip() == message.reasoning.strip()
        and answer.content.strip() == as_text(message.content).strip()
    )


def render_prompt(chat: Chat, messages: Sequence[Message]) -> str:
    """Return the template's own rendering of `messages`, up to where the model writes, as text."""
    template = chat.template
    entries: list[Entry] = template.opening_entries(
        [template.entries.entry(m) for m in messages], PROBE_TOOLS
    )
    marked = template.render(entries, PROBE_TOOLS if template.takes_tools else ())
    return chat.encoder.decode(chat.encoder.encode_marked(marked, continues=False))


def difference(stream: str, expected: str, chat: Chat) -> str | None:
    """Return where `stream` first differs from `expected`; None where it does not.

    An empty thought that the prompt of an earlier answer held may stay in the stream: nothing was thought in it.
    """
    if stream == expected:
        return None
    header = chat.template.header
    at = chat.writer.find_closed_thought(header)
    if at is not None and stream.replace(header, header[:at]) == expected.replace(header, header[:at]):
        return None
    place = len(common_prefix(stream, expected))
    here, there = (text[max(0, place - 10) : place + SHOWN - 10] for text in (stream, expected))
    return f"the stream has {here!r}, and the template {there!r}"


def reason(error: Exception) -> str:
    """Return what an error got, in short."""
    text = str(error).partition("got ")[2] or str(error)
    return text.partition(";")[0][:160]

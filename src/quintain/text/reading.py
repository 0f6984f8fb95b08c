"""Read what a model wrote: words, thought and tool calls, in the form of its own chat template.

A format is data: a `response_template` as transformers, vLLM and SGLang read it, and what it cannot say (how the inside
of a call is read, which tokens end an answer). The text is cut into regions, each call is read by itself and keeps
what was wrong with it; nothing raises, nothing is lost, nothing is carried out that stood in a thought. A stream
gives what the whole text gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

import regex

from quintain.errors import DataError
from quintain.text.bodies import Body, CallStatus, FoundCall, is_inside, read_body
from quintain.types import NOTHING, Message, ToolCall, ToolSpec, as_text

MOST_CALLS, MOST_SKIPPED, MOST_STILL = 64, 64, 3
KEPT = 4_096
"""Characters of the text that is done with which the buffer keeps before it is cut."""
PROMPT_TAIL = 200
"""Characters of a prompt that are looked at for an opened thought where the beginning of the answer is not known."""
LONGEST_MARK = 4_096
"""Characters of a mark; what is longer is none, so that a stream does not wait for its end for ever."""
PLAIN = "plain"
"""The format of models that write no calls."""
FOLDER = Path(__file__).parent / "formats"
Place = Literal["content", "thinking", "tool_calls"]
NAMES: Mapping[str, Place] = {
    "content": "content",
    "thinking": "thinking",
    "reasoning": "thinking",
    "reasoning_content": "thinking",
    "tool_calls": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call that a model wrote, or tried to: ``ReadCall(name="guess", arguments={"number": 16})``."""

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    """None where they could not be read."""
    id: str = ""
    status: CallStatus = "ok"
    problem: str = ""
    """What is wrong, a sentence for the model; empty where nothing is."""
    raw: str = ""
    """The call as it was written, with its marks."""
    span: tuple[int, int] = (0, 0)
    """Where `raw` stands in the answer; it begins below 0 where the prompt began it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model wrote: ``Answer(content="Let me look.", calls=(ReadCall(name="find", arguments={}),))``."""

    content: str = ""
    reasoning: str = ""
    is_reasoning_complete: bool = True
    """False where the answer ends inside a thought."""
    calls: tuple[ReadCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Words that a stream added: ``Delta("content", "Let me")``."""

    field: Literal["content", "reasoning"]
    text: str


AnswerEvent = Delta | ReadCall


@dataclass(frozen=True, slots=True)
class _Region:
    """A part of an answer and the marks around it."""

    place: Place
    opens: Any = None
    is_fixed_open: bool = False
    """The opening mark is one text, which nothing that comes later makes longer."""
    closes: Any = None
    is_fixed_close: bool = False


@dataclass(frozen=True)
class AnswerFormat:
    """How a family of models writes answers; read from a file of `formats`, or from a model's own folder."""

    name: str
    table: Mapping[str, Any]
    """A `response_template` of transformers: plain JSON data."""
    ends: tuple[str, ...] = ()
    """Texts of tokens that end an answer in this format, beside the tokenizer's own."""
    notes: str = ""
    families: str = ""
    reader: Mapping[str, Any] = field(default_factory=lambda: {"kind": "json"})
    """How the inside of a call is read."""
    marks: tuple[str, ...] = ()
    """Texts that only a call holds: in the words of an answer they are a call that is not written right."""
    thought_end: str = ""
    """What ends a thought, also one whose beginning nobody saw."""
    regions: Mapping[str, Mapping[str, Any]] = NOTHING
    """Regions of the table that are cut otherwise here, where the table has to be simpler than the format."""

    def parse(self, text: str, *, prefix: str = "", tools: Sequence[ToolSpec] = ()) -> Answer:
        """Return what `text` says, written behind a prompt that ends with `prefix`, with `tools` to call.

        Example: ``load_formats()["hermes"].parse("R</think>A", prefix="<think>")`` has the reasoning "R" and the
        content "A".
        """
        reader = self.stream(prefix=prefix, tools=tools)
        reader.feed(text)
        return reader.close()

    def stream(self, *, prefix: str = "", tools: Sequence[ToolSpec] = ()) -> AnswerReader:
        """Return a reader that takes the text in pieces; the arguments are those of `parse`."""
        return AnswerReader(self, prefix, tools)

    @cached_property
    def anchor(self) -> Any:
        """The pattern of what the prompt begins an answer with."""
        return _mark(self.table, "start_anchor")[0]

    @cached_property
    def cut(self) -> Mapping[Place, _Region]:
        """The regions of an answer by their place."""
        specs = cast("Mapping[str, Mapping[str, Any]]", self.table["fields"])
        fields: dict[Place, dict[str, Any]] = {
            NAMES[name]: {**spec} for name, spec in specs.items() if name in NAMES
        }
        for name, spec in self.regions.items():
            fields[NAMES[name]] = {**_without_marks(fields[NAMES[name]]), **spec}
        return {place: _region(place, spec) for place, spec in fields.items()}


def load_formats() -> Mapping[str, AnswerFormat]:
    """Return the formats that are known, by name."""
    return _load_formats()


@cache
def _load_formats() -> Mapping[str, AnswerFormat]:
    found: dict[str, AnswerFormat] = {}
    for path in sorted(FOLDER.glob("*.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        found[value["name"]] = AnswerFormat(
            name=value["name"],
            table=value["response_template"],
            ends=tuple(value.get("ends", ())),
            notes=value.get("notes", ""),
            families=value["families"],
            reader=value.get("reader", {"kind": "json"}),
            marks=tuple(value.get("marks", ())),
            thought_end=value.get("thought_end", ""),
            regions=value.get("regions", NOTHING),
        )
    return found


class AnswerReader:
    """Takes the text of an answer in pieces: `feed` each, then `close` for the answer.

    The deltas of a field joined are that field of the answer, and the calls that were given are its calls, but for a
    thought whose beginning nobody saw: the answer then has as reasoning what had been given as content.
    """

    def __init__(self, form: AnswerFormat, prefix: str, tools: Sequence[ToolSpec]) -> None:
        self._form, self._cut = form, form.cut
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._watched: dict[tuple[str, Place], _Watch] = {}
        self._beginnings: dict[Place | None, dict[str, bool]] = {}
        self._thought_end = regex.compile(regex.escape(form.thought_end)) if form.thought_end else None
        start = form.reader.get("start")
        self._start = regex.compile(start) if start else None
        self._buffer, self._at, self._offset = "", 0, 0
        self._place: Place | None = None
        self._said: dict[str, _Words] = {"content": _Words(), "reasoning": _Words()}
        self._calls: list[ReadCall] = []
        self._is_strict = False
        self._marks: Mapping[str, str] = {}
        self._opened, self._begin = "", 0
        self._body: list[str] = []
        self._skipped: int | None = None
        self._skips = 0
        self._events: list[AnswerEvent] = []
        if prefix:
            self._take_prefix(prefix)

    def feed(self, text: str) -> list[AnswerEvent]:
        """Take more of the text; return what is known by now and was not before."""
        self._events = []
        if self._at == len(self._buffer) and not self._may_begin_mark(text):
            self._say(text)
            self._offset += self._at + len(text)
            self._buffer, self._at = "", 0
            self._watched.clear()
            return self._events
        self._buffer += text
        self._process(is_last=False)
        self._trim()
        return self._events

    def close(self) -> Answer:
        """Return the answer; no more text follows."""
        self._events = []
        self._process(is_last=True)
        while self._place == "tool_calls":
            is_whole = self._form.reader.get("open_ended") and self._is_read("".join(self._body))
            if self._skipped is not None and not is_whole:
                self._rewind()
            else:
                self._end_call(None)
            self._process(is_last=True)
        is_open = self._place == "thinking"
        content = "".join(self._said["content"].parts)
        self._calls += self._stray_calls(content)
        return Answer(
            content=content,
            reasoning="".join(self._said["reasoning"].parts),
            is_reasoning_complete=not is_open,
            calls=tuple(self._calls),
        )

    @property
    def last_events(self) -> list[AnswerEvent]:
        """What `close` still found: words that were held back, a call that the end of the text ended."""
        return self._events

    def _may_begin_mark(self, text: str) -> bool:
        """Return whether a mark that counts here may begin in `text`; most text of a stream begins none."""
        if self._start is not None and not self._is_begun:
            return True
        known = self._beginnings.setdefault(self._place, {})
        for sign in set(text):
            if sign not in known:
                patterns = (pattern for _, _, pattern, _ in self._patterns())
                known[sign] = any(pattern.match(sign, partial=True) is not None for pattern in patterns)
            if known[sign]:
                return True
        return False

    @property
    def _is_begun(self) -> bool:
        return bool(self._calls or self._said["content"].parts)

    def _take_prefix(self, prefix: str) -> None:
        """Go to where the prompt leaves the answer; what it says itself is not the model's."""
        ends = [found.end() for found in self._form.anchor.finditer(prefix)]
        if ends:
            self._buffer = prefix[ends[-1] :]
            self._offset = -len(self._buffer)
            self._process(is_last=False)
            self._said = {"content": _Words(), "reasoning": _Words()}
            self._calls, self._events = [], []
            return
        thinking = self._cut.get("thinking")
        if thinking is None or thinking.opens is None:
            return
        tail = prefix[-PROMPT_TAIL:]
        opened = closed = -1
        for mark in thinking.opens.finditer(tail):
            opened = mark.end()
        for mark in thinking.closes.finditer(tail) if thinking.closes is not None else ():
            closed = mark.end()
        if opened > closed:
            self._place = "thinking"

    def _process(self, is_last: bool) -> None:
        still = 0
        while True:
            kind, place, mark, hold = self._next_mark(is_last)
            if mark is None:
                end = len(self._buffer) if is_last else hold
                if end > self._at:
                    self._say(self._buffer[self._at : end])
                    self._at = end
                return
            still = still + 1 if mark.end() == self._at else 0
            if mark.start() > self._at:
                self._say(self._buffer[self._at : mark.start()])
            self._at = mark.end()
            if still > MOST_STILL:  # marks of no length that open and close each other in a table of others
                if self._at == len(self._buffer):
                    return
                self._say(self._buffer[self._at])
                self._at, still = self._at + 1, 0
                continue
            self._pass(kind, place, mark)

    def _pass(self, kind: str, place: Place, mark: Any) -> None:
        """Go over `mark`."""
        if kind == "thought end":
            self._unseen_thought()
        elif kind == "open":
            if place == "tool_calls":
                self._begin_call(mark)
            elif place == "thinking":
                self._said["reasoning"].separate()
            else:
                self._said["content"].separate()
            self._place = place
        elif place == "tool_calls":
            self._close_call(mark)
        elif self._place is not None:
            self._place = None

    def _next_mark(self, is_last: bool) -> tuple[str, Place, Any, int]:
        """Return the next mark, and how far the text before it is known not to begin another."""
        best: tuple[str, Place, Any] = ("", "content", None)
        hold = len(self._buffer)
        if self._start is not None and self._place is None and not self._is_begun:
            mark = self._start.match(self._buffer, self._at, partial=not is_last)
            if mark is not None and mark.partial:
                return *best, self._at
            if mark is not None:
                return "open", "tool_calls", mark, hold
        for kind, place, pattern, is_fixed in self._patterns():
            watch = self._watched.get((kind, place))
            if watch is None:
                watch = self._watched[kind, place] = _Watch(pattern, is_fixed, self._at)
            mark, pending = watch.look(self._buffer, self._at, is_last)
            hold = min(hold, pending)
            if mark is not None and kind == "close" and self._place is None and not mark[0]:
                continue  # the end of the text, in tables of others
            if mark is not None and (best[2] is None or _is_before(mark, best[2])):
                best = (kind, place, mark)
        if best[2] is None or (best[2].start() >= hold and not is_last):
            return "", "content", None, hold
        return *best, hold

    def _patterns(self) -> Iterator[tuple[str, Place, Any, bool]]:
        """Yield (kind, place, pattern, is one fixed text) of the marks that count here."""
        if self._place is not None:
            region = self._cut[self._place]
            if region.closes is not None:
                yield "close", self._place, region.closes, region.is_fixed_close
            return
        for place, region in self._cut.items():
            if region.opens is not None:
                yield "open", place, region.opens, region.is_fixed_open
            elif region.closes is not None:
                yield "close", place, region.closes, region.is_fixed_close
        if self._thought_end is not None:
            yield "thought end", "thinking", self._thought_end, True

    def _say(self, text: str) -> None:
        """Take `text`, which holds no mark, to where it belongs."""
        if self._place == "tool_calls":
            self._body.append(text)
            return
        name: Literal["content", "reasoning"] = "reasoning" if self._place == "thinking" else "content"
        words = self._said[name].add(text)
        if words:
            self._events.append(Delta(name, words))

    def _unseen_thought(self) -> None:
        """Take what was said so far as a thought: it ends here, and nobody saw it begin."""
        thought, words = self._said["reasoning"], self._said["content"]
        said = "".join([*words.parts, *(call.raw for call in self._calls)])
        if said:
            thought.separate()
            thought.add(said)
        self._said["content"], self._calls = _Words(), []

    def _begin_call(self, mark: Any) -> None:
        self._marks = {name: text for name, text in mark.groupdict().items() if text is not None}
        self._opened, self._begin = mark[0], self._offset + mark.start()
        self._body, self._skipped, self._skips = [], None, 0

    def _close_call(self, mark: Any) -> None:
        """End the call at `mark`, unless the mark stands inside one of its values."""
        text = "".join(self._body)
        self._body = [text]
        if not self._is_strict and is_inside(self._form.reader, text):
            if self._skipped is None:
                self._skipped = len(text)
            self._skips += 1
            if self._skips > MOST_SKIPPED:
                self._rewind(mark)
            elif mark[0]:
                self._body.append(mark[0])
            else:
                self._body.append(self._buffer[self._at])
                self._at += 1
        elif self._skipped is not None and not self._is_read(text):
            self._rewind(mark)
        else:
            self._end_call(mark)

    def _is_read(self, text: str) -> bool:
        return all(call.arguments is not None for call in self._read(text))

    def _rewind(self, mark: Any = None) -> None:
        """Go back to the first closing mark that was taken for a part of a value: it is the end, after all."""
        text = "".join(self._body)
        assert self._skipped is not None, "there is a mark to go back to"
        again = text[self._skipped :] + (mark[0] if mark is not None else "")
        rest = self._buffer[self._at :]
        self._offset += self._at - len(again)
        self._buffer, self._at = again + rest, 0
        self._body, self._skipped, self._is_strict = [text[: self._skipped]], None, True
        self._watched.clear()

    def _read(self, text: str) -> list[FoundCall]:
        return read_body(self._form.reader, Body(text, self._marks, self._schemas))

    def _end_call(self, mark: Any) -> None:
        """Read the call that `mark` ends, or the end of the text."""
        text = "".join(self._body)
        end = self._offset + self._at
        raw = self._opened + text + (mark[0] if mark is not None else "")
        span = (self._begin, end)
        self._place = None
        found = self._read(text)
        if mark is None and not self._may_end_here(text, found):
            name = found[0].name
            found = [FoundCall(name=name, status="unclosed", problem="is not written to its end")]
        for call in found:
            self._add_call(call, raw, span)

    def _may_end_here(self, text: str, found: Sequence[FoundCall]) -> bool:
        """Return whether a call that the end of the text ends is whole, or at least looks so."""
        if not self._form.reader.get("open_ended"):
            return False
        return all(call.arguments is not None for call in found) or text.rstrip()[-1:] in ("}", "]", ")")

    def _add_call(self, call: FoundCall, raw: str, span: tuple[int, int]) -> None:
        number = len(self._calls) + 1
        if number > MOST_CALLS:
            call = replace(call, arguments=None, status="too_many")
            problem = f"there are more than {MOST_CALLS} tool calls; make fewer at once"
        else:
            problem = f"tool call {number} {call.problem}" if call.problem else ""
            if call.status == "unknown_tool":
                problem = call.problem
        read = ReadCall(call.name, call.arguments, call.id, call.status, problem, raw, span)
        self._calls.append(read)
        self._events.append(read)

    def _stray_calls(self, content: str) -> list[ReadCall]:
        """Return the attempt at a call that the words hold, if they hold one."""
        at = min((place for mark in self._form.marks if (place := content.find(mark)) >= 0), default=-1)
        if at < 0:
            return []
        problem = f"tool call {len(self._calls) + 1} is not written right, near {content[at : at + 40]!r}"
        call = ReadCall(status="malformed", problem=problem, raw=content[at:], span=(-1, -1))
        self._events.append(call)
        return [call]

    def _trim(self) -> None:
        """Forget what is done with, so that the buffer stays short."""
        if self._at > KEPT and self._at > len(self._buffer) // 2:
            self._buffer = self._buffer[self._at :]
            self._offset += self._at
            for watch in self._watched.values():
                watch.move(self._at)
            self._at = 0


class _Words:
    """Words of one field; blanks at its ends do not belong to it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._blanks: list[str] = []
        self._is_new = True

    def separate(self) -> None:
        """Begin a part of its own: an empty line stands between it and what is there."""
        self._blanks = ["\n\n"] if self.parts else []
        self._is_new = True

    def add(self, text: str) -> str:
        """Take `text`; return what it adds for certain."""
        if self._is_new:
            text = text.lstrip()
            self._is_new = not text
        kept = text.rstrip()
        if not kept:
            if text:
                self._blanks.append(text)
            return ""
        added = "".join(self._blanks) + kept
        self._blanks = [text[len(kept) :]]
        self.parts.append(added)
        return added


class _Watch:
    """The next place of one mark in a text that grows; what is known not to begin it is left alone."""

    def __init__(self, pattern: Any, is_fixed: bool, at: int) -> None:
        self._pattern, self._is_fixed = pattern, is_fixed
        self._seen = at
        self._mark: Any = None

    def move(self, by: int) -> None:
        """Go on in a text that has lost its first `by` characters."""
        self._seen = max(0, self._seen - by)
        self._mark = None

    def look(self, text: str, at: int, is_last: bool) -> tuple[Any, int]:
        """Return the first mark at or behind `at`, if it is known, and where one may begin that is not known yet."""
        if self._mark is not None:
            if self._mark.start() >= at:
                return self._mark, len(text)
            self._mark = None
        begin = max(at, self._seen)
        while True:
            found = self._pattern.search(text, begin, partial=not is_last)
            if found is None:
                self._seen = len(text)
                return None, len(text)
            is_open = not is_last and (found.partial or self._may_grow(text, found))
            if found.end() - found.start() > LONGEST_MARK:
                begin = found.start() + 1
                continue
            self._seen = found.start()
            if is_open:
                return None, found.start()
            self._mark = found
            return found, len(text)

    def _may_grow(self, text: str, found: Any) -> bool:
        """Return whether what comes behind `text` may make the mark longer."""
        return not self._is_fixed and self._pattern.fullmatch(text, found.start(), partial=True) is not None


def _is_before(one: Any, other: Any) -> bool:
    """Return whether mark `one` counts before `other`: it begins earlier, or there and is longer."""
    return (one.start(), -len(one[0])) < (other.start(), -len(other[0]))


def _region(place: Place, spec: Mapping[str, Any]) -> _Region:
    opens, is_fixed_open = _mark(spec, "open")
    closes, is_fixed_close = _mark(spec, "close")
    return _Region(place, opens, is_fixed_open, closes, is_fixed_close)


def _mark(spec: Mapping[str, Any], key: str) -> tuple[Any, bool]:
    """Return the pattern of a mark, and whether it is one fixed text (or several, of which none begins another)."""
    if f"{key}_pattern" in spec:
        return regex.compile(spec[f"{key}_pattern"], regex.DOTALL), False
    if key not in spec:
        return None, False
    texts = [spec[key]] if isinstance(spec[key], str) else sorted(spec[key], key=len, reverse=True)
    grows = any(one != other and one.startswith(other) for one in texts for other in texts)
    return regex.compile("|".join(map(regex.escape, texts))), not grows


def _without_marks(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key.partition("_")[0] not in ("open", "close")}


# Choosing a format, and giving it to others.


@dataclass(frozen=True, slots=True)
class FormatSample:
    """An assistant's message and what a chat template writes for it.

    Example: ``FormatSample(message, prompt="…<|im_start|>assistant\\n", written="<think>\\nR\\n</think>\\n\\nA")``.
    """

    message: Message
    prompt: str
    """The text of the prompt; it ends with what begins an answer."""
    written: str
    """What the template writes behind the prompt, without the token that ends it."""
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """The format that reads samples best, and which of them it reads back as they were."""

    format: AnswerFormat | None
    """None where each reads a plain answer wrongly, or none of the calls that are written."""
    is_read: tuple[bool, ...]
    """Of each sample, in order."""


def choose_format(samples: Sequence[FormatSample], own: Mapping[str, Any] | None = None) -> FormatChoice:
    """Return the format that reads back most of `samples`, those with calls first; `own` is the model folder's table.

    A format that reads an answer without calls wrongly is never taken. Of formats that read as many, the first counts:
    the folder's own, then those for calls by their names.

    Raises:
        DataError: `own` is no table that can be read.
    """
    formats = list(load_formats().values())
    if own is not None:
        formats.insert(0, own_format(own))
    best = FormatChoice(None, (False,) * len(samples))
    best_key = (-1, -1)
    writes_calls = any(_are_said(sample.message.tool_calls, sample.written) for sample in samples)
    for form in formats:
        read = tuple(is_read_back(form, sample) for sample in samples)
        plain = [good for good, sample in zip(read, samples, strict=True) if not sample.message.tool_calls]
        with_calls = [good for good, sample in zip(read, samples, strict=True) if sample.message.tool_calls]
        if not all(plain) or (writes_calls and not any(with_calls)):
            continue
        key = (sum(with_calls), form.name == PLAIN)
        if key > best_key:
            best, best_key = FormatChoice(form, read), key
    return best


def is_read_back(form: AnswerFormat, sample: FormatSample) -> bool:
    """Return whether `form` reads what was written for the message of `sample` as that message.

    What a template leaves out (words beside a call, a second call, thoughts) cannot be read and is not asked for.
    """
    answer = form.parse(sample.written, prefix=sample.prompt, tools=sample.tools)
    message, written = sample.message, sample.written
    said, thought = as_text(message.content).strip(), message.reasoning.strip()
    calls = [ToolCall(name=call.name, arguments=call.arguments or {}) for call in answer.calls]
    if any(call.status != "ok" for call in answer.calls) or not _are_written(
        message.tool_calls, calls, written
    ):
        return False
    words = said if said in written else ""
    thoughts = thought if thought in written else ""
    if (answer.content, answer.reasoning) == (words, thoughts):
        return True
    # gpt-oss writes the words before a call as a thought.
    return bool(calls) and (answer.content, answer.reasoning) == ("", words or thoughts)


def _are_written(wanted: Sequence[ToolCall], calls: Sequence[ToolCall], written: str) -> bool:
    """Return whether `calls` are the first of those `wanted`, and the others are not in `written`."""
    if list(wanted[: len(calls)]) != list(calls):
        return False
    return not wanted or (bool(calls) and not _are_said(wanted[len(calls) :], written))


def _are_said(calls: Sequence[ToolCall], written: str) -> bool:
    """Return whether a value of `calls` stands in `written`."""
    return any(str(value) in written for call in calls for value in call.arguments.values())


def own_format(table: Mapping[str, Any]) -> AnswerFormat:
    """Return the format of a `response_template` that came with a model.

    Raises:
        DataError: it is not one that can be read.
    """
    try:
        fields = cast("Mapping[str, Mapping[str, Any]]", table["fields"])
        calls = next((spec for name, spec in fields.items() if NAMES.get(name) == "tool_calls"), None)
        form = AnswerFormat(name="own", table=table, reader=_table_reader(calls or {}), families="this model")
        assert form.anchor is not None and form.cut, "an answer begins somewhere and has a part"
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError, regex.error) as error:
        raise DataError(
            f"the response_template of the model: got one that cannot be read ({error}); "
            "take it out of tokenizer_config.json, or write it as transformers documents it"
        ) from error
    return form


def _table_reader(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how the inside of calls is read that `spec`, a field of a table, describes."""
    kind, options = spec.get("content", "json"), cast("Mapping[str, Any]", spec.get("content_args", {}))
    if kind == "xml-inline":
        regex.compile(options["tag_pattern"])
        return {"kind": "xml", "parameter": options["tag_pattern"], "rest": r"(?:\s*</[^<>]*>)*"}
    if kind != "json":
        raise ValueError(f"calls are written as {kind}, not as json or xml-inline")
    if options.get("string_delims") or options.get("unquoted_keys"):
        quotes = [pair[0] for pair in options.get("string_delims", ())]
        return {"kind": "literal", "quotes": [*quotes, '"']}
    return {"kind": "json"}


def attach_table(tokenizer: Any, form: AnswerFormat) -> None:
    """Give `tokenizer` the table of `form`: it is saved with it, and servers read answers as training did."""
    tokenizer.response_template = json.loads(json.dumps(form.table))


def write_table(folder: Path, form: AnswerFormat) -> None:
    """Put the table of `form` into the tokenizer's configuration in `folder`, where others look for it.

    Raises:
        DataError: there is no configuration of a tokenizer.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        raise DataError(f"writing the format of answers: got {folder}, which has no tokenizer_config.json")
    config = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps({**config, "response_template": form.table}, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")

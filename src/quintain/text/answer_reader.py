"""Cut what a model writes into words, thoughts and calls while it comes; the marks between them are data.

The text is looked at once, whatever the pieces that it comes in, and what a mark is depends on nothing that comes
later: so a stream gives what the whole text gives. Text before a mark that is not there yet as a whole is held back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import regex

from quintain.text.answers import Answer, AnswerEvent, Delta, ReadCall
from quintain.text.bodies import Body, FoundCall, is_inside, read_body
from quintain.types import ToolSpec

MAX_CALLS, MAX_SKIPPED, MAX_STILL = 64, 64, 3
KEPT = 4_096
"""Characters of the text that is done with which the buffer keeps before it is cut."""
LEFT = 64
"""Characters before the place that is reached which stay, for patterns that look back."""
LOOKS_BACK = regex.compile(r"\(\?<[=!]|\\[bBAG]|(?<!\[)\^")
PROMPT_TAIL = 200
"""Characters of a prompt that are looked at for an opened thought where the beginning of the answer is not known."""
LONGEST_MARK = 4_096
"""Characters of a mark; what is longer is none, so that a stream does not wait for its end for ever."""
Place = Literal["content", "thinking", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Region:
    """A part of an answer and the marks around it."""

    place: Place
    opens: Any = None
    is_fixed_open: bool = False
    """The opening mark is one text, which nothing that comes later makes longer."""
    closes: Any = None
    is_fixed_close: bool = False


@dataclass(frozen=True, slots=True)
class Grammar:
    """The marks of a format of answers, and how the inside of its calls is read."""

    anchor: Any
    """The pattern of what the prompt begins an answer with."""
    regions: Mapping[Place, Region]
    reader: Mapping[str, Any]
    marks: tuple[str, ...]
    """Texts that only a call holds: in the words of an answer they are a call that is not written right."""
    thought_end: Any
    """The pattern of what ends a thought, also one whose beginning nobody saw; None where there is none."""
    start: Any
    """The pattern of a call that has no mark and stands at the start of an answer; None where there is none."""


class AnswerReader:
    """Takes the text of an answer in pieces: `feed` each, then `close` for the answer.

    The deltas of a field joined are that field of the answer, and the calls that were given are its calls, but for a
    thought whose beginning nobody saw: the answer then has as reasoning what had been given as content.
    """

    def __init__(self, grammar: Grammar, prefix: str, tools: Sequence[ToolSpec]) -> None:
        self._grammar = grammar
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._watched: dict[tuple[str, Place], _Watch] = {}
        self._beginnings: dict[Place | None, dict[str, bool]] = {}
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
            is_whole = self._grammar.reader.get("open_ended") and self._is_read("".join(self._body))
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
        if self._grammar.start is not None and not self._is_begun:
            return True
        known = self._beginnings.setdefault(self._place, {})
        for sign in set(text):
            if sign not in known:
                patterns = (pattern for _, _, pattern, _ in self._patterns())
                known[sign] = any(
                    LOOKS_BACK.search(pattern.pattern) or pattern.match(sign, partial=True) is not None
                    for pattern in patterns
                )
            if known[sign]:
                return True
        return False

    @property
    def _is_begun(self) -> bool:
        return bool(self._calls or self._said["content"].parts)

    def _take_prefix(self, prefix: str) -> None:
        """Go to where the prompt leaves the answer; what it says itself is not the model's."""
        ends = [found.end() for found in self._grammar.anchor.finditer(prefix)]
        if ends:
            self._buffer = prefix[ends[-1] :]
            self._offset = -len(self._buffer)
            self._process(is_last=False)
            self._said = {"content": _Words(), "reasoning": _Words()}
            self._calls, self._events = [], []
            return
        thinking = self._grammar.regions.get("thinking")
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
            if still > MAX_STILL:  # marks of no length that open and close each other in a table of others
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
        if self._grammar.start is not None and self._place is None and not self._is_begun:
            mark = self._grammar.start.match(self._buffer, self._at, partial=not is_last)
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
            region = self._grammar.regions[self._place]
            if region.closes is not None:
                yield "close", self._place, region.closes, region.is_fixed_close
            return
        for place, region in self._grammar.regions.items():
            if region.opens is not None:
                yield "open", place, region.opens, region.is_fixed_open
            elif region.closes is not None:
                yield "close", place, region.closes, region.is_fixed_close
        if self._grammar.thought_end is not None:
            yield "thought end", "thinking", self._grammar.thought_end, True

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
        if not self._is_strict and is_inside(self._grammar.reader, text):
            if self._skipped is None:
                self._skipped = len(text)
            self._skips += 1
            if self._skips > MAX_SKIPPED:
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
        return read_body(self._grammar.reader, Body(text, self._marks, self._schemas))

    def _end_call(self, mark: Any) -> None:
        """Read the call that `mark` ends, or the end of the text."""
        text = "".join(self._body)
        end = self._offset + self._at
        raw = self._opened + text + (mark[0] if mark is not None else "")
        span = (self._begin, end)
        self._place = None
        if len(self._calls) >= MAX_CALLS:
            problem = f"there are more than {MAX_CALLS} tool calls; make fewer at once"
            self._keep(ReadCall(status="too_many", problem=problem, raw=raw, span=span))
            return
        found = self._read(text)
        if mark is None and not self._may_end_here(text, found):
            name = found[0].name
            found = [FoundCall(name=name, status="unclosed", problem="is not written to its end")]
        for call in found:
            self._add_call(call, raw, span)

    def _may_end_here(self, text: str, found: Sequence[FoundCall]) -> bool:
        """Return whether a call that the end of the text ends is whole, or at least looks so."""
        if not self._grammar.reader.get("open_ended"):
            return False
        return all(call.arguments is not None for call in found) or text.rstrip()[-1:] in ("}", "]", ")")

    def _add_call(self, call: FoundCall, raw: str, span: tuple[int, int]) -> None:
        number = len(self._calls) + 1
        arguments, status, problem = call.arguments, call.status, call.problem
        if number > MAX_CALLS:
            arguments, status = None, "too_many"
            problem = f"there are more than {MAX_CALLS} tool calls; make fewer at once"
        elif problem and status != "unknown_tool":
            problem = f"tool call {number} {problem}"
        self._keep(ReadCall(call.name, arguments, call.id, status, problem, raw, span))

    def _keep(self, call: ReadCall) -> None:
        self._calls.append(call)
        self._events.append(call)

    def _stray_calls(self, content: str) -> list[ReadCall]:
        """Return the attempt at a call that the words hold, if they hold one."""
        at = min((place for mark in self._grammar.marks if (place := content.find(mark)) >= 0), default=-1)
        if at < 0:
            return []
        problem = f"tool call {len(self._calls) + 1} is not written right, near {content[at : at + 40]!r}"
        call = ReadCall(status="malformed", problem=problem, raw=content[at:], span=(-1, -1))
        self._events.append(call)
        return [call]

    def _trim(self) -> None:
        """Forget what is done with, so that the buffer stays short."""
        if self._at > KEPT and self._at > len(self._buffer) // 2:
            done = self._at - LEFT
            self._buffer, self._at = self._buffer[done:], LEFT
            self._offset += done
            for watch in self._watched.values():
                watch.move(done)


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

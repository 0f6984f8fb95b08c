"""Read what a model wrote: words, thought and tool calls, in the form of its own chat template.

A format is data: a `response_template` as transformers, vLLM and SGLang read it, and what it cannot say (how the inside
of a call is read, which tokens end an answer). The text is cut into regions, each call is read by itself and keeps
what was wrong with it; nothing raises, nothing is lost, nothing is carried out that stood in a thought. A stream
gives what the whole text gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import regex

from quintain.errors import DataError
from quintain.text.answer_reader import AnswerReader, Grammar, Place, Region
from quintain.text.answers import Answer as Answer
from quintain.text.answers import AnswerEvent as AnswerEvent
from quintain.text.answers import Delta as Delta
from quintain.text.answers import ReadCall as ReadCall
from quintain.types import NOTHING, Message, ToolCall, ToolSpec, as_text

PLAIN, OWN = "plain", "own"
"""The format of models that write no calls, and that of a model's own table."""
FOLDER = Path(__file__).parent / "formats"
NAMES: Mapping[str, Place] = {
    "content": "content",
    "thinking": "thinking",
    "reasoning": "thinking",
    "reasoning_content": "thinking",
    "tool_calls": "tool_calls",
}


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
        return AnswerReader(self.grammar, prefix, tools)

    @cached_property
    def grammar(self) -> Grammar:
        """The marks of the format, ready to be looked for."""
        specs = cast("Mapping[str, Mapping[str, Any]]", self.table["fields"])
        fields: dict[Place, dict[str, Any]] = {
            NAMES[name]: {**spec} for name, spec in specs.items() if name in NAMES
        }
        for name, spec in self.regions.items():
            fields[NAMES[name]] = {**_without_marks(fields[NAMES[name]]), **spec}
        start = self.reader.get("start")
        return Grammar(
            anchor=_mark(self.table, "start_anchor")[0],
            regions={place: _region(place, spec) for place, spec in fields.items()},
            reader=self.reader,
            marks=self.marks,
            thought_end=regex.compile(regex.escape(self.thought_end)) if self.thought_end else None,
            start=regex.compile(start) if start else None,
        )


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


def _region(place: Place, spec: Mapping[str, Any]) -> Region:
    opens, is_fixed_open = _mark(spec, "open")
    closes, is_fixed_close = _mark(spec, "close")
    return Region(place, opens, is_fixed_open, closes, is_fixed_close)


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

    A format that reads an answer without calls wrongly is never taken. Of formats that read as many, that counts
    whose marks stand there, and then the first: the folder's own, those of ours by their names.

    Raises:
        DataError: `own` is no table that can be read.
    """
    formats = list(load_formats().values())
    if own is not None:
        formats.insert(0, own_format(own))
    best = FormatChoice(None, (False,) * len(samples))
    best_key: tuple[int, ...] = ()
    writes_calls = any(_are_said(sample.message.tool_calls, sample.written) for sample in samples)
    for form in formats:
        if not all(is_read_back(form, sample) for sample in samples if not sample.message.tool_calls):
            continue
        read = tuple(not sample.message.tool_calls or is_read_back(form, sample) for sample in samples)
        num_calls = sum(good for good, sample in zip(read, samples, strict=True) if sample.message.tool_calls)
        key = (num_calls, form.name in (PLAIN, OWN), form.name == OWN, *_num_marks(form, samples))
        if key > best_key and (num_calls or not writes_calls):
            best, best_key = FormatChoice(form, read), key
    return best


def _num_marks(form: AnswerFormat, samples: Sequence[FormatSample]) -> tuple[int, int, bool]:
    """Return in how many samples the marks of calls stand, and those of thoughts, and whether these are the usual."""
    specs = {NAMES[name]: spec for name, spec in form.table["fields"].items() if name in NAMES}
    calls, _ = _mark(specs.get("tool_calls", NOTHING), "open")
    thoughts, _ = _mark(specs.get("thinking", NOTHING), "open")
    with_calls = [sample.written for sample in samples if sample.message.tool_calls]
    return (
        sum(calls is not None and calls.search(written) is not None for written in with_calls),
        sum(
            thoughts is not None and thoughts.search(f"{one.prompt}{one.written}") is not None
            for one in samples
        ),
        thoughts is not None and thoughts.search("<think>") is not None,
    )


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
        form = AnswerFormat(name=OWN, table=table, reader=_table_reader(calls or {}), families="this model")
        assert form.grammar.anchor is not None and form.grammar.regions, (
            "an answer begins somewhere and has a part"
        )
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

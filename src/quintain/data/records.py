"""Conversations of outside formats as validated records: messages, tools, and which answers are to be trained.

Read are OpenAI messages (tool calls, ``tools``, ``developer`` and ``function`` roles, ``weight``), ShareGPT (with
``function_call`` and ``observation``), Hermes and Qwen text (``<tool_call>`` in the content), Anthropic blocks
(``tool_use``, ``tool_result``), prompt and completion, ATIF, saved rollouts of verifiers, preferences (chosen and
rejected) and labelled answers (KTO). The format is told by each object itself, so files may mix those of conversations.
Every object is read, or refused with its file, line and cure; nothing is skipped in silence, and a key that nobody
reads is counted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from quintain.data.atif import as_messages, is_atif
from quintain.data.files import FileValue
from quintain.data.forms import ANSWERS, CONVERSATIONS, USES, Form, as_sides, form_of, label_of
from quintain.data.masks import MASKS, is_switch, mask_message, mask_of, row_masks
from quintain.data.results import match_results
from quintain.data.thoughts import whole_text
from quintain.data.verifiers import as_conversations, is_rollout, is_trace
from quintain.errors import DataError
from quintain.types import NOTHING, Message, Text, ToolCall, ToolSpec, as_text
from quintain.types.json_text import load_json
from quintain.types.plain import MAX_AMOUNT, as_amount

TrainOn = Literal["all", "last", "tagged"]
"""Which answers are trained: all but those that say otherwise, the last one, or those that say so."""
Overlong = Literal["error", "drop"]
"""What becomes of a conversation that is longer than the model's context."""
Unusable = Literal["error", "drop"]
"""What becomes of a line that cannot be used."""
Role = Literal["system", "user", "assistant", "tool"]
OPENAI: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "tool_call": "assistant",
    "tool_response": "tool",
}
"""Roles of messages with ``role``; the last two are ms-swift's."""
SHAREGPT: Mapping[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
TOOLS = ("tools", "functions")
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
OPENING = "<tool_call>"
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
RESPONSES = re.compile(r"\s*(?:<tool_response>.*?</tool_response>\s*)+", re.DOTALL)
READ = frozenset(
    {
        *("role", "from", "content", "value", "name", "tool_calls", "function_call", "tool_call_id"),
        *("reasoning_content", "reasoning", "thinking"),
        *MASKS,
    }
)
"""Keys of a message that are read."""
MEANT = (
    *(
        "label",
        "labels",
        "kto_tag",
        "mask",
        "masks",
        "completion_mask",
        "prompt_mask",
        "assistant_masks",
        "input_ids",
    ),
    *("weights", "sample_weight", "history"),
)
"""Keys of a record that look as if they said what is to be trained, and are not read."""
PICTURES = ("images", "image", "videos", "audios", "audio")
"""Keys of a record that hold more than text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMessage:
    """A message, and whether its record says that it is to be trained: None where it says nothing."""

    message: Message
    is_trained: bool | None = None
    spoken: tuple[tuple[str, str], ...] = ()
    """(``name``, text) of each message of the assistant that it was joined of, where these have a name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One conversation of a file: ``Record(said=(…,), file="chats.jsonl", line=3, place="chats.jsonl line 3")``.

    Two assistant messages never follow each other: they are joined.
    """

    said: tuple[RecordMessage, ...]
    file: str
    line: int
    place: str
    """Where it stands, for errors."""
    tools: tuple[ToolSpec, ...] = ()
    fields: Mapping[str, Any] = NOTHING
    """Everything else that stood in the object."""
    unread: tuple[str, ...] = ()
    """What of it nobody reads, each as often as it stands there: ``key 'foo' of messages``."""
    is_mended: bool = False
    """Whether a text in it had half of a surrogate pair."""

    @property
    def num_empty(self) -> int:
        """Answers that say nothing and are not trained."""
        return sum(is_empty(each.message) and each.is_trained is False for each in self.said)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages alone."""
        return tuple(each.message for each in self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two ways on from the same beginning: ``Preference(chosen=record, rejected=record)``."""

    chosen: Record
    rejected: Record


def read_records(
    found: Iterable[FileValue], *, takes_labels: bool = False, left_out: list[str] | None = None
) -> Iterator[Record]:
    """Yield the conversation of each object; a trace of verifiers may hold several.

    Those that cannot be read go into `left_out`, where it is given. With `takes_labels` labelled answers are
    conversations, too, whose label says whether they solved their task; of others a reward says it, unless they do.

    Raises:
        DataError: an object that is no conversation, has nothing to learn from, or is of another form.
    """
    wanted: tuple[Form, ...] = ("conversation", "labelled answer") if takes_labels else ("conversation",)
    for each, value in _of_form(found, wanted, left_out):
        try:
            if (label := label_of(value)) is not None:
                records = [read_record(_without_label(value, label), each)]
            elif is_rollout(value) or is_trace(value):
                records = [read_record(other, each) for other in as_conversations(value, each.place)]
            else:
                records = [read_record(value, each)]
        except DataError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
            continue
        yield from map(_with_success, records) if takes_labels else records


def _with_success(record: Record) -> Record:
    """Return `record` with whether it solved its task, where only its reward says so."""
    reward = record.fields.get("reward")
    if record.fields.get("is_success") is not None or not isinstance(reward, int | float):
        return record
    return replace(record, fields={**record.fields, "is_success": reward > 0})


def read_labelled(found: Iterable[FileValue], *, left_out: list[str] | None = None) -> Iterator[Record]:
    """Yield the labelled answers of `found`, and both sides of preferences, with ``is_success`` in their fields.

    Those that cannot be read go into `left_out`, where it is given.

    Raises:
        DataError: an object that cannot be read, or one of another form than the first.
    """
    for each, value in _of_form(found, ("labelled answer", "preference"), left_out):
        try:
            if (label := label_of(value)) is not None:
                records = [read_record(_without_label(value, label), each, keeps_text=True)]
            else:
                preference = _preference(value, each)
                records = [
                    replace(side, fields={**side.fields, "is_success": is_good})
                    for side, is_good in ((preference.chosen, True), (preference.rejected, False))
                ]
        except DataError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
            continue
        yield from records


def read_preferences(
    found: Iterable[FileValue], *, left_out: list[str] | None = None
) -> Iterator[Preference]:
    """Yield the preference of each object: chosen and rejected, with or without a prompt of their own.

    Both sides are lists of messages, or texts that answer ``prompt``; without one they begin alike, and what they
    share is context. Calls that cannot be read are a reason to prefer the other side: see `read_record`. Those that
    cannot be read go into `left_out`, where it is given.

    Raises:
        DataError: an object that is no preference, or whose sides are the same.
    """
    for each, value in _of_form(found, ("preference",), left_out):
        try:
            preference = _preference(value, each)
        except DataError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
            continue
        yield preference


def _of_form(
    found: Iterable[FileValue], wanted: tuple[Form, ...], left_out: list[str] | None
) -> Iterator[tuple[FileValue, dict[str, Any]]]:
    """Yield the objects of `found`, which are of one form of those `wanted`; what is no object goes into `left_out`.

    Raises:
        DataError: one is of another form, or of another than the first.
    """
    first: tuple[Form, str] | None = None
    for each in found:
        try:
            value = as_object(each.value, each.place)
        except DataError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
            continue
        form = form_of(value)
        if form not in wanted:
            raise DataError(
                f"{each.place}: got a {form}, and this takes a {' or a '.join(wanted)}; {USES[form]}"
            )
        first = first or (form, each.place)
        if form != first[0]:
            raise DataError(
                f"{each.place}: got a {form}, and {first[1]} is a {first[0]}; put them into files of their own"
            )
        yield each, value


def _preference(value: dict[str, Any], found: FileValue) -> Preference:
    """Return the preference that `value` is."""
    rest = as_sides(value, found.place)
    sides_of = {key: rest.pop(key) for key in ("chosen", "rejected")}
    prompt = rest.pop("prompt", None)
    if prompt is None and isinstance(sides_of["chosen"], str):
        raise DataError(f"{found.place}: got chosen as a text without prompt; give the prompt as well")
    if prompt is None or (isinstance(prompt, str) and _repeats(sides_of["chosen"], prompt)):
        prompt = []
    sides = [
        read_record({**rest, "prompt": prompt, "completion": side}, found, keeps_text=True)
        for side in sides_of.values()
    ]
    if sides[0].said == sides[1].said:
        raise DataError(f"{found.place}: got chosen and rejected that are the same; leave the line out")
    return Preference(chosen=_after_fork(*sides), rejected=_after_fork(sides[1], sides[0]))


def _without_label(value: Mapping[str, Any], label: bool) -> dict[str, Any]:
    """Return a labelled answer as a conversation that says whether it solved its task."""
    rest = {key: cell for key, cell in value.items() if key not in ("label", "kto_tag")}
    return {**rest, "is_success": label}


def read_record(value: Mapping[str, Any], found: FileValue, *, keeps_text: bool = False) -> Record:
    """Return the conversation that the object `value` is.

    With `keeps_text` an answer of weight 1 is trained as it stands: calls in its text are text, whatever they call.

    Raises:
        DataError: it is none; no assistant says anything.
    """
    place = found.place
    fields = as_messages(value, place) if is_atif(value) else dict(value)
    unread: list[str] = []
    entries = _conversation(fields, place)
    masks = row_masks(fields, len(entries), place)
    if pictures := next((key for key in PICTURES if fields.get(key)), None):
        raise DataError(f"{place}: got {pictures} beside the messages; only text is read, take it out")
    tools = tuple(tool for key in TOOLS for tool in read_tools(fields.pop(key, None), place))
    read: list[RecordMessage] = []
    for entry, mask in zip(entries, masks, strict=True):
        read += _read_entry(as_object(entry, place), mask, place, keeps_text=keeps_text, unread=unread)
    if "system" in fields and not (read and read[0].message.role == "system"):
        system = _text(fields.pop("system"), place, may_be_empty=True)
        read = [RecordMessage(message=_message("system", system)), *read] if system else read
    reward = fields.get("reward")
    if isinstance(reward, int | float) and as_amount(reward) is None:
        raise DataError(
            f"{place}: got the reward {reward!r:.40}; give a finite number of at most {MAX_AMOUNT:g} in size"
        )
    said = _in_order(_join_answers(read, place), place, keeps_text=keeps_text)
    if not any(each.message.role == "assistant" and not is_empty(each.message) for each in said):
        raise DataError(f"{place}: got no assistant message with content; there is nothing to learn from")
    unread += [f"key {key!r} of records" for key in MEANT if says(fields.get(key))]
    unread += [
        f"key {key!r} of records" for key in MASKS if says(fields.get(key)) and not is_switch(fields[key])
    ]
    return Record(
        said=said,
        file=found.file,
        line=found.line,
        place=place,
        tools=tools,
        fields=fields,
        unread=tuple(unread),
        is_mended=found.is_mended,
    )


def _conversation(fields: dict[str, Any], place: str) -> list[Any]:
    """Return the messages of a record as they stand in it, and take them out of `fields`."""
    names = [key for key in CONVERSATIONS if key in fields]
    answers = [key for key in ANSWERS if key in fields]
    if not names and answers:
        answer = answers[0]
        prompt = _entries(fields.pop("prompt", []), "user", place)
        completion = _entries(fields.pop(answer), "assistant", place)
        return [mask_message(entry) if _is_answer(entry) else entry for entry in prompt] + completion
    answer = next((key for key in answers if isinstance(fields[key], str | list) and fields[key]), None)
    if len(names) == 1 and answer:
        raise DataError(
            f"{place}: got {names[0]} and {answer}; give either messages or conversations, or prompt and completion"
        )
    if len(names) == 1:
        entries = fields.pop(names[0])
        entries = _json(entries, names[0], place) if isinstance(entries, str) else entries
        return _list(entries, names[0], place)
    if "prompt" in fields:
        raise DataError(
            f"{place}: got a prompt that nobody answers (the keys {sorted(fields)}), which is a task; give completion "
            "as well, or train on tasks with rewards (docs/own-environment.md)"
        )
    raise DataError(
        f"{place}: got the keys {sorted(fields)}; give either messages or conversations, or prompt and completion"
    )


def _in_order(said: Sequence[RecordMessage], place: str, *, keeps_text: bool) -> tuple[RecordMessage, ...]:
    """Return `said` with results in the order of their calls, each with the id and the tool of its call."""
    has_read = [bool(each.message.tool_calls) or _reads_calls(each.is_trained, keeps_text) for each in said]
    found: list[RecordMessage] = []
    for at, call in match_results([each.message for each in said], place, has_read_calls=has_read):
        each = said[at]
        if call is not None:
            own = replace(
                each.message,
                tool_call_id=each.message.tool_call_id or call.id,
                name=each.message.name or call.name,
            )
            each = replace(each, message=own)
        found.append(each)
    return tuple(found)


def _reads_calls(tag: bool | None, keeps_text: bool) -> bool:
    """Whether calls in the text of an answer with this tag are read."""
    return not (keeps_text if tag else tag is False)


def says(value: object) -> bool:
    """Whether `value`, whose key nobody reads, may have meant something."""
    return not (value is None or value == "" or value == [] or value == {})


def is_empty(message: Message) -> bool:
    """Whether an answer says, thinks and calls nothing."""
    return not message.tool_calls and not whole_text(message).strip()


def read_tools(value: object, place: str) -> tuple[ToolSpec, ...]:
    """Return the tool schemas of `value`: a list as OpenAI or Anthropic write it, or the JSON text of one.

    Raises:
        DataError: it is no such list.
    """
    if isinstance(value, str):
        value = _json(value, "tools", place) if value.strip() else None
    if value is None:
        return ()
    tools: list[ToolSpec] = []
    for entry in _list(value, "tools", place):
        own = as_object(entry, place)
        own = as_object(own.get("function", own), place)
        name = own.get("name")
        schema = own.get("parameters", own.get("input_schema", {}))
        schema = _json(schema, "parameters", place) if isinstance(schema, str) else schema
        if not isinstance(name, str) or not name:
            raise DataError(f"{place}: got a tool with the name {name!r}; give its name, as a string")
        tools.append(
            ToolSpec(
                name=name,
                description=str(own.get("description") or ""),
                parameters=as_object(schema or {}, place),
            )
        )
    return tuple(tools)


def as_object(value: object, place: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object; raise it if it is what was wrong with its line."""
    if isinstance(value, DataError):
        raise value
    if not isinstance(value, dict):
        raise DataError(f"{place}: got {type(value).__name__} instead of an object; write {{...}}")
    return cast(dict[str, Any], value)


def _read_entry(
    entry: Mapping[str, Any], mask: bool | None, place: str, *, keeps_text: bool, unread: list[str]
) -> Iterator[RecordMessage]:
    """Yield the messages of one entry: a user message of Anthropic may hold several tool results.

    `mask` is what the record says of it; keys that nobody reads go into `unread`.
    """
    is_sharegpt = "from" in entry
    role = _role(entry.get("from" if is_sharegpt else "role"), SHAREGPT if is_sharegpt else OPENAI, place)
    tag = mask_of(entry, place)
    if tag is not None and mask is not None and tag is not mask:
        raise DataError(
            f"{place}: got a message and its record that contradict each other on whether it is trained; leave one"
        )
    tag = mask if tag is None else tag
    unread += [f"key {key!r} of messages" for key in entry if key not in READ and says(entry[key])]
    if role != "assistant" and tag:
        keys = [key for key in MASKS if entry.get(key) is not None] or ["a mask"]
        unread.append(f"{keys[0]} {entry.get(keys[0], True)!r} of messages that are not the assistant's")
    content = entry.get("value" if is_sharegpt and "value" in entry else "content")
    if role == "user" and isinstance(content, list):
        blocks = [as_object(block, place) for block in cast("list[object]", content)]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            text = _text(block.get("content"), place, may_be_empty=True)
            yield RecordMessage(message=_message("tool", text, call=block.get("tool_use_id")))
        content = [block for block in blocks if block.get("type") != "tool_result"]
        if results and not content:
            return
    if role != "assistant":
        if entry.get("tool_calls"):
            raise DataError(
                f"{place}: got tool_calls {entry['tool_calls']!r:.80} of role {role}; give them to the assistant only"
            )
        text = _text(content, place, may_be_empty=role == "tool")
        role = "tool" if role == "user" and RESPONSES.fullmatch(text) else role
        for part in (RESPONSE.findall(text) or [text]) if role == "tool" else [text]:
            yield RecordMessage(
                message=_message(role, part, call=entry.get("tool_call_id"), name=entry.get("name"))
            )
        return
    message = _answer(entry, content, place, is_read=_reads_calls(tag, keeps_text))
    spoken = ((message.name, whole_text(message)),) if message.name else ()
    is_trained = False if tag is None and is_empty(message) else tag
    yield RecordMessage(message=message, is_trained=is_trained, spoken=spoken)


def _answer(entry: Mapping[str, Any], content: object, place: str, *, is_read: bool) -> Message:
    """Return the assistant's message: its text, and the calls beside it and, where it `is_read`, in it."""
    calls = [_call(each, place) for each in _list(entry.get("tool_calls") or [], "tool_calls", place)]
    if entry.get("function_call"):
        calls.append(_call(entry["function_call"], place))
    thought = entry.get("reasoning_content") or entry.get("reasoning") or entry.get("thinking") or ""
    if isinstance(content, list):
        blocks = [as_object(block, place) for block in cast("list[object]", content)]
        thought = thought or "".join(
            str(b.get("thinking", "")) for b in blocks if b.get("type") == "thinking"
        )
        calls += [_call(block, place) for block in blocks if block.get("type") == "tool_use"]
        content = [b for b in blocks if b.get("type") not in ("tool_use", "thinking", "redacted_thinking")]
    speaker = entry.get("from", entry.get("role"))
    if speaker in ("function_call", "tool_call") and OPENING not in str(content):
        written = _json(content, "a function call", place) if isinstance(content, str) else content
        calls += [_call(each, place) for each in (written if isinstance(written, list) else [written])]
        content = None
    text = _text(content, place, may_be_empty=True)
    if OPENING in text and is_read:
        calls += [_call(_json(body, "a tool call", place), place) for body in CALL.findall(text)]
        text = CALL.sub("", text).strip()
        if OPENING in text:
            raise DataError(f"{place}: got {OPENING} without its end; close it with </tool_call>")
    if not isinstance(thought, str):
        raise DataError(f"{place}: got reasoning of type {type(thought).__name__}; give a string")
    said = _message("assistant", text, name=entry.get("name"))
    return replace(said, tool_calls=tuple(calls), reasoning=thought.strip())


def _join_answers(read: Sequence[RecordMessage], place: str) -> tuple[RecordMessage, ...]:
    """Return `read` with assistant messages that follow each other as one."""
    found: list[RecordMessage] = []
    for said in read:
        last = found[-1] if found else None
        if last is None or not last.message.role == said.message.role == "assistant":
            found.append(said)
            continue
        if is_empty(said.message) or is_empty(last.message):
            found[-1] = last if is_empty(said.message) else said
            continue
        if last.message.tool_calls and not said.message.tool_calls:
            call = last.message.tool_calls[-1]
            raise DataError(
                f"{place}: got no result of a call of {call.name} before the next answer; write its tool message, or "
                "take the call out"
            )
        if last.is_trained != said.is_trained:
            raise DataError(
                f"{place}: got two assistant messages in a row, of which one is to be trained; join them, or tag both"
            )
        texts = [text for m in (last.message, said.message) if (text := as_text(m.content)).strip()]
        calls = (*last.message.tool_calls, *said.message.tool_calls)
        thoughts = [m.reasoning for m in (last.message, said.message) if m.reasoning]
        message = Message(
            role="assistant",
            content=(Text(text="\n".join(texts)),),
            tool_calls=calls,
            reasoning="\n".join(thoughts),
            name=said.message.name if said.message.name == last.message.name else "",
        )
        is_named = last.spoken and said.spoken
        found[-1] = replace(last, message=message, spoken=(*last.spoken, *said.spoken) if is_named else ())
    return tuple(found)


def _after_fork(record: Record, other: Record) -> Record:
    """Return `record` with what it shares with `other` from the beginning as context."""
    shared = 0
    for own, its in zip(record.said, other.said, strict=False):
        if own.message != its.message:
            break
        shared += 1
    said = tuple(
        replace(each, is_trained=False) if place < shared and each.message.role == "assistant" else each
        for place, each in enumerate(record.said)
    )
    return replace(record, said=said)


def _entries(value: object, role: str, place: str) -> list[Any]:
    """Return a prompt or a completion as entries of messages; a text is one message of `role`."""
    return [{"role": role, "content": value}] if isinstance(value, str) else _list(value, "a prompt", place)


def _repeats(side: object, prompt: str) -> bool:
    """Whether the messages of `side` hold the `prompt` themselves."""
    entries = cast("list[object]", side) if isinstance(side, list) else []
    return any(isinstance(e, dict) and prompt in cast("dict[str, object]", e).values() for e in entries)


def _is_answer(entry: object) -> bool:
    """Whether `entry` is a message of the assistant."""
    if not isinstance(entry, dict):
        return False
    own = cast("dict[str, object]", entry)
    return SHAREGPT.get(str(own.get("from", own.get("role")))) == "assistant"


def _role(name: object, roles: Mapping[str, Role], place: str) -> Role:
    if not isinstance(name, str) or name not in roles:
        raise DataError(f"{place}: got the role {name!r}; choose from {', '.join(roles)}")
    return roles[name]


def _message(role: Role, text: str, *, call: object = None, name: object = None) -> Message:
    """Return a message, with the id of the `call` that it answers and the `name` of who speaks if these are texts."""
    return Message(
        role=role,
        content=(Text(text=text),),
        tool_call_id=call if isinstance(call, str) and role == "tool" else "",
        name=name if isinstance(name, str) else "",
    )


def _list(value: object, what: str, place: str) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise DataError(f"{place}: got {what} of type {type(value).__name__}; give a list")


def _text(content: object, place: str, *, may_be_empty: bool) -> str:
    """Return a string, or the text parts of a list of parts; `may_be_empty` also admits None."""
    if isinstance(content, str):
        return content
    if content is None and may_be_empty:
        return ""
    if isinstance(content, list):
        parts = [as_object(part, place) for part in cast("list[object]", content)]
        texts = [part.get("text") for part in parts]
        if all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
            return "".join(cast("list[str]", texts))
        kinds = sorted({str(part.get("type")) for part in parts} - {"text"})
        raise DataError(
            f"{place}: got content of the kind {', '.join(kinds)}; only text is read, take it out"
        )
    raise DataError(f"{place}: got the content {content!r:.80}; give a string or a list of text parts")


def _json(value: object, what: str, place: str) -> object:
    try:
        return load_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise DataError(f"{place}: got {what} that is no JSON ({error}); write an object") from None


def _call(value: object, place: str) -> ToolCall:
    """Return a call as OpenAI, Anthropic or Hermes write it."""
    entry = as_object(value, place)
    function = as_object(entry.get("function", entry), place)
    name = function.get("name")
    arguments = function.get("arguments", function.get("input", function.get("parameters", {})))
    if isinstance(arguments, str):
        arguments = _json(arguments, "tool arguments", place) if arguments.strip() else {}
    if not isinstance(name, str) or not name:
        raise DataError(f"{place}: got the tool name {name!r}; give a string")
    id = entry.get("id")
    return ToolCall(
        name=name,
        arguments=as_object({} if arguments is None else arguments, place),
        id=id if isinstance(id, str) else "",
    )

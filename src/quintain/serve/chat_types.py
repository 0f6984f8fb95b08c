"""Chats as clients of the endpoint send them, whatever the dialect, and what makes two of their messages the same.

Messages only propose which recorded call a request goes on from; whether it does is decided by tokens. So identity is
exact: role and text as they are, arguments of tools as canonical JSON, and opaque reasoning state. Names that clients
give to calls are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

from quintain.errors import DataError
from quintain.text.parse import UnreadableError, json_text, read_json
from quintain.types import Message, ToolCall, ToolSpec, as_content

Role = Literal["system", "user", "assistant", "tool"]
Row = dict[str, Any]
OPENING, CLOSING = "<think>", "</think>"
THOUGHT = "reasoning_content"
"""Where what was thought stands in a message of chat completions."""


class RequestError(Exception):
    """A request that is answered with an error: ``RequestError(400, "n: got 2; ask twice instead")``."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        """Hold the HTTP status, what to say, and the word that clients tell errors apart by."""
        super().__init__(status, message, code)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A message: ``AssistantMessage(role="assistant", text="", calls=(ToolCall(name="guess"),))``."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    names: tuple[str, ...] = ()
    """How the client names the calls, or the call that a tool message answers."""
    thinking: str = ""
    """What was thought before it."""
    opaque: str = ""
    """Reasoning state that the client gives back as it came: a signature, encrypted content."""

    def key(self) -> str:
        """Return what two equal messages have in common, as one text; blanks about a thought are a matter of form."""
        calls = [[call.name, canonical(call.arguments)] for call in self.calls]
        return json.dumps(
            [self.role, self.text, calls, self.thinking.strip(), self.opaque], ensure_ascii=True
        )

    def whole_text(self) -> str:
        """Return its words with what was thought in front of them."""
        return f"{OPENING}{self.thinking}{CLOSING}{self.text}" if self.thinking else self.text

    def message(self) -> Message:
        """Return it for a chat template."""
        is_result = self.role == "tool"
        calls = tuple(
            replace(call, id=call.id or (self.names[number] if number < len(self.names) else ""))
            for number, call in enumerate(self.calls)
        )
        return Message(
            role=self.role,
            content=as_content(self.text),
            tool_calls=calls,
            reasoning=self.thinking,
            tool_call_id=self.names[0] if is_result and self.names else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request in any dialect: ``ChatRequest(messages=(AssistantMessage(role="user", text="hello"),))``."""

    messages: tuple[AssistantMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    """Texts before which the answer is cut."""
    model: str = ""
    is_streamed: bool = False
    has_logprobs: bool = False
    has_token_ids: bool = False
    """Whether the answer is to hold token ids, as vLLM's ``return_token_ids`` asks for."""
    has_usage: bool = True
    """Whether a stream ends with the numbers of tokens."""
    before: str = ""
    """Id of an answer whose chat `messages` go on from (``previous_response_id``)."""
    seals_thoughts: bool = False
    """Whether a thought has opaque state in the dialect, which clients give back with it."""
    pinned: tuple[str, ...] = ()
    """Parameters of sampling that were asked for; where the server sets them itself, they are not done."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema that an answer keeps to, if it calls no tool."""
    must_call: tuple[ToolSpec, ...] = ()
    """Tools of which one is to be called, whatever the model would rather say."""
    one_call: bool = False
    """Whether an answer may hold one call at most: what comes behind its first is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered, and the numbers that some dialects give besides."""

    id: str
    """Hexadecimal digits, unique; dialects put their own letters in front."""
    spoken: AssistantMessage
    finish: Literal["stop", "calls", "length", "text"]
    """A stop token, calls of tools, the limit of tokens, or one of `ChatRequest.stop`."""
    stopped_by: str = ""
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    pieces: tuple[str, ...] = ()
    """The text of each token."""
    policy: str = "policy"
    version: int = 0
    created: int = 0


def canonical(value: object) -> str:
    """Return JSON `value` with its keys in order and without blanks, so that equal values are equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=dict)


def digest_of(*texts: str) -> str:
    """Return 32 hexadecimal digits that name `texts`."""
    total = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def tools_key(tools: Sequence[ToolSpec]) -> str:
    """Return what equal sets of tools have in common; the tools belong to what a chat is."""
    return canonical([[tool.name, tool.description, tool.parameters] for tool in tools])


def split_thinking(text: str, *, is_open: bool = False) -> tuple[str, str]:
    """Return the thoughts in front of an answer, and the rest: ``("a", "b")`` for ``<think>a</think>b``.

    One that was not ended is all of the text; it `is_open` where the prompt began it.
    """
    before, mark, rest = text.partition(CLOSING)
    begun = before.lstrip().startswith(OPENING)
    thought = before.lstrip().removeprefix(OPENING) if begun else before
    if mark:
        return thought, rest
    return (thought, "") if begun or is_open else ("", text)


def object_in(value: object, what: str) -> Row:
    """Return `value`, which must be an object.

    Raises:
        RequestError: it is something else.
    """
    if not isinstance(value, dict):
        raise RequestError(400, f"{what}: got {type(value).__name__}; give an object")
    return cast(Row, value)


def list_in(value: object, what: str) -> list[Any]:
    """Return `value`, which must be a list, or the empty list for nothing.

    Raises:
        RequestError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(400, f"{what}: got {type(value).__name__}; give a list")
    return cast("list[Any]", value)


def text_in(value: object, what: str) -> str:
    """Return `value`, which must be a text, or the empty text for nothing.

    Raises:
        RequestError: it is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestError(400, f"{what}: got {type(value).__name__}; give a text")
    return value


def texts_in(value: object, what: str, kinds: Sequence[str]) -> str:
    """Return the text of a content: a text, or a list of parts of `kinds`, whose texts are joined.

    Raises:
        RequestError: there is a part of another kind, such as a picture.
    """
    if not isinstance(value, list):
        return text_in(value, what)
    texts: list[str] = []
    for part in cast("list[object]", value):
        if isinstance(part, str):
            texts.append(part)
            continue
        row = object_in(part, what)
        if row.get("type") not in kinds:
            raise RequestError(
                400, f"{what}: got a part of type {row.get('type')!r:.40}; this model reads text only"
            )
        texts.append(text_in(row.get("text", row.get("refusal")), what))
    return "".join(texts)


def number_in(row: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of the whole numbers `names` in `row` that is given, which must be 1 or more.

    Raises:
        RequestError: it is something else.
    """
    for name in names:
        value = row.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestError(400, f"{name}: got {value!r:.40}; give a whole number above 0")
        return value
    return None


def stops_in(value: object) -> tuple[str, ...]:
    """Return the texts that end an answer.

    Raises:
        RequestError: one is empty or no text.
    """
    given = [value] if isinstance(value, str) else list_in(value, "stop")
    if not all(isinstance(each, str) and each for each in given):
        raise RequestError(400, "stop: got something else than texts; give texts of one character or more")
    return tuple(given)


def call_in(name: object, arguments: object) -> ToolCall:
    """Return the call that a client gives back; `arguments` are an object, or its JSON.

    Raises:
        RequestError: the arguments are no JSON object.
    """
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments) if arguments.strip() else {}
        except UnreadableError as error:
            raise RequestError(400, f"arguments of the tool call {name!r:.40}: they are {error}") from error
    row = object_in({} if arguments is None else arguments, f"arguments of the tool call {name!r:.40}")
    return ToolCall(name=text_in(name, "name of a tool call"), arguments=row)


def tool_in(row: Mapping[str, Any], parameters: str = "parameters") -> ToolSpec:
    """Return the tool that `row` describes.

    Raises:
        RequestError: it has no name, or its parameters are no schema.
    """
    name = text_in(row.get("name"), "name of a tool")
    if not name:
        raise RequestError(400, "tools: got one without a name; name every tool")
    schema = object_in(row.get(parameters) or {"type": "object", "properties": {}}, f"{parameters} of {name}")
    return ToolSpec(name=name, description=text_in(row.get("description"), "description"), parameters=schema)


def must_call_in(choice: str, name: object, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """Return the `tools` of which one must be called: all of them, or the one with a `name` that is not None.

    Raises:
        RequestError: there is no such tool; `choice` is what asks for it.
    """
    found = tools if name is None else tuple(tool for tool in tools if tool.name == name)
    if not found:
        asked = "a call" if name is None else f"a call of {name!r:.40}"
        raise RequestError(400, f"{choice}: got {asked}, and no such tool; name one that stands in tools")
    return found


def schema_in(row: Mapping[str, Any], what: str, names: Sequence[str] = ()) -> Mapping[str, Any] | None:
    """Return the JSON schema of the format `row`, which may stand under `names`; None for plain text.

    Raises:
        RequestError: it is no format that is known here.
    """
    kind = row.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise RequestError(400, f"{what}: got {kind!r:.60}; ask for text, json_object or json_schema")
    for name in names:
        row = object_in(row.get(name), f"{name} of {what}")
    return object_in(row.get("schema"), f"schema of {what}")


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of `call` as JSON."""
    try:
        return json_text(call.arguments)
    except DataError as error:
        raise RequestError(500, str(error), "server_error") from error


PINNED = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "min_p",
)
"""What the server sets itself, so that log-probs are those of one distribution."""


NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "top_k": (0, -1),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "min_p": (0,),
}
"""Parameters that no engine here knows, and the values of them that change nothing."""


def refuses_several(value: object, name: str, *, if_true: bool = False) -> bool:
    """Whether ``parallel_tool_calls`` (or, `if_true`, ``disable_parallel_tool_use``) asks for one call at most.

    Raises:
        RequestError: it is no truth value.
    """
    if value is not None and not isinstance(value, bool):
        raise RequestError(400, f"{name}: got {value!r:.40}; give true or false")
    return value is if_true


class Sampled(TypedDict):
    """What a request says of sampling, as fields of `ChatRequest`."""

    pinned: tuple[str, ...]
    temperature: float | None
    top_p: float | None
    seed: int | None


def sampling_in(row: Mapping[str, Any]) -> Sampled:
    """Return what `row` says of sampling.

    Raises:
        RequestError: a temperature, top_p or seed that is none.
    """
    seed = row.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise RequestError(400, f"seed: got {seed!r:.40}; give a whole number")
    found: dict[str, float | None] = {}
    for name, low, high in (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0)):
        value = row.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and low <= value <= high):
            raise RequestError(400, f"{name}: got {value!r:.40}; give a number from {low:g} to {high:g}")
        found[name] = None if value is None else float(value)
    changed = [
        name for name in PINNED if row.get(name) is not None and row[name] not in NEUTRAL.get(name, ())
    ]
    return Sampled(pinned=tuple(changed), temperature=found["temperature"], top_p=found["top_p"], seed=seed)


def refuse_many(row: Mapping[str, Any]) -> None:
    """Refuse several answers to one request: which of them was gone on from could not be told.

    Raises:
        RequestError: several are asked for.
    """
    for name in ("n", "best_of"):
        if row.get(name) not in (None, 1):
            raise RequestError(
                400, f"{name}: got {row[name]!r:.40}; one answer is given to a request, ask again for another"
            )

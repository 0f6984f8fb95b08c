"""Tools as decorated methods: signature and docstring become the JSON schema that calls are checked against.

A wrong call is the policy's mistake and comes back to it as text; an exception inside a tool is the tool's
and is raised as a `ToolFault`. The schema is read once per class.
"""

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
)

from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import NOTHING, Owner, ToolCall, ToolSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

P = ParamSpec("P")
R = TypeVar("R")
MARK = "__quintain_tool__"
PROTOCOL = "quintain.environments.protocol"
"""Where the base class lives, whose methods a tool must not hide."""
MAX_QUOTED = 60
NUM_PLACES = 3
"""Tools, and places of each, that are named."""
SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
ENTRY = re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


class OwnedFault(EnvironmentFault):
    """A fault inside an environment that another party answers for, such as a model behind an endpoint."""

    owner: Owner = "environment"
    kind: str = "contract"
    """What `Failure.kind` will be."""


class ToolFault(OwnedFault):
    """A tool raised, or returned something that is not text: the failure is the tool's, not the policy's."""

    owner: Owner = "tool"

    tool_name: str = ""

    @classmethod
    def of(cls, tool_name: str, message: str) -> "ToolFault":
        """Return the fault of tool `tool_name`; it survives copying and pickling."""
        fault = cls(f"tool {tool_name} {message}")
        fault.tool_name = tool_name
        return fault


class GraderFault(OwnedFault):
    """A grader raised, or gave something that is no score: the failure is the judge's, never a 0."""

    owner: Owner = "judge"
    kind: str = "grader"


ReplyKind = Literal["ok", "unknown_tool", "misnamed", "missing", "extra", "mistyped"]
"""What was wrong with a call, which then was not carried out: no such tool, an argument under a name that was made up,
one that is missing or that there is none of, or a value of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """What a call came to: ``ToolReply(text="higher")``, or an error that the policy can read and mend.

    Example: ``ToolReply(text="Error: guess(number): missing.", is_error=True, kind="missing")``.
    """

    text: str
    is_error: bool = False
    kind: ReplyKind = "ok"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool method, compiled: its spec and a strict validator from JSON to keyword arguments."""

    spec: ToolSpec
    read: Callable[[str], dict[str, Any]]
    """JSON text of the arguments → keyword arguments; raises pydantic's ValidationError, a ValueError."""


def tool(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a method as a tool: its name, signature and docstring are what the model is told.

    Parameters need annotations; a docstring section ``Args:`` describes them. The method returns a string.
    """
    setattr(function, MARK, True)
    return function


def find_clash(listed: Iterable[tuple[str, Sequence[ToolSpec]]]) -> tuple[str, str, str] | None:
    """Return a tool and the two sources of `listed` (name, tools) that give it other arguments; None where none is.

    What is learned of one of them breaks the calls of the other.
    """
    known: dict[str, tuple[str, str]] = {}
    for source, tools in listed:
        for tool in tools:
            shape = shape_of(tool)
            other, own = known.setdefault(tool.name, (source, shape))
            if own != shape and other != source:
                return tool.name, other, source
    return None


def shape_of(tool: ToolSpec) -> str:
    """Return names and types of the arguments of `tool`; tools of one shape are called alike."""
    fields: Mapping[str, Any] = tool.parameters.get("properties", {})
    return repr(sorted((name, str(schema.get("type", ""))) for name, schema in fields.items()))


class Shapes:
    """The tools of many conversations, and which have other arguments in some: ``shapes.add("a.jsonl:1", tools)``."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, str]] = {}
        """name of a tool → shape → where it was first"""

    def add(self, place: str, tools: Iterable[ToolSpec]) -> None:
        """Take in what is listed at `place`."""
        for tool in tools:
            self._places.setdefault(tool.name, {}).setdefault(shape_of(tool), place)

    def __str__(self) -> str:
        """Return which tools have several shapes, and where each is first; empty where none has."""
        several = {name: list(shapes.values()) for name, shapes in self._places.items() if len(shapes) > 1}
        if not several:
            return ""
        named = [f"{name} ({', '.join(places[:NUM_PLACES])})" for name, places in several.items()]
        more = f" and {len(named) - NUM_PLACES} more" if len(named) > NUM_PLACES else ""
        return f"{len(named)} with other arguments in other records: {', '.join(named[:NUM_PLACES])}{more}"


def tool_specs(owner: type) -> tuple[ToolSpec, ...]:
    """Return the tools of class `owner` in the order they are written, those of base classes first."""
    return tuple(found.spec for found in tools_of(owner).values())


def call_tool(environment: object, call: ToolCall) -> ToolReply:
    """Run `call` on `environment`; every mistake of the policy becomes an error text that says what to do.

    Raises:
        ToolFault: the tool raised, or did not return a string.
    """
    tools = tools_of(type(environment))
    found = tools.get(call.name)
    if found is None:
        near = suggestion(call.name, tools) if tools else "there are no tools"
        text = f"Error: no tool is called {_quote(call.name)}; {near}"
        return ToolReply(text=text, is_error=True, kind="unknown_tool")
    try:
        arguments = found.read(json.dumps(dict(call.arguments)))
    except (ValueError, TypeError, RecursionError) as error:
        text = f"Error: {_complaint(found.spec, error)}"
        return ToolReply(text=text, is_error=True, kind=name_fault(_types_of(error)))
    return ToolReply(text=_run(environment, call.name, arguments))


def name_fault(types: Collection[str]) -> ReplyKind:
    """Return what is wrong with arguments that a validator found errors of these `types` in; names come before values.

    One that is missing beside one that there is none of is one under another name.
    """
    if "extra_forbidden" in types:
        return "misnamed" if "missing" in types else "extra"
    return "missing" if "missing" in types else "mistyped"


def _types_of(error: Exception) -> set[str]:
    """Return the types of the errors that pydantic found; none of what is no JSON."""
    from pydantic import ValidationError

    return {each["type"] for each in error.errors()} if isinstance(error, ValidationError) else set()


def _run(environment: object, name: str, arguments: dict[str, Any]) -> str:
    """Call tool `name` and return its text."""
    try:
        text = getattr(environment, name)(**arguments)
    except OwnedFault:
        raise
    except Exception as error:
        message = f"raised {type(error).__name__}: {error}; mend the tool, or return an error text"
        raise ToolFault.of(name, message) from error
    if not isinstance(text, str):
        raise ToolFault.of(name, f"must return text: got {type(text).__name__}; return a str")
    return text


@cache
def tools_of(owner: type) -> Mapping[str, Tool]:
    """Return the compiled tools of class `owner`, by name.

    Raises:
        UsageError: a tool's parameters cannot be described as a JSON schema.
    """
    methods: dict[str, Callable[..., object]] = {}
    reserved = {name for base in owner.__mro__ if base.__module__ == PROTOCOL for name in vars(base)}
    for base in reversed(owner.__mro__):
        for name, member in vars(base).items():
            if getattr(member, MARK, False):
                if name in reserved:
                    raise UsageError(
                        f"tool {owner.__name__}.{name}: got a name that Environment uses; rename it"
                    )
                methods[name] = member
            elif name in methods:
                del methods[name]
    return {name: _compile(f"{owner.__name__}.{name}", name, method) for name, method in methods.items()}


def _compile(who: str, name: str, method: Callable[..., object]) -> Tool:
    """Return `method` as a `Tool`."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    description, notes = _read_docstring(method)
    fields = _fields(who, method, notes)
    try:
        adapter = TypeAdapter(_arguments_type(name, fields))
        schema = adapter.json_schema()
    except PydanticUserError as error:
        raise UsageError(
            f"tool {who}: got a parameter type without a JSON schema ({error.message.splitlines()[0]}); "
            "use str, int, float, bool, Literal, list, dict or a pydantic model"
        ) from error
    for field, parameter in inspect.signature(method).parameters.items():
        if field in fields and _is_plain(parameter.default):
            schema["properties"][field].setdefault("default", parameter.default)
    spec = ToolSpec(name=name, description=description, parameters=_drop_titles(schema))
    return Tool(spec, adapter.validator.validate_json)


def _arguments_type(name: str, fields: Mapping[str, tuple[Any, bool]]) -> Any:
    """Return a closed, strict TypedDict of `fields`: name → (type, whether it is required)."""
    from pydantic import ConfigDict, with_config
    from typing_extensions import TypedDict

    keys = {key: kind if is_required else NotRequired[kind] for key, (kind, is_required) in fields.items()}
    # A TypedDict, not a model: parameters may then be called `schema` or `copy`, and defaults stay Python's.
    closed = cast(Any, TypedDict)(name, keys)
    return with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))(closed)


def _fields(who: str, method: Callable[..., object], notes: Mapping[str, str]) -> dict[str, tuple[Any, bool]]:
    """Return the parameters of `method` (but the first): name → (described type, whether it is required)."""
    from pydantic import Field

    if inspect.iscoroutinefunction(method):
        raise UsageError(f"tool {who} must be a plain method: got an async one; write it without async")
    try:
        hints = get_type_hints(method, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"tool {who}: got an annotation that cannot be read ({error}); import its type"
        ) from error
    fields: dict[str, tuple[Any, bool]] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not is_named or parameter.name not in hints:
            raise UsageError(
                f"tool {who}: got the parameter {parameter}; give every parameter a name and an annotation"
            )
        kind, note = hints[parameter.name], notes.get(parameter.name)
        described = Annotated[kind, Field(description=note)] if note else kind
        fields[parameter.name] = (described, parameter.default is parameter.empty)
    return fields


def _read_docstring(method: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of the docstring of `method`, and its ``Args:`` by name."""
    lines = (inspect.getdoc(method) or "").splitlines()
    first: list[str] = []
    for line in lines:
        if not line.strip() or SECTION.match(line):
            break
        first.append(line.strip())
    notes: dict[str, str] = {}
    section, indent, last = "", 0, ""
    for line in lines:
        heading = SECTION.match(line)
        entry = ENTRY.match(line)
        if heading:
            section, indent, last = heading[1], 0, ""
        elif section not in ("Args", "Arguments", "Parameters") or not line.strip():
            continue
        elif entry and (not indent or len(entry[1]) == indent):
            indent, last = len(entry[1]), entry[2]
            notes[last] = entry[3].strip()
        elif last:
            notes[last] = f"{notes[last]} {line.strip()}"
    return " ".join(first), notes


def _is_plain(value: object) -> bool:
    """Whether `value` is a default that JSON can show."""
    return value is None or isinstance(value, (str, int, float, bool))


def _drop_titles(schema: Any) -> Any:
    """Return `schema` without the titles that pydantic adds; parameters named `title` stay."""
    if isinstance(schema, dict):
        items = cast("dict[str, Any]", schema).items()
        return {k: _drop_titles(v) for k, v in items if not (k == "title" and isinstance(v, str))}
    if isinstance(schema, list):
        return [_drop_titles(item) for item in cast("list[Any]", schema)]
    return schema


def _complaint(spec: ToolSpec, error: Exception) -> str:
    """Return what is wrong with the arguments, for the model."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"{spec.name}: the arguments are not a JSON object; write them as one."
    known = cast(Mapping[str, Any], spec.parameters.get("properties", NOTHING))
    parts = [_describe_error(detail, known) for detail in error.errors(include_url=False)[:3]]
    return "; ".join(f"{spec.name}{part}" for part in parts)


def _describe_error(detail: "ErrorDetails", known: Mapping[str, Any]) -> str:
    """Return one of pydantic's complaints as ``(argument): what is wrong``."""
    place = ".".join(str(part) for part in detail["loc"])
    if not place:
        return ": the arguments are not a JSON object"
    if detail["type"] == "missing":
        return f"({_clip(place)}): missing"
    if detail["type"] == "extra_forbidden":
        near = suggestion(place, known) if known else "it takes no arguments"
        return f"({_clip(place)}): unknown argument; {near}"
    wanted = detail["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"({_clip(place)}): expected {wanted}, got {_quote(detail['input'])}"


def _quote(value: object) -> str:
    """Return `value` as short JSON."""
    return _clip(json.dumps(value, default=repr))


def _clip(text: str) -> str:
    """Return `text` cut to a length a prompt can bear."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"

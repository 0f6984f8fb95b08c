"""The package's possible answers as calls: the first of each, in the language that the category asks for.

The package compares what it reads from source text, so an argument of a Java or JavaScript function is text: `50L`,
`new String[]{a}`, `{"key": 1}`. A few of these golds its own checker refuses.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from quintain.adapters.bfcl.package import language_of
from quintain.types import ToolCall

Schema = Mapping[str, Any]


def gold_calls(answers: Sequence[Any], functions: Sequence[Schema], category: str) -> tuple[ToolCall, ...]:
    """Return calls with the first of the possible `answers`; an argument that may be left out first is left out."""
    calls: list[ToolCall] = []
    write = {"JAVA": in_java, "JAVASCRIPT": in_javascript}.get(language_of(category), lambda value, _: value)
    for call in answers:
        ((name, arguments),) = call.items()
        described = {f["name"]: f["parameters"]["properties"] for f in functions}[name]
        found = {
            key: write(first_of(values, described.get(key, {})), described.get(key, {}))
            for key, values in arguments.items()
            if values[:1] != [""]
        }
        calls.append(ToolCall(name=name, arguments=found))
    return tuple(calls)


def write_calls(calls: Sequence[ToolCall], category: str) -> str:
    """Return `calls` as a model writes them that answers in text: ``[f(a=1, b='x')]``."""
    quote = repr if language_of(category) == "PYTHON" else quote_source
    return f"[{', '.join(write_call(call, quote) for call in calls)}]"


def write_call(call: ToolCall, write: Any = repr) -> str:
    """Return `call` as the package reads it: ``cd(folder='document')``."""
    return f"{call.name}({', '.join(f'{key}={write(value)}' for key, value in call.arguments.items())})"


def quote_source(value: str) -> str:
    """Return an argument in Java or JavaScript: what is a number, a truth or a collection as it is, else in quotes."""
    is_source = value in ("true", "false") or value.startswith(("new ", "{", "["))
    return value if is_source or value[:1].isdigit() or value[:2] in ("-1", "-2") else f'"{value}"'


def first_of(values: Sequence[Any], schema: Schema) -> Any:
    """Return the first of the possible `values`; in a described object, each of its own values is a list of them."""
    return _unwrap(values[0], schema) if values else []


def _unwrap(value: Any, schema: Schema) -> Any:
    """Return a possible value as an argument."""
    if isinstance(value, dict) and (schema.get("type") in ("dict", "HashMap")):
        inner = schema.get("properties", {})
        items = cast("dict[str, Any]", value).items()
        return {
            key: first_of(each, inner.get(key, {})) if isinstance(each, list) else each
            for key, each in items
            if each != [""] and not (isinstance(each, list) and each and each[0] == "")
        }
    if isinstance(value, list):
        return [_unwrap(each, schema.get("items", {})) for each in cast("list[Any]", value)]
    return value


def in_java(value: Any, schema: Schema) -> str:
    """Return `value` as Java source; a text without its quotes."""
    kind, inner = schema.get("type", "any"), schema.get("items", {})
    if isinstance(value, list):
        items = [in_java(each, inner) for each in cast("list[Any]", value)]
        if kind == "Array":
            return f"new {inner.get('type', 'Object')}[]{{{', '.join(items)}}}"
        quoted = [f'"{item}"' if inner.get("type") in ("String", "char") else item for item in items]
        return f"new ArrayList<>(Arrays.asList({', '.join(quoted)}))" if items else "new ArrayList<>()"
    if isinstance(value, dict):
        puts = [f'put("{key}", {json.dumps(each)});' for key, each in cast("dict[str, Any]", value).items()]
        return f"new HashMap<>() {{{{ {' '.join(puts)} }}}}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}{ {'long': 'L', 'float': 'f'}.get(kind, '') if isinstance(value, (int, float)) else '' }"


def in_javascript(value: Any, schema: Schema) -> str:
    """Return `value` as JavaScript source; a text without its quotes."""
    if isinstance(value, str):
        return value
    return f"{json.dumps(value)}{'n' if schema.get('type') == 'Bigint' else ''}"

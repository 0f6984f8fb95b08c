"""Nouns as JSON data and back, by their type hints: a new field of a noun needs no line here.

A noun becomes an object of its fields, those at their defaults left out; a noun whose only field is a text becomes that
text. Bytes go through `Blobs`, so that a journal can hold them beside the row. Reading is strict: an unknown field, a
missing one or a value of another type is a `TypeError`, `ValueError` or `KeyError`. The functions for a class of noun
are put together once, because episodes are read by the million; `quintain.types.columns` writes many nouns at once.

It needs the standard library only, because a worker under another interpreter uses it (`environments.worker_host`).
No package does the same: msgspec has no unions of dataclasses, and it and pydantic refuse half of a surrogate pair,
which a model can write.
"""

import base64
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Noun = TypeVar("Noun")
Row = Any
"""JSON data: an object, a list, a text, a number, a truth value or None."""


class Blobs:
    """Where bytes and free JSON data go, and where they come from; here they stay in the row, bytes as base64."""

    def put(self, blob: bytes) -> Row:
        """Return what stands for `blob` in the row."""
        return base64.b64encode(blob).decode()

    def take(self, row: Row) -> bytes:
        """Return the bytes that `row` stands for."""
        return base64.b64decode(_read_text(row, self), validate=True)

    def put_data(self, data: Mapping[str, Any]) -> Row:
        """Return what stands for `data` in the row."""
        return data

    def take_data(self, row: Row) -> dict[str, Row]:
        """Return the data that `row` stands for."""
        return _object(row)


IN_ROW = Blobs()
Write = Callable[[Any, Blobs], Row]
Read = Callable[[Row, Blobs], Any]


def to_row(value: object, kind: Any = None) -> Row:
    """Return `value` as JSON data; `kind` is its type hint, its own class where that is left out.

    Mappings of free JSON data are passed through: give `plain` to the encoder as its default.
    """
    write = writer(kind or type(value))
    return value if write is None else write(value, IN_ROW)


def from_row(kind: type[Noun], row: Row) -> Noun:
    """Return what `to_row` made `row` of; `kind` is its class, or any type hint that the nouns use."""
    return reader(kind)(row, IN_ROW)


def plain(value: object) -> object:
    """Return the JSON value of a mapping or number that `json` does not know; TypeError for the rest."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, object], value))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__}")


@cache
def writer(kind: Any) -> Write | None:
    """Return what writes a value of `kind`; None where it is JSON data already."""
    if kind is bytes:
        return lambda value, blobs: blobs.put(value)
    if is_dataclass(kind):
        return noun_writer(cast(type, kind))
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Mapping:
        return lambda value, blobs: blobs.put_data(value)
    if origin in (Union, types.UnionType):
        return _union_writer(parts)
    if origin is frozenset:
        return lambda value, blobs: sorted(value)
    write = writer(parts[0]) if origin in (tuple, Sequence) else None
    return write and (lambda value, blobs: [write(each, blobs) for each in value])


def noun_writer(kind: type, without: Collection[str] = ()) -> Write:
    """Return what writes a noun of `kind` but for the fields in `without`.

    Most nouns are at most of their defaults, which one comparison finds.
    """
    parts = {name: part for name, part in parts_of(kind).items() if name not in without}
    if is_a_text(kind):
        (name,) = parts
        return lambda value, blobs: getattr(value, name)
    # 0, -0.0 and False are equal: a number is always written
    kept = [name for name, (part, _) in parts.items() if is_kept(part.default)]
    written = [(name, write) for name in kept if (write := writer(parts[name][1])) is not None]
    others = [(name, part.default, writer(hint)) for name, (part, hint) in parts.items() if name not in kept]
    defaults = tuple([default for _, default, _ in others])
    get_kept, get_others = getter(kept), getter([name for name, _, _ in others])
    if not written and not others:
        return lambda value, blobs: dict(zip(kept, get_kept(value)))  # noqa: B905 (twice as quick)

    def write_noun(value: Any, blobs: Blobs) -> Row:
        row: dict[str, Row] = dict(zip(kept, get_kept(value)))  # noqa: B905 (twice as quick)
        for name, write in written:
            row[name] = write(row[name], blobs)
        found = get_others(value)
        if found != defaults:
            for (name, default, write), part in zip(others, found):  # noqa: B905 (likewise)
                if part is not default and part != default:
                    row[name] = part if write is None else write(part, blobs)
        return row

    return write_noun


def is_kept(default: object) -> bool:
    """Whether a field with this default is always written."""
    return default is MISSING or (isinstance(default, (int, float)) and not isinstance(default, bool))


def getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the attributes `names` of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    one = attrgetter(*names) if names else None
    return (lambda value: (one(value),)) if one else lambda value: ()


def _union_writer(parts: tuple[Any, ...]) -> Write | None:
    """Return what writes one of `parts`: a noun by its class, a sequence that is no text by its items."""
    nouns = {part: noun_writer(cast(type, part)) for part in parts if is_dataclass(part)}
    others = [writer(part) for part in parts if part not in nouns]
    lists = [write for write in others if write is not None]
    if not nouns and not lists:
        return None

    def write_one(value: Any, blobs: Blobs) -> Row:
        found = nouns.get(type(value))
        if found is not None:
            return found(value, blobs)
        return value if not lists or value is None or isinstance(value, str) else lists[0](value, blobs)

    return write_one


@cache
def reader(kind: Any) -> Read:
    """Return what reads a value of `kind`."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind is bytes:
        return lambda row, blobs: blobs.take(row)
    if is_dataclass(kind):
        return noun_reader(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda row, blobs: kind(row)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(parts)
    if origin is Literal:
        return lambda row, blobs: _one_of(row, parts)
    if origin is frozenset:
        read = reader(parts[0])
        return lambda row, blobs: frozenset([read(each, blobs) for each in _read_list(row)])
    if origin is Mapping:
        return _mapping_reader(parts[1])
    if origin in (tuple, Sequence):
        return _list_reader(parts)
    raise TypeError(f"a field of type {kind}, which has no JSON form")


def noun_reader(kind: type) -> Callable[..., Any]:
    """Return what reads a noun of `kind`; it takes fields that are not in the row by name.

    It goes in the order in which the noun was written, as its bytes come in that.
    """
    parts = parts_of(kind)
    if is_a_text(kind):
        (name,) = parts
        return lambda row, blobs: kind(**{name: _read_text(row, blobs)})
    readers = {name: (hint if hint in _SIMPLE else None, reader(hint)) for name, (_, hint) in parts.items()}

    def read(row: Row, blobs: Blobs, **given: Any) -> Any:
        for name, part in _object(row).items():
            simple, read_part = readers[name]
            given[name] = part if type(part) is simple else read_part(part, blobs)
        return kind(**given)

    return read


def _union_reader(parts: tuple[Any, ...]) -> Read:
    """Return what reads one of `parts`: nouns are told apart by their fields, the rest by the JSON type."""
    nouns = [(parts_of(cast(type, part)), reader(part)) for part in parts if is_dataclass(part)]
    texts = [reader(part) for part in parts if part is str or (is_dataclass(part) and is_a_text(part))]
    others = [reader(part) for part in parts if part not in (str, type(None)) and not is_dataclass(part)]

    @cache
    def find(names: tuple[str, ...]) -> Read:
        (found,) = [read_noun for fitting, read_noun in nouns if _fits(fitting, names)]
        return found

    def read(row: Row, blobs: Blobs) -> Any:
        if isinstance(row, str) and texts:
            return texts[0](row, blobs)
        if row is None and type(None) in parts:
            return None
        if isinstance(row, dict):
            return find(tuple(cast("dict[str, Row]", row)))(row, blobs)
        if not others:
            raise TypeError(f"a {type(row).__name__}")
        return others[0](row, blobs)

    return read


def _mapping_reader(kind: Any) -> Read:
    if kind is Any:
        return lambda row, blobs: blobs.take_data(row)
    read = reader(kind)
    return lambda row, blobs: {key: read(each, blobs) for key, each in blobs.take_data(row).items()}


def _list_reader(parts: tuple[Any, ...]) -> Read:
    if len(parts) == 2 and parts[1] is not Ellipsis:
        readers = [reader(part) for part in parts]
        return lambda row, blobs: tuple(
            [read(each, blobs) for read, each in zip(readers, _read_list(row), strict=True)]
        )
    read = reader(parts[0])
    return lambda row, blobs: tuple([read(each, blobs) for each in _read_list(row)])


@cache
def parts_of(kind: type) -> dict[str, tuple[Field[Any], Any]]:
    """Return the fields of a noun that it is made of, each with its type hint."""
    hints = get_type_hints(kind)
    return {part.name: (part, hints[part.name]) for part in fields(kind) if part.init}


def is_a_text(kind: Any) -> bool:
    """Whether nouns of `kind` are written as the text that they hold."""
    return [hint for _, hint in parts_of(kind).values()] == [str]


def _fits(parts: Mapping[str, tuple[Field[Any], Any]], names: Collection[str]) -> bool:
    needed = {name for name, (part, _) in parts.items() if part.default is MISSING}
    return needed <= set(names) <= set(parts)


def _object(row: Row) -> dict[str, Row]:
    if type(row) is not dict:
        raise TypeError(f"a {type(row).__name__} where an object is due")
    return cast("dict[str, Row]", row)


def _read_list(row: Row) -> Sequence[Row]:
    if not isinstance(row, (list, tuple)):
        raise TypeError(f"a {type(row).__name__} where a list is due")
    return cast(Sequence[Row], row)


def _one_of(row: Row, choices: tuple[Any, ...]) -> Any:
    if row not in choices:
        raise ValueError(f"{row!r} where one of {', '.join(map(repr, choices))} is due")
    return row


def _read_text(row: Row, _: Blobs) -> str:
    if type(row) is not str:
        raise TypeError(f"a {type(row).__name__} where a text is due")
    return row


def _read_int(row: Row, _: Blobs) -> int:
    if type(row) is not int:
        raise TypeError(f"a {type(row).__name__} where a whole number is due")
    return row


def _read_float(row: Row, _: Blobs) -> float:
    if not isinstance(row, (int, float)):
        raise TypeError(f"a {type(row).__name__} where a number is due")
    return row


def _read_bool(row: Row, _: Blobs) -> bool:
    if type(row) is not bool and row not in (0, 1):
        raise TypeError(f"a {type(row).__name__} where true or false is due")
    return cast(bool, row)


_SIMPLE: dict[Any, Read] = {
    str: _read_text,
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    Any: lambda row, blobs: row,
}

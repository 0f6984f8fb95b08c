"""Nouns as JSON data and back, by their type hints: a new field of a noun needs no line here.

A noun becomes an object of its fields, those at their defaults left out; a noun whose only field is a text becomes that
text. Token ids, log-probs and bytes go through `Arrays`, so that a journal can hold them as arrays. Reading is strict:
an unknown field, a missing one or a value of another type is a `TypeError`, `ValueError` or `KeyError`. The functions
for a class of noun are put together once, because episodes are read by the million.

It needs the standard library only, because a worker under another interpreter uses it (`environments.worker_host`).
No package does the same: msgspec has no unions of dataclasses and writes infinity as null; it and pydantic refuse half
of a surrogate pair, which a model can write.
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


class Arrays:
    """Where ids, log-probs and bytes go, and where they come from; here they stay in the row, bytes as base64."""

    def put_ids(self, ids: tuple[int, ...]) -> Row:
        """Return what stands for `ids` in the row."""
        return ids

    def put_reals(self, reals: tuple[float, ...]) -> Row:
        """Return what stands for `reals` in the row."""
        return reals

    def put_bytes(self, blob: bytes) -> Row:
        """Return what stands for `blob` in the row."""
        return base64.b64encode(blob).decode()

    def take_ids(self, row: Row) -> tuple[int, ...]:
        """Return the ids that `row` stands for."""
        return tuple([_read_int(each, self) for each in _listed(row)])

    def take_reals(self, row: Row) -> tuple[float, ...]:
        """Return the numbers that `row` stands for."""
        return tuple([_read_float(each, self) for each in _listed(row)])

    def take_bytes(self, row: Row) -> bytes:
        """Return the bytes that `row` stands for."""
        return base64.b64decode(_read_text(row, self), validate=True)


IN_ROW = Arrays()
Write = Callable[[Any, Arrays], Row]
Read = Callable[[Row, Arrays], Any]


def to_row(value: object, kind: Any = None, arrays: Arrays = IN_ROW) -> Row:
    """Return `value` as JSON data; `kind` is its type hint, its own class where that is left out.

    Mappings of free JSON data are passed through: give `plain` to the encoder as its default.
    """
    write = _writer(kind or type(value))
    return value if write is None else write(value, arrays)


def from_row(kind: type[Noun], row: Row, arrays: Arrays = IN_ROW) -> Noun:
    """Return what `to_row` made `row` of; `kind` is its class, or any type hint that the nouns use."""
    return _reader(kind)(row, arrays)


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
def _writer(kind: Any) -> Write | None:
    """Return what writes a value of `kind`; None where it is JSON data already."""
    if kind in _ARRAYS:
        return _ARRAYS[kind][0]
    if is_dataclass(kind):
        return _noun_writer(cast(type, kind))
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_writer(parts)
    if origin is frozenset:
        return lambda value, arrays: sorted(value)
    write = _writer(parts[0]) if origin in (tuple, Sequence) else None
    return write and (lambda value, arrays: [write(each, arrays) for each in value])


def _noun_writer(kind: type) -> Write:
    """Return what writes a noun of `kind`: most are at most of their defaults, which one comparison finds."""
    parts = _parts(kind)
    if _is_a_text(kind):
        (name,) = parts
        return lambda value, arrays: getattr(value, name)
    # 0, -0.0 and False are equal: a number is always written
    kept = [name for name, (part, _) in parts.items() if _is_kept(part.default)]
    written = [(name, write) for name in kept if (write := _writer(parts[name][1])) is not None]
    others = [(name, part.default, _writer(hint)) for name, (part, hint) in parts.items() if name not in kept]
    defaults = tuple([default for _, default, _ in others])
    get_kept, get_others = _getter(kept), _getter([name for name, _, _ in others])

    def write_noun(value: Any, arrays: Arrays) -> Row:
        row: dict[str, Row] = dict(zip(kept, get_kept(value), strict=False))
        for name, write in written:
            row[name] = write(row[name], arrays)
        found = get_others(value)
        if found != defaults:
            for (name, default, write), part in zip(others, found, strict=False):
                if part is not default and part != default:
                    row[name] = part if write is None else write(part, arrays)
        return row

    return write_noun


def _is_kept(default: object) -> bool:
    return default is MISSING or type(default) in (int, float)


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the attributes `names` of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda value: (getattr(value, names[0]),)) if names else lambda value: ()


def _union_writer(parts: tuple[Any, ...]) -> Write | None:
    """Return what writes one of `parts`: a noun by its class, a sequence that is no text by its items."""
    nouns = {part: _noun_writer(cast(type, part)) for part in parts if is_dataclass(part)}
    others = [_writer(part) for part in parts if part not in nouns]
    lists = [write for write in others if write is not None]
    if not nouns and not lists:
        return None

    def write_one(value: Any, arrays: Arrays) -> Row:
        found = nouns.get(type(value))
        if found is not None:
            return found(value, arrays)
        return value if not lists or value is None or isinstance(value, str) else lists[0](value, arrays)

    return write_one


@cache
def _reader(kind: Any) -> Read:
    """Return what reads a value of `kind`."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in _ARRAYS:
        return _ARRAYS[kind][1]
    if is_dataclass(kind):
        return _noun_reader(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda row, arrays: kind(row)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(parts)
    if origin is Literal:
        return lambda row, arrays: _one_of(row, parts)
    if origin is frozenset:
        return lambda row, arrays: frozenset([_read_text(each, arrays) for each in _listed(row)])
    if origin is Mapping:
        return _mapping_reader(parts[1])
    if origin in (tuple, Sequence):
        return _list_reader(parts)
    raise TypeError(f"a field of type {kind}, which has no JSON form")


def _noun_reader(kind: type) -> Read:
    """Return what reads a noun of `kind`, in the order in which it was written, as its arrays come in that."""
    parts = _parts(kind)
    if _is_a_text(kind):
        (name,) = parts
        return lambda row, arrays: kind(**{name: _read_text(row, arrays)})
    readers = {name: (hint if hint in _SIMPLE else None, _reader(hint)) for name, (_, hint) in parts.items()}

    def read(row: Row, arrays: Arrays) -> Any:
        given: dict[str, Any] = {}
        for name, part in _object(row).items():
            simple, read_part = readers[name]
            given[name] = part if type(part) is simple else read_part(part, arrays)
        return kind(**given)

    return read


def _union_reader(parts: tuple[Any, ...]) -> Read:
    """Return what reads one of `parts`: nouns are told apart by their fields, the rest by the JSON type."""
    nouns = [(_parts(cast(type, part)), _reader(part)) for part in parts if is_dataclass(part)]
    texts = [_reader(part) for part in parts if part is str or (is_dataclass(part) and _is_a_text(part))]
    others = [_reader(part) for part in parts if part not in (str, type(None)) and not is_dataclass(part)]

    def read(row: Row, arrays: Arrays) -> Any:
        if isinstance(row, str) and texts:
            return texts[0](row, arrays)
        if row is None and type(None) in parts:
            return None
        if isinstance(row, dict):
            (found,) = [
                read_noun for fitting, read_noun in nouns if _fits(fitting, cast("dict[str, Row]", row))
            ]
            return found(row, arrays)
        if not others:
            raise TypeError(f"a {type(row).__name__}")
        return others[0](row, arrays)

    return read


def _mapping_reader(kind: Any) -> Read:
    if kind is Any:
        return lambda row, arrays: _object(row)
    read = _reader(kind)
    return lambda row, arrays: {key: read(each, arrays) for key, each in _object(row).items()}


def _list_reader(parts: tuple[Any, ...]) -> Read:
    if len(parts) == 2 and parts[1] is not Ellipsis:
        readers = [_reader(part) for part in parts]
        return lambda row, arrays: tuple(
            [read(each, arrays) for read, each in zip(readers, _listed(row), strict=True)]
        )
    read = _reader(parts[0])
    return lambda row, arrays: tuple([read(each, arrays) for each in _listed(row)])


@cache
def _parts(kind: type) -> dict[str, tuple[Field[Any], Any]]:
    """Return the fields of a noun that it is made of, each with its type hint."""
    hints = get_type_hints(kind)
    return {part.name: (part, hints[part.name]) for part in fields(kind) if part.init}


def _is_a_text(kind: Any) -> bool:
    return [hint for _, hint in _parts(kind).values()] == [str]


def _fits(parts: Mapping[str, tuple[Field[Any], Any]], names: Collection[str]) -> bool:
    needed = {name for name, (part, _) in parts.items() if part.default is MISSING}
    return needed <= set(names) <= set(parts)


def _object(row: Row) -> dict[str, Row]:
    if type(row) is not dict:
        raise TypeError(f"a {type(row).__name__} where an object is due")
    return cast("dict[str, Row]", row)


def _listed(row: Row) -> Sequence[Row]:
    if not isinstance(row, (list, tuple)):
        raise TypeError(f"a {type(row).__name__} where a list is due")
    return cast(Sequence[Row], row)


def _one_of(row: Row, choices: tuple[Any, ...]) -> Any:
    if row not in choices:
        raise ValueError(f"{row!r} where one of {', '.join(map(repr, choices))} is due")
    return row


def _read_text(row: Row, _: Arrays) -> str:
    if type(row) is not str:
        raise TypeError(f"a {type(row).__name__} where a text is due")
    return row


def _read_int(row: Row, _: Arrays) -> int:
    if type(row) is not int:
        raise TypeError(f"a {type(row).__name__} where a whole number is due")
    return row


def _read_float(row: Row, _: Arrays) -> float:
    if not isinstance(row, (int, float)):
        raise TypeError(f"a {type(row).__name__} where a number is due")
    return row


def _read_bool(row: Row, _: Arrays) -> bool:
    if type(row) is not bool and row not in (0, 1):
        raise TypeError(f"a {type(row).__name__} where true or false is due")
    return cast(bool, row)


_SIMPLE: dict[Any, Read] = {
    str: _read_text,
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    Any: lambda row, arrays: row,
}
_ARRAYS: dict[Any, tuple[Write, Read]] = {
    bytes: (lambda blob, arrays: arrays.put_bytes(blob), lambda row, arrays: arrays.take_bytes(row)),
    tuple[int, ...]: (lambda ids, arrays: arrays.put_ids(ids), lambda row, arrays: arrays.take_ids(row)),
    tuple[float, ...]: (
        lambda reals, arrays: arrays.put_reals(reals),
        lambda row, arrays: arrays.take_reals(row),
    ),
}
"""Type hint → what puts such a value among the arrays, and what takes it."""

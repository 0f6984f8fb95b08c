"""Many nouns as JSON data at once, and back: a column for each field, which is quicker and shorter than rows.

The fields of a noun inside a noun are columns of their own (``completion.stop``); a column whose every value is the
default is left out, and texts and whole numbers that are all the same are written once. Token ids and log-probs go
through `Arrays`. What a value looks like, and how strictly it is read, is that of `quintain.types.rows`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate, chain, pairwise, repeat
from operator import attrgetter
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from quintain.types.rows import Blobs, Row, getter, is_a_text, is_kept, parts_of, reader, writer

Noun = TypeVar("Noun")
Column = Sequence[Any]


class Arrays(Blobs):
    """Where token ids, log-probs and bytes go, and where they come from."""

    def put_ids(self, column: Sequence[tuple[int, ...]]) -> None:
        """Keep the ids of all of `column`."""
        raise NotImplementedError

    def put_reals(self, column: Sequence[tuple[float, ...]]) -> None:
        """Keep the numbers of all of `column`."""
        raise NotImplementedError

    def turn_to(self, group: int) -> None:
        """Keep the bytes that are put from now on for `group`."""
        raise NotImplementedError

    def take_ids(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the next ids, so many in each tuple."""
        raise NotImplementedError

    def take_reals(self, lengths: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the next numbers, so many in each tuple."""
        raise NotImplementedError


Part = tuple[dict[str, Row], int, int, int]
"""Columns of a group of nouns, its number, and its first and its end among all nouns."""
WriteColumn = Callable[[Column, Arrays, Sequence[Part]], Column]
WrittenColumn = tuple[str, WriteColumn | None, bool, Any]
"""Name of a column, what writes it (None: it is JSON data already), whether what all have is written once, and the
value that is left out where all have it; `MISSING` where none is."""
ReadColumn = Callable[[Row, Arrays, int], Column]


def to_columns(kind: type, groups: Sequence[Sequence[object]], arrays: Arrays) -> list[Row]:
    """Return each of `groups` of nouns of the class `kind` as JSON data: how many they are, and columns by name.

    What is written of a group does not depend on the others; but the columns of all are made at once, which is quicker.
    """
    table = _table(kind)
    made: list[Row] = [[len(group), {}] for group in groups]
    nouns = [*chain.from_iterable(groups)]
    spans = pairwise(accumulate(map(len, groups), initial=0))
    parts = [
        (made[number][1], number, start, end) for number, (start, end) in enumerate(spans) if start < end
    ]
    for (name, write, may_be_one, default), column in zip(
        table.columns, zip(*map(table.get, nouns), strict=True), strict=False
    ):
        filled = parts
        if default is not MISSING and (
            num_defaults := column.count(default)
        ):  # most are at most of their defaults
            if num_defaults == len(nouns):
                continue
            filled = [part for part in parts if column[part[2] : part[3]].count(default) < part[3] - part[2]]
        row = column if write is None else write(column, arrays, parts)
        if may_be_one and row.count(one := row[0]) == len(nouns):
            for columns, _, _, _ in filled:
                columns[name] = one
        elif may_be_one:
            for columns, _, start, end in filled:
                part = row[start:end]
                columns[name] = part[0] if part.count(part[0]) == end - start else part
        else:
            for columns, _, start, end in filled:
                columns[name] = row[start:end]
    return made


Values = tuple[int, dict[str, Column]]
"""How many nouns there are, and the values of their fields by the names of the columns."""


def read_columns(kind: type, row: Row, arrays: Arrays) -> Values:
    """Return the values that `to_columns` made `row` of; raise what `quintain.types.rows.from_row` raises."""
    count, columns = row
    table, found = _table(kind), dict[str, Column]()
    for name, part in columns.items():
        values = table.readers[name](part, arrays, count)
        if len(values) != count:
            raise ValueError(f"{len(values)} values of {name} where {count} are due")
        found[name] = values
    if count and not table.needed <= found.keys():
        raise ValueError(f"no values of {', '.join(sorted(table.needed - found.keys()))}")
    return count, found


def from_columns(kind: type[Noun], groups: Sequence[Values]) -> list[tuple[Noun, ...]]:
    """Return the nouns of each group of values; those of many groups at once are made quicker."""
    table = _table(kind)
    ends = [*accumulate([count for count, _ in groups], initial=0)]
    columns: dict[str, list[Any]] = {}
    for start, (_, found) in zip(ends, groups, strict=False):
        for name, values in found.items():
            column = columns.setdefault(name, [])
            if len(column) < start:  # groups before it have the default only
                column += [table.defaults[name]] * (start - len(column))
            column += values
    parts: dict[str, dict[str, Column]] = {place: {} for place in table.nouns}
    for name, column in columns.items():
        place, _, last = name.rpartition(".")
        parts[place][last] = column + [table.defaults[name]] * (ends[-1] - len(column))
    made: list[Any] = []
    for place, (inner, outer, last) in table.nouns.items():
        made = _make(inner, parts[place], ends[-1])
        if place:
            parts[outer][last] = made
    return [tuple(made[start:end]) for start, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What writes and reads nouns of a class; a column is named by its field, after that of the noun it is in."""

    get: Callable[[Any], tuple[Any, ...]]
    columns: list[WrittenColumn]
    """what `get` gives, those that are always written first"""
    readers: dict[str, ReadColumn]
    """name → what reads the column"""
    defaults: dict[str, Any]
    """name → default of the field"""
    needed: frozenset[str]
    """the columns of fields that have no default"""
    nouns: dict[str, tuple[type, str, str]]
    """place of a noun, such as ``completion`` → its class, and place and field where it goes; inner nouns first"""


@cache
def _table(kind: type) -> _Table:
    kept: list[WrittenColumn] = []
    others: list[WrittenColumn] = []
    readers: dict[str, ReadColumn] = {}
    defaults: dict[str, Any] = {}
    nouns: dict[str, tuple[type, str, str]] = {}

    def add(place: str, inner: type) -> None:
        before = place and f"{place}."
        for name, (part, hint) in parts_of(inner).items():
            if is_dataclass(hint) and not is_a_text(hint):
                add(before + name, cast(type, hint))
                continue
            readers[before + name], defaults[before + name] = _column_reader(hint), part.default
            if is_kept(part.default) or part.default == "":
                kept.append((before + name, *_column_writer(hint), MISSING))
            else:
                others.append((before + name, *_column_writer(hint), part.default))
        outer, _, last = place.rpartition(".")
        nouns[place] = inner, outer, last

    add("", kind)
    columns = kept + others
    return _Table(
        get=getter([name for name, *_ in columns]), columns=columns, readers=readers, defaults=defaults,
        needed=frozenset([name for name, default in defaults.items() if default is MISSING]), nouns=nouns,
    )  # fmt: skip


def _column_writer(hint: Any) -> tuple[WriteColumn | None, bool]:
    """Return what writes a column of values of type `hint`, and whether what all have is written once."""
    if hint == tuple[int, ...]:
        return _write_ids, True
    if hint == tuple[float, ...]:
        return _write_reals, True
    if _may_be_one(hint):
        return None, True
    write, text = writer(hint), _text_in_lists(hint)
    if write is None:
        return None, False
    get = attrgetter(*parts_of(text)) if text else None

    def write_column(column: Column, arrays: Arrays, parts: Sequence[Part]) -> Column:
        if get and (items := _one_in_each(column)) and set(map(type, items)) == {text}:
            return [*zip(map(get, items), strict=True)]
        row: list[Row] = []
        for _, number, start, end in parts:
            arrays.turn_to(number)
            row += [write(each, arrays) for each in column[start:end]]
        return row

    return write_column, False


def _write_ids(column: Column, arrays: Arrays, parts: Sequence[Part]) -> Column:
    arrays.put_ids(column)
    return [*map(len, column)]


def _write_reals(column: Column, arrays: Arrays, parts: Sequence[Part]) -> Column:
    arrays.put_reals(column)
    return [*map(len, column)]


def _text_in_lists(hint: Any) -> type | None:
    """Return the class of the texts that sequences of type `hint` are mostly made of."""
    items = get_args(hint)[0] if get_origin(hint) is tuple else None
    texts = [part for part in get_args(items) if is_dataclass(part) and is_a_text(part)]
    return cast(type, texts[0]) if texts else None


def _one_in_each(column: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the items of sequences that have one each, nothing where some have none or several."""
    items = [*chain.from_iterable(column)] if all(column) else []
    return items if len(items) == len(column) else []


def _may_be_one(hint: Any) -> bool:
    return hint in (str, int) or get_origin(hint) is Literal


def _column_reader(hint: Any) -> ReadColumn:
    """Return what reads a column of values of type `hint`."""
    if hint == tuple[int, ...]:
        return lambda row, arrays, count: arrays.take_ids([row] * count if type(row) is int else row)
    if hint == tuple[float, ...]:
        return lambda row, arrays, count: arrays.take_reals([row] * count if type(row) is int else row)
    read, may_be_one, text = reader(hint), _may_be_one(hint), _text_in_lists(hint)
    names = [*parts_of(text)] if text else []
    simple = {hint} if isinstance(hint, type) else set[Any]()

    def read_column(row: Row, arrays: Arrays, count: int) -> Column:
        if may_be_one and type(row) is not list:
            return [read(row, arrays)] * count
        found = set(map(type, row))
        if found == simple:
            return row
        if text and found == {list} and (items := _one_in_each(row)) and set(map(type, items)) == {str}:
            return [*zip(_make(text, {names[0]: items}, len(items)), strict=True)]
        return [read(each, arrays) for each in row]

    return read_column


def _make(kind: type[Noun], columns: dict[str, Column], count: int) -> list[Noun]:
    """Return `count` nouns of the values of their fields; a field that has no column gets its default.

    Values are set as a frozen dataclass does it, past what freezes it, for all nouns at once: twice as quick.
    """
    made = [*map(object.__new__, repeat(kind, count))]
    for name, put, default in _setters(kind):
        deque(map(put, made, columns.get(name) or repeat(default, count)), 0)
    return made


@cache
def _setters(kind: type) -> list[tuple[str, Callable[[Any, Any], None], Any]]:
    """Return name, what sets it, and default of each field."""
    assert not hasattr(kind, "__post_init__"), "a noun is its fields"
    return [(part.name, getattr(kind, part.name).__set__, part.default) for part in fields(kind)]

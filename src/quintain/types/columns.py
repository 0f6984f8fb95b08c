"""Many nouns as JSON data at once, and back: a column for each field, which is quicker and shorter than rows.

The fields of a noun inside a noun are columns of their own (``completion.stop``); a column whose every value is the
default is left out, and texts and whole numbers that are all the same are written once. Token ids and log-probs go
through `Arrays`. What a value looks like, and how strictly it is read, is that of `quintain.types.rows`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from quintain.types.rows import Blobs, Row, getter, is_a_text, is_kept, parts_of, reader, writer

Noun = TypeVar("Noun")
Column = Sequence[Any]


class Arrays(Blobs):
    """Where token ids, log-probs and bytes go, and where they come from."""

    def put_ids(self, column: Sequence[tuple[int, ...]]) -> None:
        """Keep the ids of all of `column`, end to end."""
        raise NotImplementedError

    def put_reals(self, column: Sequence[tuple[float, ...]]) -> None:
        """Keep the numbers of all of `column`, end to end."""
        raise NotImplementedError

    def take_ids(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the next ids, so many in each tuple."""
        raise NotImplementedError

    def take_reals(self, lengths: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the next numbers, so many in each tuple."""
        raise NotImplementedError


WriteColumn = Callable[[Column, Arrays], Row]
WrittenColumn = tuple[str, WriteColumn | None, bool]
"""Name of a column, what writes it (None: it is JSON data already), and whether what all have is written once."""
ReadColumn = Callable[[Row, Arrays, int], Column]


def to_columns(kind: type, nouns: Sequence[object], arrays: Arrays) -> Row:
    """Return `nouns`, all of them of the class `kind`, as JSON data: how many they are, and their columns by name."""
    table, count = _table(kind), len(nouns)
    columns: dict[str, Row] = {}
    for (name, write, may_be_one), column in zip(
        table.kept, zip(*map(table.get_kept, nouns), strict=True), strict=False
    ):
        row = column if write is None else write(column, arrays)
        columns[name] = row[0] if may_be_one and row.count(row[0]) == count else row
    others = [*map(table.get_others, nouns)]
    if others.count(table.defaults) < count:  # most nouns are at most of their defaults
        for (name, write, may_be_one), default, column in zip(
            table.others, table.defaults, zip(*others, strict=True), strict=True
        ):
            if column.count(default) < count:
                row = column if write is None else write(column, arrays)
                columns[name] = row[0] if may_be_one and row.count(row[0]) == count else row
    return [count, columns]


def from_columns(kind: type[Noun], row: Row, arrays: Arrays) -> tuple[Noun, ...]:
    """Return the nouns that `to_columns` made `row` of; raise what `quintain.types.rows.from_row` raises."""
    count, columns = row
    if not count:
        return ()
    table = _table(kind)
    parts: dict[str, dict[str, Column]] = {place: {} for place in table.nouns}
    for name, part in columns.items():
        place, last, read = table.readers[name]
        parts[place][last] = read(part, arrays, count)
    made: list[Any] = []
    for place, (inner, outer, last) in table.nouns.items():
        made = _make(inner, parts[place], count)
        if place:
            parts[outer][last] = made
    return tuple(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What writes and reads nouns of a class; a column is named by its field, after that of the noun it is in."""

    get_kept: Callable[[Any], tuple[Any, ...]]
    kept: list[WrittenColumn]
    """the columns that are always written"""
    get_others: Callable[[Any], tuple[Any, ...]]
    others: list[WrittenColumn]
    """those that are left out where all values are defaults"""
    defaults: tuple[Any, ...]
    """of `others`"""
    readers: dict[str, tuple[str, str, ReadColumn]]
    """name → place of the noun, name of its field, and what reads the column"""
    nouns: dict[str, tuple[type, str, str]]
    """place of a noun, such as ``completion`` → its class, and place and field where it goes; inner nouns first"""


@cache
def _table(kind: type) -> _Table:
    kept: list[WrittenColumn] = []
    others: list[WrittenColumn] = []
    defaults: list[Any] = []
    readers: dict[str, tuple[str, str, ReadColumn]] = {}
    nouns: dict[str, tuple[type, str, str]] = {}

    def add(place: str, inner: type) -> None:
        before = place and f"{place}."
        for name, (part, hint) in parts_of(inner).items():
            if is_dataclass(hint) and not is_a_text(hint):
                add(before + name, cast(type, hint))
                continue
            readers[before + name] = place, name, _column_reader(hint)
            if is_kept(part.default) or part.default == "":
                kept.append((before + name, *_column_writer(hint)))
            else:
                others.append((before + name, *_column_writer(hint)))
                defaults.append(part.default)
        outer, _, last = place.rpartition(".")
        nouns[place] = inner, outer, last

    add("", kind)
    return _Table(
        get_kept=getter([name for name, *_ in kept]), kept=kept,
        get_others=getter([name for name, *_ in others]), others=others, defaults=tuple(defaults),
        readers=readers, nouns=nouns,
    )  # fmt: skip


def _column_writer(hint: Any) -> tuple[WriteColumn | None, bool]:
    """Return what writes a column of values of type `hint`, and whether what all have is written once."""
    if hint == tuple[int, ...]:
        return lambda column, arrays: arrays.put_ids(column) or [*map(len, column)], True
    if hint == tuple[float, ...]:
        return lambda column, arrays: arrays.put_reals(column) or [*map(len, column)], True
    if _may_be_one(hint):
        return None, True
    write, text = writer(hint), _text_in_lists(hint)
    if write is None:
        return None, False
    get = attrgetter(*parts_of(text)) if text else None

    def write_column(column: Column, arrays: Arrays) -> Row:
        if get and (items := _one_in_each(column)) and set(map(type, items)) == {text}:
            return [*zip(map(get, items), strict=True)]
        return [write(each, arrays) for each in column]

    return write_column, False


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
            return [*zip(_make(text, {names[0]: items}, count), strict=True)]
        return [read(each, arrays) for each in row]

    return read_column


def _make(kind: type[Noun], columns: dict[str, Column], count: int) -> list[Noun]:
    """Return `count` nouns of the values of their fields; a field that has no column gets its default.

    Values are set as a frozen dataclass does it, past what freezes it, for all nouns at once: twice as quick.
    """
    made = [*map(object.__new__, repeat(kind, count))]
    get = columns.get
    for name, put, default in _setters(kind):
        column = get(name)
        if column is None:
            if default is MISSING:
                raise ValueError(f"no values of {name}")
            column = repeat(default, count)
        elif len(column) != count:
            raise ValueError(f"{len(column)} values of {name} where {count} are due")
        deque(map(put, made, column), 0)
    return made


@cache
def _setters(kind: type) -> list[tuple[str, Callable[[Any, Any], None], Any]]:
    """Return name, what sets it, and default of each field."""
    assert not hasattr(kind, "__post_init__"), "a noun is its fields"
    return [(part.name, getattr(kind, part.name).__set__, part.default) for part in fields(kind)]

"""Crafted journals: what is in them is refused or left out, in memory and time that the file's size bounds."""

import contextlib
import json
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.errors import DataError, StoreError
from quintain.store import codec, journal
from quintain.store.codec import (
    Record,
    _checksum,  # pyright: ignore[reportPrivateUsage]
    _digest,  # pyright: ignore[reportPrivateUsage]
    count_values,
    decode,
    encode,
    memory_of,
    most_memory,
)
from quintain.store.rows import _seal  # pyright: ignore[reportPrivateUsage]
from quintain.store.run import Run
from quintain.types import Branch, Use

MIB = 1 << 20


def packed(text: bytes, payload: bytes = b"") -> Record:
    """Return a record whose checksums are right, whatever is in it."""
    body = zlib.compress(text, 9)
    return Record(b"\x01" + _checksum(body) + body, payload, _digest(text, payload))


def refused(record: Record, most: int) -> str:
    """Return how `record` is refused, which must take less than `most` bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as found:
            decode(record)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    return str(found.value)


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"\x80", b"\x90", b"\xc0"], ids=["maps", "lists", "nothing"])
def test_a_small_record_does_not_become_a_large_one(value: bytes) -> None:
    """50 kB in the file, 50 MB unpacked, 3 GB as objects."""
    text = b"\x81\xa1a\xdd" + (50 * MIB).to_bytes(4) + value * (50 * MIB)
    record = packed(text)
    assert len(record.structure) < 60_000
    assert "would take more than" in refused(record, 400 * MIB)


@pytest.mark.parametrize("text", [b'{"a":[' + b"{}," * 10**7 + b"{}]}"], ids=["json"])
def test_the_same_as_json(text: bytes) -> None:
    assert "would take more than" in refused(packed(text), 400 * MIB)


def test_a_record_of_more_turns_than_it_can_hold(make: Any) -> None:
    row = msgspec.msgpack.decode(encode(make()).structure)
    for count in (10**9, -1, "2", True, 2.0):
        changed = {**row, "turns": [count, {"seat": "agent"}]}
        text = msgspec.msgpack.encode(changed)
        assert "turns" in refused(packed(text, encode(make()).payload), 8 * MIB)


@pytest.mark.parametrize(("lengths", "kind"), [([6, -6], "prompt_ids"), ([9, 9], "completion.token_ids")])
def test_arrays_that_are_read_again_and_again(lengths: list[int], kind: str, make: Any) -> None:
    whole = encode(make())
    row = msgspec.msgpack.decode(whole.structure)
    row["turns"][1][kind] = lengths
    assert "arrays up to number" in refused(packed(msgspec.msgpack.encode(row), whole.payload), 8 * MIB)


def test_prompts_that_repeat_each_other(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_IDS", 100)
    one = replace(make().turns[0], prompt_ids=(5,) * 20, starts_segment=True)
    grown = replace(one, prompt_ids=(*one.prompt_ids, *one.completion.token_ids, 9))
    whole = encode(replace(make(), turns=(one, grown)))
    assert len(decode(whole).turns) == 2
    with pytest.raises(DataError, match=r"prompts of \d+ tokens in all, and 100 can be recorded"):
        encode(replace(make(), turns=(one, *[grown] * 21)[:22]))
    monkeypatch.setattr(codec, "MAX_IDS", 30)
    with pytest.raises(DataError, match="prompts of more than 30 tokens in all"):
        decode(whole)


def test_what_is_written_can_be_read_however_well_it_is_compressed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_MEMORY", 100_000)
    values = replace(make().task, data={"a": [{}] * 30_000})
    whole = replace(make(text="left " * 10_000), task=values)
    record = encode(whole)
    assert decode(record, seconds=whole.seconds) == whole
    assert encode(make(text="left " * 10_000)).structure[:1] == b"\x01", "a text is no bomb"


ATOMS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()


def inside(inner: Any) -> Any:
    return st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.recursive(ATOMS, inside, max_leaves=20))
def test_values_are_counted_as_they_are(value: Any) -> None:
    def count(value: Any) -> int:
        if isinstance(value, list):
            return 1 + sum(map(count, value))  # type: ignore[misc] # pyright: ignore
        if isinstance(value, dict):
            return 1 + sum(1 + count(each) for each in value.values())  # type: ignore[misc] # pyright: ignore
        return 1

    text = msgspec.msgpack.encode(value)
    assert count_values(text, 10**6) == count(value)
    assert memory_of(text, most_memory(0)) <= most_memory(0)


@pytest.fixture
def stored(folder: Path, make: Any) -> Callable[..., None]:
    """Return what changes the journal of a run with an episode, a step and an event by statements."""
    with Run.create(folder, recipe="rl/grpo", config={}) as run:
        names = run.append([make()], step=0)
        run.commit(0, {"a": 1.0})
        run.append([make(1)], step=1)
        run.commit(1, {"a": 2.0}, uses=[Use(episode=names[0])])
        run.event("note", "something", number=1)

    def change(*statements: str, values: tuple[Any, ...] = ()) -> None:
        connection = sqlite3.connect(folder / "run.db", isolation_level=None)
        for statement in statements:
            connection.execute(statement, values)
        connection.close()

    return change


def everything(folder: Path) -> list[Any]:
    """Return all that can be read of a run."""
    with Run.open(folder, writable=False) as run:
        return [
            run.status, run.last_step, run.metrics(), run.events(), run.weights(), list(run.trajectories()),
            list(run.uses()), run.best_step, json.dumps(run.metrics()),
        ]  # fmt: skip


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE steps", f"CREATE VIEW steps AS {ENDLESS}"),
        ("DROP TABLE episodes", f"CREATE VIEW episodes AS {ENDLESS}"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM episodes; END",),
        ("CREATE TABLE other (a)",),
        ("CREATE INDEX more ON steps (json_extract(metrics, '$.a'))",),
        ("DROP INDEX one_commit", "CREATE UNIQUE INDEX one_commit ON steps (randomblob(1000000000)) WHERE 0"),
        ("ALTER TABLE events ADD COLUMN more AS (zeroblob(1000000000))",),
        ("CREATE VIRTUAL TABLE trajectories USING rtree(a, b, c)",),
        ("ALTER TABLE events ADD COLUMN more CHECK (more > 0)",),
    ],
    ids=[
        "steps",
        "episodes",
        "trigger",
        "table",
        "index",
        "computed index",
        "computed column",
        "virtual",
        "check",
    ],
)
def test_what_would_be_run_is_refused(statements: tuple[str, ...], stored: Any, folder: Path) -> None:
    try:
        stored(*statements)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite makes no such thing: {error}")
    for writable in (False, True):
        with pytest.raises(StoreError, match=r"^opening .*; restore it from a copy"):
            Run.open(folder, writable=writable)


WRONG: list[Any] = [
    "x",
    b"x",
    -1,
    1 << 60,
    1e308,
    None,
    "[" * 100_000,
    '{"a": 1' + "0" * 400 + "}",
    "{}",
    b"\xff" * 26,
]
COLUMNS = {
    "steps": (
        "step", "phase", "metrics", "batch_hash", "seconds", "weights", "policy_version", "is_collected", "codec",
    ),
    "episodes": (
        "id", "parent", "parent_turn", "phase", "step", "group_id", "place", "num_sampled", "seconds", "codec",
        "digest", "structure", "payload", "is_abandoned",
    ),
    "events": ("time", "kind", "message", "data"),
    "uses": ("episode", "signals", "rejected", "place"),
    "meta": ("value",),
}  # fmt: skip


@pytest.mark.parametrize(("table", "column"), [(t, c) for t, names in COLUMNS.items() for c in names])
def test_a_value_of_the_wrong_type_is_left_out(table: str, column: str, stored: Any, folder: Path) -> None:
    before = (folder / "run.db").read_bytes()
    for value in WRONG:
        (folder / "run.db").write_bytes(before)
        try:
            stored(f"UPDATE {table} SET {column} = ?", values=(value,))
        except sqlite3.Error:
            continue  # the table itself refuses it
        with contextlib.suppress(DataError, StoreError):
            everything(folder)


@pytest.mark.parametrize("column", ["phase", "step", "seconds", "parent", "parent_turn"])
def test_a_place_of_the_wrong_type_under_a_seal_that_fits(column: str, stored: Any, folder: Path) -> None:
    """The seals have no secret: whoever writes a journal can make them fit."""
    connection = sqlite3.connect(folder / "run.db", isolation_level=None)
    row, name, phase, step, seconds, digest = connection.execute(
        "SELECT row, id, phase, step, seconds, digest FROM episodes ORDER BY row LIMIT 1"
    ).fetchone()
    for value in (b"x", "x", -5, 1 << 61, 1e308, float("inf")):
        places: dict[str, Any] = {"phase": phase, "step": step, "seconds": seconds, column: value}
        seal = _seal(places["phase"], places["step"], places["seconds"], digest[:16], name)
        connection.execute(
            f"UPDATE episodes SET {column} = ?, digest = ? WHERE row = ?", (value, digest[:16] + seal, row)
        )
        assert len(everything(folder)[5]) <= 2
    connection.close()


def test_a_table_that_does_not_end_is_given_up(
    stored: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.open(folder, writable=False) as run:
        assert len(run.metrics()) == 2
        monkeypatch.setattr(journal, "MIN_TICKS", 20)
        with pytest.raises(StoreError, match="got a query that goes on for longer than the file can make it"):
            run._journal._all(ENDLESS, ())  # pyright: ignore[reportPrivateUsage]
        assert len(run.metrics()) == 2, "the next query has its own time"


def test_a_chain_of_branches_has_an_end(run: Run, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_CHAIN", 3)
    (name,) = run.append([make()], step=0)
    for number in range(1, 6):
        branch = replace(make(number), parent=Branch(episode=name, turn=2), turns=make().turns)
        try:
            (name,) = run.append([branch], step=0)
        except DataError as error:
            assert "got a branch of more than 3 others" in str(error)
            break
    else:
        raise AssertionError("there is no end")

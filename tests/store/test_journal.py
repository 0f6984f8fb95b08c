import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import DataError, StoreError, UsageError
from quintain.store import faults
from quintain.store.journal import Journal, create_journal
from quintain.store.schema import VERSION
from quintain.types import Trajectory

Opened = tuple[Journal, list[str]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    heard: list[str] = []
    create_journal(tmp_path / "run.db", {"recipe": "r"})
    journal = Journal(
        tmp_path / "run.db", lambda kind, message: heard.append(f"{kind}: {message}"), is_writable=True
    )
    yield journal, heard
    journal.close()


def stored(journal: Journal, step: int | None = None, phase: str | None = None) -> list[Trajectory]:
    return [each.trajectory for each in journal.read_rows(step=step, phase=phase)]


def test_trajectories_come_back_in_order_of_arrival(opened: Opened, make: Any) -> None:
    journal, heard = opened
    first, second = [make(1), make(0)], [make(0, group="h")]
    ids = journal.append(first, step=0, phase="train")
    ids += journal.append(second, step=1, phase="train")
    ids += journal.append(first, step=1, phase="eval")
    assert [(each.row, each.trajectory.id) for each in journal.read_rows(step=None, phase=None)] == [
        *enumerate(ids, start=1)
    ]
    assert len(set(ids)) == 5 and all(len(bytes.fromhex(each)) == 10 for each in ids)
    assert stored(journal) == [*first, *second, *first]
    assert stored(journal, step=1) == [*second, *first]
    assert stored(journal, step=1, phase="eval") == first
    assert stored(journal, phase="train") == [*first, *second]
    assert stored(journal, step=7) == [] == heard


def test_appending_twice_is_harmless(opened: Opened, make: Any) -> None:
    journal, _ = opened
    ids = journal.append([make(0), make(1)], step=0, phase="train")
    more = journal.append([make(1, seconds=9.0), make(2)], step=0, phase="train")
    assert more[0] == ids[1] and more[1] not in ids
    journal.commit(step=0, phase="train", metrics={}, seconds=0.0)
    assert journal.append([make(2), make(0)], step=0, phase="train") == (more[1], ids[0])
    assert len(stored(journal)) == 3


def test_another_trajectory_in_the_same_place_is_refused_whole(opened: Opened, make: Any) -> None:
    journal, _ = opened
    journal.append([make(0)], step=0, phase="train")
    with pytest.raises(
        DataError, match=r"trajectory 0 of group 'g' in step 0 of phase 'train': got another traj"
    ):
        journal.append([make(1), make(0, text="right")], step=0, phase="train")
    assert stored(journal) == [make(0)]


def test_a_committed_step_takes_nothing_more(opened: Opened, make: Any) -> None:
    journal, _ = opened
    journal.append([make(0)], step=0, phase="train")
    journal.commit(step=0, phase="train", metrics={"a": 1.0}, seconds=0.0)
    with pytest.raises(DataError, match=r"got a committed step"):
        journal.append([make(1)], step=0, phase="train")
    with pytest.raises(DataError, match=r"committing step 0 of phase 'train': got a step that is committed"):
        journal.commit(step=0, phase="train", metrics={"a": 2.0}, seconds=0.0)
    assert journal.metrics() == [{"step": 0, "phase": "train", "a": 1.0}]


def test_the_batch_hash_names_the_trajectories_not_their_order_or_duration(opened: Opened, make: Any) -> None:
    journal, _ = opened
    hashes: list[str] = []
    for step, batch in enumerate([[make(0), make(1)], [make(1, seconds=3.0), make(0)], [make(0)], []]):
        journal.append(batch, step=step, phase="train")
        hashes.append(journal.commit(step=step, phase="train", metrics={}, seconds=0.0))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert all(len(each) == 32 for each in hashes)


def test_a_commit_is_synced_and_rows_wait_for_it(opened: Opened, make: Any) -> None:
    journal, _ = opened
    said: list[str] = []
    journal._connection.set_trace_callback(said.append)  # pyright: ignore[reportPrivateUsage]
    journal.append([make(0)], step=0, phase="train")
    assert said[0] == "PRAGMA synchronous=NORMAL" and said[-1] == "COMMIT"
    said.clear()
    journal.commit(step=0, phase="train", metrics={}, seconds=0.0)
    assert said[0] == "PRAGMA synchronous=FULL" and said[-1] == "COMMIT"


def test_episodes_that_were_abandoned_are_taken_back_or_stay_so_for_good(opened: Opened, make: Any) -> None:
    journal, reports = opened
    for index in range(3):
        journal.append([make(index)], step=1, phase="train")
    journal.append([make(0)], step=1, phase="eval")
    assert journal.take_back(lambda _: True, phase="train") == 0, "nothing was abandoned"
    journal.abandon(1)
    assert stored(journal) == []
    connection = journal._connection  # pyright: ignore[reportPrivateUsage]
    connection.execute("UPDATE episodes SET payload = x'00' WHERE row = 3")
    assert journal.take_back(lambda t: t.index != 1, phase="train") == 1
    assert [t.index for t in stored(journal)] == [0] and "row 3" in reports[-1]
    assert journal.take_back(lambda _: True, phase="train") == 0, "the others are left for good"
    journal.append([make(0), make(1), make(2)], step=1, phase="train")
    assert sorted(t.index for t in stored(journal)) == [0, 1, 2]


def test_abandoned_steps_are_kept_but_not_returned(opened: Opened, make: Any) -> None:
    journal, _ = opened
    hashes: list[str] = []
    for step in range(3):
        journal.append([make(0)], step=step, phase="train")
        hashes.append(journal.commit(step=step, phase="train", metrics={"a": step}, seconds=0.0))
    assert journal.last_step() == 2
    assert journal.abandon(1) == 2
    assert journal.abandon(1) == 0
    assert [row["a"] for row in journal.metrics()] == [0]
    assert journal.last_step() == 0
    assert len(stored(journal)) == 1
    assert journal.find_abandoned_hashes(2, "train") == (hashes[2], None, "")
    assert journal.find_abandoned_hashes(0, "train") is None
    journal.append([make(0, text="right")], step=2, phase="train")
    journal.commit(step=2, phase="train", metrics={"a": 20}, seconds=0.0)
    assert journal.metrics("train")[-1] == {"step": 2, "phase": "train", "a": 20}
    assert journal.metrics("eval") == []
    assert journal.last_ids() == {"trajectories": 4, "steps": 4}


def test_an_empty_journal(opened: Opened) -> None:
    journal, _ = opened
    assert journal.last_ids() == {"trajectories": 0, "steps": 0}
    assert journal.last_step() is None
    assert journal.metrics() == stored(journal) == journal.events() == []
    assert (journal.meta("recipe"), journal.meta("nothing")) == ("r", "")


def test_facts_and_events(opened: Opened) -> None:
    journal, _ = opened
    journal.set_meta("status", "done")
    assert journal.meta("status") == "done"
    journal.add_event("odd", "ä\ud800", {"a": [1]})
    (event,) = journal.events()
    assert (event["kind"], event["message"], event["data"]) == ("odd", "ä\\ud800", {"a": [1]})
    assert event["time"] > 1e9


def test_a_closed_journal_says_so(opened: Opened, make: Any) -> None:
    journal, _ = opened
    journal.close()
    with pytest.raises(UsageError, match=r"got a run that is closed"):
        journal.metrics()
    with pytest.raises(UsageError, match=r"got a run that is closed"):
        journal.append([make(0)], step=0, phase="train")


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kind", ["ENOSPC", "EIO"])
def test_a_failing_disk_rolls_the_transaction_back(opened: Opened, make: Any, number: int, kind: str) -> None:
    journal, _ = opened
    journal.append([make(0)], step=0, phase="train")
    with faults.inject(f"io:{number}:{kind}"), pytest.raises(StoreError, match=r"run\.db: got .* bytes free"):
        journal.append([make(1)], step=0, phase="train")
    assert stored(journal) == [make(0)]
    with (
        faults.inject(f"io:{number}:{kind}"),
        pytest.raises(StoreError, match=r"committing a step in .*run\.db"),
    ):
        journal.commit(step=0, phase="train", metrics={}, seconds=0.0)
    assert journal.metrics() == []
    journal.append([make(1)], step=0, phase="train")
    journal.commit(step=0, phase="train", metrics={}, seconds=0.0)
    assert len(stored(journal)) == 2


def test_a_full_disk_inside_sqlite_is_an_error_of_the_store(opened: Opened, make: Any) -> None:
    journal, _ = opened
    journal.append([make(0)], step=0, phase="train")
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]  # pyright: ignore[reportPrivateUsage]
    journal._connection.execute(f"PRAGMA max_page_count={pages}")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StoreError, match=r"got 'database or disk is full' with .* bytes free"):
        journal.append([make(i, group="many", text="x" * 500) for i in range(100)], step=0, phase="train")
    journal._connection.execute("PRAGMA max_page_count=1000000")  # pyright: ignore[reportPrivateUsage]
    assert stored(journal) == [make(0)]


def test_versions(tmp_path: Path, opened: Opened) -> None:
    journal, _ = opened
    file = journal.file
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version={VERSION + 1}")
    connection.close()
    with pytest.raises(StoreError, match=rf"got schema version {VERSION + 1}, .*upgrade quintain"):
        Journal(file, print, is_writable=True)
    other = tmp_path / "other.db"
    sqlite3.connect(other).close()
    with pytest.raises(StoreError, match=r"no journal of a run"):
        Journal(other, print, is_writable=True)
    other.write_bytes(b"garbage " * 1000)
    with pytest.raises(StoreError, match=r"a damaged file .file is not a database"):
        Journal(other, print, is_writable=False)


def damaged_values(rng: random.Random, old: Any) -> Any:
    if isinstance(old, bytes) and old and rng.random() < 0.7:
        place = rng.randrange(len(old))
        return old[:place] + bytes([old[place] ^ rng.randrange(1, 256)]) + old[place + 1 :]
    if isinstance(old, bytes):
        return rng.choice([old[:-1], b"", old + b"\0", "text", 7])
    return rng.choice([None, "\ufffd", -1, b"\xff\xfe"])


def test_every_damaged_row_is_left_out_and_the_others_are_read(opened: Opened, make: Any) -> None:
    journal, heard = opened
    count, rng = 400, random.Random(0)
    journal.append([make(i) for i in range(count)], step=0, phase="train")
    bad = sorted(rng.sample(range(count), count // 2))
    raw = sqlite3.connect(journal.file)
    for i in bad:
        column = rng.choice(["structure", "payload", "digest", "codec"])
        old = raw.execute(f"SELECT {column} FROM episodes WHERE row = ?", (i + 1,)).fetchone()[0]
        value = damaged_values(rng, old)
        value = 99 if value is None else value
        raw.execute(f"UPDATE episodes SET {column} = ? WHERE row = ?", (value, i + 1))
    raw.execute("UPDATE episodes SET phase = CAST(x'fffe' AS TEXT) WHERE row = 1")
    raw.commit()
    raw.close()
    bad = sorted({0, *bad})
    assert stored(journal) == [make(i) for i in range(count) if i not in bad]
    assert len(heard) == len(bad)
    assert all(
        f"trajectory row {i + 1} of {journal.file}: " in text for i, text in zip(bad, heard, strict=True)
    )


def test_a_damaged_step_row_is_left_out(opened: Opened) -> None:
    journal, heard = opened
    for step in range(3):
        journal.commit(step=step, phase="train", metrics={"a": step}, seconds=0.0)
    raw = sqlite3.connect(journal.file)
    raw.execute("UPDATE steps SET metrics = '{' WHERE step = 1")
    raw.commit()
    raw.close()
    assert [row["a"] for row in journal.metrics()] == [0, 2]
    assert len(heard) == 1 and "step row 2" in heard[0]


def test_a_file_with_flipped_bytes_never_yields_what_was_not_written(opened: Opened, make: Any) -> None:
    journal, _ = opened
    written = [make(i) for i in range(60)]
    journal.append(written, step=0, phase="train")
    journal.close()
    rng, good = random.Random(1), journal.file.read_bytes()
    copy = journal.file.with_name("copy.db")
    outcomes = {"read": 0, "refused": 0}
    for _ in range(40):
        content = bytearray(good)
        for place in (rng.randrange(len(good)) for _ in range(20)):
            content[place] ^= rng.randrange(1, 256)
        copy.write_bytes(content)
        heard: list[str] = []
        try:
            damaged = Journal(
                copy, lambda kind, message, heard=heard: heard.append(message), is_writable=False
            )
        except StoreError:
            outcomes["refused"] += 1
            continue
        try:
            found = stored(damaged)
            assert all(each in written for each in found)
            outcomes["read"] += 1
        except StoreError:
            outcomes["refused"] += 1
        finally:
            damaged.close()
        for leftover in copy.parent.glob("copy.db-*"):
            leftover.unlink()
    assert outcomes["read"] > 0

"""What a labeller is asked, and what is on the disk after every answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.data.labels import Query, read_labels
from quintain.errors import DataError, StoreError
from quintain.learning.labelling import Session, now
from quintain.store import files

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202eevil"


def query(one: str, other: str) -> Query:
    def side(text: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": text}]
        return {"messages": messages, "task": "<b>t</b>"}

    return Query.of(side(one), side(other))


@pytest.fixture
def clock() -> Iterator[str]:
    return (f"2026-11-23T10:00:{second:02d}+00:00" for second in range(60))


@pytest.fixture
def session(tmp_path: Path, clock: Iterator[str]) -> Session:
    made = Session(tmp_path / "labels.jsonl", "ann", clock=lambda: next(clock))
    made.ask([query("a", "b"), query("c", HOSTILE)])
    return made


def test_answers_are_on_the_disk_and_can_be_taken_back(session: Session) -> None:
    first, second = session.labels.queries.values()
    session.ask([first])
    assert len(session.labels.queries) == 2, "no question is asked twice"
    assert session.next() == first
    assert session.answer(first.id, "tie")
    assert not session.answer(first.id, "second"), (
        "a second press of the key is not an answer to what comes next"
    )
    assert session.next() == second
    assert read_labels(session.file).shares == {first.id: 0.5}
    assert session.undo() == first and session.undo() is None
    assert session.next() == first
    with pytest.raises(DataError, match=r"got a name that .* does not ask"):
        session.answer("nobody", "first")
    session.answer(first.id, "first")
    other = Session(session.file, "bob")
    assert other.next() == first, "everybody is asked everything"
    other.answer(first.id, "first")
    assert len(session.labels.given) == 2, "what others add is seen"
    times = [json.loads(line)["time"] for line in session.file.read_text().splitlines()[2:5]]
    assert times == [f"2026-11-23T10:00:{second:02d}+00:00" for second in range(3)]
    assert now().endswith("+00:00")


def test_a_line_that_was_left_open_is_ended_first(session: Session) -> None:
    session.file.write_text(session.file.read_text().rstrip("\n"))
    session.answer(next(iter(session.labels.queries)), "first")
    assert len(session.labels.given) == 1


def test_a_disk_that_refuses_is_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_file", full)
    with pytest.raises(StoreError, match=r"adding a label in .*No space left.*then label on"):
        session.answer(next(iter(session.labels.queries)), "first")

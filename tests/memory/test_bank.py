"""A bank of entries: bounded, edited in total, read by score or by chance, frozen in evaluation."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import DataError, UsageError
from quintain.memory.bank import Bank, Edit, Entry, load_bank


def entry(name: str, value: float = 0.0, source: str = "") -> Entry:
    return Entry(id=name, key=f"key {name}", text=f"text {name}", value=value, source=source)


def by_value(_: str, entries: Sequence[Entry]) -> list[float]:
    return [each.value for each in entries]


def names(bank: Bank) -> list[str]:
    return [each.id for each in bank.entries]


def test_the_best_are_read_and_of_equal_ones_the_newer() -> None:
    bank = Bank([entry("a", 1.0), entry("b", 3.0), entry("c", 1.0), entry("d", 2.0)])
    found = bank.read("", 3, rank=by_value)
    assert [(read.entry.id, read.chance) for read in found] == [("b", 1.0), ("d", 1.0), ("c", 1.0)]
    assert [read.entry.id for read in bank.read("", 9, rank=by_value, least=1.0)] == ["b", "d"]
    assert Bank().read("", 3, rank=by_value) == []


def test_a_task_does_not_read_what_it_left() -> None:
    bank = Bank([entry("a", 1.0, "web/train/3"), entry("b", 0.5, "web/train/4")])
    assert [read.entry.id for read in bank.read("", 2, rank=by_value, without=["web/train/3"])] == ["b"]


def test_chances_are_those_of_drawing_without_putting_back() -> None:
    bank = Bank([entry("a", 0.0), entry("b", math.log(3.0))])
    counts = {"a": 0, "b": 0}
    for seed in range(2000):
        first, second = bank.read("", 2, rank=by_value, temperature=1.0, seed=seed)
        counts[first.entry.id] += 1
        assert first.chance == pytest.approx(0.75 if first.entry.id == "b" else 0.25)
        assert second.chance == 1.0 and second.entry.id != first.entry.id
    assert counts["b"] / 2000 == pytest.approx(0.75, abs=0.04)
    again = bank.read("", 2, rank=by_value, temperature=1.0, seed=7)
    assert again == bank.read("", 2, rank=by_value, temperature=1.0, seed=7)
    even = bank.read("", 1, rank=by_value, temperature=1e9)
    assert even[0].chance == pytest.approx(0.5)
    sharp = bank.read("", 1, rank=by_value, temperature=1e-3)
    assert (sharp[0].entry.id, sharp[0].chance) == ("b", pytest.approx(1.0))


def test_a_score_that_is_no_number_is_an_error() -> None:
    with pytest.raises(UsageError, match="scores of 1 entries: got 1, or some that are no number"):
        Bank([entry("a")]).read("", 1, rank=lambda _, __: [math.nan])
    with pytest.raises(UsageError, match="scores of 1 entries: got 2"):
        Bank([entry("a")]).read("", 1, rank=lambda _, __: [1.0, 2.0])


def test_edits_are_carried_out_or_refused_with_the_reason() -> None:
    bank = Bank([entry("a")], size=2, length=20)
    refused = bank.edit(
        [
            Edit(kind="add", key="a lamp", text="click it", value=0.5, source="web/train/1"),
            Edit(kind="add", key="a door", text="open it"),
            Edit(kind="update", id="a", text="changed"),
            Edit(kind="update", id="7", text="changed"),
            Edit(kind="delete", id="9"),
            Edit(kind="update", id="a", text="x" * 21),
            Edit(kind="update", id="a", value=math.inf),
            Edit(kind="delete", id="1"),
            Edit(kind="add", id="a", key="again", text="again"),
            Edit(kind="add", key=" ", text="of nothing"),
            Edit(kind="add", key="held", text="out", source="web/eval/1"),
        ]
    )
    assert refused == [
        "add of a new entry: got a bank that is full (2 entries); delete one first",
        "update 7: got an id that is not there; the bank has a, 1",
        "delete 9: got an id that is not there; the bank has a, 1",
        "update a: got a text of 21 characters; at most 20 are kept",
        "update a: got the value inf; give a finite number",
        "add a: got an id that is taken; update it, or leave the id out",
        "add of a new entry: got no key or no text; give both",
        "add of a new entry: got the source web/eval/1, which is held out; nothing of it is kept",
    ]
    assert bank.entries == (Entry(id="a", key="key a", text="changed"),)


def test_a_full_bank_may_forget_its_oldest() -> None:
    bank = Bank([entry("a"), entry("b")], size=2, evicts=True)
    assert bank.edit([Edit(kind="add", key="c", text="c")]) == []
    assert names(bank) == ["b", "1"]


def test_a_number_that_was_given_up_is_not_given_again() -> None:
    bank = Bank()
    bank.edit(
        [
            Edit(kind="add", key="a", text="a"),
            Edit(kind="delete", id="1"),
            Edit(kind="add", key="b", text="b"),
        ]
    )
    assert names(bank) == ["2"]


def test_a_frozen_bank_is_read_and_never_edited() -> None:
    bank = Bank([entry("a", 1.0)])
    frozen, before = bank.freeze(), bank.digest()
    with pytest.raises(UsageError, match="edit of a frozen bank: got one in an evaluation"):
        frozen.edit([Edit(kind="delete", id="a")])
    assert frozen.digest() == before and len(frozen.read("", 1, rank=by_value)) == 1
    bank.edit([Edit(kind="update", id="a", text="other")])
    assert bank.digest() != before == frozen.digest()


EDITS = st.builds(
    Edit,
    kind=st.sampled_from(["add", "update", "delete", "merge"]),
    id=st.sampled_from(["", "1", "2", "3", "x"]),
    key=st.none() | st.text(max_size=4),
    text=st.none() | st.text(max_size=12),
    value=st.none() | st.floats(),
    source=st.sampled_from([None, "", "t/train/1", "t/eval/1"]),
)


@given(st.lists(EDITS, max_size=30), st.booleans())
def test_whatever_is_asked_for_the_bank_stays_sound(edits: list[Edit], evicts: bool) -> None:
    bank = Bank(size=3, length=8, evicts=evicts)
    refused = bank.edit(edits)
    assert len(refused) <= len(edits) and all(refused)
    assert len(bank) <= 3 and len(set(names(bank))) == len(bank)
    for each in bank.entries:
        assert each.key.strip() and max(len(each.key), len(each.text)) <= 8
        assert math.isfinite(each.value) and each.source != "t/eval/1"


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    bank = Bank([entry("a", 0.1, "web/train/3"), Entry(id="b", key="ü\n\u2028", text='"quoted"\r')])
    bank.save(tmp_path / "bank.jsonl")
    assert load_bank(tmp_path / "bank.jsonl").digest() == bank.digest()
    with pytest.raises(
        DataError, match=r"entries of a bank: got add b: got a bank that is full \(1 entries\)"
    ):
        load_bank(tmp_path / "bank.jsonl", size=1)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": "a", "key": "k"}', '{"id": 1, "key": "k", "text": "t"}', "[" * 100_000,
             '{"id": "a", "key": "k", "text": "t", "value": true}', '{"id": "a", "key": "k", "text": "t", "run": "x"}'],
)  # fmt: skip
def test_a_file_that_is_no_bank_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "bank.jsonl").write_text(f'{{"id": "z", "key": "k", "text": "t"}}\n{line}\n')
    with pytest.raises(
        DataError, match=r"bank.jsonl:2, which is no entry; give id, key, text, value and source"
    ):
        load_bank(tmp_path / "bank.jsonl")
    with pytest.raises(DataError, match=r"which cannot be read"):
        load_bank(tmp_path / "none.jsonl")


def test_a_bank_without_room_is_refused() -> None:
    with pytest.raises(UsageError, match="size of a bank: got 0"):
        Bank(size=0)

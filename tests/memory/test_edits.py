"""Edits that any text asks for: what is read of it, what most ask for, and that the list stays sound."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quintain.memory.bank import Bank, Edit, Entry
from quintain.memory.edits import MAX_LENGTH, merge, read_edits


def test_two_edits_of_an_answer_are_read_and_the_rest_is_counted() -> None:
    edits, unread = read_edits("Well.\nadd: Look  first.\nUPDATE [2]: Wait.\ndelete 3\nupdate: x", source="t")
    assert edits == [
        Edit(kind="add", key="Look first.", text="Look first.", source="t"),
        Edit(kind="update", id="2", key="Wait.", text="Wait.", source="t"),
    ]
    assert unread == 3
    assert read_edits("delete [4]", source="t") == ([Edit(kind="delete", id="4")], 0)


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_text_leaves_the_list_sound(texts: list[str]) -> None:
    bank = Bank([Entry(id="1", key="a", text="a")], size=3, length=MAX_LENGTH)
    for text in texts:
        edits, _ = read_edits(text, source="t")
        refused = bank.edit(edits)
        assert len(refused) <= len(edits) <= 2
    assert len(bank) <= 3 and all(entry.text.strip() for entry in bank.entries)


def test_what_most_groups_ask_for_is_carried_out() -> None:
    a, b = (Edit(kind="add", key=text, text=text, source=text * 3) for text in "ab")
    gone = Edit(kind="delete", id="1")
    assert merge([a, b, gone, replace(b, source="other")], 2) == [b, a]
    assert merge([], 2) == []

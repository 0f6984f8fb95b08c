"""Halves of surrogate pairs never come further than the file or the environment that has them."""

import json

import pytest

from quintain.data.files import read_array, read_lines
from quintain.text.tokenizer import train_tokenizer
from quintain.types.unicode import valid_text


@pytest.mark.parametrize(
    ("text", "valid"),
    [("a", "a"), ("a \ud83d b", "a \ufffd b"), ("\ud83d\ude00", "😀"), ("\udc00", "\ufffd")],
)
def test_halves_are_replaced(text: str, valid: str) -> None:
    assert valid_text(text) == valid


def test_a_new_tokenizer_takes_what_an_environment_writes() -> None:
    tokenizer = train_tokenizer(["look \ud83d here"])
    assert tokenizer.decode(tokenizer.encode("look \ufffd here")) == "look \ufffd here"


def test_data_is_mended_and_says_so() -> None:
    rows = [{"a": "\ud83d"}, {"a": ["😀", {"\udc00": 1}]}, {"a": "😀"}, {"a": "\\ud83d"}]
    lines = [json.dumps(row) for row in rows]
    for found in (list(read_lines(lines, "f")), list(read_array(f"[{', '.join(lines)}]", "f"))):
        assert [each.is_mended for each in found] == [True, True, False, False]
        assert [each.value for each in found] == [
            {"a": "\ufffd"}, {"a": ["😀", {"\ufffd": 1}]}, {"a": "😀"}, {"a": "\\ud83d"},
        ]  # fmt: skip

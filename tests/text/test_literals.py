"""Values that are not JSON: what is read, what is refused, and that nothing is evaluated."""

from typing import Any

import pytest

from quintain.text.literals import read_calls, read_literal
from quintain.text.parse import UnreadableError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'", "a"),
        ('"it\'s"', "it's"),
        ("'a\nb'", "a\nb"),
        (r"'a\nb\t\'\"\\ \q \x41 \u00e9 \U0001F600'", "a\nb\t'\"\\ \\q A é 😀"),
        ("True", True),
        ("false", False),
        ("None", None),
        ("null", None),
        ("3", 3),
        ("-3.50", -3.5),
        ("+1_000", 1000),
        ("007", 7),
        (".5", 0.5),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("1e-05", 1e-05),
        ("[1, 'a', [],]", [1, "a", []]),
        ("(1, 2)", [1, 2]),
        ("{'a': {'b': 1}, \"c\": []}", {"a": {"b": 1}, "c": []}),
        (" { } ", {}),
    ],
)
def test_literals(text: str, value: Any) -> None:
    read = read_literal(text)
    assert read == value and type(read) is type(value)


def test_bare_keys_and_other_quotes() -> None:
    text = '{a key:<|"|>x,}"\\n<|"|>,<|"|>b<|"|>:[true,-1],n:null}'
    assert read_literal(text, ['<|"|>'], bare_keys=True) == {"a key": 'x,}"\\n', "b": [True, -1], "n": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "open('x')",
        "__import__",
        "1 + 1",
        "1 2",
        "[1",
        "[1 2]",
        "{1: 2}",
        "{'a' 1}",
        "{'a': 1 'b': 2}",
        "{'a': 1, 'a': 2}",
        "'a",
        r"'a\x4'",
        r"'a\UFFFFFFFF'",
        r"'\ud800'",
        "1e999",
        "nan",
        "[" * 50 + "]" * 50,
    ],
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_literal(text)


@pytest.mark.parametrize("text", ['{a:<|"|>x}', "{:1}", "{a}"])
def test_what_is_no_object_with_bare_keys(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_literal(text, ['<|"|>'], bare_keys=True)


def test_calls() -> None:
    assert read_calls("[find(city='Rome', seats=2), a.b(), ]") == [
        ("find", {"city": "Rome", "seats": 2}),
        ("a.b", {}),
    ]
    assert read_calls("find(city='Rome',)") == [("find", {"city": "Rome"})]
    assert read_calls("find(a=1), book()") == [("find", {"a": 1}), ("book", {})]
    assert read_calls("[]") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "find",
        "find(",
        "find('Rome')",
        "find(a=)",
        "find(a=1 b=2)",
        "find(a=1, a=2)",
        "[f() g()]",
        "f() x",
        "3()",
    ],
)
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_calls(text)

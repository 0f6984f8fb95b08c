from typing import Any

import pytest

from quintain.environments.schema import complaint

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "enum": ["apple", "pear"]},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "minItems": 1},
        "code": {"type": "string", "pattern": "^[A-Z]+$", "minLength": 2},
        "rate": {"type": "number"},
        "fast": {"type": "boolean"},
        "kind": {"const": "order"},
    },
    "required": ["item"],
    "additionalProperties": False,
    "$defs": {
        "Line": {"type": "object", "properties": {"id": {"type": ["integer", "string"]}}, "required": ["id"]}
    },
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"item": "apple"}, ""),
        ({"item": "pear", "count": 9, "note": None, "lines": [{"id": 1}, {"id": "x"}], "rate": 1}, ""),
        ({"item": "apple", "count": 2.0, "fast": True, "code": "AB", "kind": "order"}, ""),
        ({}, "buy(item): missing"),
        ({"item": "plum"}, 'buy(item): expected one of ["apple", "pear"], got "plum"'),
        ({"item": 3}, "buy(item): expected string, got 3"),
        ({"item": "apple", "count": True}, "buy(count): expected integer, got true"),
        ({"item": "apple", "count": 1.5}, "buy(count): expected integer, got 1.5"),
        ({"item": "apple", "count": 0}, "buy(count): expected at least 1, got 0"),
        ({"item": "apple", "count": 10}, "buy(count): expected less than 10, got 10"),
        ({"item": "apple", "rate": float("inf")}, "buy(rate): expected a finite number, got Infinity"),
        ({"item": "apple", "note": "long"}, 'buy(note): expected one of 2 forms, got "long"'),
        ({"item": "apple", "lines": []}, "buy(lines): expected at least 1 items, got 0"),
        ({"item": "apple", "lines": [{}]}, "buy(lines.0.id): missing"),
        ({"item": "apple", "lines": [{"id": 0.5}]}, "buy(lines.0.id): expected integer or string, got 0.5"),
        ({"item": "apple", "code": "a"}, "buy(code): expected at least 2 characters, got 1; "),
        ({"item": "apple", "kind": "x"}, 'buy(kind): expected "order", got "x"'),
        ({"item": "apple", "coun": 1}, "buy(coun): unknown argument; did you mean 'count'?"),
    ],
)
def test_what_is_wrong_is_said_in_words(arguments: dict[str, Any], expected: str) -> None:
    found = complaint("buy", ORDER, arguments)
    assert found == expected or (expected.endswith("; ") and found.startswith(expected))


def test_three_complaints_are_enough() -> None:
    wrong = {"count": 0, "fast": 1, "rate": "x", "kind": 2}
    assert complaint("buy", ORDER, wrong).count(";") == 2


def test_what_is_not_known_forbids_nothing() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "(?<unreadable"},
            "b": {"$ref": "#/$defs/absent"},
            "c": {"$ref": "other.json"},
            "d": {"format": "email", "allOf": [{"maximum": 3}]},
            "e": {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
            "f": False,
        },
        "patternProperties": {"^x": {}},
        "additionalProperties": False,
    }
    fine = {"a": "text", "b": [1], "c": {}, "d": 2, "e": [1, "x"], "xyz": 1}
    assert complaint("t", schema, fine) == ""
    assert complaint("t", schema, {"d": 4}) == "t(d): expected at most 3, got 4"
    assert complaint("t", schema, {"e": ["x"]}) == 't(e.0): expected integer, got "x"'
    assert complaint("t", schema, {"f": 1}) == "t(f): nothing is allowed here"
    assert complaint("t", {"additionalProperties": False}, {"z": 1}) == (
        "t(z): unknown argument; it takes no arguments"
    )
    assert complaint("t", {"additionalProperties": {"type": "integer"}}, {"z": "1"}) == (
        't(z): expected integer, got "1"'
    )


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert complaint("t", loop, {}) == ""


def test_long_values_are_cut() -> None:
    found = complaint("t", {"properties": {"a": {"type": "integer"}}}, {"a": "x" * 500})
    assert len(found) < 120 and found.endswith("…")

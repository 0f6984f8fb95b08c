"""Values of arguments get the type that the tool's schema has, and stay texts where it has none."""

from collections.abc import Mapping
from typing import Any

import pytest

from quintain.text.bodies import Body, objects_in, read_body, type_value

NUMBER = {"$defs": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("text", "schema", "value", "fits"),
    [
        ("007", {"type": "string"}, "007", True),
        ("007", {}, "007", True),
        ("3", {"type": "integer"}, 3, True),
        ("3.0", {"type": "integer"}, 3, True),
        ("3.5", {"type": "integer"}, "3.5", False),
        ("true", {"type": "integer"}, "true", False),
        (" 3.5 ", {"type": "number"}, 3.5, True),
        ("3", {"type": "number"}, 3, True),
        ("True", {"type": "boolean"}, True, True),
        ("1", {"type": "boolean"}, "1", False),
        ("NaN", {"type": "number"}, "NaN", False),
        ("None", {"type": ["string", "null"]}, None, True),
        ("none", {"type": ["string", "null"]}, "none", True),
        ("007", {"type": ["integer", "string"]}, 7, True),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", False),
        ("null", {"oneOf": [{"type": "integer"}, {"type": "null"}]}, None, True),
        ("null", {"type": "integer", "nullable": True}, None, True),
        ("[1, 2]", {"type": "array"}, [1, 2], True),
        ("['a']", {"type": "array"}, ["a"], True),
        ('{"a": 1}', {"type": "object"}, {"a": 1}, True),
        ("[1]", {"type": "object"}, "[1]", False),
        ("4", {"$ref": "#/$defs/n"}, 4, True),
        ("4", {"$ref": "#/$defs/none/deeper"}, "4", True),
        ("4", {"$ref": "#/$defs"}, "4", True),
        ("4", {"allOf": [{"type": "integer"}, 3]}, 4, True),
        ("4", {"enum": [4, 5]}, 4, True),
        ("4", {"enum": ["4", 4]}, "4", True),
        ("6", {"enum": [4, 5]}, "6", True),
        ("4", {"type": ["unknown", 3]}, "4", False),
    ],
)
def test_types(text: str, schema: Mapping[str, Any], value: Any, fits: bool) -> None:
    typed, is_typed = type_value(text, schema, NUMBER)
    assert (typed, type(typed), is_typed) == (value, type(value), fits)


def test_a_schema_that_holds_itself() -> None:
    root = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}
    assert type_value("4", {"$ref": "#/$defs/a"}, root) == ("4", True)


def test_objects_that_are_closed() -> None:
    text = 'a {"b": "}"} } {{"c": 1}} {'
    assert [text[start:end] for start, end in objects_in(text)] == ['{"b": "}"}', '{{"c": 1}}']


def test_a_reader_without_marks_needs_a_name() -> None:
    found = read_body(
        {"kind": "xml", "parameter": r"<(?P<key>\w+)>(?P<value>.*?)</\w+>"}, Body("<a>1</a>", {}, {})
    )
    assert [call.status for call in found] == ["missing_name"]

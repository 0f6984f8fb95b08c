"""JSON that others wrote: a value, or one kind of error."""

import pytest

from quintain.types.json_text import load_json


def test_what_is_json_is_its_value() -> None:
    assert load_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert load_json(b"[]") == []


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, '{"a":' * 100_000, "1" * 5_000])
def test_whatever_else_it_is_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|deeply|digits"):
        load_json(text)

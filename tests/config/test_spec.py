"""The one parser of texts with options: queries, lists, types, and what is refused in a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.config.spec import (
    fields_of,
    options_from,
    parameters_of,
    read_numbers,
    read_options,
    split_list,
    split_spec,
    takes_any,
)
from quintain.errors import UsageError


class Own:
    """A type that no text can be read as."""


@dataclass
class Harness:
    agent: object
    turns: PositiveInt = 4
    calls: Literal["json", "llama"] = "json"
    limit: float = float("inf")


def make(
    place: str, *, rooms: int = 2, dense: bool = False, names: Sequence[str] = (), own: Own | None = None
) -> None:
    """Stand for the constructor of an environment."""


def make_any(*, rooms: int = 2, **more: Any) -> None:
    """Stand for a constructor that takes keywords of any name."""


def test_a_name_and_its_options() -> None:
    assert split_spec("keydoor") == ("keydoor", [])
    assert split_spec("web?q=a%26b+c&url=http://h:1/v1%3Fmodel=m&empty=") == (
        "web",
        [("q", "a&b c"), ("url", "http://h:1/v1?model=m"), ("empty", "")],
    )


def test_values_are_read_as_they_are_annotated() -> None:
    known = parameters_of(make)
    text = "rooms=3&dense=1&names=a,b&own=%7B%22x%22:1%7D"
    assert read_options(split_spec(f"w?{text}")[1], known, "'w'") == {
        "rooms": 3, "dense": True, "names": ("a", "b"), "own": {"x": 1},
    }  # fmt: skip
    assert known["rooms"].default == 2 and known["place"].is_required
    fields = fields_of(Harness, ("agent",))
    assert list(fields) == ["turns", "calls", "limit"]
    assert read_options([("limit", "inf")], fields, "h") == {"limit": float("inf")}, "its default"


def test_a_list_may_come_several_times_and_what_is_not_known_is_json_or_text() -> None:
    known = options_from({"url": tuple[str, ...]})
    assert read_options([("url", "a,b"), ("url", "c")], known, "e") == {"url": ("a", "b", "c")}
    assert takes_any(make_any) and not takes_any(make)
    found = read_options(
        [("rooms", "3"), ("size", "[4]"), ("slow", "True"), ("x", "none")],
        parameters_of(make_any), "w", takes_any=True,
    )  # fmt: skip
    assert found == {"rooms": 3, "size": [4], "slow": True, "x": "none"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("turn=3", "option of 'h': got 'turn'; did you mean 'turns'?"),
        ("agent=3", "option of 'h': got 'agent'; choose from calls, limit, turns"),
        ("turns=0", "turns of 'h': got '0'; give an integer of 1 or more such as 4"),
        ("turns=many", "turns of 'h': got 'many'; give an integer of 1 or more such as 4"),
        ("calls=lama", "calls of 'h': got 'lama'; did you mean 'llama'?"),
        ("limit=nan", "limit of 'h': got 'nan'; give a finite number such as inf"),
        ("turns=1&turns=2", "turns of 'h': got it twice; give it once"),
        ("turns", "options of 'h': got 'turns'; write them as name=value&name=value"),
        ("=3", "options of 'h': got '=3'; write them as name=value&name=value"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, line: str) -> None:
    with pytest.raises(UsageError) as found:
        read_options(split_spec(f"h?{text}", "'h'")[1], fields_of(Harness, ("agent",)), "'h'")
    assert str(found.value) == line


def test_nothing_has_options() -> None:
    with pytest.raises(UsageError, match="option of 'h': got 'x'; it has no options"):
        read_options([("x", "1")], {}, "'h'")


def test_lists() -> None:
    assert split_list(" a=1, b = 2,", "w", "a=1") == [("a", "1"), ("b", "2")]
    assert split_list("guess,keydoor?rooms=3@2", "w", "x", sign="@", usual="1") == [
        ("guess", "1"), ("keydoor?rooms=3", "2"),
    ]  # fmt: skip
    assert read_numbers([("a", "0.5"), ("b", "0")], "w", "a=1") == {"a": 0.5, "b": 0.0}
    known = options_from({"a": PositiveFloat})
    assert read_options(split_list("a=2", "w", "a=1"), known, "w") == {"a": 2.0}
    for text in ("a", "=1", "a="):
        with pytest.raises(UsageError, match=f"w: got '{text}'; write a=1"):
            split_list(text, "w", "a=1")
    for text in ("x", "-1", "inf", "nan"):
        with pytest.raises(UsageError, match=f"a of w: got '{text}'; give a number of 0 or more, as in a=1"):
            read_numbers([("a", text)], "w", "a=1")
    with pytest.raises(UsageError, match="a of w: got it twice"):
        read_numbers([("a", "1"), ("a", "2")], "w", "a=1")

"""Nouns as columns: what is left out or written once, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from quintain.types import NOTHING, Action, Completion, Image, Text, ToolCall, Turn, as_content
from quintain.types.columns import Arrays, from_columns, to_columns
from quintain.types.rows import plain


class Lists(Arrays):
    """Keeps what is put, and gives it back front to back."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.reals: list[float] = []

    def put_ids(self, column: Sequence[tuple[int, ...]]) -> None:
        """Keep the ids."""
        self.ids += [each for ids in column for each in ids]

    def put_reals(self, column: Sequence[tuple[float, ...]]) -> None:
        """Keep the numbers."""
        self.reals += [each for reals in column for each in reals]

    def take_ids(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the next ids."""
        return [tuple([self.ids.pop(0) for _ in range(length)]) for length in lengths]

    def take_reals(self, lengths: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the next numbers."""
        return [tuple([self.reals.pop(0) for _ in range(length)]) for length in lengths]


def sent(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    arrays = Lists()
    row = json.loads(json.dumps(to_columns(Turn, turns, arrays), default=plain))
    back = from_columns(Turn, row, arrays)
    assert not arrays.ids and not arrays.reals
    return back


PLAIN = Turn(
    observation=as_content("up"),
    prompt_ids=(1, 2),
    completion=Completion(token_ids=(3,), logprobs=(-0.5,), stop="stop"),
    action=Action(text="go"),
)
ODD = Turn(
    seat="b/plan",
    observation=(Text(text="a"), Image(data=b"\x00\xff", media_type="m"), Text(text="\ud800")),
    prompt_ids=(),
    completion=Completion(
        token_ids=(4, 5), logprobs=(), stop="length", policy="other", version_spans=((0, 1), (1, 2))
    ),
    action=Action(tool_calls=(ToolCall(name="x", arguments={"n": 1}),), error="no"),
    reward=-0.0,
    rewards={"a": 1.0},
    state_key="s",
    is_valid=False,
    starts_segment=True,
)


def test_defaults_are_left_out_and_what_is_the_same_is_written_once() -> None:
    arrays = Lists()
    other = replace(PLAIN, action=Action(text="stay"), prompt_ids=(9,))
    assert json.loads(json.dumps(to_columns(Turn, [PLAIN, other], arrays))) == [
        2,
        {
            "observation": [["up"], ["up"]],
            "prompt_ids": [2, 1],
            "completion.token_ids": 1,
            "completion.logprobs": 1,
            "completion.stop": "stop",
            "completion.policy_version": 0,
            "action.text": ["go", "stay"],
            "reward": [0.0, 0.0],
        },
    ]
    assert (arrays.ids, arrays.reals) == ([1, 2, 9, 3, 3], [-0.5, -0.5])


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (PLAIN,),
        (ODD,),
        (PLAIN, ODD, PLAIN),
        (PLAIN, PLAIN, replace(PLAIN, observation=())),
        (replace(PLAIN, observation=()), replace(PLAIN, observation=PLAIN.observation * 2)),
    ],
)
def test_what_is_read_is_what_was_written(turns: tuple[Turn, ...]) -> None:
    back = sent(turns)
    assert back == turns and repr(back) == repr(turns)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("new", [1, 1]),
        ("observation", ["up", "up"]),
        ("observation", [["up"]]),
        ("observation", [[3], ["up"]]),
        ("completion.stop", "late"),
        ("completion.stop", ["stop", "late"]),
        ("completion.policy_version", 0.5),
        ("observation", ["u", "p"]),
        ("action.text", [3, 3]),
        ("action.text", ["go"]),
        ("action.text", ["go", "go", "go"]),
        ("reward", [0.0, "1"]),
        ("reward", 0.0),
        ("prompt_ids", "2"),
        ("is_valid", [True, 3]),
    ],
)
def test_what_is_no_column_is_refused(name: str, column: Any) -> None:
    arrays = Lists()
    count, columns = to_columns(Turn, [PLAIN, PLAIN], arrays)
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_columns(Turn, [count, {**columns, name: column}], arrays)


def test_a_column_that_is_missing_is_refused() -> None:
    arrays = Lists()
    count, columns = to_columns(Turn, [PLAIN], arrays)
    del columns["observation"]
    with pytest.raises(ValueError, match="no values of observation"):
        from_columns(Turn, [count, columns], arrays)


OTHER = Action(text="other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """A noun with fields of kinds that no turn has, and one that is nothing but defaults."""

    inner: Action = OTHER
    words: tuple[str, ...] = ()
    levels: Mapping[str, int] = NOTHING


def test_a_new_noun_needs_no_line() -> None:
    nouns = (Newer(words=("a", "b"), levels={"a": 1}), Newer(inner=Action()), Newer())
    arrays = Lists()
    row = json.loads(json.dumps(to_columns(Newer, nouns, arrays)))
    assert from_columns(Newer, row, arrays) == nouns

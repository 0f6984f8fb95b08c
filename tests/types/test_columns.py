"""Nouns as columns: what is left out or written once, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from quintain.types import NOTHING, Action, Completion, Image, Text, ToolCall, Turn, as_content
from quintain.types.columns import Arrays, from_columns, read_columns, to_columns
from quintain.types.rows import plain

Noun = TypeVar("Noun")


class Lists(Arrays):
    """Keeps what is put, and gives it back front to back."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.reals: list[float] = []
        self.groups: list[int] = []

    def turn_to(self, group: int) -> None:
        """Keep the group."""
        self.groups.append(group)

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


def written(nouns: Sequence[Any], arrays: Lists) -> Any:
    """Return the row of one group of nouns, as JSON gives it back."""
    (row,) = to_columns(type(nouns[0]) if nouns else Turn, [nouns], arrays)
    return json.loads(json.dumps(row, default=plain))


def read(kind: type[Noun], row: Any, arrays: Lists) -> tuple[Noun, ...]:
    """Return the nouns of one group."""
    (nouns,) = from_columns(kind, [read_columns(kind, row, arrays)])
    return nouns


def sent(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    arrays = Lists()
    back = read(Turn, written(turns, arrays), arrays)
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
    assert written([PLAIN, other], arrays) == [
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
    count, columns = written([PLAIN, PLAIN], arrays)
    with pytest.raises((TypeError, ValueError, KeyError)):
        read(Turn, [count, {**columns, name: column}], arrays)


def test_a_column_that_is_missing_is_refused() -> None:
    arrays = Lists()
    count, columns = written([PLAIN], arrays)
    del columns["observation"]
    with pytest.raises(ValueError, match="no values of observation"):
        read(Turn, [count, columns], arrays)


def test_groups_are_written_as_if_each_were_alone_and_read_together() -> None:
    other = replace(PLAIN, observation=(), prompt_ids=(9,), state_key="s", completion=ODD.completion)
    groups = [[PLAIN, PLAIN], [], [ODD], [PLAIN, other], [other, other]]
    together = Lists()
    rows = to_columns(Turn, groups, together)
    alone = [Lists() for _ in groups]
    assert json.dumps(rows) == json.dumps(
        [to_columns(Turn, [each], own)[0] for each, own in zip(groups, alone, strict=True)]
    )
    assert set(together.groups) == {0, 2, 3, 4}, "bytes go to their group, and an empty one has none"
    values = [
        read_columns(Turn, json.loads(json.dumps(row)), own) for row, own in zip(rows, alone, strict=True)
    ]
    assert from_columns(Turn, values) == [tuple(each) for each in groups]
    assert from_columns(Turn, []) == []


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
    assert read(Newer, written(nouns, arrays), arrays) == nouns

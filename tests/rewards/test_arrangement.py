"""Layouts of rooms by value: the table of rewards, and what must never be worth a layout."""

import math
from typing import Any

import pytest

from quintain.rewards.arrangement import (
    Room,
    arrangement_score,
    arrangement_terms,
    collision_ratio,
    collisions,
    constraint_ratio,
    layout_of,
    off_wall,
    on_pillars,
    outside,
    overlaps,
)

ROOM = Room(width=4, depth=3, things=("bed", "desk"))
SIZED = Room(width=4, depth=3, things=("bed", "desk"), sizes=((2, 2), (1, 2)))


def thing(name: str, x: float, y: float, width: float = 1, depth: float = 1) -> dict[str, Any]:
    return {"id": name, "x": x, "y": y, "width": width, "depth": depth}


def repr_short(value: object) -> str:
    return repr(value)[:9]


GOOD = [thing("bed", 0, 0), thing("desk", 2, 0)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GOOD, 0.5),
        ([thing("bed", 0, 0, 2, 2), thing("desk", 1, 1)], 0.3),
        ([thing("bed", 0, 0), thing("desk", 3.5, 0)], 0.4),
        ([thing("bed", 0, 0, 2, 2), thing("desk", 1, 2, 2, 2)], 0.4),
        ([thing("bed", 0, 0, 9, 9), thing("desk", 0, 0, 9, 9)], 0.1),
        ([thing("bed", 0, 0)], 0.25),
        ([*GOOD, thing("lamp", 2, 2)], 0.25),
        ([thing("bed", 0, 0), thing("lamp", 2, 0)], 0.25),
        ([thing("bed", 0, 0), {"id": "desk"}], 0.05),
        ([thing("bed", 0, 0), {"id": "desk", "x": 2, "y": 0}], 0.05),
        ([thing("bed", 0, 0), thing("bed", 2, 0)], 0.05),
        ([thing("bed", 0, 0, 0, 1)], 0.05),
        (["bed", "desk"], 0.05),
        ([["bed", 0, 0, 1, 1], ["desk", 2, 0, 1, 1]], 0.5),
        ([["bed", 0, 0, 1, 1], ["desk", 2, 0, 1]], 0.05),
        ([["bed", 0, 0], ["desk", 2, 0]], 0.05),
        ([], 0.25),
        ({"bed": 1, "desk": 2}, 0.0),
        (None, 0.0),
    ],
)
def test_layouts_are_graded_only_if_they_are_whole(answer: object, expected: float) -> None:
    assert arrangement_score(answer, ROOM) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("desk", "expected"),
    [
        (["desk", 2, 0], 0.5),
        ({"id": "desk", "x": 2, "y": 0}, 0.5),
        (["desk", 2, 0, 1, 2], 0.5),
        (["desk", 2, 0, 2, 1], 0.5),
        (["desk", 3, 2], 0.4),
        (["desk", 3, 2, 1, 1], 0.05),
        ({"id": "desk", "x": 2, "y": 0, "width": 1}, 0.05),
        ({"x": 2, "y": 0, "width": 1}, 0.05),
        (["desk", 2, 0, 0.1, 0.2], 0.05),
        (["chair", 2, 0], 0.25),
        (["chair", 2, 0, 7, 7], 0.25),
        (["desk", 2, 0, 1, 2, 3], 0.05),
        ([["desk"], 2, 0], 0.05),
    ],
)
def test_a_thing_may_be_turned_but_not_shrunk_where_its_size_is_known(desk: object, expected: float) -> None:
    assert arrangement_score([["bed", 0, 0], desk], SIZED) == pytest.approx(expected)


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, 10**400, 1e12, True, "1", None], ids=repr_short
)
def test_what_is_no_place_is_no_layout(number: Any) -> None:
    assert arrangement_score([["bed", number, 0], ["desk", 2, 0]], SIZED) == pytest.approx(0.05)


def test_a_judge_adds_its_grades_and_its_failure_is_no_number() -> None:
    assert arrangement_score(GOOD, ROOM, [10, 8, 7]) == pytest.approx(0.5 + 0.5)
    assert arrangement_score(GOOD, ROOM, [10] * 5) == pytest.approx(1.5)
    assert arrangement_score({"bed": 1, "desk": 2}, ROOM, [10, 10]) == 0, "a list of keys is never graded"
    assert arrangement_score([thing("bed", 0, 0)], ROOM, [10]) == 0.25
    for broken in (None, [math.nan], [11], [-1], [1] * 6):
        assert arrangement_score(GOOD, ROOM, broken) is None
        assert arrangement_score({"bed": 1, "desk": 2}, ROOM, broken) is None


def test_terms_have_names() -> None:
    one_of_each = [thing("bed", 0, 0, 2, 2), thing("desk", 1, 1, 1, 3)]
    expected = {"format": 0.5, "collision": -0.2, "constraint": -0.1}
    assert arrangement_terms(one_of_each, ROOM) == pytest.approx(expected)
    assert arrangement_terms(one_of_each, ROOM, [5]) == pytest.approx({**expected, "grades": 0.1})
    nothing = {"format": 0.0, "collision": 0.0, "constraint": 0.0}
    assert arrangement_terms(None, ROOM, [5]) == {**nothing, "grades": 0.0}


def test_overlap_and_walls() -> None:
    assert not overlaps((0, 0, 1, 1), (1, 0, 1, 1))
    assert overlaps((0, 0, 1.1, 1), (1, 0.5, 1, 1))
    _, three = layout_of(
        [thing("a", 0, 0, 2, 2), thing("b", 1, 1), thing("c", 3, 2)],
        Room(width=4, depth=3, things=("a", "b", "c")),
    )
    narrow = Room(width=3.5, depth=3, things=(), walls=("b",))
    assert (collisions(three), outside(three, narrow), off_wall(three, narrow)) == (
        [("a", "b")],
        ["c"],
        ["b"],
    )
    assert collision_ratio(three) == pytest.approx(1 / 3)
    assert constraint_ratio(three, narrow) == pytest.approx(2 / 4)
    assert (collision_ratio({}), constraint_ratio({}, ROOM)) == (0, 0)


@pytest.mark.parametrize(("x", "y"), [(0, 1), (1, 0), (2, 0.5), (1, 1)])
def test_each_of_the_four_walls_will_do(x: float, y: float) -> None:
    room = Room(width=4, depth=3, things=("bed",), sizes=((2, 2),), walls=("bed",))
    assert arrangement_score([["bed", x, y]], room) == 0.5
    assert arrangement_score([["bed", 0.5, 0.5]], room) == pytest.approx(0.4)


def test_a_thing_on_a_pillar_breaks_a_constraint_once() -> None:
    room = Room(width=4, depth=3, things=("bed", "desk"), sizes=((2, 2), (1, 2)), pillars=((1, 1), (3, 2)))
    assert on_pillars({"bed": (0, 0, 2, 2), "desk": (3, 0, 1, 2)}, room) == [("bed", (1, 1))]
    assert arrangement_score([["bed", 0, 0], ["desk", 3, 0]], room) == pytest.approx(0.4)
    assert arrangement_score([["bed", 0, 0], ["desk", 3, 2]], room) == pytest.approx(0.3), "outside as well"
    assert arrangement_score([["bed", 2, 0], ["desk", 0, 0]], room) == 0.5

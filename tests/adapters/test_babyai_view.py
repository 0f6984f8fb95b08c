from dataclasses import dataclass

import pytest

from quintain.adapters.babyai.view import Cell, describe, name


@dataclass
class Thing:
    type: str
    color: str = "grey"
    is_open: bool = False
    is_locked: bool = False


WALL = Thing("wall")
BALL = Thing("ball", "red")
KEY = Thing("key", "blue")
SYMBOLS: dict[str, Cell | None] = {
    "#": WALL,
    ".": None,
    "f": Thing("floor", "blue"),
    "b": BALL,
    "k": KEY,
    "c": Thing("door", "green"),
    "o": Thing("door", "green", is_open=True),
    "l": Thing("door", "green", is_locked=True),
}
RIGHT, DOWN, LEFT, UP = range(4)


def see(drawing: str, x: int, y: int, direction: int) -> str:
    rows = drawing.split()
    return describe([SYMBOLS[symbol] for row in rows for symbol in row], len(rows[0]), (x, y, direction))


ROOM = """
########
#......#
#..b...#
#......#
#......#
#....k.#
#......#
########
"""


@pytest.mark.parametrize(
    ("x", "y", "direction", "said"),
    [
        (3, 4, UP, "red ball 2 ahead, wall 4 ahead"),
        (4, 4, UP, "red ball 2 ahead 1 left, wall 4 ahead"),
        (1, 4, UP, "red ball 2 ahead 2 right, wall 4 ahead"),
        (3, 4, RIGHT, "red ball 2 left, blue key 2 ahead 1 right, wall 4 ahead"),
        (3, 4, LEFT, "red ball 2 right, wall 3 ahead"),
        (3, 4, DOWN, "blue key 1 ahead 2 left, wall 3 ahead"),
        (3, 3, UP, "red ball 1 ahead, wall 3 ahead"),
        (6, 6, DOWN, "wall 1 ahead"),
        (3, 1, DOWN, "red ball 1 ahead, blue key 4 ahead 2 left, wall 6 ahead"),
    ],
)
def test_places_by_value(x: int, y: int, direction: int, said: str) -> None:
    assert see(ROOM, x, y, direction) == said


def test_the_view_ends_after_six_steps_and_three_to_the_side() -> None:
    wide = "\n".join(["." * 19] * 19)
    assert see(wide, 9, 9, UP) == "nothing"
    rows = wide.split()
    for x, y, said in (
        (9, 3, "red ball 6 ahead"),
        (9, 2, "nothing"),
        (6, 9, "red ball 3 left"),
        (5, 9, "nothing"),
    ):
        drawn = [row[:x] + "b" + row[x + 1 :] if j == y else row for j, row in enumerate(rows)]
        assert see("\n".join(drawn), 9, 9, UP) == said


def test_walls_and_closed_doors_hide_open_doors_do_not() -> None:
    corridor = "#######\n#.{}..b#\n#######"
    assert see(corridor.format("."), 1, 1, RIGHT) == "red ball 4 ahead, wall 5 ahead"
    assert see(corridor.format("o"), 1, 1, RIGHT) == "open green door 1 ahead, red ball 4 ahead, wall 5 ahead"
    assert see(corridor.format("c"), 1, 1, RIGHT) == "closed green door 1 ahead"
    assert see(corridor.format("l"), 1, 1, RIGHT) == "locked green door 1 ahead"
    assert see(corridor.format("#"), 1, 1, RIGHT) == "wall 1 ahead"


def test_half_a_row_may_be_hidden() -> None:
    # What is seen spreads sideways along a row until a wall; the agent stands between two walls.
    assert see("b.#.#.k\n###.###", 3, 1, UP) == "wall 2 ahead"
    assert see("b.#...k\n###.###", 3, 1, UP) == "blue key 1 ahead 3 right, wall 2 ahead"
    assert see("b...#.k\n###.###", 3, 1, UP) == "red ball 1 ahead 3 left, wall 2 ahead"


def test_objects_do_not_hide_and_floor_and_ones_own_cell_are_not_told() -> None:
    assert see("#######\n#.kf.b#\n#######", 1, 1, RIGHT) == "blue key 1 ahead, red ball 4 ahead, wall 5 ahead"
    assert see("#######\n#o.#..#\n#######", 1, 1, RIGHT) == "wall 2 ahead"


def test_beyond_the_grid_is_wall() -> None:
    assert see("...\n.b.\n...", 1, 2, UP) == "red ball 1 ahead, wall 3 ahead"
    assert see("...\n...\n...", 2, 1, RIGHT) == "wall 1 ahead"


def test_names() -> None:
    assert name(BALL) == "red ball"
    assert [name(SYMBOLS[door] or WALL) for door in "col"] == [
        "closed green door",
        "open green door",
        "locked green door",
    ]

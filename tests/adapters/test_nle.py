"""NetHack: the explorer by value, and the real game in a worker (``.venv-nle``, which `make test-real` sets up)."""

from contextlib import closing

import pytest

from quintain.adapters.nle.explorer import MAP, STAIRS_DOWN, Explorer, symbol
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.catalog import find
from quintain.environments.worker import Worker
from quintain.errors import UsageError
from quintain.types import Action

SYMBOLS = {" ": 0, "|": 1, "-": 2, "+": 12, ".": 19, "#": 21, ">": STAIRS_DOWN}
pytestmark = pytest.mark.timeout(
    900
)  # a busy machine takes long to import the package and to start processes
real = pytest.mark.real("nle", beside=True)


def glyphs(text: str) -> list[list[int]]:
    """Return a map in the package's numbers; @ is a being."""
    return [[MAP + SYMBOLS[mark] if mark in SYMBOLS else 300 for mark in row] for row in text.splitlines()]


def actions(text: str, *places: tuple[int, int], screen: str = "") -> list[str]:
    explorer = Explorer()
    return [explorer.next(glyphs(text), place, screen) for place in places]


def test_the_explorer_goes_to_the_staircase_and_never_aslant_through_a_door() -> None:
    assert actions("-----\n|@..|\n|..>|\n-----", (1, 1), (1, 2)) == ["east", "southeast"]
    assert actions("-----\n|@..|\n--+--\n |>| ", (1, 1), (1, 2), (2, 2)) == ["east", "south", "south"]


def test_the_explorer_goes_where_it_has_not_looked() -> None:
    assert actions("-------\n|@.#   \n-------", (1, 1)) == ["east"]
    assert actions("|@|", (0, 1), screen="--More--") == ["more"]
    assert actions("|@|", (0, 1)) == ["search"]


def test_the_explorer_leaves_out_what_cannot_be_entered() -> None:
    assert actions("@>", (0, 0), (0, 0), (0, 0), (0, 0)) == ["east", "east", "search", "search"]


def test_symbols_of_beings_and_things_are_none() -> None:
    assert [symbol([[300, MAP, MAP + 87]], (0, column)) for column in range(3)] == [-1, 0, -1]


@pytest.fixture
def staircase(python_beside: str) -> Worker:
    return Worker("nle/NetHackStaircase-v0", python=python_beside)


@real
def test_the_same_seed_is_the_same_game_in_every_process(staircase: Worker, python_beside: str) -> None:
    with (
        closing(staircase),
        closing(find(f"worker/nle/NetHackStaircase-v0?python={python_beside}")()) as other,
    ):
        task = staircase.task("train", 0)
        one, two = (play(each, task, random_policy(7), 40) for each in (staircase, other))
        assert one.observations == two.observations and one.rewards == two.rewards
        assert "Agent the" in str(one.observations[0])


@real
def test_the_explorer_finds_more_staircases_than_chance(staircase: Worker, python_beside: str) -> None:
    with closing(staircase):
        tasks = [staircase.task("train", index) for index in range(10)]
        found = sum(play(staircase, task, expert).is_success for task in tasks)
        by_chance = sum(play(staircase, task, random_policy(task.seed)).is_success for task in tasks)
        assert found >= 5 > by_chance
        staircase.reset(tasks[0])
        assert not staircase.step(Action(text="dance")).is_valid
    with pytest.raises(UsageError, match="did you mean 'NetHackScore-v0'"):
        Worker("nle/NetHackScor-v0", python=python_beside)

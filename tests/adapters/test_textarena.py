import random
import sys

import pytest

from quintain.adapters.textarena.environment import TextArena
from quintain.environments.check import check
from quintain.environments.protocol import Seats, advance, begin
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action, Task

HANOI = ("A C", "A B", "C B", "A C", "B A", "B C", "A C")


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[textarena\]"'):
        TextArena("TicTacToe-v0")
    with pytest.raises(UsageError, match="does not list its moves"):
        TextArena("Nim-v0", opponent="random")


@pytest.mark.real("textarena")
@pytest.mark.parametrize(
    "spec", ["TicTacToe-v0?opponent=random", "KuhnPoker-v0?opponent=random", "FrozenLake-v0"]
)
def test_keeps_the_contract(spec: str) -> None:
    report = check(f"textarena/{spec}", episodes=5)
    assert report.has_passed, list(report.lines())


@pytest.mark.real("textarena")
def test_a_known_solution_wins() -> None:
    world = TextArena("TowerOfHanoi-v0")
    assert "A: [3, 2, 1]" in str(begin(world, world.task("train", 0)))
    results = [advance(world, Action(text=move)) for move in HANOI]
    assert [result.reward for result in results] == [0.0] * 6 + [1.0]
    assert results[-1].is_terminated and results[-1].is_success
    assert all(result.is_valid for result in results)


@pytest.mark.real("textarena")
def test_guessing_by_halves_finds_the_number() -> None:
    world = TextArena("GuessTheNumber-v0")
    for index in range(5):
        begin(world, world.task("train", index))
        low, high = 1, 20
        while True:
            middle = (low + high) // 2
            result = advance(world, Action(text=str(middle)))
            if result.is_terminated:
                break
            low, high = (middle + 1, high) if "higher" in str(result.observation) else (low, middle - 1)
        assert result.is_success and result.reward == 1.0


@pytest.mark.real("textarena")
def test_two_seats_take_turns_and_their_rewards_are_told_apart() -> None:
    world = TextArena("TicTacToe-v0")
    assert isinstance(world, Seats) and world.seats() == ("Player 0", "Player 1")
    assert "you will be 'O'" in str(begin(world, world.task("train", 0)))
    seen: list[str] = []
    for move in ("[0]", "[3]", "[1]", "[4]"):
        seen.append(world.seat())
        assert not advance(world, Action(text=move)).is_terminated
    last = advance(world, Action(text="[2]"))
    assert seen == ["Player 0", "Player 1"] * 2
    assert (last.is_terminated, last.is_success, last.reward) == (True, True, 1.0)
    assert last.rewards == {"Player 0": 1.0, "Player 1": -1.0}


@pytest.mark.real("textarena")
def test_a_refused_move_is_not_valid_and_a_second_one_loses() -> None:
    world = TextArena("TicTacToe-v0", opponent="random")
    begin(world, world.task("train", 0))
    first = advance(world, Action(text="[99]"))
    assert (first.is_valid, first.is_terminated) == (False, False)
    second = advance(world, Action(text="[99]"))
    assert (second.is_terminated, second.is_success, second.reward) == (True, False, -1.0)


@pytest.mark.real("textarena")
def test_the_global_random_numbers_are_left_alone() -> None:
    world = TextArena("TicTacToe-v0", opponent="random")
    random.seed(5)
    expected = random.Random(5).random()
    begin(world, Task(id="t", environment="textarena", seed=12))
    assert random.random() == expected


@pytest.mark.real("textarena")
def test_what_does_not_exist_or_start_is_named() -> None:
    with pytest.raises(UsageError, match="TicTacToe"):
        TextArena("TicTacTo-v0")
    with pytest.raises(UsageError, match="does not start here"):
        TextArena("TicTacToe-v0", players=5)
    with pytest.raises(UsageError, match="opponent of textarena"):
        TextArena("TicTacToe-v0", opponent="best")  # pyright: ignore[reportArgumentType]

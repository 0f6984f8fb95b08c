import sys

import pytest

from quintain.adapters.pettingzoo.environment import PettingZoo
from quintain.environments.baselines import expert, play
from quintain.environments.check import check
from quintain.environments.protocol import Expert, Seats, advance, begin
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[pettingzoo\]"'):
        PettingZoo("tictactoe_v3")
    with pytest.raises(UsageError, match="did you mean 'rps_v2'"):
        PettingZoo("rps")
    with pytest.raises(UsageError, match="choose random or self"):
        PettingZoo("rps_v2", opponent="expert")


@pytest.mark.real("pettingzoo")
@pytest.mark.parametrize("spec", ["tictactoe_v3", "connect_four_v3?opponent=self", "rps_v2"])
def test_keeps_the_contract(spec: str) -> None:
    report = check(f"pettingzoo/{spec}", episodes=10)
    assert report.has_passed, list(report.lines())


@pytest.mark.real("pettingzoo")
def test_the_expert_never_loses_tictactoe() -> None:
    world = PettingZoo("tictactoe_v3")
    totals = [play(world, world.task("eval", index), expert).total for index in range(20)]
    assert min(totals) >= 0 and sum(totals) >= 15
    equal = PettingZoo("tictactoe_v3", opponent="expert")
    assert play(equal, equal.task("train", 0), expert).total == 0


@pytest.mark.real("pettingzoo")
def test_the_expert_wins_connect_four_against_chance() -> None:
    world = PettingZoo("connect_four_v3")
    assert sum(play(world, world.task("eval", index), expert).is_success for index in range(10)) >= 9


@pytest.mark.real("pettingzoo")
def test_two_seats_by_value() -> None:
    world = PettingZoo("tictactoe_v3", opponent="self")
    assert isinstance(world, Seats) and world.seats() == ("player 1", "player 2")
    first = begin(world, world.task("train", 0))
    assert first == "You are player 1. yours: none; theirs: none; free: 0 1 2 3 4 5 6 7 8"
    seen = [advance(world, Action(text=cell)) for cell in ("0", "3", "1", "4", "2")]
    assert seen[0].observation == "You are player 2. yours: none; theirs: 0; free: 1 2 3 4 5 6 7 8"
    assert (seen[-1].observation, seen[-1].reward, seen[-1].is_success) == ("player 1 wins.", 1.0, True)
    assert seen[-1].rewards == {"player 1": 1.0, "player 2": -1.0}


@pytest.mark.real("pettingzoo")
def test_rounds_of_rps_are_paid_one_by_one() -> None:
    world = PettingZoo("rps_v2", opponent="self")
    begin(world, world.task("train", 0))
    rewards = [advance(world, Action(text=move)).reward for move in ("rock", "scissors", "rock", "paper")]
    assert rewards == [0.0, 1.0, 0.0, -1.0]
    assert not isinstance(world, Expert), "chance is as good as anything"


@pytest.mark.real("pettingzoo")
def test_an_illegal_move_changes_nothing() -> None:
    world = PettingZoo("tictactoe_v3", opponent="self")
    begin(world, world.task("train", 0))
    advance(world, Action(text="4"))
    key = world.state_key()
    refused = advance(world, Action(text="4"))
    assert not refused.is_valid and not refused.is_terminated and world.state_key() == key

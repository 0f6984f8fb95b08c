import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.types import Action
from quintain.worlds.guess.game import Guess


def test_the_secret_is_answered_by_value() -> None:
    world = Guess(low=1, high=8)
    task = world.task("train", 0)
    assert begin(world, task) == "Find the hidden number between 1 and 8."
    secret = task.rng.randint(1, 8)
    begin(world, task)
    for number in range(1, 9):
        result = advance(world, tool_action("guess", number=number))
        said = "higher" if number < secret else "correct" if number == secret else "lower"
        assert (result.observation, result.reward) == (said, float(number == secret))
        assert result.is_terminated == (number == secret)


@pytest.mark.parametrize("text", ["16", "guess 16", " Guess 16. "])
def test_a_guess_may_be_written_out(text: str) -> None:
    world = Guess()
    begin(world, world.task("train", 0))
    assert advance(world, Action(text=text)) == advance(world, tool_action("guess", number=16))


@pytest.mark.parametrize("text", ["", "sixteen", "16 or 17", "1.5", "9" * 40])
def test_other_text_is_no_guess(text: str) -> None:
    world = Guess()
    begin(world, world.task("train", 0))
    result = advance(world, Action(text=text))
    assert not result.is_valid and result.observation == "Error: no tool was called; tools: guess."


def test_no_strategy_beats_the_expert() -> None:
    # 2**k - 1 numbers: a full binary tree, 1 number found in 1 guess, 2 in 2, 4 in 3, 8 in 4.
    world = Guess(low=1, high=15)
    turns: dict[int, int] = {}
    index = 0
    while len(turns) < 15:
        task = world.task("train", index)
        index += 1
        turns[task.rng.randint(1, 15)] = len(play(world, world.task("train", index - 1), expert).rewards)
    assert sorted(turns.values()) == [1] + [2] * 2 + [3] * 4 + [4] * 8


def test_the_expert_goes_on_from_any_state() -> None:
    world = Guess(low=1, high=100, max_turns=40)
    for index in range(20):
        begin(world, world.task("train", index))
        advance(world, tool_action("guess", number=200))
        advance(world, tool_action("guess", number=-3))
        last = [advance(world, world.expert_action()) for _ in range(7)]
        assert any(result.is_terminated for result in last)


def test_a_state_is_the_secret_and_what_is_known_of_it() -> None:
    one, other = Guess(), Guess()
    begin(one, one.task("train", 1))
    begin(other, one.task("train", 1))
    assert one.state_key() == other.state_key()
    advance(one, tool_action("guess", number=0))
    assert one.state_key() == other.state_key(), "a guess that tells nothing changes nothing"
    advance(one, tool_action("guess", number=33))
    advance(one, tool_action("guess", number=1))
    assert one.state_key() != other.state_key()
    other.restore(one.snapshot())
    assert (one.state_key(), one.expert_action()) == (other.state_key(), other.expert_action())


@pytest.mark.parametrize("options", [{"low": 3, "high": 2}, {"max_turns": 0}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="guess: got low="):
        Guess(**options)

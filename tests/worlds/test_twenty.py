from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.protocol import advance, begin
from quintain.environments.splitting import is_eval
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult
from quintain.worlds.twenty.game import Twenty
from quintain.worlds.twenty.things import KNOWN, PROPERTIES, Riddle, describe_things

RIDDLE = Riddle(
    table=(
        ("coin", ("round",)),
        ("cow", ("alive", "big", "loud")),
        ("drum", ("loud", "round")),
        ("lamp", ()),
        ("rose", ("alive",)),
        ("tree", ("alive", "big")),
    ),
    hidden="drum",
)


def world_with(riddle: Riddle = RIDDLE, **options: Any) -> Twenty:
    world = Twenty(things=len(riddle.table), **options)
    begin(world, world.task("train", 0))
    world.restore((riddle, (), 0))
    return world


def act(world: Twenty, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_questions_and_guesses_are_answered_by_value() -> None:
    results = act(world_with(), "is it alive?", "is it loud?", "it is a lamp", "it is a drum")
    assert [result.observation for result in results] == ["no", "yes", "no", "yes, you found it"]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 1.0]
    assert [result.is_terminated for result in results] == [False, False, False, True]
    assert [result.is_success for result in results] == [False, False, False, True]


@pytest.mark.parametrize(
    "text", ["it is a drum", "Is it a drum?", " it's the drum. ", "it is drum", "IT  IS A DRUM"]
)
def test_a_guess_may_be_said_in_several_ways(text: str) -> None:
    [result] = act(world_with(), text)
    assert result.is_success and result.reward == 1.0


def test_what_was_answered_is_answered_again_and_takes_its_turn() -> None:
    world = world_with()
    first, again, wrong, still = act(world, "is it loud?", "it is loud", "it is a cow", "is it a cow?")
    assert (first.observation, again.observation) == ("yes", "yes, as before")
    assert (wrong.observation, still.observation) == ("no", "no, as before")
    assert all(result.reward == 0 and result.is_valid for result in (first, again, wrong, still))
    assert world.state_key().endswith(":['cow', 'loud']:4")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Error: write is it PROPERTY? or it is a THING"),
        ("drum", "Error: write is it PROPERTY? or it is a THING"),
        ("is it big or round?", "Error: write is it PROPERTY? or it is a THING"),
        ("is it heavy?", "Error: heavy is none of the things, and no property that is answered"),
        ("it is a lion", "Error: lion is none of the things, and no property that is answered"),
        ("is it round?", "Error: round is none of the things, and no property that is answered"),
    ],
)
def test_what_is_unknown_is_told(text: str, told: str) -> None:
    world = world_with(properties=5)
    [result] = act(world, text)
    assert (result.observation, result.reward, result.is_valid) == (told, 0.0, False)
    assert world.snapshot() == (RIDDLE, (), 1)
    broken = advance(world, Action(error="no call"))
    assert (broken.observation, broken.is_valid) == ("Error: no call", False)


def test_the_first_observation_names_the_things_or_tells_what_they_are() -> None:
    world = Twenty(things=3)
    told = str(begin(world, world.task("train", 0)))
    riddle = world.snapshot()[0]
    assert told == f"Things: {', '.join(riddle.things)}" and riddle.things == tuple(sorted(riddle.things))
    assert all(words == tuple(KNOWN[thing].split()) for thing, words in riddle.table)
    drawn = Twenty(things=8, properties=3, told=True)
    rows = str(begin(drawn, drawn.task("train", 0))).split("; ")
    assert len({row.partition(": ")[2] for row in rows}) == 8
    assert any(row.endswith(": none") for row in rows), "eight things have all that three properties can be"
    assert world.instructions().startswith("Find the hidden thing in 4 turns. Ask: is it alive? is it big?")


def test_known_things_differ() -> None:
    for num in range(1, len(PROPERTIES) + 1):
        table = describe_things(num)
        assert len({words for _, words in table}) == len(table)
        assert all(words == tuple(word for word in PROPERTIES[:num] if word in words) for _, words in table)
    assert len(describe_things(6)) == len(KNOWN) == 30 and len(describe_things(5)) == 24


def test_the_expert_asks_what_halves_the_things() -> None:
    world = world_with()
    moves: list[str] = []
    while not moves or moves[-1] != "it is a drum":
        moves.append(world.expert_action().text)
        act(world, moves[-1])
    # Three of six are alive; of coin, drum and lamp one is loud, which is as good as two that are round.
    assert moves == ["is it alive?", "is it loud?", "it is a drum"]
    assert [thing for thing, _ in RIDDLE.left(("alive",))] == ["coin", "drum", "lamp"]
    assert RIDDLE.left(("loud", "cow")) == (("drum", ("loud", "round")),)


def test_the_expert_names_something_in_the_last_turn() -> None:
    world = world_with(max_turns=1)
    assert world.expert_action().text == "it is a coin"
    act(world, "it is a coin")
    assert world.expert_action().text == "it is a cow", "it goes on from any state"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"things": 2},
        {"things": 4},
        {"things": 30},
        {"properties": 3},
        {"told": True},
        {"things": 4, "told": True},
    ],
)
def test_the_expert_finds_all_and_needs_questions_for_it(options: dict[str, Any]) -> None:
    world = Twenty(**options)
    tasks = [world.task("train", index) for index in range(60)]
    assert all(play(world, task, expert).is_success for task in tasks)
    chance = sum(play(world, task, random_policy(task.seed)).is_success for task in tasks)
    assert chance < 40 and not any(play(world, task, noop).is_success for task in tasks)


@pytest.mark.parametrize("options", [{}, {"told": True}, {"things": 3, "properties": 2}])
def test_splits_have_no_riddle_in_common(options: dict[str, Any]) -> None:
    world = Twenty(**options)
    riddles: dict[Split, set[Riddle]] = {"train": set(), "eval": set()}
    for split, seen in riddles.items():
        for index in range(150):
            begin(world, world.task(split, index))
            seen.add(world.snapshot()[0])
        assert all(is_eval(riddle) == (split == "eval") for riddle in seen)
    assert riddles["train"].isdisjoint(riddles["eval"])


def test_a_state_is_the_riddle_and_what_is_known_and_when() -> None:
    one, other = Twenty(), Twenty()
    for world in (one, other):
        begin(world, one.task("train", 1))
    act(one, "is it big?", "is it alive?")
    act(other, "is it alive?", "is it big?")
    assert one.state_key() == other.state_key()
    act(one, "is it big?")
    assert one.state_key() != other.state_key()
    other.restore(one.snapshot())
    assert (one.state_key(), one.expert_action()) == (other.state_key(), other.expert_action())
    begin(other, one.task("train", 2))
    assert other.snapshot()[1:] == ((), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"things": 1},
        {"things": 31},
        {"properties": 0},
        {"properties": 7},
        {"things": 25, "properties": 5},
        {"things": 9, "properties": 3, "told": True},
        {"max_turns": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="twenty: got things="):
        Twenty(**options)

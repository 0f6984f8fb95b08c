import random
from collections import deque
from typing import Any

import pytest
from tests.calls import count_calls

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action
from quintain.worlds.keydoor.game import ACTIONS, KeyDoor
from quintain.worlds.keydoor.map import Map, first_move, generate

# Two rooms of 3 by 2, the door at (3, 1), the key in the first room, the flag in the second.
#   S . k | . .
#   . . b + . F
MAP = Map(2, 3, 2, ((1, "red"),), (6, 1))
START = (MAP, (0, 0), None, (((2, 0), ("red", "key")), ((2, 1), ("blue", "ball"))), 0, frozenset[str]())


def world_at_start(**options: Any) -> KeyDoor:
    world = KeyDoor(length=3, height=2, **options)
    begin(world, world.task("train", 0))
    world.restore(START)
    return world


def act(world: KeyDoor, *words: str) -> list[str]:
    return [str(advance(world, Action(text=word)).observation) for word in words]


def test_a_walk_through_by_value() -> None:
    world = world_at_start()
    assert act(world, "east", "east", "take", "south", "open", "east", "east") == [
        "red key 1 east, blue ball 1 south 1 east, locked red door 1 south 2 east, holding nothing",
        "red key here, blue ball 1 south, locked red door 1 south 1 east, holding nothing",
        "blue ball 1 south, locked red door 1 south 1 east, holding red key",
        "blue ball here, locked red door 1 east, holding red key",
        "blue ball here, open red door 1 east, holding nothing",
        "open red door here, blue ball 1 west, flag 3 east, holding nothing",
        "open red door 1 west, flag 2 east, holding nothing",
    ]
    result = [advance(world, Action(text="east")) for _ in range(2)][-1]
    assert result.is_terminated and result.is_success and result.reward == 1.0
    assert dict(result.reward_terms) == {"flag": 1.0}


@pytest.mark.parametrize("word", ["north", "west", "take", "drop", "open", "fly", "", "east now"])
def test_what_has_no_effect_changes_nothing_and_says_so(word: str) -> None:
    world = world_at_start()
    key = world.state_key()
    result = advance(world, Action(text=word))
    assert str(result.observation).startswith("Nothing happens. red key 2 east")
    assert not result.is_valid and world.state_key() == key


def test_wait_is_legal_and_changes_nothing() -> None:
    world = world_at_start()
    key = world.state_key()
    assert advance(world, Action(text=" Wait ")).is_valid and world.state_key() == key
    assert not advance(world, Action(text="wait", error="unreadable")).is_valid


def test_only_the_right_key_opens() -> None:
    world = world_at_start()
    act(world, "south", "east", "east", "take")
    assert act(world, "open")[0].startswith("Nothing happens.")
    assert world.legal_actions() == ("north", "west", "drop", "wait")
    act(world, "drop", "north", "take", "south")
    assert world.legal_actions() == ("north", "west", "open", "wait"), "nothing is dropped onto the ball"


def test_irreversible_takes_cannot_be_undone() -> None:
    world = world_at_start(irreversible=True)
    act(world, "south", "east", "east", "take")
    assert "drop" not in world.legal_actions()
    assert world.expert_action() == Action(text="wait")


def test_dense_rewards_pay_each_subgoal_once_and_add_up_to_one() -> None:
    world = world_at_start(dense=True)
    words = ["east", "east", "take", "drop", "take", "south", "open", "east", "east", "east", "east"]
    results = [advance(world, Action(text=word)) for word in words]
    assert [result.reward for result in results] == [0, 0, 0.25, 0, 0, 0, 0.25, 0, 0, 0, 0.5]
    assert [dict(result.reward_terms) for result in results if result.reward] == [
        {"key": 0.25},
        {"door": 0.25},
        {"flag": 0.5},
    ]
    assert [result.is_success for result in results] == [False] * 10 + [True]


def shortest(world: KeyDoor) -> int:
    """Breadth-first search over the world's own states: independent of the expert."""
    queue = deque([(world.snapshot(), 0)])
    seen = {world.state_key()}
    while queue:
        state, depth = queue.popleft()
        world.restore(state)
        for word in world.legal_actions():
            world.restore(state)
            if advance(world, Action(text=word)).is_terminated:
                return depth + 1
            if world.state_key() not in seen:
                seen.add(world.state_key())
                queue.append((world.snapshot(), depth + 1))
    raise AssertionError("the flag cannot be reached")


def test_no_way_is_shorter_than_the_experts_with_one_door() -> None:
    world = KeyDoor(length=2, height=3, distractors=1)
    for index in range(8):
        task = world.task("train", index)
        taken = len(play(world, task, expert).rewards)
        begin(world, task)
        assert taken == shortest(world)


@pytest.mark.parametrize(
    "options",
    [
        {"rooms": 1},
        {"rooms": 6, "distractors": 4},
        {"height": 1, "length": 6},
        {"rooms": 3, "irreversible": True},
    ],
)
def test_the_expert_wins_within_the_limit(options: dict[str, Any]) -> None:
    world = KeyDoor(**options)
    for index in range(20):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_the_expert_recovers_from_random_play() -> None:
    world = KeyDoor(rooms=3, distractors=2)
    for index in range(10):
        task = world.task("train", index)
        play(world, task, random_policy(index), 30)
        last = [advance(world, world.expert_action()) for _ in range(world.max_turns)]
        assert any(result.is_terminated for result in last)


def test_there_are_thousands_of_tasks() -> None:
    world = KeyDoor()
    made = {repr(generate((2, 4, 4), 1, world.task("train", index).rng)) for index in range(3000)}
    assert len(made) > 2990


def test_keys_lie_before_their_doors() -> None:
    for seed in range(200):
        made, start, items = generate((4, 3, 3), 2, random.Random(seed))
        for number, (_, color) in enumerate(made.doors):
            [place] = [place for place, item in items.items() if item == (color, "key")]
            assert made.room(place[0]) <= number
        assert len(items) == 5 and start not in items and made.flag not in items
        assert made.room(made.flag[0]) == 3


def test_ways_by_value() -> None:
    assert first_move(MAP, 0, (0, 0), [(2, 1)]) == "south"
    assert first_move(MAP, 0, (0, 0), [(0, 0)]) is None
    assert first_move(MAP, 0, (0, 0), [(6, 1)]) is None, "behind a locked door"
    assert first_move(MAP, 1, (2, 1), [(6, 1)]) == "east"


def test_impossible_options_are_refused() -> None:
    with pytest.raises(UsageError, match="rooms=7"):
        KeyDoor(rooms=7)
    with pytest.raises(UsageError, match="rooms of 4 cells for 1 keys and 2 distractors"):
        KeyDoor(length=2, distractors=2)


def test_a_step_is_little_work() -> None:
    world = KeyDoor()
    begin(world, world.task("train", 0))
    actions = [Action(text=word) for word in ACTIONS]
    assert count_calls(lambda: [world.step(action) for action in actions * 8]) < 150 * 8 * len(actions)

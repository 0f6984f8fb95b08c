import random
from collections import deque
from typing import Any

import pytest

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult
from quintain.worlds.sokoban.game import Sokoban
from quintain.worlds.sokoban.level import Level, Position, draw_level, push_distances, solve, steps_of

# @ player, $ box, . target, # wall; cells are numbered 0 to 11.
#   @ - - -
#   - $ - .
#   - - # -
LEVEL = Level(width=4, height=3, walls=(10,), targets=(7,), player=0, boxes=(5,))
TWO = Level(width=4, height=4, walls=(), targets=(3, 15), player=0, boxes=(5, 9))


def world_with(level: Level = LEVEL, **options: Any) -> Sokoban:
    world = Sokoban(**options)
    begin(world, world.task("train", 0))
    world.restore((level, level.start, 7, 0))
    return world


def act(world: Sokoban, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=word)) for word in words]


def test_a_solution_by_value() -> None:
    world = world_with()
    results = act(world, "south", "east", " East ")
    assert [result.observation for result in results] == [
        "at 1, 2; box 1 east; target 3 east; wall 1 south, 2 east",
        "at 2, 2; box 1 east; target 2 east; wall 1 south, 1 east",
        "Solved.",
    ]
    assert [result.reward for result in results] == [0, 0, 1] and results[-1].is_success
    assert results[-1].is_terminated and dict(results[-1].reward_terms) == {}


def test_the_grid_has_the_usual_signs() -> None:
    world = world_with(view="grid")
    assert act(world, "east")[0].observation == "######\n#-@--#\n#-$-.#\n#--#-#\n######"
    pair = Level(width=3, height=1, walls=(), targets=(0, 2), player=0, boxes=(1, 2))
    assert act(world_with(pair, view="grid"), "west")[0].observation == "Nothing happens. #####\n#+$*#\n#####"


@pytest.mark.parametrize("word", ["north", "west", "up", "", "east east"])
def test_what_cannot_be_done_changes_nothing(word: str) -> None:
    world = world_with()
    key = world.state_key()
    [result] = act(world, word)
    assert str(result.observation).startswith("Nothing happens. at 1, 1; box 1 south, 1 east;")
    assert not result.is_valid and world.state_key() == key
    assert world.legal_actions() == ("south", "east")


def test_boxes_are_not_pushed_into_walls_or_boxes() -> None:
    world = world_with(TWO)
    act(world, "east")
    assert world.legal_actions() == ("east", "west"), "two boxes in a row do not move"
    assert not act(world, "south")[0].is_valid
    blocked = Level(width=3, height=1, walls=(2,), targets=(2,), player=0, boxes=(1,))
    assert blocked.move(blocked.start, "east") is None


def test_a_corner_is_a_dead_end() -> None:
    world = world_with()
    assert world.distance() == 3
    act(world, "east", "south")
    assert world.distance() is None, "the box is at the lower edge, and the target is not"
    assert world.expert_action() == Action(text=world.legal_actions()[0])
    assert 8 not in push_distances(4, 3, (10,), (7,)) and push_distances(4, 3, (10,), (7,))[5] == 2


def shortest(level: Level, start: Position) -> int | None:
    """Breadth-first search over moves: independent of bounds and dead cells."""
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        here, depth = queue.popleft()
        if here[1] == frozenset(level.targets):
            return depth
        for move in ("north", "south", "east", "west"):
            there = level.move(here, move)
            if there is not None and there not in seen:
                seen.add(there)
                queue.append((there, depth + 1))
    return None


def test_no_solution_is_shorter_than_the_experts() -> None:
    rng = random.Random(0)
    num_dead = 0
    for _ in range(25):
        level = draw_level((4, 4), 2, 2, 40, rng)
        for _ in range(2):
            cells = rng.sample([cell for cell in range(16) if cell not in level.walls], 3)
            position = (cells[0], frozenset(cells[1:]))
            way, depth = solve(level, position), shortest(level, position)
            assert depth == (None if way is None else len(way))
            num_dead += depth is None
            for move in way or ():
                after = level.move(position, move)
                assert after is not None
                position = after
            assert way is None or position[1] == frozenset(level.targets)
    assert 0 < num_dead < 50


def test_every_level_can_be_solved_in_no_more_moves_than_it_was_scrambled_by() -> None:
    for seed in range(20):
        level = draw_level((5, 5), 2, 3, 40, random.Random(seed))
        way = solve(level, level.start)
        assert way is not None and len(way) <= 40
        assert not set(level.boxes) & set(level.targets) and level.player not in level.boxes
        assert not set(level.walls) & {level.player, *level.boxes, *level.targets}


def test_ways_by_value() -> None:
    steps = steps_of(2, 2, (3,))
    assert [dict(lead) for lead in steps] == [{"south": 2, "east": 1}, {"west": 0}, {"north": 0}, {}]
    assert TWO.distance(frozenset({5, 9})) == 6, "each box to a target of its own: 3 + 3"
    low = Level(width=4, height=4, walls=(), targets=(12, 15), player=0, boxes=(3, 4))
    assert low.distance(frozenset({3, 4})) == 5, "crosswise: 3 + 2, not 6 + 5"
    assert TWO.distance(frozenset({3, 11})) == 1 and TWO.distance(frozenset({15, 3})) == 0


def test_dense_rewards_pay_for_boxes_that_come_nearer_and_take_it_back() -> None:
    line = Level(width=5, height=3, walls=(), targets=(8,), player=5, boxes=(6,))
    world = world_with(line, reward="dense")
    words = [
        "east",
        "north",
        "east",
        "east",
        "south",
        "west",
        "north",
        "west",
        "west",
        "south",
        "east",
        "east",
    ]
    results = act(world, *words)
    assert [result.reward for result in results] == [0.25, 0, 0, 0, 0, -0.25, 0, 0, 0, 0, 0.25, 0.75]
    assert sum(result.reward for result in results) == 1.0 and results[-1].is_success
    assert world.return_range == (-3.0, 1.0)


def test_a_slippery_floor_turns_some_moves_aside_always_alike() -> None:
    world = world_with(slip=0.3)
    room = Level(width=8, height=8, walls=(), targets=(7,), player=35, boxes=(62,))
    aside = 0
    for turn in range(100):
        ends: list[str] = []
        for _ in range(2):
            world.restore((room, room.start, 7, turn))
            act(world, "north")
            ends.append(world.state_key())
        assert ends[0] == ends[1]
        aside += ends[0].startswith(("(34,", "(36,"))
    assert 18 < aside < 42
    key = world.state_key()
    act(world, "fly")
    assert world.state_key() != key, "where the next move goes depends on the turn"


@pytest.mark.parametrize(
    "options",
    [{}, {"size": 5, "boxes": 2, "walls": 3, "scramble": 60}, {"size": 3, "walls": 0}, {"reward": "dense"}],
)
def test_the_expert_solves_every_level(options: dict[str, Any]) -> None:
    world = Sokoban(**options)
    for index in range(50):
        begin(world, world.task("train", index))
        length = world.distance()
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0) and len(episode.rewards) == length


def test_the_expert_recovers_where_that_is_possible() -> None:
    world = Sokoban()
    tasks = [world.task("train", index) for index in range(40)]
    noisy = sum(play(world, task, noisy_policy(0.4, task.seed)).is_success for task in tasks)
    chance = sum(play(world, task, random_policy(task.seed)).is_success for task in tasks)
    assert chance < noisy < 40, "some mistakes cannot be undone"


def test_snapshots_and_noise() -> None:
    one, other = world_with(noise=1), world_with()
    [first], [second] = act(one, "south"), act(other, "south")
    assert (
        str(first.observation).startswith(f"{second.observation} ") and one.state_key() == other.state_key()
    )
    state = one.snapshot()
    act(one, "east", "east")
    other.restore(state)
    assert other.expert_action() == Action(text="east") and other.distance() == 2
    elsewhere = world_with(TWO)
    assert elsewhere.distance() == shortest(TWO, TWO.start)
    elsewhere.restore(state)
    assert elsewhere.distance() == 2, "ways of another level are forgotten"


def test_splits_have_no_level_in_common() -> None:
    world = Sokoban()
    levels: dict[Split, set[Level]] = {"train": set(), "eval": set()}
    for split, seen in levels.items():
        for index in range(400):
            begin(world, world.task(split, index))
            seen.add(world.snapshot()[0])
    assert not levels["train"] & levels["eval"] and len(levels["train"]) > 380


@pytest.mark.parametrize(
    "options",
    [
        {"size": 2},
        {"size": 9},
        {"boxes": 0},
        {"boxes": 5},
        {"walls": 5},
        {"boxes": 4},
        {"scramble": 7},
        {"slip": 1.1},
        {"noise": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="sokoban: got "):
        Sokoban(**options)

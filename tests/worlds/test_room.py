import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.check import check
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import GraderFault
from quintain.errors import UsageError
from quintain.rewards.arrangement import Rectangle, Room, collision_ratio, layout_of, outside
from quintain.types import Action, StepResult, ToolError
from quintain.worlds.room.game import BoxRoom, Sheet
from quintain.worlds.room.plan import RoomShape, describe_room, draw_room, num_drawn, pack, slip

ROOM = Room(width=4, depth=3, things=("bed", "desk", "lamp"), sizes=((2, 2), (2, 1), (1, 1)))
GOOD = '[["bed", 0, 0], ["desk", 2, 0], ["lamp", 2, 1]]'
ONE_PAIR = '[["bed", 0, 0], ["desk", 2, 0], ["lamp", 0, 0]]'


def world_of(room: Room = ROOM, kind: type[BoxRoom] = BoxRoom, **options: Any) -> BoxRoom:
    world = kind(**options)
    world.restore(Sheet(room=room))
    return world


def act(world: BoxRoom, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_an_episode_by_value() -> None:
    world = world_of()
    assert describe_room(world.snapshot().room) == "room 4 3; bed 2 2; desk 2 1; lamp 1 1"
    first, second = act(world, ONE_PAIR, GOOD)
    assert first.observation == "Score 0.43: bed and lamp overlap."
    assert first.reward == pytest.approx(0.5 - 0.2 / 3) and first.is_valid
    assert dict(first.reward_terms) == pytest.approx({"format": 0.5, "collision": -0.2 / 3, "constraint": 0})
    assert (first.is_terminated, first.is_success) == (False, False)
    assert (second.observation, second.is_terminated, second.is_success) == ("Done.", True, True)
    terms = {"format": 0.5, "collision": 0.0, "constraint": 0.0, "spared": 0.5}
    assert dict(second.reward_terms) == terms and second.reward == 1.0, "the third attempt is paid as well"


@pytest.mark.parametrize(
    ("text", "reward", "said"),
    [
        (
            '[["bed", 0, 0], ["desk", 0, 0], ["lamp", 0, 0]]',
            0.3,
            "bed and desk overlap; bed and lamp overlap; ",
        ),
        (
            '[["bed", 0, 0], ["desk", 3, 0], ["lamp", -1, 2]]',
            0.5 - 0.4 / 3,
            "desk sticks out; lamp sticks out.",
        ),
        ('[["bed", 0, 0], ["desk", 2, 0]]', 0.25, "give each of bed, desk, lamp one place."),
        ('[["bed", 0, 0], ["desk", 2, 0], ["sofa", 2, 1]]', 0.25, "give each of bed, desk, lamp one place."),
        ('[["bed", 0, 0, 1, 1], ["desk", 2, 0], ["lamp", 2, 1]]', 0.05, "give each of"),
        ('{"bed": [0, 0], "desk": [2, 0], "lamp": [2, 1]}', 0.0, "give each of bed, desk, lamp one place."),
        ('[["bed", 0, 0]', 0.0, "the layout is not valid JSON: "),
        ('[["bed", NaN, 0], ["desk", 2, 0], ["lamp", 2, 1]]', 0.0, "not a finite number"),
        (GOOD + " " * 5000 + "x", 0.0, "the layout has more than 4096 letters"),
        ("", 0.0, "the layout is not valid JSON: "),
    ],
)
def test_the_table_of_rewards(text: str, reward: float, said: str) -> None:
    (result,) = act(world_of(), text)
    assert result.reward == pytest.approx(reward) and said in str(result.observation)
    assert result.is_valid == (reward > 0.25) and result.is_success is False and not result.is_terminated


def test_objects_rows_and_things_turned_are_read() -> None:
    objects = (
        '[{"id": "lamp", "x": 3, "y": 2}, {"id": "bed", "x": 0, "y": 0}, {"id": "desk", "x": 2, "y": 0}]'
    )
    turned = '[["bed", 0, 0], ["desk", 2, 0, 1, 2], ["lamp", 3, 0]]'
    for text in (objects, turned, f"  {GOOD}\n"):
        assert act(world_of(), text)[0].is_success


def test_attempts_end() -> None:
    *_, last = results = act(world_of(attempts=2), ONE_PAIR, "nothing")
    assert [result.is_terminated for result in results] == [False, True]
    assert (last.is_success, last.reward, last.is_valid) == (False, 0.0, False)
    (only,) = act(world_of(attempts=1), GOOD)
    assert only.reward == 0.5 and "spared" not in only.reward_terms


def test_to_be_right_at_once_is_worth_most() -> None:
    """Whoever puts off a good layout to be paid for more attempts earns less, discounted or not."""
    at_once = play_texts(GOOD)
    late, never = play_texts(ONE_PAIR, ONE_PAIR, GOOD), play_texts(ONE_PAIR, ONE_PAIR, ONE_PAIR)
    for discount in (1.0, 0.9):
        values = [
            sum(discount**k * reward for k, reward in enumerate(rewards))
            for rewards in (at_once, late, never)
        ]
        assert values == sorted(values, reverse=True) and len(set(values)) == 3


def play_texts(*texts: str, **options: Any) -> list[float]:
    return [result.reward for result in act(world_of(**options), *texts)]


def test_gains_add_up_to_the_best_attempt() -> None:
    rewards = play_texts('[["bed", 0, 0]]', "[]", ONE_PAIR, "", GOOD, pays="gains", attempts=5)
    assert rewards == pytest.approx([0.25, 0, 0.25 - 0.2 / 3, 0, 0.2 / 3]) and sum(rewards) == pytest.approx(
        0.5
    )
    assert play_texts(GOOD, pays="gains") == [0.5]
    world = world_of(pays="gains")
    assert dict(act(world, ONE_PAIR)[0].reward_terms) == pytest.approx({"gain": 0.5 - 0.2 / 3})


def test_a_wall_is_a_constraint() -> None:
    room = Room(width=4, depth=4, things=("bed", "lamp"), sizes=((2, 2), (1, 1)), walls=("lamp",))
    assert describe_room(room) == "room 4 4; bed 2 2; lamp 1 1 wall"
    (result,) = act(world_of(room), '[["bed", 0, 0], ["lamp", 2, 1]]')
    assert result.observation == "Score 0.43: lamp is off the wall."
    assert result.reward == pytest.approx(0.5 - 0.2 / 3) and result.is_success is False
    assert act(world_of(room), '[["bed", 1, 1], ["lamp", 3, 1]]')[0].is_success


def test_pillars_are_told_by_what_stands_on_them() -> None:
    room = Room(width=4, depth=3, things=("bed", "desk"), sizes=((2, 2), (2, 1)), pillars=((1, 1), (3, 2)))
    assert describe_room(room) == "room 4 3; bed 2 2; desk 2 1"
    world = world_of(room)
    start = world.state_key()
    first = advance(world, world.expert_action())
    assert first.observation == "Score 0.40: bed hits the pillar 1 1." and first.reward == pytest.approx(0.4)
    assert world.snapshot().known == {(1, 1)} and world.state_key() != start
    assert advance(world, world.expert_action()).is_success
    both = act(world_of(room), '[["bed", 0, 0], ["desk", 2, 2]]')
    assert both[0].observation == "Score 0.30: bed hits the pillar 1 1; desk hits the pillar 3 2."
    assert "There are pillars" in BoxRoom(pillars=1).instructions()


@pytest.mark.parametrize("pillars", [1, 2])
def test_the_expert_needs_an_attempt_more_than_there_are_pillars_at_most(pillars: int) -> None:
    world = BoxRoom(pillars=pillars, attempts=pillars + 1)
    lengths = [len(play(world, world.task("train", index), expert).rewards) for index in range(60)]
    assert set(lengths) == set(range(1, pillars + 2))
    assert all(play(world, world.task("train", index), expert).is_success for index in range(60))


def test_layouts_through_a_tool() -> None:
    world = world_of(interface="tools", attempts=4)
    assert [spec.name for spec in world.tools()] == ["place"] and not world_of().tools()
    wrong = advance(world, tool_action("place", layout="bed"))
    assert not wrong.is_valid and wrong.reward == 0 and "layout" in str(wrong.observation)
    assert wrong.tool_errors == (ToolError(tool="place", cause="invalid_call"),)
    assert advance(world, Action(error="unreadable")).observation == "Score 0.00: unreadable."
    twice = tool_action("place", layout=json.loads(GOOD)).tool_calls
    both = (*tool_action("place", layout=[]).tool_calls, *twice)
    assert world.snapshot().num_tried == 2, "a call that cannot be read is an attempt, too"
    last = advance(world, Action(tool_calls=both))
    assert last.is_success and last.reward == 1.0, "of several layouts in a turn the last one counts, once"
    assert act(world_of(interface="tools"), GOOD)[0].is_success, "written layouts are read as well"


class Judged(BoxRoom):
    """Has a judge who likes beds in the corner."""

    broken: object = ()

    def grades(self, room: Room, rectangles: Mapping[str, Rectangle]) -> Sequence[float] | None:
        assert len(rectangles) == len(room.things), "a judge sees whole layouts alone"
        if self.broken != ():
            return self.broken  # type: ignore[return-value] # pyright: ignore[reportReturnType]
        return [10.0 if rectangles["bed"][:2] == (0, 0) else 4.0]


def test_a_judge_grades_whole_layouts_and_the_episode_goes_on_until_it_is_content() -> None:
    world = world_of(kind=Judged)
    bad, fair, best = act(world, '[["bed", 0, 0]]', '[["bed", 2, 1], ["desk", 0, 0], ["lamp", 0, 1]]', GOOD)
    assert [bad.reward, fair.reward, best.reward] == pytest.approx([0.25, 0.58, 0.7])
    assert (fair.is_success, fair.is_terminated) == (True, False) and best.is_terminated


@pytest.mark.parametrize("broken", [None, [float("nan")], [11.0], [5.0] * 6])
def test_a_judge_that_fails_is_a_failure_and_no_number(broken: object) -> None:
    world = world_of(kind=Judged)
    vars(world)["broken"] = broken
    with pytest.raises(GraderFault, match="the judge must give up to five numbers from 0 to 10") as raised:
        act(world, GOOD)
    assert raised.value.owner == "judge"
    assert act(world, '[["bed", 0, 0]]')[0].reward == 0.25, "it is not asked below format 1"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"width": 4, "things": 2},
        {"form": "objects", "walls": 2},
        {"interface": "tools", "pays": "gains", "names": 3},
        {"width": 12, "depth": 9, "things": 8, "largest": 4, "walls": 8},
    ],
)
def test_the_expert_is_right_at_once(options: dict[str, Any]) -> None:
    world = BoxRoom(**options)
    for index in range(40):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and len(episode.rewards) == 1
        assert episode.total == world.return_range[1] and episode.ends[0][3]


def test_the_packer_by_value() -> None:
    assert pack(ROOM) == {"bed": (0, 0), "desk": (2, 0), "lamp": (2, 1)}
    assert pack(Room(width=2, depth=2, things=("a", "b"), sizes=((1, 2), (2, 1)))) is None
    walls = Room(width=3, depth=3, things=("a", "b"), sizes=((3, 1), (1, 1)), walls=("b",))
    assert pack(walls) == {"a": (0, 0), "b": (0, 1)}
    assert pack(walls, [(0, 1), (1, 1)]) == {"a": (0, 0), "b": (2, 1)}


def test_mistakes_are_layouts_that_are_mostly_wrong_and_mended() -> None:
    world = BoxRoom()
    begin(world, world.task("train", 1))
    room = world.snapshot().room
    right = pack(room)
    assert right is not None
    rng = random.Random(1)
    for _ in range(20):
        wrong = slip(room, right, rng)
        assert sum(wrong[name] != right[name] for name in room.things) == 1
    tasks = [world.task("train", index) for index in range(60)]
    firsts = [play(world, task, noisy_policy(1.0, n), max_turns=1) for n, task in enumerate(tasks)]
    assert sum(episode.is_success for episode in firsts) < 25, "most mistakes are mistakes"
    assert sum(play(world, task, noisy_policy(0.3, n)).is_success for n, task in enumerate(tasks)) > 50


@pytest.mark.parametrize("spec", ["room?pillars=1", "room?interface=tools&pays=gains&walls=1"])
def test_it_passes_the_check(spec: str) -> None:
    report = check(spec, episodes=5)
    assert report.has_passed, "\n".join(report.lines())
    assert report.measured["expert/return"] > report.measured["random/return"]


def test_nothing_and_chance_earn_nothing() -> None:
    world = BoxRoom()
    tasks = [world.task("train", index) for index in range(20)]
    assert all(play(world, task, noop).total == 0 for task in tasks)
    assert not any(play(world, task, random_policy(n)).is_success for n, task in enumerate(tasks))


def test_a_room_of_random_places_is_seldom_right() -> None:
    rng = random.Random(0)
    rooms = [
        draw_room(RoomShape(width=5, depth=4, things=3, largest=3, walls=0, pillars=0, names=10), rng)
        for _ in range(300)
    ]
    won = 0
    for room in rooms:
        layout = [[name, rng.randrange(5), rng.randrange(4)] for name in room.things]
        _, rectangles = layout_of(layout, room)
        won += not collision_ratio(rectangles) and not outside(rectangles, room)
    assert won < 45, won


def test_splits_share_no_room_and_there_are_thousands() -> None:
    world = BoxRoom()
    drawn: dict[str, set[Room]] = {"train": set(), "eval": set()}
    for index in range(200):
        for split in ("train", "eval"):
            begin(world, world.task(split, index))
            drawn[split].add(world.snapshot().room)
    assert not drawn["train"] & drawn["eval"] and len(drawn["train"]) == 200


def test_rooms_are_counted() -> None:
    shape = RoomShape(width=2, depth=5, things=2, largest=3, walls=1, pillars=1, names=3)
    assert num_drawn(shape) == 6 * 6**2 * 2 * 10, (
        "names in order, sizes of 2 by 3, one of two at a wall, ten cells"
    )


def test_pillars_are_drawn_in_order_so_that_equal_rooms_are_equal() -> None:
    shape = RoomShape(width=4, depth=4, things=1, largest=2, walls=0, pillars=2, names=1)
    rooms = [draw_room(shape, random.Random(seed)) for seed in range(50)]
    assert all(list(room.pillars) == sorted(set(room.pillars)) and len(room.pillars) == 2 for room in rooms)


def test_names_may_be_few() -> None:
    world = BoxRoom(things=2, names=2)
    begin(world, world.task("train", 0))
    assert sorted(world.snapshot().room.things) == ["bed", "desk"]


def test_a_snapshot_continues_alike() -> None:
    world, other = BoxRoom(pays="gains"), BoxRoom(pays="gains")
    begin(world, world.task("train", 2))
    start = world.state_key()
    advance(world, world.mistaken_action(random.Random(1)))
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key() != start
    for text in ("[]", GOOD, ""):
        assert advance(other, Action(text=text)) == advance(world, Action(text=text))
        assert other.snapshot() == world.snapshot()


def test_what_the_agent_is_told() -> None:
    assert BoxRoom().instructions() == (
        "The room and each thing are told as width and depth. Place every thing so that none overlap and none sticks "
        "out; x y is its corner nearest to 0 0. Answer with a JSON list of [name, x, y]."
    )
    other = BoxRoom(walls=1, interface="tools", form="objects").instructions()
    assert (
        'A thing marked wall must touch one. Call place with a JSON list of {"id": name, "x": x, "y": y}.'
        in other
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 1}, "width=1"),
        ({"depth": 21}, "depth=21"),
        ({"largest": 0}, "largest=0"),
        ({"things": 0}, "things=0"),
        ({"things": 11, "width": 20, "depth": 20}, "things=11"),
        ({"names": 11}, "names=11"),
        ({"names": 2}, "names=2"),
        ({"things": 4, "width": 3, "depth": 3}, "and 3 cells for each"),
        ({"walls": 4}, "walls from 0 to 3"),
        ({"walls": -1}, "walls=-1"),
        ({"attempts": 0}, "attempts=0"),
        ({"pillars": 3}, "up to 2 pillars"),
        ({"things": 1, "names": 1}, "got 9 different rooms"),
        ({"things": 2, "names": 2, "largest": 1}, "got 2 different rooms"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        BoxRoom(**options)

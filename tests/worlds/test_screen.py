import random
from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.screen.game import Screen, read_command, write_command
from quintain.worlds.screen.layout import (
    Box,
    Goal,
    Layout,
    LayoutShape,
    draw_layout,
    num_cells,
    scale_layout,
)

BOXES = (
    Box("save", 0, 0, 9, 4),
    Box("city", 20, 10, 39, 14),
    Box("ok", 50, 30, 59, 34),
    Box("menu", 70, 0, 79, 4),
)
ITEMS = (Box("cut", 70, 10, 79, 14),)
CLICK = Goal(kind="click", target="save")
FORM = Goal(kind="form", target="ok", texts=(("city", "oslo"),))
PICK = Goal(kind="menu", target="cut")
SHOWN = "save 4 2, city 29 12, ok 54 32, menu 74 2"


def world_at_start(goal: Goal, **options: Any) -> Screen:
    world = Screen(**options)
    begin(world, world.task("train", 0))
    layout = Layout(goal=goal, width=100, height=60, boxes=BOXES, items=ITEMS)
    world.restore((layout, (), "", False, (), (0, 0, 0)))
    return world


def act(world: Screen, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_a_form_by_value() -> None:
    results = act(world_at_start(FORM), "click 29 12", "type oslo", "click 54, 32")
    assert [result.observation for result in results] == [
        f"{SHOWN}; focus city",
        "save 4 2, city 29 12 = oslo, ok 54 32, menu 74 2; focus city",
        "Done.",
    ]
    assert [result.reward for result in results] == [0, 0, 1]
    assert results[-1].is_success and results[-1].is_terminated


def test_the_expert_clicks_middles_and_types() -> None:
    world = world_at_start(FORM)
    wanted = [
        tool_action("click", x=29, y=12),
        tool_action("type", text="oslo"),
        tool_action("click", x=54, y=32),
    ]
    for action in wanted:
        assert world.expert_action() == action
        advance(world, action)


def test_a_menu_shows_its_items_until_another_click() -> None:
    world = world_at_start(PICK)
    [opened] = act(world, "click 74 2")
    assert opened.observation == f"{SHOWN}, cut 74 12"
    state = world.snapshot()
    assert act(world, "click 74 12")[0].reward == 1.0
    world.restore(state)
    [closed] = act(world, "click 99 59")
    assert closed.observation == SHOWN and closed.is_valid
    [nothing] = act(world, "click 74 12")
    assert nothing.observation == f"Nothing happens. {SHOWN}" and not nothing.is_valid
    assert world.expert_action() == tool_action("click", x=74, y=2)


@pytest.mark.parametrize(
    ("point", "is_hit"),
    [((4, 2), True), ((0, 0), True), ((9, 4), True), ((10, 4), False), ((9, 5), False), ((-1, 2), False)],
)
def test_a_box_includes_its_edges(point: tuple[int, int], is_hit: bool) -> None:
    result = advance(world_at_start(CLICK), tool_action("click", x=point[0], y=point[1]))
    assert bool(result.is_success) == is_hit == result.is_terminated and result.reward == float(is_hit)


def test_geometry_by_value() -> None:
    box = Box("save", 10, 20, 19, 24)
    assert box.center == (14, 22)
    assert (box.distance(12, 22), box.distance(7, 22), box.distance(22, 28)) == (0, 3, 5)
    layout = Layout(goal=CLICK, width=4, height=5, boxes=(), items=())
    assert layout.diagonal == 5.0


def test_nearness_is_paid_once_and_more_the_nearer_it_comes() -> None:
    world = world_at_start(CLICK, reward="distance")
    diagonal = (99**2 + 59**2) ** 0.5
    # 30 points to the right of the box, then 3, then 30 again, then a hit: in all one.
    results = act(world, "click 39 2", "click 12 2", "click 39 2", "click 5 2")
    first, second = 0.5 * (1 - 30 / diagonal), 0.5 * (1 - 3 / diagonal)
    rewards = [result.reward for result in results]
    assert rewards == pytest.approx([first, second - first, 0, 1 - second])
    assert [result.is_valid for result in results] == [False, False, False, True]
    assert dict(results[0].reward_terms) == {"click": pytest.approx(first)}
    far = act(world_at_start(CLICK, reward="distance"), "click 999999999 999999999")
    assert far[0].reward == 0.0


def test_parts_are_paid_once_and_in_time() -> None:
    world = world_at_start(FORM, reward="parts")
    texts = ("click 29 12", "type rome", "click 4 2", "type oslo", "type rome", "type oslo", "click 54 32")
    rewards = [result.reward for result in act(world, *texts)]
    third = pytest.approx(1 / 3)
    assert rewards == [third, 0, 0, third, 0, 0, third]
    [*_, early] = act(world_at_start(FORM, reward="parts"), "click 54 32")
    assert early.observation == "Wrong." and early.is_terminated and early.reward == 0


def test_misses_can_end_the_episode() -> None:
    results = act(world_at_start(CLICK, misses=2), "click 99 59", "type oslo")
    assert [result.is_terminated for result in results] == [False, True]
    assert results[-1].observation == "Missed." and results[-1].is_success is False
    results = act(world_at_start(FORM, misses=1), "click 29 12", "type oslo", "click 54 32")
    assert results[-1].is_success, "what the task takes is no miss"
    assert act(world_at_start(FORM, misses=1), "click 29 12", "type x")[-1].is_terminated
    assert act(world_at_start(PICK, misses=1), "click 54 32")[-1].is_terminated


@pytest.mark.parametrize("text", ["", "click", "click 4", "click save", "type", "press 4 2", "click 4.5 2"])
def test_other_text_is_no_call(text: str) -> None:
    world = world_at_start(CLICK)
    key = world.state_key()
    [result] = act(world, text)
    assert result.observation == "Error: no tool was called; tools: click, type."
    assert not result.is_valid and world.state_key() == key
    assert not advance(world, tool_action("click", x="4", y=2)).is_valid
    assert not advance(world, Action(text="click 4 2", error="unreadable")).is_valid


def test_the_tasks_and_places_in_words() -> None:
    assert CLICK.words() == "Task: click save."
    assert PICK.words() == "Task: choose cut in the menu."
    assert FORM.words() == "Task: type oslo into city, then click ok."
    assert Goal(kind="type", target="city", texts=FORM.texts).words() == "Task: type oslo into city."
    [corners] = act(world_at_start(FORM, places="corners"), "click 29 12")
    assert str(corners.observation).startswith("save 0 0 9 4, city 20 10 39 14, ok 50 30 59 34")
    [_, long] = act(world_at_start(FORM), "click 29 12", f"type {'a' * 99}")
    assert f"= {'a' * 40}, ok" in str(long.observation)


def test_boxes_do_not_overlap_and_lie_on_the_screen() -> None:
    rng = random.Random(0)
    for _ in range(40):
        layout = draw_layout(LayoutShape(70, 45, 12, 3, 6, "any"), rng)
        boxes = [*layout.boxes, *layout.items]
        assert len({box.label for box in boxes}) == len(boxes) == 23
        points: set[tuple[int, int]] = set()
        for box in boxes:
            own = {(x, y) for x in range(box.left, box.right + 1) for y in range(box.top, box.bottom + 1)}
            assert len(own) >= 12 and not points & own and box.contains(*box.center)
            points |= own
        assert all(0 <= x < 70 and 0 <= y < 45 for x, y in points)
    assert num_cells(70, 45) == 35


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"goal": "form", "fields": 3, "reward": "parts", "misses": 1, "noise": 1},
        {"places": "corners", "reward": "distance", "width": 320, "height": 200},
        {"goal": "click", "fields": 0, "items": 0, "width": 24, "height": 12},
    ],
)
def test_the_expert_solves_fifty_tasks(options: dict[str, Any]) -> None:
    world = Screen(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_the_expert_recovers_from_noise() -> None:
    world = Screen()
    won = [play(world, world.task("train", n), noisy_policy(0.3, n)).is_success for n in range(30)]
    assert sum(won) >= 24


def test_splits_share_no_screen_and_there_are_thousands() -> None:
    world = Screen()
    drawn: dict[str, set[Layout]] = {"train": set(), "eval": set()}
    for index in range(150):
        for split in ("train", "eval"):
            begin(world, world.task(split, index))
            drawn[split].add(world.snapshot()[0])
    assert not drawn["train"] & drawn["eval"] and len(drawn["train"]) == 150


def test_a_snapshot_continues_alike() -> None:
    world, other = Screen(noise=1, reward="distance"), Screen(noise=1, reward="distance")
    begin(world, world.task("train", 2))
    act(world, "click 50 30", "type oslo")
    other.restore(world.snapshot())
    for _ in range(4):
        action = world.expert_action()
        assert other.expert_action() == action and other.state_key() == world.state_key()
        assert advance(other, action) == advance(world, action)


@pytest.mark.parametrize(
    "options", [{"buttons": 0}, {"fields": 4}, {"items": 7}, {"width": 23}, {"height": 11}, {"misses": -1}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value}"):
        Screen(**options)


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UsageError, match="got 10 boxes for 24 by 12 points, which hold 4"):
        Screen(width=24, height=12)
    with pytest.raises(UsageError, match="goal=form, fields=0"):
        Screen(goal="form", fields=0)
    with pytest.raises(UsageError, match="goal=any, fields=2, items=0"):
        Screen(items=0)


def test_a_screen_in_another_size_by_value() -> None:
    layout = Layout(
        goal=CLICK, width=24, height=13, boxes=(Box("save", 4, 3, 9, 5),), items=(Box("cut", 13, 7, 16, 9),)
    )
    half, double = scale_layout(layout, 0.5), scale_layout(layout, 2.0)
    assert (half.width, half.height, double.width, double.height) == (12, 6, 48, 26)
    assert half.boxes == (Box("save", 2, 1, 4, 2),) and half.items == (Box("cut", 6, 3, 7, 4),)
    assert double.boxes == (Box("save", 8, 6, 19, 11),) and double.items == (Box("cut", 26, 14, 33, 19),)
    assert scale_layout(layout, 1.0) == layout


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.3, 2.0])
def test_the_same_screens_in_another_size_are_solved_by_the_expert(scale: float) -> None:
    usual, other = Screen(), Screen(scale=scale)
    for index in range(40):
        task = other.task("eval", index)
        begin(usual, task)
        begin(other, task)
        before, (layout, *_) = usual.snapshot()[0], other.snapshot()
        assert [box.label for box in layout.boxes] == [box.label for box in before.boxes]
        boxes = (*layout.boxes, *layout.items)
        assert all(0 <= box.left <= box.right < layout.width for box in boxes)
        assert all(0 <= box.top <= box.bottom < layout.height for box in boxes)
        for box in boxes:
            assert sum(other_box.contains(*box.center) for other_box in boxes) == 1
        assert play(other, task, expert).is_success


@pytest.mark.parametrize("scale", [0.4, 0.0, float("nan"), 101.0])
def test_a_size_that_leaves_no_box(scale: float) -> None:
    with pytest.raises(UsageError, match=r"screen: got scale=.*; give a number from 0.5 to 100"):
        Screen(scale=scale)


def test_actions_in_words_instead_of_tools() -> None:
    world = Screen(interface="text")
    assert world.tools() == () and Screen().tools()
    assert world.instructions().endswith("Act: click X Y, or type TEXT.")
    assert "Act:" not in Screen().instructions()
    for index in range(20):
        begin(world, world.task("train", index))
        told = world.expert_action()
        assert not told.tool_calls and told.text.split()[0] in ("click", "type")
        assert play(world, world.task("train", index), expert).is_success


def test_boxes_are_clicked_by_name_where_that_is_asked() -> None:
    named, pointed = Screen(interface="labels"), Screen(interface="text")
    assert named.tools() == () and named.instructions().endswith("Act: click NAME, or type TEXT.")
    for index in range(12):
        task = named.task("train", index)
        assert play(named, task, expert).is_success
        begin(named, task)
        begin(pointed, task)
        assert named.screen() == pointed.screen() and named.screen() in str(begin(named, task))
        boxes = {box.label: box for box in pointed.snapshot()[0].boxes}
        assert named.elements() == {name: name for name in boxes}
        assert pointed.elements() == {name: "{} {}".format(*box.center) for name, box in boxes.items()}
        first = next(iter(boxes))
        assert advance(named, Action(text=f"Click {first.upper()}")) == advance(
            pointed, Action(text=f"click {pointed.elements()[first]}")
        )
        assert not advance(named, Action(text="click cellar")).is_valid


def test_words_are_read_as_they_are_written() -> None:
    for action in (tool_action("click", x=3, y=-4), tool_action("type", text="oslo")):
        assert read_command(write_command(action)).tool_calls == action.tool_calls
        assert read_command(action) == action
    assert read_command(Action(text="click here")) == Action(text="click here")
    assert read_command(Action(text="click 1 2", error="?")).tool_calls == ()

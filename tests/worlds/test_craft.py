from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.environments.splitting import is_eval
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.craft.game import Craft
from quintain.worlds.craft.land import (
    RECIPES,
    TOOL_FOR,
    Land,
    LandShape,
    count_needed,
    draw_land,
    longest,
    steps_to,
)
from quintain.worlds.craft.layout import Layout

LAND = Land(
    goals=("stone",),
    steps=("wood", "table", "wood pickaxe", "stone"),
    recipes=tuple(RECIPES.items())[:3],
    contents=(("forest", (("wood", 3),)), ("cave", (("stone", 1),))),
)


def world_at_start(land: Land = LAND, **options: Any) -> Craft:
    world = Craft(**options)
    begin(world, world.task("train", 0))
    start = tuple((place, things) for place, things in land.contents)
    none = frozenset[str]()
    food = options.get("hunger", 0)
    world.restore(
        (land, "forest", start, (), frozenset(), none, frozenset({"forest", "cave"}), (food, 0, 0), Layout())
    )
    return world


def act(world: Craft, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in words]


WAY = (
    "gather wood",
    "gather wood",
    "gather wood",
    "make table",
    "make wood pickaxe",
    "go cave",
    "gather stone",
)


def test_a_walk_through_by_value() -> None:
    world = world_at_start()
    results = act(world, *WAY)
    assert [result.observation for result in results] == [
        "forest: 2 wood; have 1 wood",
        "forest: 1 wood; have 2 wood",
        "forest: empty; have 3 wood",
        "forest: empty, table; have 1 wood",
        "forest: empty, table; have wood pickaxe",
        "cave: 1 stone; have wood pickaxe",
        "Done.",
    ]
    assert [result.reward for result in results] == [0.0] * 6 + [1.0]
    assert results[-1].is_terminated and results[-1].is_success
    assert world.achievements() == ("wood", "stone", "table", "wood pickaxe")


def test_the_expert_takes_that_walk() -> None:
    world = world_at_start()
    for words in WAY:
        assert world.expert_action() == Action(text=words)
        act(world, words)


def test_dense_rewards_are_shares_of_the_achievements() -> None:
    results = act(world_at_start(reward="dense"), *WAY)
    assert [result.reward for result in results] == [0.25, 0, 0, 0.25, 0.25, 0, 0.25]


def test_a_task_is_told_in_words() -> None:
    assert LAND.words() == (
        "Goal: stone. Recipes: table: 2 wood; wood pickaxe: 1 wood at table; wood sword: 1 wood at table."
    )


@pytest.mark.parametrize("words", ["gather stone", "make table", "go forest", "eat", "drop wood", "", "fly"])
def test_what_has_no_effect_changes_nothing_and_says_so(words: str) -> None:
    world = world_at_start()
    key = world.state_key()
    [result] = act(world, words)
    assert str(result.observation) == "Nothing happens. forest: 3 wood; have nothing"
    assert not result.is_valid and world.state_key() == key
    error = advance(world, Action(text="wait", error="unreadable"))
    assert str(error.observation).startswith("Error: unreadable forest") and not error.is_valid


def test_raw_things_used_up_in_vain_lose_the_goal() -> None:
    world = world_at_start()
    act(world, *WAY[:4])
    assert not world.is_lost
    act(world, "make wood sword")
    assert world.is_lost and world.expert_action() == Action(text="wait")
    assert act(world, "wait")[0].is_valid


def test_nothing_is_made_without_its_station_or_twice_at_a_place() -> None:
    land = Land(goals=LAND.goals, steps=LAND.steps, recipes=LAND.recipes, contents=LAND.contents)
    world = world_at_start(land)
    act(world, *WAY[:4], "go cave")
    assert world.legal_actions() == ("go forest", "wait")
    assert world.expert_action() == Action(text="go forest"), "the table stands in the forest"


def test_one_who_does_not_eat_starves() -> None:
    contents = (("forest", (("wood", 3),)), ("cave", (("berries", 1), ("stone", 1))))
    land = Land(goals=LAND.goals, steps=LAND.steps, recipes=LAND.recipes, contents=contents)
    world = world_at_start(land, hunger=6)
    results = act(world, *["wait"] * 6)
    assert results[0].observation == "forest: 3 wood; have nothing; food 5"
    assert results[-1].observation == "You starve." and results[-1].is_terminated
    assert results[-1].is_success is False
    world = world_at_start(land, hunger=6)
    said = act(world, "wait", "wait", "wait", "go cave", "eat")[-1].observation
    assert said == "cave: 1 stone, berries; have nothing; food 6"


def test_what_is_carried_is_bounded_and_can_be_dropped() -> None:
    contents = (("forest", (("wood", 12),)), ("cave", ()))
    land = Land(goals=LAND.goals, steps=LAND.steps, recipes=LAND.recipes, contents=contents)
    world = world_at_start(land, capacity=9)
    act(world, *["gather wood"] * 9)
    assert "gather wood" not in world.legal_actions()
    assert act(world, "drop wood")[0].observation == "forest: 4 wood; have 8 wood"


def test_a_land_without_a_map_is_explored() -> None:
    world = Craft(has_map=False, places=6, depth=5)
    first = str(begin(world, world.task("train", 0)))
    assert " Places: " in first and first.count("go ") == 0
    assert all(play(world, world.task("train", index), expert).is_success for index in range(20))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"depth": 5, "recipes": "drawn", "capacity": 9, "spare": 3},
        {"depth": 5, "goal": "everything", "hunger": 8, "has_map": False, "reward": "dense"},
    ],
)
def test_the_expert_solves_fifty_tasks(options: dict[str, Any]) -> None:
    world = Craft(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_a_noisy_expert_wastes_and_is_worse() -> None:
    world = Craft(spare=0)
    won = [
        play(world, world.task("train", index), noisy_policy(0.5, index)).is_success for index in range(40)
    ]
    assert 0 < sum(won) < 36


def test_the_tech_tree_by_value() -> None:
    assert steps_to(["stone"], RECIPES) == ("wood", "table", "wood pickaxe", "stone")
    # wood: table 2, three pickaxes 3; stone: stone pickaxe 1, furnace 2; coal and iron: iron pickaxe.
    steps = steps_to(["diamond"], RECIPES)
    assert count_needed(steps, ["diamond"], RECIPES) == {
        "wood": 5,
        "stone": 3,
        "coal": 1,
        "iron": 1,
        "diamond": 1,
    }
    # gather 1, go back and forth 2 * 1 + 1 for the table, 2 steps, 2 places
    assert longest(LandShape(1, 2, 0, False, False, False)) == 2 + 3 + 2 + 2


def test_a_land_holds_what_the_goal_takes_and_what_is_to_spare() -> None:
    world = Craft()
    rng = world.task("train", 3).rng
    for _ in range(30):
        land = draw_land(LandShape(5, 4, 2, True, False, False), rng)
        total = count_needed(land.steps, land.goals, dict(land.recipes))
        lying: dict[str, int] = dict.fromkeys(TOOL_FOR, 0)
        for _, things in land.contents:
            for name, count in things:
                lying[name] += count
        assert lying == {name: total[name] + 2 for name in lying}


@pytest.mark.slow
def test_splits_share_no_land_and_there_are_thousands() -> None:
    world = Craft()
    lands: dict[str, set[Any]] = {"train": set(), "eval": set()}
    for index in range(150):
        for split in ("train", "eval"):
            begin(world, world.task(split, index))
            lands[split].add(world.snapshot()[0])
    assert not lands["train"] & lands["eval"]
    assert len(lands["train"]) > 145
    assert {is_eval(land) for land in lands["eval"]} == {True}


def test_a_snapshot_continues_alike() -> None:
    world, other = Craft(noise=1), Craft(noise=1)
    begin(world, world.task("train", 4))
    act(world, "go nowhere", str(world.legal_actions()[0]))
    state = world.snapshot()
    other.restore(state)
    for _ in range(4):
        action = world.expert_action()
        assert other.expert_action() == action
        assert advance(other, action) == advance(world, action)
    assert other.state_key() == world.state_key() and world.snapshot() != state


@pytest.mark.parametrize(
    "options", [{"depth": 0}, {"depth": 6}, {"places": 1}, {"places": 7}, {"spare": -1}, {"capacity": 8}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value}"):
        Craft(**options)
    with pytest.raises(UsageError, match="hunger=5"):
        Craft(hunger=5)


def test_what_leads_to_a_thing_gathers_what_it_takes_and_sees_to_nothing_else() -> None:
    world = world_at_start()
    assert world.things() == ("table", "wood pickaxe", "wood sword", "wood", "stone")
    assert world.expert_thing() == "table" and world.idle_action().text == "wait"
    assert world.follow("stone") is None and world.follow("crown") is None, "no tool, and no such thing"
    done: list[str] = []
    while (action := world.follow("table")) is not None:
        done.append(action.text)
        world.step(action)
    assert done == ["gather wood", "gather wood", "make table"] and world.expert_thing() == "wood pickaxe"
    sword = world.follow("wood sword")
    assert sword is not None and sword.text == "gather wood"
    world.step(sword)
    world.step(Action(text="go cave"))
    back = world.follow("wood pickaxe")
    assert back is not None and back.text == "go forest", "where the table stands"
    for thing in ("wood pickaxe", "stone"):
        while (action := world.follow(thing)) is not None:
            world.step(action)
    assert world.achieved() == {"goal": "stone"} and world.expert_thing() == "stone"
    bare = world_at_start()
    bare.step(Action(text="gather wood"))
    assert bare.follow("wood sword") is None, "there is no table"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("", "nothing"),
        ("goal: wood sword", "wood sword"),
        ("goal: wood sword; wood sword: 2 wood at table", "table"),
        ("Recipes: table: 2 wood. wood pickaxe: 1 wood at table", "table"),
        ("wood pickaxe: 1 wood at table; done: wood, table", "wood pickaxe"),
        ("stone sword: 1 wood 2 stone at table; done: table", "stone"),
        ("have 1 wood; hill: empty; goal: table", "nothing"),
        ("table: 1 iron at furnace; furnace: 2 stone at table", "furnace"),
    ],
)
def test_an_adviser_knows_two_facts_and_nothing_else(message: str, said: str) -> None:
    assert Craft().advise(message) == said

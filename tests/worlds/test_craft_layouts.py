"""Lands of craft that are laid out: read, repaired, refused, and the same dynamics in them."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.protocol import Configurable, advance, begin
from quintain.environments.splitting import is_eval
from quintain.errors import UsageError
from quintain.types import Action, Task, as_text
from quintain.worlds.craft.game import Craft
from quintain.worlds.craft.layout import add_tools, draw_layout, read_layout


def lay_out(configuration: dict[str, Any], number: int = 0, **options: Any) -> tuple[Craft, Task]:
    world = Craft(**options)
    return world, replace(world.task("train", number), data=world.configure(configuration))


def test_a_land_is_laid_out_by_value() -> None:
    world, task = lay_out(
        {
            "skill": "furnace",
            "start": {"wood pickaxe": 1, "wood": 2},
            "rarity": {"stone": "common"},
            "places": 2,
        }
    )
    shown = as_text(begin(world, task))
    assert shown.startswith("Goal: furnace. Recipes: table: 2 wood;")
    assert shown.endswith("have 2 wood, wood pickaxe")
    land = world.snapshot()[0]
    assert land.steps == ("table", "stone", "furnace"), "wood is held, and so is the pickaxe"
    lying = [thing for _, things in land.contents for thing in things]
    assert len(land.contents) == 2
    assert sum(count for name, count in lying if name == "stone") == 4, "as its rarity says"
    assert sum(count for name, count in lying if name == "wood") == 1, "what it takes is held; one to spare"
    assert world.achievements() == (), "what is held was not achieved"
    assert advance(world, Action(text="make table")).is_valid
    assert world.achievements() == ("table",) and world.achieved() == {"goal": "table"}
    assert play(world, task, expert).is_success and world.achievements() == ("stone", "table", "furnace")


def test_dense_rewards_are_shares_of_what_is_left() -> None:
    world, task = lay_out({"skill": "stone", "start": {"wood pickaxe": 1}}, reward="dense")
    assert play(world, task, expert).total == 1.0
    assert world.snapshot()[0].steps == ("stone",)


def test_repair_goes_by_whole_names() -> None:
    assert add_tools({"stone": 2}) == {"stone": 2, "wood pickaxe": 1}
    assert add_tools({"stone pickaxe": 1, "wood": 0}) == {"stone pickaxe": 1}, "no stone in it"
    assert add_tools({"iron": 1, "diamond": 3}) == {
        "iron": 1, "diamond": 3, "stone pickaxe": 1, "iron pickaxe": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({}, "got no skill"),
        ({"skill": "diamond"}, "got configuration(skill): expected one of"),
        ({"skill": "stone", "start": {"table": 1}}, "unknown argument"),
        ({"skill": "stone", "start": {"wood": 10}}, "expected at most 9"),
        ({"skill": "stone", "start": {"wood": True}}, "expected integer"),
        ({"skill": "stone", "rarity": {"wood": "none"}}, "expected one of"),
        ({"skill": "stone", "places": 1}, "expected at least 2"),
        ({"skill": "stone", "biome": "cave"}, "unknown argument"),
        ({"skill": "stone", "start": {"stone": 1}}, "got the skill stone and a start with it"),
        ({"skill": "wood pickaxe", "start": {"coal": 1}}, "got the skill wood pickaxe and a start with it"),
    ],
)
def test_what_is_no_configuration_is_refused(configuration: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Craft().configure(configuration)
    assert said in str(caught.value) and str(caught.value).startswith("configuration of craft: got ")


def test_options_lay_every_land_out_and_a_configuration_goes_before_them() -> None:
    world = Craft(start="wood:3,wood pickaxe", rarity="stone:very common")
    begin(world, world.task("train", 1))
    assert "have 3 wood, wood pickaxe" in as_text(begin(world, world.task("train", 1)))
    task = replace(world.task("train", 1), data=world.configure({"skill": "coal"}))
    assert as_text(begin(world, task)).endswith("have nothing")
    begin(world, world.task("train", 1))
    assert world.achievements() == () and "wood pickaxe" in world.snapshot()[5]
    with pytest.raises(UsageError, match="start"):
        Craft(start="gold:1")
    with pytest.raises(UsageError, match="rarity"):
        Craft(rarity="wood")
    with pytest.raises(UsageError, match="more than 9 raw things"):
        Craft(capacity=9).configure({"skill": "stone", "start": {"wood": 9, "coal": 1}})
    with pytest.raises(UsageError, match="goal=everything"):
        Craft(goal="everything").configure({"skill": "stone"})


def test_a_world_that_is_not_laid_out_is_what_it_was() -> None:
    world = Craft(depth=5)
    assert as_text(begin(world, world.task("train", 3))).endswith(
        "mine: 2 wood, 1 iron; shore: 1 stone, 1 coal; forest: 2 wood, 1 coal, 1 diamond. mine: 2 wood, 1 iron; have "
        "nothing"
    )


def test_a_snapshot_goes_on_in_another_instance() -> None:
    world, task = lay_out({"skill": "furnace", "start": {"wood pickaxe": 1, "wood": 2}})
    begin(world, task)
    other = Craft()
    begin(other, other.task("train", 5))
    other.restore(world.snapshot())
    advance(other, Action(text="make table"))
    assert other.achievements() == ("table",)


def test_lands_that_are_laid_out_stay_on_their_side() -> None:
    world = Craft()
    assert isinstance(world, Configurable) and world.skills()[0] == "table" and len(world.skills()) == 8
    rng = Random(0)
    for number in range(40):
        skill = rng.choice(world.skills())
        begin(world, replace(world.task("train", number), data=world.configure(draw_layout(skill, 3, rng))))
        assert world.skill() == skill and not is_eval(world.snapshot()[0])


def test_what_is_drawn_fits_the_schema_and_never_hands_the_skill_over() -> None:
    rng, world = Random(1), Craft(depth=5)
    for _ in range(500):
        skill = rng.choice(world.skills())
        drawn = draw_layout(skill, 5, rng)
        assert drawn["skill"] == skill and skill not in drawn.get("start", {})
        assert read_layout(drawn, 5).goal == skill

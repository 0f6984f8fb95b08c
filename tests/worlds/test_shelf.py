"""Groups of tools that do the same to different data, and what a retriever shows of them."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quintain.environments.protocol import RetrievesTools, advance, begin
from quintain.errors import ModelError, UsageError
from quintain.models.embedder import Embedder, features
from quintain.types import Action, StepResult
from quintain.worlds.shelf.game import Need, Shelf
from quintain.worlds.shelf.stock import TRAITS, draw_numbers, draw_tools


def played(world: Shelf, *texts: str) -> list[StepResult]:
    begin(world, world.task("train", 0))
    return [advance(world, Action(text=text)) for text in texts]


def test_tools_of_a_group_do_the_same_to_different_data() -> None:
    tools = draw_tools(500, 4, 0)
    assert len({tool.name for tool in tools}) == len({tool.line() for tool in tools}) == 500
    assert set(Counter(tool.does for tool in tools).values()) == {4}
    assert draw_tools(500, 4, 0) == tools != draw_tools(500, 4, 1)
    assert len({tool.does for tool in draw_tools(50, 1, 0)}) == 50


def test_no_word_of_the_data_stands_in_a_line() -> None:
    rng = Random(0)
    words = {word for levels in TRAITS.values() for word, _, _ in levels}
    world = Shelf(retriever="none")
    for number in range(0, 500, 7):
        query = world.query(number, rng)
        assert not words & set(features(query)) and words & set(features(world.documents()[number]))


def test_numbers_of_a_level_are_in_its_range() -> None:
    for profile in ((0, 1, 2), (2, 0, 1)):
        numbers = draw_numbers(profile, Random(1))
        for number, level, levels in zip(numbers, profile, TRAITS.values(), strict=True):
            assert levels[level][1] <= number <= levels[level][2]


def test_a_group_belongs_to_one_split() -> None:
    world = Shelf(tools=40, retriever="none")
    known = {tool.does: world.is_held_out(number) for number, tool in enumerate(world.stock)}
    assert all(world.is_held_out(n) == known[tool.does] for n, tool in enumerate(world.stock))
    for split in ("train", "eval"):
        for index in range(20):
            begin(world, world.task(split, index))
            need, _, _ = world.snapshot()
            assert known[need.does] == (split == "eval")


def test_the_expert_calls_the_tool_that_fits_and_answers() -> None:
    world = Shelf()
    told = str(begin(world, world.task("train", 3)))
    assert told.startswith("Needed: ") and told.count(";") == 3
    assert world.progress() == 0
    called = advance(world, world.expert_action())
    assert (called.is_valid, called.reward, world.progress()) == (True, 0, 1)
    done = advance(world, world.expert_action())
    assert (done.observation, done.reward, done.is_success) == ("Done.", 1, True)


def test_luck_earns_nothing_and_another_tool_tells_another_number() -> None:
    world = Shelf()
    begin(world, world.task("train", 0))
    need, _, _ = world.snapshot()
    group = [n for n, tool in enumerate(world.stock) if tool.does == need.does]
    answers = {
        str(advance(world, Action(text=f"call {world.stock[n].name}")).observation).split()[-1] for n in group
    }
    assert len(answers) == 4
    begin(world, world.task("train", 0))
    advance(world, world.expert_action())
    right = world.expert_action().text
    assert played(world, right)[0].observation == "Nobody told you."
    assert played(world, "answer nothing")[0].observation == "Wrong."


def test_what_cannot_be_read_or_is_not_there() -> None:
    world = Shelf()
    results = played(world, "look", "call", "call nobody", "search estimates centers", "search the")
    assert [r.is_valid for r in results] == [False, False, False, True, True]
    assert results[2].observation == "Error: there is no nobody."
    assert (
        str(results[3].observation).startswith("Tools: ") and results[4].observation == "Tools: none found."
    )
    assert not advance(world, Action(text="", error="no text")).is_valid


def test_mistakes_are_other_tools() -> None:
    world = Shelf()
    begin(world, world.task("train", 0))
    names = {tool.name for tool in world.stock}
    assert all(world.mistaken_action(Random(k)).text.removeprefix("call ") in names for k in range(20))


def test_a_trusting_agent_takes_what_is_found_first(tmp_path: Path) -> None:
    Embedder(size=8).save(tmp_path / "embedder")
    world = Shelf(retriever=str(tmp_path), tools=40)
    assert isinstance(world, RetrievesTools) and world.ranker is not None
    begin(world, world.task("eval", 0))
    need, _, _ = world.snapshot()
    first = world.trusting_action().text
    assert first.startswith("call ")
    told = str(advance(world, world.trusting_action()).observation).rstrip(".").split()[-1]
    assert world.trusting_action().text == f"answer {told}"
    assert repr(need) == repr(Need(need.does, 3, (1,))) and str(need.numbers) in world.state_key()
    blind = Shelf(retriever="none")
    assert str(begin(blind, blind.task("train", 0))).endswith("Tools: none found.")
    assert blind.trusting_action().text == "answer nothing"


def test_what_there_is_no_shelf_of(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{"tools": 4}, {"tools": 5000}, {"group": 5}, {"shown": 0}]
    for options in wrong:
        with pytest.raises(UsageError, match=r"^shelf: got tools="):
            Shelf(**options)
    with pytest.raises(ModelError, match=r"holds no embedder.json"):
        Shelf(retriever=str(tmp_path))

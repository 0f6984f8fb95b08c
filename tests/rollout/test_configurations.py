"""Configurations that are written for weak skills: read, refused where nobody could solve them, or drawn."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.curriculum.skills import Known
from quintain.environments.baselines import expert, play
from quintain.errors import DataError, UsageError
from quintain.processes import http_json
from quintain.rollout.configurations import (
    Designer,
    as_configurable,
    check_configurations,
    draw_configurations,
    read_objects,
    skills_of,
)
from quintain.types import Task
from quintain.worlds.craft.game import Craft
from quintain.worlds.guess.game import Guess


def tasks(count: int = 3, split: Any = "train") -> list[Task]:
    return [Craft().task(split, number) for number in range(count)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('A:\n```json\n{"a": 1}\n```\nB:\n```json\n{"b": {"c": 2}}\n```', [{"a": 1}, {"b": {"c": 2}}]),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": } {"a": 3} {', [{"a": 3}]),
        ("none", []),
        ("{" * 3_000, []),
    ],
)
def test_objects_are_read_wherever_they_stand(text: str, found: list[object]) -> None:
    assert list(read_objects(text)) == found


def test_what_cannot_be_solved_is_refused_and_said_why() -> None:
    made = check_configurations(
        Craft(),
        [
            {"skill": "wood sword", "rarity": {"wood": "rare"}},
            {"skill": "stone", "start": {"stone": 2}},
            ["stone"],
            {"skill": "wood sword", "rarity": {"wood": "rare"}, "start": {"wood": 2}},
            {"skill": "table"},
            {"skill": "furnace"},
        ],
        tasks(),
        2,
    )
    assert [data["configuration"]["skill"] for data in made.sound] == ["wood sword", "table"], (
        "as many as asked"
    )
    unsolved, handed, listed = made.refused
    assert "got a world that its expert does not solve" in unsolved
    assert "a start with it" in handed and "got list" in listed


def test_all_that_are_drawn_can_be_solved() -> None:
    world = Craft(depth=5)
    names = world.skills()
    wanted = [names[number % len(names)] for number in range(24)]
    found = draw_configurations(world, wanted, tasks(), 0)
    other = [world.task("train", number) for number in (7, 8)]
    for number, data in enumerate(found):
        assert data["configuration"]["skill"] == names[number % len(names)]
        assert all(play(world, replace(task, data=data), expert).is_success for task in other)
    assert found == draw_configurations(world, wanted, tasks(), 0)


def test_a_world_that_cannot_be_laid_out_is_refused() -> None:
    with pytest.raises(UsageError, match="configurations of guess: got one that cannot be laid out"):
        as_configurable(Guess())


def test_skills_are_those_that_tasks_ask_for() -> None:
    asked = [replace(task, data={"goal": "table"}) for task in tasks(2)]
    assert skills_of(Craft, asked) == ["table", "table"]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    made = ChatModel(lambda _: '```json\n{"skill": "table"}\n```')
    yield made
    made.listener.close()


def test_a_model_is_told_of_skills_and_of_its_last_configurations(model: ChatModel, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    seen: list[dict[str, Any]] = []

    def say(body: dict[str, Any]) -> str:
        seen.append(json.loads(body["messages"][1]["content"]))
        return '```json\n{"skill": "furnace"}\n```'

    model.say = say
    designer = Designer(f"{model.url}?model=big&key_file={tmp_path}/key")
    last = [{"configuration": {"skill": "stone"}}]
    written = designer.write(Craft(), {"table": Known(tries=8, successes=6)}, last, 4, 0)
    assert written == [{"skill": "furnace"}]
    (told,) = seen
    assert told["success"]["table"] == {"success": 0.75, "error": 0.138, "tries": 8}
    assert told["success"]["furnace"]["tries"] == 0, "that nothing is known is said, too"
    assert told["last"] == last and told["count"] == 4 and told["skills"] == list(Craft().skills())
    assert told["schema"]["properties"]["places"]["maximum"] == 6


def test_an_endpoint_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    with pytest.raises(DataError, match="generator at http"):
        Designer("http://127.0.0.1:9/v1?model=m&deadline=1").write(Craft(), {}, [], 4, 0)
    with pytest.raises(UsageError, match="without a model"):
        Designer("http://127.0.0.1:9/v1")

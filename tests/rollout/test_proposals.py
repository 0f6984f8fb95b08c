"""Tasks that are proposed: by what a task begins with, never a held-out one, and not all of them can be solved."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.environments.protocol import Environment, Proposes, begin
from quintain.environments.splitting import is_eval
from quintain.errors import DataError, UsageError
from quintain.processes import http_json
from quintain.rollout.proposals import Proposer, propose_tasks, read_goal
from quintain.types import Task, as_text
from quintain.worlds.craft.game import Craft
from quintain.worlds.craft.land import Land
from quintain.worlds.guess.game import Guess
from quintain.worlds.shop.game import Shop
from quintain.worlds.shop.stock import Wish


def tasks_of(world: type[Environment], count: int = 60) -> list[Task]:
    return [world().task("train", number) for number in range(count)]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    made = ChatModel(lambda _: "Well.\nTASK: Goal: furnace.")
    yield made
    made.listener.close()


@pytest.fixture
def spec(model: ChatModel, tmp_path: Path) -> str:
    (tmp_path / "key").write_text(KEY)
    return f"{model.url}?model=big&temperature=1&key_file={tmp_path}/key"


def land_of(task: Task) -> Land:
    environment = Craft()
    begin(environment, task)
    return environment.snapshot()[0]


@pytest.mark.parametrize("world", [Craft, Shop])
def test_the_world_proposes_tasks_of_its_own_again_and_again_the_same(world: type[Environment]) -> None:
    tasks = tasks_of(world)
    found = propose_tasks(world, tasks, None, seed=3)
    assert found == propose_tasks(world, tasks, None, seed=3) != propose_tasks(world, tasks, None, seed=4)
    assert all(task is not None and task.split == "train" for task in found)
    ids = [task.id for task in found if task is not None]
    assert len(set(ids)) == len(ids)
    environment = world()
    for task, old in zip(found, tasks, strict=True):
        assert task is not None and task.id.startswith(f"{old.id}?") and task.seed == old.seed
        assert as_text(begin(environment, task)).startswith("Goal: ")


@pytest.mark.parametrize(("spare", "least", "most"), [(1, 0.05, 0.2), (0, 0.2, 0.5)])
def test_some_that_craft_proposes_cannot_be_solved(spare: int, least: float, most: float) -> None:
    environment = Craft(spare=spare)
    lost: list[bool] = []
    for task in propose_tasks(lambda: Craft(spare=spare), tasks_of(Craft), None, seed=0):
        assert task is not None
        begin(environment, task)
        lost.append(environment.is_lost)
        assert not is_eval(environment.snapshot()[0])
    assert least < sum(lost) / len(lost) < most


def test_what_a_shop_proposes_is_listed_but_not_always_sold_so() -> None:
    environment = Shop()
    sold: list[bool] = []
    for task in propose_tasks(Shop, tasks_of(Shop), None, seed=0):
        assert task is not None
        begin(environment, task)
        stock = environment.snapshot()[0]
        wish = Wish(**task.data["wish"])
        alike = [item for item in stock.items if (item.kind, item.feature) == (wish.kind, wish.feature)]
        assert any(item.price <= wish.limit for item in alike) and not is_eval(wish)
        sold.append(
            any(wish.color in i.colors and wish.size in i.sizes and i.price <= wish.limit for i in alike)
        )
    assert 0.1 < sum(sold) / len(sold) < 0.8


@pytest.mark.parametrize("world", [Craft, Shop])
def test_what_the_world_says_of_a_proposal_is_read_as_it(world: type[Environment]) -> None:
    environment = world()
    assert isinstance(environment, Proposes)
    for task in tasks_of(world, 20):
        begin(environment, task)
        data = environment.proposal(Random(task.seed))
        said = as_text(begin(environment, Task(id="x", environment="x", seed=task.seed, data=data)))
        begin(environment, task)
        goal = said.split(". ")[0] + "." if world is Craft else said
        assert environment.read_proposal(goal) == data
        assert environment.read_proposal("Goal: the moon.") is None


def test_a_wish_that_is_held_out_is_not_read() -> None:
    shop = Shop()
    begin(shop, tasks_of(Shop, 1)[0])
    wishes = [
        Wish(kind="hat", feature="wool", color=color, size=size, limit=limit)
        for color in ("red", "blue") for size in ("small", "large") for limit in (20, 30)
    ]  # fmt: skip
    assert {is_eval(wish) for wish in wishes} == {True, False}
    assert all((shop.read_proposal(wish.words()) is None) == is_eval(wish) for wish in wishes)


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        ("TASK: Goal: table.", "Goal: table."),
        ("Why not.\nTASK: table \n", "table"),
        ("TASK: table\nIt is good.", None),
        ("TASK: table\nTASK: furnace", None),
        ("table", None),
        ("", None),
    ],
)
def test_only_a_last_line_in_form_is_a_goal(said: str, goal: str | None) -> None:
    assert read_goal(said) == goal


def test_a_model_is_shown_how_a_task_begins_and_what_it_says_is_read(model: ChatModel, spec: str) -> None:
    tasks = tasks_of(Craft, 8)
    firsts = [as_text(begin(Craft(), task)) for task in tasks]
    odd = firsts[3]

    def say(body: dict[str, Any]) -> str:
        told = json.loads(body["messages"][1]["content"])
        assert told.keys() == {"told", "shown"} and told["told"].startswith("Make or gather the goal.")
        return "TASK: the moon" if told["shown"] == odd else "Let me see.\nTASK: Goal: furnace."

    model.say = say
    found = propose_tasks(Craft, tasks, Proposer(spec), seed=0)
    held_out = [is_eval(land_of(task).aim_at("furnace")) for task in tasks]
    for number, task in enumerate(found):
        assert (task is None) == (number == 3 or held_out[number])
        assert task is None or task.data == {"goal": "furnace"}
    assert sorted(json.loads(body["messages"][1]["content"])["shown"] for body in model.seen) == sorted(
        firsts
    )
    assert {body["temperature"] for body in model.seen} == {1.0}


def test_a_model_that_does_not_answer_ends_the_run(model: ChatModel, spec: str) -> None:
    model.say = lambda _: 401
    with pytest.raises(DataError, match=r"proposer at http.*; check the endpoint"):
        propose_tasks(Craft, tasks_of(Craft, 2), Proposer(spec), seed=0)


def test_guess_cannot_say_what_could_be_asked_for() -> None:
    with pytest.raises(UsageError, match="proposals in guess: got an environment that cannot say"):
        propose_tasks(Guess, tasks_of(Guess, 1), None, seed=0)

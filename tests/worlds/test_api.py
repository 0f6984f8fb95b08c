"""Chains of calls: what fits what by kind, values that fit by chance, calls that take a value once, given goals."""

from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.check import check
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.splitting import is_eval
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.api.game import Api, Goal, phrase, read_goal
from quintain.worlds.api.registry import Argument, Call, Registry, draw_registry


def argument(name: str, kind: int, *examples: int) -> Argument:
    return Argument(name=name, kind=kind, told="guest or caller key", examples=examples or (1,))


OWNER = Call(
    name="zormip", relation="owner", kind=1, told="", arguments=(argument("x", 0),), is_stateful=True
)
SENDER = Call(
    name="takluv",
    relation="sender",
    kind=0,
    told="",
    arguments=(argument("x", 1), argument("y", 0)),
    is_stateful=False,
)
REGISTRY = Registry(calls=(OWNER, SENDER), values=((11, 12), (21, 22)), overlap=0.0, seed=0)


def world_of(registry: Registry, goal: Goal) -> Api:
    world = Api(tools=2)
    begin(world, world.task("train", 0))
    world.registry = registry
    world.restore((goal, (), frozenset()))
    return world


def call(world: Api, name: str, **arguments: Any) -> StepResult:
    return advance(world, tool_action(name, **arguments))


def test_what_fits_what_by_kind() -> None:
    assert REGISTRY.edges() == {("zormip", "takluv", "x"), ("takluv", "zormip", "x")}
    assert REGISTRY.takes(OWNER, OWNER.arguments[0], 12) and not REGISTRY.takes(OWNER, OWNER.arguments[0], 21)
    anything = Registry(calls=(OWNER,), values=((11,), (21,)), overlap=1.0, seed=0)
    assert anything.takes(OWNER, OWNER.arguments[0], 21) and not anything.takes(OWNER, OWNER.arguments[0], 5)
    assert REGISTRY.result(OWNER, {"x": 11}) in (21, 22) and REGISTRY.call("other") is None


def test_calls_by_value() -> None:
    first = REGISTRY.result(OWNER, {"x": 11})
    answer = REGISTRY.result(SENDER, {"x": first, "y": 12})
    calls = (("zormip", (("x", 11),)), ("takluv", (("x", first), ("y", 12))))
    world = world_of(REGISTRY, Goal("Find it.", calls, answer))
    assert world.expert_action() == tool_action("zormip", x=11) and world.progress() == 0
    assert call(world, "zormip", x=11).observation == str(first)
    assert world.expert_action() == tool_action("takluv", x=first, y=12) and world.progress() == 0.5
    again = call(world, "zormip", x=11)
    assert not again.is_valid and again.observation == "Error: x: 11 was used already."
    wrong = {
        "Error: x: 11 is no guest or caller key.": call(world, "takluv", x=11, y=12),
        "Error: takluv takes x, y, each of them and no other.": call(world, "takluv", x=first),
        "Error: x: 21 is no guest or caller key.": call(world, "takluv", x="21", y=12),
    }
    for said, result in wrong.items():
        assert result.observation == said and not result.is_valid
    assert str(call(world, "nothing").observation).startswith("Error: there is no nothing; tools: ")
    assert str(advance(world, Action(text="hm")).observation).startswith("Error: no tool was called; tools: ")
    assert advance(world, Action(error="unreadable")).observation == "Error: unreadable."
    key = world.state_key()
    assert call(world, "takluv", x=first, y=12).observation == str(answer) and world.state_key() != key
    assert world.expert_action() == tool_action("answer", value=answer)
    done = call(world, "answer", value=answer)
    assert done.is_terminated and done.is_success and done.reward == 1


def test_a_wrong_answer_ends_it_and_so_does_a_failure_its_turn() -> None:
    world = world_of(REGISTRY, Goal("Find it.", (), 21))
    bad = Action(
        tool_calls=(
            *tool_action("zormip", x=99).tool_calls,
            *tool_action("answer", value=21).tool_calls,
        )
    )
    assert not advance(world, bad).is_terminated
    wrong = call(world, "answer", value=22)
    assert wrong.is_terminated and not wrong.is_success and wrong.reward == 0
    assert world.progress() == 0.0


def test_documents_of_a_kind_share_a_word_and_names_say_nothing() -> None:
    for seed in range(20):
        registry = draw_registry(8, overlap=0.2, stateful=0.25, seed=seed)
        assert len({c.name for c in registry.calls}) == len({c.relation for c in registry.calls}) == 8
        for source, other, name in registry.edges():
            first, second = registry.call(source), registry.call(other)
            assert first is not None and second is not None
            told = next(a.told for a in second.arguments if a.name == name)
            result = first.told.partition(": ")[2]
            assert set(told.split()[:3:2]) & set(result.split()[:3:2])
            assert other not in first.told and source not in second.told
        values = [value for own in registry.values for value in own]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    "options", [{}, {"stateful": 1.0, "hops": 4, "tools": 12}, {"overlap": 1.0, "registry": 7}]
)
def test_the_expert_solves_tasks_and_noise_does_harm(options: dict[str, Any]) -> None:
    world = Api(**options)
    tasks = [world.task("train", index) for index in range(60)]
    assert all(play(world, task, expert).is_success for task in tasks)
    solved = sum(play(world, task, noisy_policy(0.3, task.seed)).is_success for task in tasks)
    assert 5 < solved < 60
    words = {str(begin(world, task)) for task in tasks}
    assert all(not is_eval(told) and told.startswith("Find the ") for told in words)
    assert not words & {str(begin(world, world.task("eval", index))) for index in range(60)}


def test_a_task_may_bring_its_goal() -> None:
    world = Api()
    data = {"goal": "Find it.", "calls": [], "answer": 5}
    task = Task(id="t", environment="api", seed=0, data=data)
    assert begin(world, task) == "Find it." and world.expert_action() == tool_action("answer", value=5)
    assert phrase("owner", ["order 5", "guest 6"]) == "the owner of order 5 with guest 6"
    for wrong in (
        {"goal": "x"},
        {"goal": "x", "calls": [1], "answer": 2},
        {"goal": "x", "calls": [], "answer": "y"},
    ):
        with pytest.raises(UsageError, match="give goal, calls"):
            read_goal(wrong)


def test_it_passes_the_check_and_refuses_what_cannot_be() -> None:
    assert check("api", episodes=8).has_passed
    for name, value in {"tools": 13, "hops": 5, "overlap": 1.5, "stateful": -1.0}.items():
        with pytest.raises(UsageError, match=f"{name}={value}"):
            Api(**{name: value})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

"""The function calling leaderboard: its gold answers pass its own checkers, and nobody trains on it."""

import sys
from contextlib import closing

import pytest

from quintain.adapters.bfcl.environment import Bfcl, BfclTurns, first_of, read, spec_of_function, write_call
from quintain.adapters.bfcl.package import data_folder
from quintain.environments.baselines import expert, noop, play
from quintain.environments.boundary import refuse_training
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import MissingExtra, UsageError
from quintain.types import ToolCall, ToolSpec

SORT = ToolSpec(name="sort", description="", parameters={"properties": {"file": {}, "by": {}}})


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    data_folder.cache_clear()
    with pytest.raises(MissingExtra, match="pip install --no-deps bfcl-eval"):
        Bfcl()
    with pytest.raises(UsageError, match="did you mean 'simple_python'"):
        Bfcl("simple_pyton")


def test_types_are_named_as_in_json() -> None:
    spec = spec_of_function(
        {
            "name": "f",
            "description": "F.",
            "parameters": {"type": "dict", "properties": {"type": {"type": "float"}}},
        }
    )
    assert spec.parameters == {"type": "object", "properties": {"type": {"type": "number"}}}


def test_possible_answers_become_arguments() -> None:
    nested = {"type": "dict", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    assert first_of([3, 4], {}) == 3
    assert first_of([{"a": [1, 2], "b": [""]}], nested) == {"a": 1}
    assert first_of([[{"a": [1]}]], {"type": "array", "items": nested}) == [{"a": 1}]


def test_calls_are_written_and_read() -> None:
    call = ToolCall(name="sort", arguments={"file": "it's", "by": [1, None]})
    assert write_call(call) == 'sort(file="it\'s", by=[1, None])'
    assert read(write_call(call), (SORT,)) == call
    assert read("sort('a', by=2)", (SORT,)) == ToolCall(name="sort", arguments={"file": "a", "by": 2})
    assert write_call(ToolCall(name="sort", arguments={"a=1); f(": 2})) == "sort()"


@pytest.mark.real("bfcl_eval", "bfcl")
@pytest.mark.parametrize(
    "category", ["simple_python", "multiple", "parallel", "irrelevance", "live_simple", "multi_turn_base"]
)
def test_gold_passes(category: str) -> None:
    with closing(Bfcl(category)) as world:
        tasks = [world.task("eval", index) for index in range(20)]
        assert sum(play(world, task, expert).is_success for task in tasks) >= 19
        if category != "irrelevance":
            assert not any(play(world, task, noop).is_success for task in tasks)


@pytest.mark.real("bfcl_eval", "bfcl")
def test_it_is_for_evaluation_only() -> None:
    with (
        closing(Bfcl()) as world,
        pytest.raises(UsageError, match=r"training on bfcl/simple_python: got .* evaluation"),
    ):
        refuse_training(world)


@pytest.mark.real("bfcl_eval", "bfcl")
def test_turns_have_systems_of_their_own() -> None:
    with closing(Bfcl("multi_turn_base")) as world:
        assert isinstance(world, BfclTurns)
        begin(world, world.task("eval", 0))
        assert not advance(world, tool_action("no_such")).is_valid
        first = advance(world, tool_action("pwd")).observation
        advance(world, tool_action("cd", folder="document"))
        assert advance(world, tool_action("pwd")).observation != first
        begin(world, world.task("eval", 0))
        assert advance(world, tool_action("pwd")).observation == first

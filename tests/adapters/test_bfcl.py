"""The function calling leaderboard: its gold answers pass its own checkers, and nobody trains on it."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from quintain.adapters.bfcl.environment import (
    LEFT_OUT,
    ONE_TURN,
    SEVERAL_TURNS,
    Bfcl,
    BfclTurns,
    questions,
    read,
    spec_of_function,
)
from quintain.adapters.bfcl.gold import first_of, in_java, in_javascript, write_call, write_calls
from quintain.adapters.bfcl.package import data_folder, decode, is_harmless
from quintain.adapters.bfcl.summary import NUM_LIVE, PARTS, summarise
from quintain.environments.baselines import expert, noop, play
from quintain.environments.boundary import refuse_training
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import DataError, EnvironmentFault, MissingExtra, UsageError
from quintain.types import Action, ToolCall, ToolSpec

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


def test_arguments_of_other_languages_are_source() -> None:
    array, texts = (
        {"type": "Array", "items": {"type": "String"}},
        {"type": "ArrayList", "items": {"type": "String"}},
    )
    assert in_java(["a", "b"], array) == "new String[]{a, b}"
    assert in_java(["a"], texts) == 'new ArrayList<>(Arrays.asList("a"))'
    assert in_java({"k": 1}, {"type": "HashMap"}) == 'new HashMap<>() {{ put("k", 1); }}'
    assert [in_java(5, {"type": kind}) for kind in ("long", "float", "integer")] == ["5L", "5f", "5"]
    assert in_java(True, {"type": "boolean"}) == "true"
    assert in_javascript({"a": [True]}, {"type": "dict"}) == '{"a": [true]}'
    assert in_javascript(5, {"type": "Bigint"}) == "5n" and in_javascript("x", {}) == "x"
    call = ToolCall(name="f", arguments={"a": "x y", "b": "true", "c": "new String[]{a}", "d": "5L"})
    assert write_calls([call], "simple_java") == '[f(a="x y", b=true, c=new String[]{a}, d=5L)]'


@pytest.mark.parametrize(
    "text", ["[f(a=1+2*3)]", "f(a=-1)", "[f(a=g(b=1))]", "```[f(a=[1, 'x'])]```", "[f(a=b)]"]
)
def test_what_the_decoder_only_reads_is_given_to_it(text: str) -> None:
    assert is_harmless(text)


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1+__import__('os').system('x'))]",
        "f(a=9**9**9)",
        "f(a='x'*10**9)",
        "f(a=lambda: 1)",
        "f(",
        "no calls",
    ],
)
def test_what_the_decoder_would_carry_out_is_not_given_to_it(text: str) -> None:
    assert not is_harmless(text)
    with pytest.raises(DataError, match="which is no list of calls of values"):
        decode(text, "simple_python")


def test_the_summary_by_hand() -> None:
    found = summarise({"simple_python": 0.9, "multiple": 0.8, "irrelevance": 1.0, "live_irrelevance": 0.5})
    assert found.parts["one_turn"] == pytest.approx((0.3 + 0.8) / 4)
    assert found.overall == pytest.approx(0.1 * 0.275 + 0.1 * 0.75)
    assert found.measured == pytest.approx(0.75), "irrelevance alone was measured whole"
    assert "memory_kv" in found.missing and "live_relevance" not in found.missing
    live = dict.fromkeys(NUM_LIVE, 0.0) | {"live_multiple": 1.0}
    assert summarise(live).parts["live"] == pytest.approx(1053 / 1351)
    everything = {name: 1.0 for names in PARTS.values() for name in names}
    assert summarise(everything).overall == summarise(everything).measured == pytest.approx(1.0)


def test_a_file_of_another_version_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "BFCL_v4_multiple.json").write_text('{"id": "multiple_0", "question": [[]]}\n')
    with pytest.raises(
        EnvironmentFault, match="a file of another version; pip install --no-deps bfcl-eval=="
    ):
        questions(tmp_path, "multiple")
    with pytest.raises(EnvironmentFault, match=r"got FileNotFoundError.* of another version"):
        questions(tmp_path, "parallel")


def test_what_cannot_run_here_says_why() -> None:
    with pytest.raises(UsageError, match="'web_search_base', which asks a search engine over the network"):
        Bfcl("web_search_base")
    assert set(PARTS["agentic"]) < LEFT_OUT.keys()


@pytest.mark.real("bfcl_eval", "bfcl")
@pytest.mark.parametrize("category", [*ONE_TURN, *SEVERAL_TURNS])
@pytest.mark.parametrize("answers", ["calls", "text"])
def test_gold_passes(category: str, answers: Literal["calls", "text"]) -> None:
    with closing(Bfcl(category, answers=answers)) as world:
        tasks = [world.task("eval", index) for index in range(16)]
        assert sum(play(world, task, expert).is_success for task in tasks) >= 14
        silent = sum(play(world, task, noop).is_success for task in tasks)
        assert silent == (len(tasks) if "irrelevance" in category else 0)


@pytest.mark.real("bfcl_eval", "bfcl")
def test_functions_that_were_missing_are_told_when_they_come() -> None:
    with closing(Bfcl("multi_turn_miss_func")) as world:
        begin(world, world.task("eval", 0))
        assert "sort" not in {spec.name for spec in world.tools()}
        said = [advance(world, Action(text="Done.")).observation for _ in range(3)]
        assert '"name": "sort"' in str(said[2]) and "sort" in {spec.name for spec in world.tools()}


@pytest.mark.real("bfcl_eval", "bfcl")
def test_too_many_steps_in_a_turn_end_all_of_it() -> None:
    with closing(Bfcl("multi_turn_base")) as world:
        begin(world, world.task("eval", 0))
        results = [advance(world, tool_action("pwd")) for _ in range(21)]
        assert [result.is_terminated for result in results] == [False] * 20 + [True]
        assert not results[-1].is_success
        begin(world, world.task("eval", 0))
        *turns, end = world.answers["multi_turn_base_0"]
        for turn in turns:
            for call in turn:
                advance(world, Action(tool_calls=(read(call, world.tools()),)))
            advance(world, Action(text="Done."))
        for call in end:
            advance(world, Action(tool_calls=(read(call, world.tools()),)))
        rest = [advance(world, tool_action("pwd")) for _ in range(21 - len(end))]
        assert rest[-1].is_terminated and rest[-1].is_success, (
            "in the last turn nothing is left to ask: it is cut, and compared"
        )


@pytest.mark.real("bfcl_eval", "bfcl")
def test_a_name_that_a_model_wrote_is_not_carried_out(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with closing(Bfcl("multi_turn_base")) as world:
        begin(world, world.task("eval", 0))
        for name in (f"open('{trace}', 'w').close", "exit", "__import__"):
            assert not advance(world, Action(tool_calls=(ToolCall(name=name),))).is_valid
    assert not trace.exists()


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

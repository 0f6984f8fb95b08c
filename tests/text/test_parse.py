import json
import random
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.pace import STEADY, growth

from quintain.errors import DataError
from quintain.text.parse import (
    LONGEST_READ,
    UnreadableError,
    depth_of,
    parse_choice,
    parse_react,
    parse_text,
    parse_tool_calls,
    read_json,
    tools_text,
    write_react,
    write_text,
    write_tool_calls,
)
from quintain.types import Action, ToolCall, ToolSpec

GUESS = ToolSpec(
    name="guess", description="Guess.", parameters={"properties": {"number": {"type": "integer"}}}
)
SAY = ToolSpec(name="say", description="Say.", parameters={"properties": {"words": {"type": "string"}}})
MOVE = ToolSpec(name="move", description="Move.", parameters={"properties": {"x": {}, "y": {}}})
LOOK = ToolSpec(name="look", description="Look.", parameters={})
TOOLS = (GUESS, SAY, MOVE, LOOK)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
tool_calls = st.builds(
    ToolCall, name=texts.filter(bool), arguments=st.dictionaries(texts, json_values, max_size=3)
)


def error_of(text: str) -> str:
    action = parse_tool_calls(text)
    assert action.tool_calls == ()
    assert action.error is not None
    return action.error


def test_text_is_the_stripped_completion() -> None:
    assert parse_text(" go left\n") == Action(text="go left")
    assert parse_text("") == Action()


def test_a_choice_is_exact_after_strip() -> None:
    legal = ("left", "go on ", "right")
    assert parse_choice(" left\n", legal) == Action(text="left")
    assert parse_choice("go on", legal) == Action(text="go on ")
    wrong = parse_choice("Left", legal)
    assert wrong.error == "not a legal action: got 'Left'; choose one of: left, go on , right"
    assert parse_choice("x" * 99, ()).error == f"not a legal action: got '{'x' * 60}...'; choose one of: "
    many = parse_choice("x", [str(number) for number in range(99)]).error
    assert many is not None
    assert many.endswith("18, 19, ...")


def test_one_call_and_several_calls() -> None:
    one = '<tool_call>\n{"name": "guess", "arguments": {"number": 16}}\n</tool_call>'
    assert parse_tool_calls(f"I think so.\n{one}\n") == Action(
        text=one, tool_calls=(ToolCall(name="guess", arguments={"number": 16}),)
    )
    two = parse_tool_calls(one + ' and <tool_call>{"name": "look"}</tool_call> done')
    assert two.tool_calls == (
        ToolCall(name="guess", arguments={"number": 16}),
        ToolCall(name="look", arguments={}),
    )
    assert two.text.endswith("</tool_call>")
    assert parse_tool_calls(" just words ") == Action(text="just words")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "a", "name": "b"}', "tool call 1 has the key 'name' twice"),
        ('{"name": "a", "arguments": {"x": NaN}}', "holds 'NaN', which is not a finite number"),
        ('{"name": "a", "arguments": {"x": -Infinity}}', "holds '-Infinity', which is not a finite number"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 250 + ".0e99}}", "which is not a finite number"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "holds '1e999', which is not a finite number"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}", "holds a number that is too long"),
        (
            '{"name": "a", "arguments": {"x": ' + "[" * 2000 + "]" * 2000 + "}}",
            "is nested deeper than 32 levels",
        ),
        ('{"name": "a", "arguments": {"x": [' + "[]," * 5000 + "0]}}", "holds more than 2048 brackets"),
        ('{"name": "a", "arguments": {"x": ' + "[" * 40 + "]" * 40 + "}}", "is nested deeper than 32 levels"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}', "holds half of a surrogate pair"),
        ('{"name": "a"', "is not valid JSON: Expecting ',' delimiter at character 12, near 'name\": \"a\"'"),
        ("", "is not valid JSON: Expecting value at character 0, near ''"),
        ("[1]", "must be a JSON object: got a list"),
        ("null", "must be a JSON object: got null"),
        ('"look"', "must be a JSON object: got a string"),
        ("true", "must be a JSON object: got a boolean"),
        ("3", "must be a JSON object: got a number"),
        ('{"name": "a", "args": {}}', "has the unknown key 'args'; its keys are name and arguments"),
        ('{"arguments": {}}', "needs a name that is a string: got none"),
        ('{"name": {}}', "needs a name that is a string: got an object"),
        ('{"name": ""}', "needs a name that is a string: got a string"),
        ('{"name": "a", "arguments": "{}"}', "needs arguments that are a JSON object: got a string"),
        ('{"name": "a", "arguments": null}', "needs arguments that are a JSON object: got null"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(body: str, problem: str) -> None:
    error = error_of(f"<tool_call>{body}</tool_call>")
    assert problem in error
    assert error.endswith('; write <tool_call>{"name": NAME, "arguments": {...}}</tool_call>')


def test_one_bad_call_spoils_the_turn_and_is_numbered() -> None:
    good = '<tool_call>{"name": "look"}</tool_call>'
    assert error_of(good + "<tool_call>nonsense</tool_call>").startswith("tool call 2 is not valid JSON")
    assert error_of(good + "<tool_call>{").startswith("tool call 2 has no closing </tool_call>")
    assert error_of("</tool_call>").startswith("a tool call is not written right")
    assert error_of('<tool_call {"name": "look"}').startswith("a tool call is not written right")
    assert error_of(good * 65).startswith("there are more than 64 tool calls")
    assert error_of("<tool_call>" + "x" * LONGEST_READ).startswith("the tool calls are 32779 characters long")


def test_a_text_of_the_longest_length_is_read() -> None:
    body = '{"name": "a", "arguments": {"x": "%s"}}'
    filler = "x" * (LONGEST_READ - len(f"<tool_call>{body % ''}</tool_call>"))
    assert parse_tool_calls(f"<tool_call>{body % filler}</tool_call>").error is None


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(tool_calls, min_size=1, max_size=3), padding=st.sampled_from(["", "\n"]))
def test_calls_are_read_as_they_were_written(calls: list[ToolCall], padding: str) -> None:
    text = write_tool_calls(calls, padding)
    assert parse_tool_calls(text) == Action(text=text, tool_calls=tuple(calls))


def test_calls_are_written_in_the_hermes_form() -> None:
    call = ToolCall(
        name="say", arguments=MappingProxyType({"words": "é </tool_call>", "more": MappingProxyType({})})
    )
    written = (
        '<tool_call>{"name": "say", "arguments": {"words": "é \\u003c/tool_call>", "more": {}}}</tool_call>'
    )
    assert write_tool_calls([call]) == written
    assert parse_tool_calls(written).tool_calls == (call,)
    look = ToolCall(name="look")
    shape = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert write_tool_calls([look, look], "\n") == f"{shape}\n{shape}"


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_arguments_that_are_not_json_cannot_be_written(value: object) -> None:
    with pytest.raises(DataError, match="which is not JSON"):
        write_tool_calls([ToolCall(name="say", arguments={"words": value})])


def malformed(rng: random.Random) -> str:
    """Return a tool-call text that was cut, doubled, mutated or stuffed."""
    value: Any = {"name": "guess", "arguments": {"number": rng.randint(-9, 9), "list": [1, {"a": None}]}}
    text = f"<tool_call>{json.dumps(value)}</tool_call>"
    stuff = (
        "<tool_call>",
        "</tool_call>",
        "{",
        "}",
        '"',
        "\\u",
        "\\ud83d",
        "NaN",
        "1e999",
        "[" * 50,
        "\x00",
        "é",
        ",",
        ":",
    )
    for _ in range(rng.randint(1, 6)):
        start, end = sorted(rng.choices(range(len(text) + 1), k=2))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:start] + rng.choice(stuff) + text[start:]
        elif kind == 2:
            text = text[:start] + "".join(rng.choices(text + "\ud800", k=end - start)) + text[end:]
        else:
            text += text[start:end]
    return text


def test_ten_thousand_malformed_calls_raise_nothing() -> None:
    rng = random.Random(0)
    errors, seconds = 0, list[float]()
    for _ in range(10_000):
        text = malformed(rng)
        start = time.process_time()
        action = parse_tool_calls(text)
        seconds.append(time.process_time() - start)
        errors += action.error is not None
        assert not (action.error and action.tool_calls)
        parse_react(text, TOOLS)
        parse_choice(text, ("left",))
    assert errors > 5_000
    seconds.sort()
    assert seconds[int(0.99 * len(seconds))] < 50 * seconds[len(seconds) // 2], "none is a trap"


MEGABYTE = 1 << 20
HUGE: tuple[tuple[int, Callable[[int], str]], ...] = (
    (MEGABYTE, lambda n: "[" * n),
    (MEGABYTE // 11, lambda n: "<tool_call>" * n),
    (MEGABYTE // 25, lambda n: "<tool_call>{}</tool_call>" * n),
    (MEGABYTE // 5, lambda n: "<tool_call>" + '{"a":' * n),
    (16_000, lambda n: "<tool_call>" + "[" * n + "]" * n + "</tool_call>"),
    (10_000, lambda n: "<tool_call>[" + "{}," * n + "{}]</tool_call>"),
    (2_000, lambda n: "<tool_call>[" + "{}," * n + "{}]</tool_call>"),
    (4_000, lambda n: "<tool_call>[" + "1.5e10," * n + "1]</tool_call>"),
    (8_000, lambda n: "<tool_call>[" + "1.5," * n + "1]</tool_call>"),
    (3_000, lambda n: "<tool_call>{" + ",".join(f'"{number}":0' for number in range(n)) + "}</tool_call>"),
    (MEGABYTE // 7, lambda n: "Action:" * n),
    (MEGABYTE, lambda n: "\n Action: a" + "[" * n),
    (MEGABYTE, lambda n: " " * n),
    (MEGABYTE, lambda n: "\n" * n),
    (MEGABYTE // 64, lambda n: ("\n" + " " * 63) * n),
    (MEGABYTE, lambda n: "a" * n),
    (MEGABYTE // 2, lambda n: "a[" * n),
    (MEGABYTE // 2, lambda n: "Action: " + "a[" * n + "]"),
    (MEGABYTE, lambda n: "Action: guess[" + "[" * n + "]"),
    (30_000, lambda n: "Action: guess[" + "[" * n + "]"),
)
READERS: tuple[Callable[[str], object], ...] = (
    parse_text,
    parse_tool_calls,
    lambda text: parse_react(text, TOOLS),
    lambda text: parse_choice(text, ("left", "right")),
)


@pytest.mark.parametrize("index", range(len(HUGE)))
def test_a_megabyte_is_read_in_proportion_to_its_length(index: int) -> None:
    size, text = HUGE[index]
    for read in READERS:
        assert growth(text, read, size) < STEADY


@settings(max_examples=60, deadline=None)
@given(
    text=st.text()
    | st.lists(st.sampled_from(["Action:", "Thought:", "\n", "guess[", "]", "{", "3", "x"])).map("".join)
)
def test_react_reads_any_text(text: str) -> None:
    for tools in ((), TOOLS):
        action = parse_react(text, tools)
        assert action.error is not None or action.text


def test_react_takes_the_first_action_without_its_thought() -> None:
    assert parse_react("Thought: a wall\nAction: go left\nObservation: a door\nAction: right") == Action(
        text="go left"
    )
    assert parse_react("Action: a\nb") == Action(text="a\nb")
    assert "there is no action" in str(parse_react("go left").error)
    long = parse_react("Action: " + "x" * LONGEST_READ).error
    assert long == "the answer is 32776 characters long; at most 32768 are read"
    assert "the action is empty" in str(parse_react("Action: \nObservation: x").error)


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ('guess[{"number": 3}]', {"number": 3}),
        ("guess[3]", {"number": 3}),
        ("guess[]", {}),
        ("say[a [b] c]", {"words": "a [b] c"}),
        ('move[{"x": 1, "y": 2}]', {"x": 1, "y": 2}),
    ],
)
def test_react_reads_a_tool_call(said: str, arguments: dict[str, Any]) -> None:
    call = ToolCall(name=said.partition("[")[0], arguments=arguments)
    assert parse_react(f"Action: {said}", TOOLS) == Action(text=said, tool_calls=(call,))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("go left", "the action must be name[argument]: got 'go left'"),
        ("gues[3]", "there is no tool 'gues'; tools: guess, say, move, look"),
        (
            "guess[three]",
            "the argument of guess is not valid JSON: Expecting value at character 0, near 'three'",
        ),
        ("move[3]", "the argument of move must be a JSON object with the keys x, y: got '3'"),
        ("look[3]", "the argument of look must be a JSON object with the keys none: got '3'"),
    ],
)
def test_react_says_what_is_wrong(said: str, problem: str) -> None:
    assert parse_react(f"Action: {said}", TOOLS) == Action(text=said, error=problem)


def test_react_is_read_as_it_was_written() -> None:
    assert write_react(Action(text="go left")) == "Action: go left"
    assert write_react(Action(text="left"), "a wall") == "Thought: a wall\nAction: left"
    call = ToolCall(name="say", arguments={"words": "a\nb"})
    text = write_react(Action(tool_calls=(call,)))
    assert text == 'Action: say[{"words": "a\\nb"}]'
    assert parse_react(text, TOOLS).tool_calls == (call,)
    assert write_react(Action(tool_calls=(ToolCall(name="look"),))) == "Action: look[]"
    with pytest.raises(DataError, match="one tool call: got 2"):
        write_react(Action(tool_calls=(call, call)))


def test_depth_counts_containers() -> None:
    assert [depth_of(value) for value in (1, [], {"a": 1}, [{"a": []}], {"a": {"b": [1]}})] == [0, 1, 1, 3, 3]
    assert read_json("[" * 32 + "]" * 32) is not None
    with pytest.raises(UnreadableError):
        read_json("[" * 33 + "]" * 33)
    assert read_json("[" + "[]," * 40 + "[]]") == [[]] * 41


def test_tools_are_listed_for_templates_that_cannot() -> None:
    assert tools_text([LOOK]) == (
        "Tools, one JSON schema per line:\n"
        '{"name": "look", "description": "Look.", "parameters": {}}\n'
        'To call a tool, write <tool_call>{"name": NAME, "arguments": {...}}</tool_call>'
    )


def test_plain_text_has_no_form_for_a_tool_call() -> None:
    assert write_text(Action(text="go left")) == "go left"
    with pytest.raises(
        DataError, match="a plain text action has no tool calls: got click; take the agent tools"
    ):
        write_text(Action(tool_calls=(ToolCall(name="click", arguments={"x": 1}),)))


IN_THOUGHT = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        (f"<think>maybe {IN_THOUGHT % 'x'}?</think>\n{IN_THOUGHT % 'y'}", ["y"], IN_THOUGHT % "y"),
        (f"<think>{IN_THOUGHT % 'x'}</think>\nDone.", [], "Done."),
        (f"<think>I write <tool_call> now</think>\n{IN_THOUGHT % 'y'}", ["y"], IN_THOUGHT % "y"),
        (f"maybe {IN_THOUGHT % 'x'}?</think>{IN_THOUGHT % 'y'}", ["y"], IN_THOUGHT % "y"),
        (f"A<think>{IN_THOUGHT % 'x'}", [], "A"),
        ('<tool_call>{"name": "x", "arguments": {"a": "</think>"}}</tool_call>', ["x"], None),
    ],
)
def test_calls_in_a_thought_are_no_calls(text: str, names: list[str], said: str | None) -> None:
    action = parse_tool_calls(text)
    assert action.error is None and [call.name for call in action.tool_calls] == names
    assert action.text == (text if said is None else said)


def test_the_type_and_the_id_of_a_call() -> None:
    action = parse_tool_calls(
        '<tool_call>{"type": "function", "id": "c7", "name": "x", "arguments": {}}</tool_call>'
    )
    assert [(call.name, call.id) for call in action.tool_calls] == [("x", "c7")]
    other = parse_tool_calls('<tool_call>{"type": "tool", "name": "x", "arguments": {}}</tool_call>')
    assert other.error is not None and "the unknown key 'type'" in other.error

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from quintain.data.calls import (
    CLASSES,
    SaidSoFar,
    count_faults,
    find_faults,
    leaves,
    messages_of,
    right_calls,
)
from quintain.data.messages import OpeningPrompt
from quintain.data.pipeline import Pipeline, as_example
from quintain.types import Action, Message, Task, ToolCall, ToolSpec, Trajectory, as_content

BOOK = ToolSpec(
    name="book",
    description="Book seats.",
    parameters={
        "type": "object",
        "properties": {
            "flight": {"type": "string"},
            "seats": {"type": "integer"},
            "cabin": {"enum": ["economy", "business"]},
            "extras": {"type": "array", "items": {"type": "string", "default": "wifi"}},
            "note": {"type": "string", "anyOf": [{"const": "aisle"}, {}]},
            "is_final": {"type": "boolean"},
        },
        "required": ["flight"],
    },
)
FREE = ToolSpec(name="free", description="", parameters={})


def said(role: str, text: str, *calls: ToolCall) -> Message:
    return Message(role=role, content=as_content(text), tool_calls=calls)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def call(name: str = "book", **arguments: Any) -> Message:
    return said("assistant", "I know that it is QX99.", ToolCall(name=name, arguments=arguments))


def kinds(*messages: Message, **options: Any) -> list[str]:
    return [fault.kind for fault in find_faults(messages, [BOOK, FREE], **options)]


ASKED = said("user", "Book BA-117 for 3 people, total 1,200.50 or so.")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"flight": "ba-117", "seats": 3, "cabin": "business", "extras": ["wifi"], "is_final": True}, []),
        ({"flight": "BA-117", "note": "a text of the agent in more than six words"}, []),
        ({"flight": ""}, []),
        ({"flight": "BA-117", "note": "aisle"}, []),
        ({}, ["missing"]),
        ({"flight": "BA-117", "colour": "BA-117"}, ["extra"]),
        ({"flihgt": "BA-117"}, ["misnamed"]),
        ({"flight": "BA-117", "seats": "3"}, ["mistyped"]),
        ({"flight": "BA-117", "cabin": "first"}, ["mistyped"]),
        ({"flight": "BA-11"}, ["unsaid"]),
        ({"flight": "QX99"}, ["unsaid"]),
        ({"flight": "BA-117", "seats": 12}, ["unsaid"]),
        ({"flight": "1200.5"}, []),
        ({"flight": "BA-117", "extras": ["BA-117", "lunch"]}, ["unsaid"]),
        ({"flight": "BA-117", "paid": {"how": "default"}}, ["extra"]),
    ],
)
def test_a_call_is_right_by_format_schema_and_what_was_said(
    arguments: Mapping[str, Any], found: list[str]
) -> None:
    assert kinds(ASKED, call(**arguments)) == found


def test_tools_that_are_not_on_the_list_and_calls_that_cannot_be_read() -> None:
    assert kinds(ASKED, call("fly")) == ["undefined"]
    assert kinds(ASKED, call("fly"), known={"fly"}) == ["not_listed"]
    [fault] = find_faults([ASKED, call("fly")], [], unreadable=None)
    assert str(fault) == "answer 0, fly: undefined: got 'fly', and the tools of the conversation are none"
    [broken] = find_faults([ASKED, said("assistant", "{")], [BOOK], unreadable={0: "no JSON"})
    assert str(broken) == "answer 0: unreadable: no JSON"
    assert {broken.kind, fault.kind} <= {kind for own in CLASSES.values() for kind in own}


def test_what_is_said_later_or_by_the_assistant_grounds_nothing() -> None:
    later = said("tool", "Seat 14C is free on QX99.")
    wanted = call(flight="QX99")
    assert kinds(ASKED, wanted, later) == ["unsaid"]
    assert kinds(ASKED, later, wanted) == []
    assert kinds(ASKED, wanted, semantic=False) == []
    assert kinds(ASKED, call("free", anything=3)) == []
    assert kinds(ASKED, call("free", anything=4)) == ["unsaid"]


def test_a_schema_that_is_none_is_told() -> None:
    for schema, told in (({"type": "nothing"}, "nothing"), ({"$ref": "#/$defs/gone"}, "gone")):
        odd = ToolSpec(name="odd", description="", parameters={"properties": {"x": schema}})
        [fault] = find_faults([ASKED, call("odd", x=3)], [odd])
        assert (
            fault.kind == "mistyped" and "schema of odd that is none" in fault.detail and told in fault.detail
        )
    within = {"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"anyOf": [{"type": "integer"}]}}}
    fine = ToolSpec(name="fine", description="", parameters=within)
    assert find_faults([ASKED, call("fine", x=3)], [fine]) == []
    assert [f.kind for f in find_faults([ASKED, call("fine", x="3")], [fine])] == ["mistyped"]


def test_numbers_and_words_are_heard_as_a_whole() -> None:
    heard = SaidSoFar()
    heard.add("It costs 100 for two; order #A-12, v1.5, -7 degrees.")
    assert [heard.has(v) for v in (100, 10, 1, 2, -7, 7, 1.5, "A-12", "A-1", "12", "two", "order a-12")] == [
        True, False, False, True, True, False, False, True, False, False, True, True,
    ]  # fmt: skip
    assert list(leaves({"a": [1, True, None, {"b": "x"}], "c": 2.5})) == [1, "x", 2.5]


def test_faults_are_counted_by_kind_over_all_calls(trajectory: Callable[..., Trajectory]) -> None:
    two = trajectory([((1,), (2,)), ((3,), (4,))])
    calls = (
        ToolCall(name="book", arguments={"plane": "X"}),
        ToolCall(name="fly"),
        ToolCall(name="book", arguments={"flight": "LH-1"}),
    )
    own = replace(
        two,
        turns=(
            replace(two.turns[0], action=Action(tool_calls=calls)),
            replace(two.turns[1], action=Action(error="no JSON")),
        ),
    )
    told = OpeningPrompt(system="Be brief.", tools=(BOOK,))
    quarter = dict.fromkeys(("misnamed", "undefined", "unreadable", "unsaid"), 0.25)
    assert count_faults([own, own], lambda _: told) == {"calls": 8.0, **quarter}
    assert count_faults([], lambda _: told) == {"calls": 0.0}


def test_a_fault_takes_the_turn_and_leaves_the_episode(trajectory: Callable[..., Trajectory]) -> None:
    two = trajectory([((1,), (2,)), ((3,), (4,)), ((5,), (6,))])
    turns = (
        replace(two.turns[0], observation=as_content("Flight BA-117"), action=Action(error="no JSON")),
        replace(two.turns[1], action=Action(tool_calls=(ToolCall(name="book", arguments={"flight": "X"}),))),
        replace(
            two.turns[2], action=Action(tool_calls=(ToolCall(name="book", arguments={"flight": "BA-117"}),))
        ),
    )
    episode = replace(two, turns=turns, task=Task(id="t", environment="e", seed=0, prompt="Seats for 9"))
    told = OpeningPrompt(system="Be brief.", tools=(BOOK,))
    messages, unreadable = messages_of(episode, told)
    assert [m.role for m in messages] == ["system", *["user", "assistant"] * 3] and unreadable == {
        0: "no JSON"
    }
    [kept] = Pipeline(right_calls(lambda _: told)).run([as_example(episode)]).examples
    assert [w.tolist() for w in kept.weights or ()] == [[0], [0], [1]]
    [loose] = Pipeline(right_calls(lambda _: told, semantic=False)).run([as_example(episode)]).examples
    assert [w.tolist() for w in loose.weights or ()] == [[0], [1], [1]]

"""Refusals and plain chat beside tools; tools in another order."""

import json
from random import Random
from typing import Any

import pytest

from quintain.data.augmented import has_order, is_plain, offer_tools, quotas, shuffle_tools, withheld
from quintain.data.files import FileValue
from quintain.data.records import Record, read_record
from quintain.types import as_text


def tool(name: str, *parameters: str) -> dict[str, Any]:
    fields = {each: {"type": "string"} for each in parameters}
    return {"name": name, "parameters": {"type": "object", "properties": fields, "required": [*parameters]}}


def called(name: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": name, "arguments": "{}"}}],
    }


def record(*messages: dict[str, Any], **fields: Any) -> Record:
    return read_record({"messages": list(messages), **fields}, FileValue(file="f", line=1, value=None))


USER, SAYS = {"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "Which?"}
RESULT = {"role": "tool", "content": "sun"}
TOOLS = [tool("a"), tool("b", "x", "y"), tool("c")]


def test_a_refusal_stands_where_the_call_was_whose_tools_are_gone() -> None:
    whole = record(
        USER, SAYS, USER, called("a"), RESULT, called("c"), RESULT, SAYS, tools=TOOLS, reward=1.0, task="t"
    )
    made = withheld(whole, "No.")
    assert made is not None
    assert [(m.role, as_text(m.content)) for m in made.messages] == [
        ("user", "Rome?"), ("assistant", "Which?"), ("user", "Rome?"), ("assistant", "No."),
    ]  # fmt: skip
    assert [each.is_trained for each in made.said] == [None, False, None, None]
    assert [each.name for each in made.tools] == ["b"] and dict(made.fields) == {"task": "t"}
    assert withheld(record(USER, SAYS, tools=TOOLS), "No.") is None
    assert withheld(record(USER, called("z"), tools=TOOLS), "No.") is None
    assert withheld(record(called("a"), RESULT, SAYS, tools=TOOLS), "No.") is None


def test_plain_chat_stays_plain_beside_tools() -> None:
    chat = record(USER, SAYS)
    assert (
        is_plain(chat)
        and not is_plain(record(USER, called("a")))
        and not is_plain(record(USER, SAYS, tools=TOOLS))
    )
    tools = record(USER, SAYS, tools=TOOLS).tools
    made = offer_tools(chat, tools)
    assert made.tools == tools and made.said == chat.said


@pytest.mark.parametrize(
    ("num", "first", "second", "wanted"),
    [
        (4, 9, 9, (2, 2)),
        (5, 9, 9, (3, 2)),
        (5, 9, 1, (4, 1)),
        (5, 1, 9, (1, 4)),
        (5, 2, 2, None),
        (0, 0, 0, (0, 0)),
    ],
)
def test_half_of_each_kind(num: int, first: int, second: int, wanted: tuple[int, int] | None) -> None:
    assert quotas(num, first, second) == wanted


def test_tools_and_parameters_in_another_order() -> None:
    whole = record(USER, called("b"), tools=TOOLS)
    made = [shuffle_tools(whole, Random(seed)) for seed in range(30)]
    assert len({tuple(t.name for t in each.tools) for each in made}) == 6
    orders = {tuple(next(t for t in each.tools if t.name == "b").parameters["properties"]) for each in made}
    assert orders == {("x", "y"), ("y", "x")}
    for each in made:
        assert each.said == whole.said
        assert {t.name: t for t in each.tools} == {t.name: t for t in whole.tools}
    assert json.dumps(dict(shuffle_tools(whole, Random(7)).tools[0].parameters)) == json.dumps(
        dict(shuffle_tools(whole, Random(7)).tools[0].parameters)
    )
    assert has_order(whole) and has_order(record(USER, SAYS, tools=TOOLS[1:2]))
    assert not has_order(record(USER, SAYS, tools=TOOLS[:1])) and not has_order(record(USER, SAYS))

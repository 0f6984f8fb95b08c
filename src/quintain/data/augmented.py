"""Conversations that are made of others: refusals, and the same with tools in another order.

Two kinds of conversation call nothing although there is talk of tools, and teach that none is made up (Agent-FLAN,
arXiv 2403.12881): one asks for what only tools do that are not listed, one is plain chat beside tools. And what is
right does not depend on the order in which tools and their parameters are listed (xLAM, arXiv 2409.03215).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from quintain.data.records import Record, RecordMessage
from quintain.types import Message, ToolSpec, as_content

T = TypeVar("T")
UNANSWERED = ("reward", "is_success")
"""What a record says of its outcome, which is not that of another answer."""


def withheld(record: Record, refusal: str) -> Record | None:
    """Return `record` up to its first call, with `refusal` in the place of that, without the tools that it calls.

    Earlier answers are context. None where it calls no tool that it lists, or is not asked anything before.
    """
    called = {call.name for each in record.said for call in each.message.tool_calls}
    first = next((place for place, each in enumerate(record.said) if each.message.tool_calls), 0)
    is_asked = any(each.message.role == "user" for each in record.said[:first])
    left = tuple(tool for tool in record.tools if tool.name not in called)
    if not is_asked or len(left) == len(record.tools):
        return None
    before = tuple(
        replace(each, is_trained=False) if each.message.role == "assistant" else each
        for each in record.said[:first]
    )
    answer = RecordMessage(message=Message(role="assistant", content=as_content(refusal)))
    fields = {key: value for key, value in record.fields.items() if key not in UNANSWERED}
    return replace(record, said=(*before, answer), tools=left, fields=fields)


def is_plain(record: Record) -> bool:
    """Return whether nothing is called in `record`, nor any tool listed."""
    return not record.tools and not any(each.message.tool_calls for each in record.said)


def offer_tools(record: Record, tools: Sequence[ToolSpec]) -> Record:
    """Return the plain chat `record` with `tools` at hand, of which it still calls none."""
    return replace(record, tools=tuple(tools))


def quotas(num: int, first: int, second: int) -> tuple[int, int] | None:
    """Return how many to take of two kinds, of which there are `first` and `second`: half of `num` of each.

    Where there are too few of one, there are more of the other; None where both are fewer than `num`.

    Example: 5, of 9 and 1 → 4 and 1.
    """
    if first + second < num:
        return None
    of_second = max(min(num // 2, second), num - first)
    return num - of_second, of_second


def has_order(record: Record) -> bool:
    """Return whether `record` lists several tools, or one of several parameters."""
    return len(record.tools) > 1 or any(len(properties(tool)) > 1 for tool in record.tools)


def shuffle_tools(record: Record, rng: Random) -> Record:
    """Return `record` with its tools, and the parameters of each, listed in an order of `rng`; it says what it said."""
    tools = [
        replace(
            tool,
            parameters={**tool.parameters, "properties": dict(draw_order([*properties(tool).items()], rng))},
        )
        if properties(tool)
        else tool
        for tool in record.tools
    ]
    return replace(record, tools=tuple(draw_order(tools, rng)))


def properties(tool: ToolSpec) -> Mapping[str, Any]:
    """Return the parameters of `tool` with their schemas."""
    return tool.parameters.get("properties", {})


def draw_order(items: Sequence[T], rng: Random) -> list[T]:
    """Return `items` in an order of `rng`."""
    return rng.sample(items, len(items))

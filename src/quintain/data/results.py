"""Results of tools in the order of the calls that they answer, by the ids that both have.

Any order of results is allowed in a file; what is trained shows each beside its own call. Where a file gives no ids,
results that name their tools take these calls, and the others the calls that are left, in order. One result without an
id may answer all calls of an answer together.
"""

from __future__ import annotations

from collections.abc import Sequence

from quintain.errors import DataError
from quintain.types import Message, ToolCall


def match_results(
    messages: Sequence[Message], place: str, *, has_read_calls: Sequence[bool]
) -> list[tuple[int, ToolCall | None]]:
    """Return the places of `messages` with results in the order of their calls, and the call that each answers.

    Where it `has_read_calls` not, calls may stand in the text of an answer, and what follows it is not checked.

    Raises:
        DataError: an id that no call has, two results of one call, or a call without a result before another answer.
    """
    last = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
    order: list[tuple[int, ToolCall | None]] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        order.append((at, None))
        at += 1
        if message.role == "tool" and message.tool_call_id:
            raise _no_call_error(message, (), place)
        if message.role != "assistant":
            continue
        begin = at
        while at < len(messages) and messages[at].role == "tool":
            at += 1
        places = range(begin, at)
        if not has_read_calls[begin - 1]:
            order += [(each, None) for each in places]
            continue
        calls = message.tool_calls
        numbers = _call_numbers(calls, messages[begin:at], place, is_last=begin > last)
        own = sorted(zip(numbers, places, strict=True))
        order += [(each, calls[number] if number < len(calls) else None) for number, each in own]
    return order


def _call_numbers(
    calls: Sequence[ToolCall], results: Sequence[Message], place: str, *, is_last: bool
) -> list[int]:
    """Return the number of the call that each of `results` answers, numbers beyond `calls` for no call of its own.

    `is_last` says that no answer follows, so that calls may be open.
    """
    free = list(range(len(calls)))
    found: dict[int, int] = {}
    has_ids = not calls or any(call.id for call in calls)
    for number, result in enumerate(results):
        if not result.tool_call_id or not has_ids:
            continue
        own = next((k for k in free if calls[k].id == result.tool_call_id), None)
        if own is None:
            raise _no_call_error(result, calls, place)
        found[number] = own
        free.remove(own)
    for number, result in enumerate(results):
        fits = [k for k in free if calls[k].name == result.name]
        if number not in found and result.name and len(fits) == 1:
            found[number] = fits[0]
            free.remove(fits[0])
    left = [number for number in range(len(results)) if number not in found]
    if len(calls) > len(results) == len(left) == 1:
        return [len(calls)]  # one for all
    for number in left:
        found[number] = free.pop(0) if free else len(calls) + number
    if free and not is_last:
        call = calls[free[0]]
        told = f"the call {call.id!r} of {call.name}" if call.id else f"a call of {call.name}"
        raise DataError(
            f"{place}: got no result of {told} before the next answer; write its tool message, or take the call out"
        )
    return [found[number] for number in range(len(results))]


def _no_call_error(result: Message, calls: Sequence[ToolCall], place: str) -> DataError:
    """Return the error of a result that answers no call."""
    ids = ", ".join(repr(call.id) for call in calls if call.id) or "no call"
    return DataError(
        f"{place}: got a result of the call {result.tool_call_id!r}, and before it stands {ids}; give each call of the "
        "answer before it one result, by its id"
    )

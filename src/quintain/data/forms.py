"""Which form a row of a file has: a conversation, a preference of two sides, or an answer with a label, good or bad.

Preferences are read as trl, OpenAI, LLaMA-Factory and ms-swift write them, labelled answers (KTO) as trl, ms-swift and
LLaMA-Factory do. A file holds one of the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from quintain.errors import DataError

Form = Literal["conversation", "preference", "labelled answer"]
LABELS = ("label", "kto_tag")
CONVERSATIONS = ("messages", "conversations", "conversation")
ANSWERS = ("completion", "response")
SIDES: tuple[tuple[str, str], ...] = (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))
REJECTED = ("rejected_response", "rejected_messages")
"""What ms-swift writes beside the messages of the better side."""
USES: Mapping[Form, str] = {
    "conversation": "train it with quintain train sft --demonstrations FILE",
    "preference": "train it with quintain train dpo --preferences FILE",
    "labelled answer": "train it with quintain train dpo --loss kto --preferences FILE, or imitate good and bad ones "
    "under labels with quintain train nat --demonstrations FILE",
}
"""What each is for."""


def form_of(value: Mapping[str, Any]) -> Form:
    """Return the form of the row `value`."""
    sides = (*(key for pair in SIDES for key in pair), *REJECTED)
    if any(value.get(key) is not None for key in sides):
        return "preference"
    return "conversation" if label_of(value) is None else "labelled answer"


def label_of(value: Mapping[str, Any]) -> bool | None:
    """Return what the row `value` says of its answer, true for good; None where it says nothing."""
    if not any(key in value for key in (*CONVERSATIONS, *ANSWERS)):
        return None
    for key in LABELS:
        label = value.get(key)
        if isinstance(label, int) and label in (0, 1):
            return bool(label)
    return None


def as_sides(value: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the preference `value` with the keys ``prompt`` (where it has one), ``chosen`` and ``rejected``.

    Raises:
        DataError: a side is missing, or is of no kind that is known.
    """
    row = dict(value)
    own = next((key for key in CONVERSATIONS if key in row), None)
    if answer := next((key for key in REJECTED if key in row), None):
        if own is None:
            raise DataError(f"{place}: got {answer} without messages; give the messages of the better side")
        messages, rejected = _list(row.pop(own), own, place), row.pop(answer)
        if answer == "rejected_messages":
            return {**row, "chosen": messages, "rejected": rejected}
        if not isinstance(rejected, str) or not messages:
            raise DataError(f"{place}: got {answer} {rejected!r:.40}; give the text of the worse answer")
        return {**row, "prompt": messages[:-1], "chosen": messages[-1:], "rejected": rejected}
    preferred, other = next(pair for pair in SIDES if pair[0] in row or pair[1] in row)
    for key in (preferred, other):
        if key not in row:
            raise DataError(f"{place}: got the keys {sorted(row)} without {key}; give both sides")
    chosen, rejected = _side(row.pop(preferred)), _side(row.pop(other))
    if preferred != "chosen":
        given = row.pop("input", None)
        given = cast("dict[str, Any]", given) if isinstance(given, dict) else {"messages": given}
        row |= {"prompt": given.get("messages"), **({"tools": given["tools"]} if given.get("tools") else {})}
    elif own is not None and "prompt" not in row:
        row["prompt"] = row.pop(own)
    return {**row, "chosen": chosen, "rejected": rejected}


def _side(value: object) -> object:
    """Return a side that is a single message as a list of it."""
    return [value] if isinstance(value, dict) else value


def _list(value: object, key: str, place: str) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise DataError(f"{place}: got {key} of type {type(value).__name__}; give a list")

"""Which messages are to be trained, as the files of many tools say it: `weight`, `loss`, `train`, `loss_mask` and more.

A message says it by a key of its own, or its record by a list with a value for each message. What names only a part of
an answer, or weighs it by something between 0 and 1, is refused: an answer is trained or it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from quintain.errors import DataError

MASKS: Mapping[str, bool] = {
    "weight": True,
    "train": True,
    "training": True,
    "trainable": True,
    "loss": True,
    "loss_mask": True,
    "step_loss_mask": True,
    "loss_scale": True,
    "masked": False,
}
"""Key → whether 1 in it means that the message is trained: OpenAI, axolotl, ms-swift, slime, verl, torchtune, ours."""
PARTS = ("train_detail",)
"""Keys that say it of spans of a message."""


def mask_of(entry: Mapping[str, Any], place: str) -> bool | None:
    """Return whether the message `entry` is to be trained; None where none of its keys says so.

    Raises:
        DataError: a value is neither 0 nor 1, two keys say different things, or one says it of parts.
    """
    if part := next((key for key in PARTS if entry.get(key)), None):
        raise DataError(
            f"{place}: got {part}, which trains spans of a message; split the message, or give train for all of it"
        )
    said = {key: entry[key] for key in MASKS if entry.get(key) is not None}
    read = {key: _switch(key, value, place) is MASKS[key] for key, value in said.items()}
    if len(set(read.values())) > 1:
        told = " and ".join(f"{key} {value!r}" for key, value in said.items())
        raise DataError(f"{place}: got {told} of one message, which contradict each other; leave one of them")
    return next(iter(read.values()), None)


def mask_message(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message `entry`, whatever it says, as one that is not trained."""
    return {**{key: value for key, value in entry.items() if key not in MASKS}, "train": False}


def row_masks(fields: dict[str, Any], count: int, place: str) -> list[bool | None]:
    """Return for each of `count` messages what the record beside them says, and take the keys that do out of `fields`.

    A list has a value for each message; one value that says no is said of all of them.

    Raises:
        DataError: a list has another length, a value is neither 0 nor 1, or two keys contradict each other.
    """
    lists: dict[str, list[Any]] = {}
    for key in MASKS:
        value = fields.get(key)
        if isinstance(value, list):
            lists[key] = cast("list[Any]", fields.pop(key))
        elif is_switch(value) and bool(value) is not MASKS[key]:
            lists[key] = [fields.pop(key)] * count
    if wrong := next((key for key, values in lists.items() if len(values) != count), None):
        raise DataError(
            f"{place}: got {wrong} of {len(lists[wrong])} values for {count} messages; give one for each message"
        )
    return [mask_of({key: values[at] for key, values in lists.items()}, place) for at in range(count)]


def is_switch(value: object) -> bool:
    """Whether `value` says yes or no."""
    return isinstance(value, int | float) and value in (0, 1)


def _switch(key: str, value: object, place: str) -> bool:
    """Return `value` of `key` as yes or no."""
    if is_switch(value):
        return bool(value)
    raise DataError(f"{place}: got {key} {value!r:.40}; give 0 or 1 (false or true)")

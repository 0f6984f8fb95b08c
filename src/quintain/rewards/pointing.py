"""R = R_type + R_point + R_format: the right kind of action, inside the right box, readable: UI-R1 (arXiv 2503.21620).

R_point counts for actions that point somewhere; other actions are divided by what they can earn, so that every kind
of action earns at most 1. A box includes its edges, and a broken action earns nothing for its place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quintain.types import Action, ToolCall

POINTED = re.compile(r"\s*(\w+)\s+(-?\d{1,9})[\s,]+(-?\d{1,9})\s*")

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is wanted of one screen: ``Target(kind="click", box=(10, 10, 40, 20))``."""

    kind: str
    """name of the tool"""
    box: Box | None = None
    """where to point, for actions that point"""


def pointing_score(action: Action, target: Target) -> float:
    """Return the share of the points that `action` earns of those that `target` has to give, in [0, 1].

    Readable is one point, the right kind another, inside the box a third where there is a box. Example: the right kind
    outside of the box → 2/3.
    """
    most = 2 if target.box is None else 3
    if action.error is not None or not action.tool_calls:
        return 0.0
    call = action.tool_calls[0]
    points = 1 + (call.name == target.kind)
    if target.box is not None and call.name == target.kind:
        points += is_inside(call.arguments, target.box)
    return points / most


def as_call(action: Action) -> Action:
    """Return `action` with its words as a call where it has none: ``click 12 40`` is ``click(x=12, y=40)``.

    Words that name no point are the name of a call without arguments; a broken action stays as it is.
    """
    if action.tool_calls or action.error is not None or not action.text:
        return action
    found = POINTED.fullmatch(action.text)
    if found is None:
        return replace(action, tool_calls=(ToolCall(name=action.text),))
    return replace(
        action, tool_calls=(ToolCall(name=found[1], arguments={"x": int(found[2]), "y": int(found[3])}),)
    )


def is_inside(arguments: Mapping[str, Any], box: Box) -> bool:
    """Return whether the numbers x and y of `arguments` lie in `box`; False where one is missing or no number."""
    x, y = arguments.get("x"), arguments.get("y")
    if isinstance(x, bool) or isinstance(y, bool):
        return False
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        return False
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]

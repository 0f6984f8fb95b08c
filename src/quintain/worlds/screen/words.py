"""The tools of `screen` in words: ``click 12 40`` and ``type oslo``, which are short.

The one rule: `read` and `write` are inverses, and what `read` cannot place stays text.
"""

import re
from dataclasses import replace

from quintain.types import Action, ToolCall

INSTRUCTION = "\n\nAct: click X Y, or type TEXT."
CLICK = re.compile(r"\s*click\s+(-?\d{1,9})[\s,]+(-?\d{1,9})\s*", re.IGNORECASE)
TYPE = re.compile(r"\s*type\s+(\S.*?)\s*", re.IGNORECASE)


def read(action: Action) -> Action:
    """Return `action` with the call that its words are, where it has none."""
    if action.error is not None or action.tool_calls:
        return action
    clicked, typed = CLICK.fullmatch(action.text), TYPE.fullmatch(action.text)
    calls = ()
    if clicked:
        calls = (ToolCall(name="click", arguments={"x": int(clicked[1]), "y": int(clicked[2])}),)
    elif typed:
        calls = (ToolCall(name="type", arguments={"text": typed[1]}),)
    return replace(action, tool_calls=calls)


def write(action: Action) -> Action:
    """Return the call of `action` in words."""
    (call,) = action.tool_calls
    return Action(text=" ".join((call.name, *map(str, call.arguments.values()))))

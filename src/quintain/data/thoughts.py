"""Thoughts in front of actions, in the form that an answer has: where one stands, and how one is put there.

Beside tool calls the thought is the text of the message; before ``Action:`` it is ReAct's ``Thought:``; elsewhere it
stands in ``<think>…</think>``, as tags and reasoning models write it. An answer has a thought or it has none; what
is put there is found again word for word, and the action behind it is what it was, or it is refused.
"""

from __future__ import annotations

import re

from quintain.data.messages import MARKUP
from quintain.types import INLINE_REASONING, Message, as_text

ACTION = re.compile(r"^[ \t]*Action:", re.MULTILINE)
TAGGED = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


def whole_text(message: Message) -> str:
    """Return what `message` says with its reasoning in front, as `INLINE_REASONING` writes it."""
    text = as_text(message.content)
    return INLINE_REASONING.format(message.reasoning) + text if message.reasoning else text


def split(text: str, *, has_calls: bool) -> tuple[str, str]:
    """Return the thought in an answer, empty where there is none, and the rest; with `has_calls` calls stand beside it.

    Example: ``"Thought: it is far\\nAction: go on"`` → ``("it is far", "Action: go on")``.
    """
    if found := TAGGED.match(text):
        return found[1].strip(), text[found.end() :]
    if has_calls:
        return text.strip(), ""
    if found := ACTION.search(text):
        return text[: found.start()].strip().removeprefix("Thought:").strip(), text[found.start() :]
    return "", text


def with_thought(thought: str, text: str, *, has_calls: bool) -> str | None:
    """Return the answer `text`, which has no thought, behind `thought`; None where the action would be another.

    Example: ``"it is far"`` and ``"Action: go on"`` → ``"Thought: it is far\\nAction: go on"``.
    """
    if has_calls:
        made = thought
    elif ACTION.match(text):
        made = f"Thought: {thought}\n{text}"
    elif text.startswith("<"):
        made = f"<think>{thought}</think>{text}"
    else:
        made = INLINE_REASONING.format(thought) + text
    is_whole = MARKUP.search(thought) is None and split(made, has_calls=has_calls) == (thought, text)
    return made if is_whole else None

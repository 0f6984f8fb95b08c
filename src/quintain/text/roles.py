"""What several roles say, as one text: ``<think>…</think><suggested_answer>12</suggested_answer>…<action>12</action>``.

One model speaks for all roles of a team, one after the other, and each says its name (Chain-of-Agents, arXiv
2508.13167). What a role says may hold anything, marks included: it is escaped. `read_roles` is the reverse of
`write_roles`, and `find_broken_rule` says where roles do not come in their order: each answer is checked, a score of
3 or more lets it be done, a lower one calls for a plan and another answer.
"""

import re
from collections.abc import Sequence
from html import escape, unescape
from typing import NamedTuple

from quintain.text.parse import UnreadableError, quote

THINK, PLAN, SUGGEST, CHECK, ACT = "think", "plan", "suggested_answer", "double_check", "action"
ROLES = (THINK, PLAN, SUGGEST, CHECK, ACT)
ENOUGH = 3
"""Score from which on an answer is good enough; the scores are 1 to 5."""
ONE = re.compile(rf"<({'|'.join(ROLES)})>([^<]*)</\1>")


class Activation(NamedTuple):
    """What one role said: ``Activation("double_check", "4")``."""

    role: str
    content: str


def write_roles(activations: Sequence[Activation]) -> str:
    """Return what all roles said, as one text."""
    return "".join(f"<{role}>{escape(content, quote=False)}</{role}>" for role, content in activations)


def read_roles(text: str) -> tuple[Activation, ...]:
    """Return what each role said in `text`; blanks between roles are left out.

    Raises:
        UnreadableError: something stands outside of the roles, or one is not closed.
    """
    found: list[Activation] = []
    place = 0
    for match in ONE.finditer(text):
        if text[place : match.start()].strip():
            break
        found.append(Activation(match[1], unescape(match[2])))
        place = match.end()
    if text[place:].strip() or not found:
        rest = quote(text[place:].strip())
        raise UnreadableError(f"expected roles, each as <think>…</think>, of {', '.join(ROLES)}; got {rest}")
    return tuple(found)


def score_of(content: str) -> int | None:
    """Return the score that a check gives, 1 to 5; None where it gives none."""
    return int(content) if content in ("1", "2", "3", "4", "5") else None


def find_broken_rule(activations: Sequence[Activation]) -> str:
    """Return the first rule that `activations` break, in words; empty where roles come in their order."""
    before, suggested, score = "", "", None
    for role, content in activations:
        allowed = {
            "": (THINK, SUGGEST), THINK: (SUGGEST,), PLAN: (THINK, SUGGEST), SUGGEST: (CHECK,),
            CHECK: (ACT,) if score is not None and score >= ENOUGH else (PLAN,), ACT: (),
        }[before]  # fmt: skip
        if role not in allowed:
            after = f"{before} of {score}" if before == CHECK else before or "the beginning"
            return f"{role} may not follow {after}"
        if role == CHECK and (score := score_of(content)) is None:
            return f"double_check gives no score from 1 to 5: {content[:20]!r}"
        suggested = content if role == SUGGEST else suggested
        if role == ACT and content != suggested:
            return "what is done is not what was suggested"
        before = role
    return "" if before == ACT else "nothing is done at the end"

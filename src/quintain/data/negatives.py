"""Turns in which a call could not be read or was wrong, as negatives to learn from.

A wrong call is the policy's own mistake, seen in place: the conversation before it is the prompt, the call is
rejected, and where the policy mended it in the next turn, what it wrote then is chosen. Failures of tools and of what
is around them are not its mistakes. Only turns that were sampled are exported; nothing is made up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quintain.data.messages import Told, to_record
from quintain.types import UNKNOWN_TOOL, Trajectory, Turn

Kind = Literal["unreadable", "unknown_tool", "invalid_arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """A turn that went wrong: ``Negative(trajectory=t, turn=2, kind="invalid_arguments", mended=3)``."""

    trajectory: Trajectory
    turn: int
    kind: Kind
    mended: int | None
    """The next turn, if its action could be carried out."""


def negatives(trajectories: Sequence[Trajectory]) -> list[Negative]:
    """Return the turns of `trajectories` whose action was unreadable or held an invalid call, in order."""
    found: list[Negative] = []
    for trajectory in trajectories:
        turns = trajectory.turns
        for number, turn in enumerate(turns):
            kind = kind_of(turn)
            if kind is None:
                continue
            following = turns[number + 1] if number + 1 < len(turns) else None
            is_mended = following is not None and following.is_valid and kind_of(following) is None
            found.append(
                Negative(
                    trajectory=trajectory, turn=number, kind=kind, mended=number + 1 if is_mended else None
                )
            )
    return found


def kind_of(turn: Turn) -> Kind | None:
    """Return what was wrong with the action of `turn`; None if the policy made no mistake in it."""
    if turn.action.error is not None:
        return "unreadable"
    wrong = [error.tool for error in turn.tool_errors if error.cause == "invalid_call"]
    if not wrong:
        return None
    return "invalid_arguments" if any(tool != UNKNOWN_TOOL for tool in wrong) else "unknown_tool"


def write_negatives(
    found: Sequence[Negative], decode: Callable[[Sequence[int]], str], *, system: str | None = None
) -> Iterator[str]:
    """Yield a JSON line for each of `found`: messages up to the turn, `rejected`, `chosen` or null, `kind`, task."""
    for negative in found:
        turns = negative.trajectory.turns
        before = to_record(negative.trajectory, decode, told=Told(system=system or ""))["messages"]
        record: dict[str, Any] = {
            "messages": before[: 2 * negative.turn + 1 + bool(system)],
            "rejected": decode(turns[negative.turn].completion.token_ids),
            "chosen": None
            if negative.mended is None
            else decode(turns[negative.mended].completion.token_ids),
            "kind": negative.kind,
            "task": negative.trajectory.task.id,
        }
        yield json.dumps(record, ensure_ascii=False) + "\n"

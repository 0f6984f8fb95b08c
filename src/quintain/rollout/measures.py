"""What went wrong, counted by tool and by cause, with its owner.

Inside an episode a call fails for one of four causes: the policy wrote an invalid call, the tool broke, it
took too long, or something around it did. An episode that could not go on is a `Failure` with an owner.
Nothing is summed over owners, so a broken tool never looks like a bad policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from quintain.types import UNKNOWN_TOOL, Failure, ToolCause, Trajectory, Turn

_TOOL = re.compile(r"tool ([\w.-]+) ")


def tool_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return counts over the episodes; what never happened is left out.

    - ``tools/TOOL/calls`` and ``tools/TOOL/CAUSE``: calls, and those that failed. Tools that do not exist are
      one tool, ``unknown``.
    - ``actions/unreadable``: turns whose text could not be read as an action.
    - ``failures/OWNER/CAUSE``: episodes that failed; those of a tool count for the tool as well.
    """
    counts: Counter[str] = Counter()
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    known = _known(turns)
    for turn in turns:
        for call in turn.action.tool_calls:
            counts[f"tools/{call.name if call.name in known else UNKNOWN_TOOL}/calls"] += 1
        for error in turn.tool_errors:
            counts[f"tools/{error.tool}/{error.cause}"] += 1
        counts["actions/unreadable"] += turn.action.error is not None
    for trajectory in trajectories:
        failure = trajectory.outcome
        if not isinstance(failure, Failure):
            continue
        counts[f"failures/{failure.owner}/{cause_of(failure)}"] += 1
        tool = _TOOL.match(failure.message)
        if failure.owner == "tool" and tool is not None:
            counts[f"tools/{tool[1]}/{cause_of(failure)}"] += 1
    return {name: float(num) for name, num in sorted(counts.items()) if num}


def _known(turns: Sequence[Turn]) -> set[str]:
    """Return the tools that exist: those called in a turn without a call of an unknown one, or failed by name."""
    errors = {error.tool for turn in turns for error in turn.tool_errors}
    sound = (turn for turn in turns if all(error.tool != UNKNOWN_TOOL for error in turn.tool_errors))
    return (errors | {call.name for turn in sound for call in turn.action.tool_calls}) - {UNKNOWN_TOOL}


def cause_of(failure: Failure) -> ToolCause:
    """Return the cause of `failure` in the four words."""
    if failure.kind == "timeout":
        return "timeout"
    return "tool_error" if failure.owner == "tool" else "infrastructure"

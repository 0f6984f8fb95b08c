"""What went wrong, counted by tool and by cause, with its owner.

Inside an episode a call fails for one of four causes: the policy wrote an invalid call, the tool broke, it
took too long, or something around it did. An episode that could not go on is a `Failure` with an owner.
Nothing is summed over owners, so a broken tool never looks like a bad policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from quintain.data.used import find_unused
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
    known = _known_tools(turns)
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


def call_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return what a recording endpoint saw of episodes whose agents live outside; {} where there are none.

    - ``endpoint/calls``, ``endpoint/streams``: calls and token streams of an episode, on average;
    - ``endpoint/delivered``: share of the answers that were read to their end;
    - ``endpoint/refused``: calls of tools that a guard took out of answers, in an episode on average, where it did;
    - ``endpoint/unused``: share of the calls that are not trained, see `quintain.data.used`;
    - ``endpoint/retries``: requests that their clients marked as retries, and ``endpoint/not_recorded``: episodes of
      which calls were lost;
    - ``endpoint/forks/CAUSE``: calls that did not go on where the call before them ended, by cause.
    """
    recorded = [t for t in trajectories if any(turn.facts for turn in t.turns)]
    turns = [turn for trajectory in recorded for turn in trajectory.turns]
    if not turns:
        return {}
    forks = Counter(f"endpoint/forks/{turn.facts['fork']}" for turn in turns if turn.facts.get("fork"))
    refused = sum(len(turn.facts.get("refused", ())) for turn in turns)
    lost = sum(isinstance(t.outcome, Failure) and t.outcome.kind == "capture" for t in trajectories)
    return {
        "endpoint/calls": len(turns) / len(recorded),
        "endpoint/streams": sum(turn.starts_segment for turn in turns) / len(recorded),
        "endpoint/delivered": sum(turn.facts.get("delivery") == "whole" for turn in turns) / len(turns),
        "endpoint/unused": sum(len(find_unused(t.turns)) for t in recorded) / len(turns),
        "endpoint/retries": float(sum(turn.facts.get("retries", 0) for turn in turns)),
        "endpoint/not_recorded": float(lost),
        **({"endpoint/refused": refused / len(recorded)} if refused else {}),
        **{name: float(number) for name, number in sorted(forks.items())},
    }


def _known_tools(turns: Sequence[Turn]) -> set[str]:
    """Return the tools that exist: those called in a turn without a call of an unknown one, or failed by name."""
    errors = {error.tool for turn in turns for error in turn.tool_errors}
    sound = (turn for turn in turns if all(error.tool != UNKNOWN_TOOL for error in turn.tool_errors))
    return (errors | {call.name for turn in sound for call in turn.action.tool_calls}) - {UNKNOWN_TOOL}


def cause_of(failure: Failure) -> ToolCause:
    """Return the cause of `failure` in the four words."""
    if failure.kind == "timeout":
        return "timeout"
    return "tool_error" if failure.owner == "tool" else "infrastructure"

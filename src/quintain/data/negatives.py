"""Turns in which a call could not be read or was wrong, as negatives to learn from.

A wrong call is the policy's own mistake, seen in place: the conversation before it is the prompt, the call is
rejected, and where the policy mended it in the next turn, what it wrote then is chosen (NAT, arXiv 2402.11651, learns
from what failed, too, but marks whole episodes). Failures of tools and of what is around them are not its mistakes.
Only turns that were sampled are exported; nothing is made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from quintain.data.messages import UNTOLD, OpeningPrompt, to_record
from quintain.data.pipeline import Stage, name_of, remade, weigh_turns
from quintain.errors import DataError
from quintain.types import UNKNOWN_TOOL, Example, Trajectory, Turn

Kind = Literal["unreadable", "unknown_tool", "invalid_arguments"]
WORDS: Mapping[Kind, str] = {
    "unreadable": "unreadable",
    "unknown_tool": "of unknown tools",
    "invalid_arguments": "with wrong arguments",
}
"""What is counted of each kind, in words."""


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


def mend_calls(*, name: str = "negatives") -> Stage:
    """Put what mended a call that was unreadable or wrong in an episode's place: it alone counts, the call is context.

    There is one for each such call that the next turn mended, up to that turn; `preference_record` writes both sides.
    """
    counts: Counter[str] = Counter()

    def make(example: Example) -> Iterator[Example]:
        turns = example.trajectory.turns
        for negative in negatives([example.trajectory]):
            if negative.mended is None:
                counts["not mended in the next turn"] += 1
                continue
            counts[WORDS[negative.kind]] += 1
            kept = turns[: negative.mended + 1]
            cut = replace(example, trajectory=replace(example.trajectory, turns=kept), weights=None)
            yield weigh_turns(cut, [0.0] * negative.mended + [1.0])

    return remade(name, "has no wrong call that the next turn mended", make, counts=counts)


def preference_record(
    trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, told: OpeningPrompt = UNTOLD
) -> dict[str, Any]:
    """Return an episode from `mend_calls` as a preference: ``prompt``, ``chosen``, ``rejected``, ``kind``.

    The prompt ends before the wrong call, so that what was chosen stands in its place; it is read back by
    `quintain.data.records.read_preferences`.

    Raises:
        DataError: its last two turns are not a wrong call and what mended it.
    """
    kinds = [kind_of(turn) for turn in trajectory.turns[-2:]]
    if len(kinds) < 2 or kinds[0] is None or kinds[1] is not None:
        raise DataError(
            f"preference of {name_of(trajectory)}: got an episode that does not end with a wrong call and what mended "
            "it; put --stage negatives last"
        )
    record = to_record(trajectory, decode, told=told, is_compared=True)
    messages = record["messages"]
    at = [place for place, each in enumerate(messages) if each["role"] == "assistant"][-2]
    prompt, rejected, chosen = messages[:at], messages[at], messages[-1]
    tools = {"tools": record["tools"]} if "tools" in record else {}
    return {
        "prompt": prompt, "chosen": [chosen], "rejected": [rejected], **tools, "task": record["task"], "kind": kinds[0],
    }  # fmt: skip

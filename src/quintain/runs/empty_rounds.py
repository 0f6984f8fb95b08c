"""Rounds whose data came to nothing: which stage kept none, how often, and what to do about it.

A learner that never succeeds makes no data of its own, and nothing in its weights says so. What is told here is read
from the metrics of a run, ``data/in``, ``data/STAGE``, ``data/kept`` and ``data/pairs``; those of later trainings of a
round are ``data/2/…``. A round is emptied where all of its trainings were left with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.data.pipeline import FIRST, is_stage

END = re.compile(r"data/(\d+/)?(kept|pairs)")
"""Metrics of what a training of a round was left with."""
REPEATED = 2
"""Emptied rounds in a row at which it is said while the run goes on."""
CURE = (
    "begin with a policy that succeeds at times (more demonstrations, or --model with a folder that has learned), or "
    "take easier tasks, or more of them in a round"
)
PAIRS_CURE = "take tasks that are neither always nor never solved, or more of them in a round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """A round without data: ``Emptied(stage="solved", num_in=24)``."""

    stage: str
    """the first that kept none; empty where nothing came into the stages, and of pairs, which no stage makes"""
    num_in: int | None
    """episodes that went into the stages; None of pairs"""


def find_empty_stage(row: Mapping[str, Any]) -> Emptied | None:
    """Return how the round with the metrics `row` came to nothing; None where it made data, or makes none at all."""
    if not makes_data(row) or any(row[name] for name in row if END.fullmatch(name)):
        return None
    if FIRST not in row:
        return Emptied(stage="", num_in=None)
    num_in = int(row[FIRST] or 0)
    stages = [name.partition("/")[2] for name, count in row.items() if is_stage(name) and not count]
    return Emptied(stage=stages[0] if num_in and stages else "", num_in=num_in)


def makes_data(row: Mapping[str, Any]) -> bool:
    """Whether the step with the metrics `row` made data."""
    return any(END.fullmatch(name) for name in row)


def describe_rounds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many of the rounds in `rows` came to nothing, by what, and what to do; empty where none did."""
    made = [row for row in rows if makes_data(row)]
    by_stage: dict[str, list[Emptied]] = {}
    for row in made:
        if (found := find_empty_stage(row)) is not None:
            by_stage.setdefault(found.stage, []).append(found)
    if not by_stage:
        return ""
    num = sum(map(len, by_stage.values()))
    reasons = [
        reason(own) if len(by_stage) == 1 else f"{reason(own)} in {len(own)}" for own in by_stage.values()
    ]
    makes_pairs = all(each.num_in is None for own in by_stage.values() for each in own)
    named = " and ".join(stage for stage in by_stage if stage)
    cure = PAIRS_CURE if makes_pairs else f"{CURE}, or loosen {named}" if named else CURE
    return f"{num} of {len(made)} rounds made no data ({', '.join(reasons)}); {cure}"


def reason(own: Sequence[Emptied]) -> str:
    """Return what left nothing in rounds that one stage emptied."""
    if own[0].num_in is None:
        return "no pair was made"
    if not own[0].stage:
        return "no episode came in"
    return f"{own[0].stage} left none of {sum(each.num_in or 0 for each in own)} episodes"


def warn_if_repeated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what `describe_rounds` says where the last two of `rows` came to nothing; else nothing."""
    last = [find_empty_stage(row) is not None for row in rows if makes_data(row)][-REPEATED - 1 :]
    return describe_rounds(rows) if all(last[-REPEATED:]) and last.count(True) == REPEATED else ""

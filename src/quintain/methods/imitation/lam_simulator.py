"""LAM Simulator (arXiv 2506.02298): explores tools under feedback, and learns from the outcomes twice.

The policy tries tasks whose truth a program knows. A call that cannot be read, names no tool or does not fit it is
refused at once, and it is told why; at the end the answer is judged by what it is, not by which tools were called. Two
data sets come of it. What solved its task is imitated: refused calls stay as context, without weight, and what was done
about them is learned. Then DPO: where two episodes of a task part, a call that was carried out, of an episode that
solved the task, is preferred to one that was refused; both have the same tokens before them.

A tool that does not answer is not a wrong call, and neither is a wrong answer: only what the environment calls invalid
is.

Differences to the paper: tasks, tools and what is said of a wrong call are the environment's, where the paper has query
templates that a language model fills in; preferences stand in an earlier version of the paper, and are learned after
each round's imitation here. Measured on `toolbox`; the paper has ToolBench and CRMArena.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pipeline import Pipeline
from quintain.data.stages import keep_solved, num_turns, valid_turns
from quintain.learning.train_config import GroupRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Improve, Rounds
from quintain.methods.method import Needs, sample_groups
from quintain.types import Group, Pair, Trajectory, Turn, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupRoundsConfig):
    """Configuration of LAM Simulator."""

    renamed: ClassVar[Mapping[str, str]] = {"preference_rate": "preference_lr_scale"}
    """earlier names of options"""

    environment: str = "toolbox"
    tasks: PositiveInt = 32
    """Tasks of a step."""
    group_size: int = 4
    """Episodes of a task."""
    filters: bool = True
    """Whether only what solved its task is imitated, without refused calls; else everything."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy, in the comparison of calls."""
    preference_lr_scale: NonNegativeFloat = 0.1
    """Factor on the learning rate while calls are compared; 0 leaves that out."""


def method(config: Config) -> Rounds:
    """Return LAM Simulator as `config` describes it."""
    compared = Improve(
        build=call_pairs,
        rate=config.preference_lr_scale,
        update=Update(loss=dpo(config.beta), has_reference=True, is_on_policy=False, lr_warmup=0),
    )
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=Pipeline(keep_solved(), valid_turns()) if config.filters else Pipeline(num_turns()),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        later=[compared] if config.preference_lr_scale else [],
        needs=Needs(reference=bool(config.preference_lr_scale)),
        measure=measure_refusals,
    )


def call_pairs(groups: Sequence[Group]) -> list[Pair]:
    """Return, for every two episodes of a group, the call where they part, if one was refused and the other was not.

    Both sides end with it. The better one is of an episode that solved its task. Sides that say the same as those of
    another pair are left out.
    """
    found: dict[object, Pair] = {}
    for group in groups:
        for good, bad in permutations(group.scored, 2):
            place = parting(good, bad)
            if place is None or not good.is_success:
                continue
            if not good.turns[place].is_valid or bad.turns[place].is_valid:
                continue
            sides = [replace(t, turns=t.turns[: place + 1]) for t in (good, bad)]
            said = tuple(turn_tokens(turn) for side in sides for turn in side.turns)
            pair = Pair(chosen=sides[0], rejected=sides[1], level="turn", margin=1.0)
            found.setdefault((group.task.id, said), pair)
    return list(found.values())


def parting(one: Trajectory, other: Trajectory) -> int | None:
    """Return the first turn in which two episodes say different things after the same; None where there is none."""
    for number, (left, right) in enumerate(zip(one.turns, other.turns, strict=False)):
        if left.prompt_ids != right.prompt_ids:
            return None
        if turn_tokens(left) != turn_tokens(right):
            return number
    return None


def turn_tokens(turn: Turn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens of `turn`: what was shown, and what was said."""
    return turn.prompt_ids, turn.completion.token_ids


def measure_refusals(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the share of calls that were refused, and of the episodes with one the share that solved their tasks."""
    played = flatten_scored(groups)
    refused = [not turn.is_valid for t in played for turn in t.turns]
    erring = [t for t in played if not all(turn.is_valid for turn in t.turns)]
    return {
        "lam/refused": sum(refused) / max(len(refused), 1),
        "lam/recovered": sum(t.is_success for t in erring) / max(len(erring), 1),
    }

"""Which token streams of a trajectory are trained: a named rule over the leaves of its forest.

A trajectory whose history was rewritten (memory, a sliding window, a plan, a retry) is several streams, each the walk
to a leaf (`quintain.types.forest`). A rule looks at each speaker by itself. Turns that are on no trained walk have loss
weight 0, and the reason why their leaf was left out is said. However many streams are trained, a trajectory weighs 1
where `quintain.data.pack` aggregates with "sequence_mean".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from quintain.data.used import find_unused
from quintain.types import Sample, Trajectory, Turn
from quintain.types.forest import find_parents

LeafRule = Literal["used", "all", "last", "longest", "root"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """What a rule says of a forest: ``Leaves(trained=(4,), left_out={1: "not the last of 'agent', which is 4"})``."""

    trained: tuple[int, ...]
    """leaves, by the number of their turn"""
    left_out: Mapping[int, str]
    """leaf → why it is not trained; of the rule "used" every turn that is not"""
    turns: frozenset[int]
    """the turns on the walks to the trained leaves"""


def choose_leaves(turns: Sequence[Turn], rule: LeafRule = "all") -> Leaves:
    """Return which leaves of the forest of `turns` are trained.

    "used" trains what the agent went on from or read, where an endpoint recorded that (`quintain.data.used`), else
    everything; "all" trains every leaf; "last" the one that each speaker ended with; "longest" the one with the most
    tokens in its walk, the later one of equals; "root" the stream that each speaker began with, up to where it was
    left.
    """
    if rule == "used":
        unused = find_unused(turns)
        inner = {parent for parent, _ in find_parents(turns) if parent is not None}
        return Leaves(
            trained=tuple(n for n in range(len(turns)) if n not in inner and n not in unused),
            left_out=unused,
            turns=frozenset(range(len(turns))) - frozenset(unused),
        )
    walks: list[tuple[int, ...]] = []
    lengths: list[int] = []
    inner: set[int] = set()
    for number, (turn, (parent, num_shared)) in enumerate(zip(turns, find_parents(turns), strict=True)):
        own = len(turn.prompt_ids) - num_shared + len(turn.completion.token_ids)
        walks.append((number,) if parent is None else (*walks[parent], number))
        lengths.append(own if parent is None else lengths[parent] + own)
        inner |= set() if parent is None else {parent}
    leaves: dict[str, list[int]] = {}
    for number, turn in enumerate(turns):
        if number not in inner:
            leaves.setdefault(turn.speaker, []).append(number)
    trained: list[int] = []
    left_out: dict[int, str] = {}
    for speaker, own in leaves.items():
        if rule == "all":
            trained += own
            continue
        if rule == "root":
            begun = _first_stream(turns, speaker)
            best, word = max(own, key=lambda leaf: (len(begun.intersection(walks[leaf])), -leaf)), "first"
        else:
            best, word = max(own, key=lambda leaf: (lengths[leaf] if rule == "longest" else 0, leaf)), rule
        trained.append(best)
        left_out |= {leaf: f"not the {word} of {speaker!r}, which is {best}" for leaf in own if leaf != best}
    return Leaves(
        trained=tuple(sorted(trained)),
        left_out=left_out,
        turns=frozenset(turn for leaf in trained for turn in walks[leaf]),
    )


def keep_leaves(
    samples: Sequence[Sample], trajectories: Sequence[Trajectory], rule: LeafRule = "all"
) -> tuple[list[Sample], dict[tuple[int, int], str]]:
    """Return `samples` with what `rule` leaves out at loss weight 0, and why: (trajectory, leaf) → reason.

    `Sample.trajectory` counts in `trajectories`. A turn is trained once, in the stream that it was sampled in, also
    where several trained walks share it. Samples without a trained token go.
    """
    if rule == "used" and not any(turn.facts for trajectory in trajectories for turn in trajectory.turns):
        return [*samples], {}
    chosen = [choose_leaves(trajectory.turns, rule) for trajectory in trajectories]
    kept: list[Sample] = []
    for sample in samples:
        is_trained = np.isin(sample.turn_id, [*chosen[sample.trajectory].turns])
        if not is_trained[sample.turn_id >= 0].all():
            sample = replace(sample, loss_weight=np.where(is_trained, sample.loss_weight, np.float32(0)))
        is_rival = sample.choice >= 0 and bool(is_trained.any())  # perhaps a candidate that was not chosen
        if is_rival or sample.loss_weight.any():
            kept.append(sample)
    reasons = {(at, leaf): why for at, leaves in enumerate(chosen) for leaf, why in leaves.left_out.items()}
    return kept, reasons


def _first_stream(turns: Sequence[Turn], speaker: str) -> set[int]:
    """Return the turns of the stream that `speaker` began with."""
    first: set[int] = set()
    for number, turn in enumerate(turns):
        if turn.speaker == speaker:
            if first and turn.starts_segment:
                break
            first.add(number)
    return first

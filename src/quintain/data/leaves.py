"""Which token streams of a trajectory are trained: a named rule over the leaves of its forest.

A trajectory whose history was rewritten (memory, a sliding window, a plan, a retry) is several streams, each the walk
to a leaf (`quintain.types.forest`). A rule looks at each speaker by itself. Turns that are on no trained walk have loss
weight 0, and the reason why their leaf was left out is said. However many streams are trained, a trajectory weighs 1
where `quintain.data.pack` aggregates with "sequence_mean".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from quintain.errors import UsageError, suggestion
from quintain.types import Forest, Node, Sample, Trajectory, make_forest

LeafRule = Literal["all", "last", "longest", "root"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """What a rule says of a forest: ``Leaves(trained=(4,), left_out={1: "not the last of 'agent', which is 4"})``."""

    trained: tuple[int, ...]
    """leaves, by the number of their node"""
    left_out: Mapping[int, str]
    """leaf → why it is not trained"""


def choose_leaves(forest: Forest, rule: LeafRule = "all") -> Leaves:
    """Return which leaves of `forest` are trained.

    "all" trains every leaf; "last" the one that each speaker ended with; "longest" the one with the most tokens in its
    walk, the later one of equals; "root" the stream that each speaker began with, up to where it was left.
    Raises `UsageError` for another rule.
    """
    if rule not in get_args(LeafRule):
        raise UsageError(f"leaves to train: got {rule!r}; {suggestion(rule, get_args(LeafRule))}")
    leaves: dict[str, list[Node]] = {}
    for leaf in forest.leaves():
        leaves.setdefault(leaf.speaker, []).append(leaf)
    if rule == "all":
        return Leaves(trained=tuple(leaf.id for leaf in forest.leaves()), left_out={})
    trained: list[int] = []
    left_out: dict[int, str] = {}
    for speaker, own in leaves.items():
        best = _RULES[rule](forest, own)
        trained.append(best.id)
        reason = f"not the {_WORDS[rule]} of {speaker!r}, which is {best.id}"
        left_out |= {leaf.id: reason for leaf in own if leaf is not best}
    return Leaves(trained=tuple(sorted(trained)), left_out=left_out)


def keep_leaves(
    samples: Sequence[Sample], trajectories: Sequence[Trajectory], rule: LeafRule = "all"
) -> tuple[list[Sample], dict[tuple[int, int], str]]:
    """Return `samples` with what `rule` leaves out at loss weight 0, and why: (trajectory, leaf) → reason.

    `Sample.trajectory` counts in `trajectories`. A turn is trained once, in the stream that it was sampled in, also
    where several trained walks share it. Samples without a trained token go.
    """
    turns: list[list[int]] = []
    reasons: dict[tuple[int, int], str] = {}
    for index, trajectory in enumerate(trajectories):
        forest = make_forest(trajectory)
        leaves = choose_leaves(forest, rule)
        turns.append(sorted({node.turn for leaf in leaves.trained for node in forest.walk(leaf)}))
        reasons |= {(index, leaf): reason for leaf, reason in leaves.left_out.items()}
    kept: list[Sample] = []
    for sample in samples:
        is_trained = np.isin(sample.turn_id, turns[sample.trajectory])
        if not is_trained[sample.turn_id >= 0].all():
            sample = replace(sample, loss_weight=np.where(is_trained, sample.loss_weight, np.float32(0)))
        if sample.loss_weight.any():
            kept.append(sample)
    return kept, reasons


def _last(_: Forest, leaves: Sequence[Node]) -> Node:
    return leaves[-1]


def _longest(forest: Forest, leaves: Sequence[Node]) -> Node:
    return max(leaves, key=lambda leaf: (len(forest.tokens(leaf.id)), leaf.id))


def _root(forest: Forest, leaves: Sequence[Node]) -> Node:
    """Return the leaf whose walk agrees the longest with the stream that the speaker began with."""
    begun = [node for node in forest.nodes if node.speaker == leaves[0].speaker]
    turns = forest.trajectory.turns
    first = [begun[0].id]
    for node in begun[1:]:
        if turns[node.turn].starts_segment:
            break
        first.append(node.id)
    return max(
        leaves, key=lambda leaf: (len({node.id for node in forest.walk(leaf.id)} & {*first}), -leaf.id)
    )


_RULES: dict[str, Callable[[Forest, Sequence[Node]], Node]] = {
    "last": _last,
    "longest": _longest,
    "root": _root,
}
_WORDS = {"last": "last", "longest": "longest", "root": "first"}

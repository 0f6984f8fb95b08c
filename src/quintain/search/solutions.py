"""Which of a tree of solutions is worked on next, and how: AutoMind's policy (arXiv 2506.10974), and what it tells.

A solution is a plan, a program, what it wrote and its metric. What comes next is drawn (`choose`): a new draft until
there are `drafts`; else, with the chance `debug`, a mended version of a leaf that does not run and was mended less than
`depth` times; a draft while nothing runs; with the chance `tune` times the trees in which something runs, `most_tuned`
at most, other numbers for the best of one tree; else something better than the best of all, with the chance `greedy`,
or than that of any one tree. This is the published code's policy; of its chances only `drafts` and `greedy` could be
read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from quintain.memory.bank import Entry

Kind = Literal["draft", "debug", "tune", "improve"]
GAIN = 0.1
"""Share of what a solution measured in the end that a step to it must have gained to be known."""
HARDEST = 5
DIGIT = re.compile(rf"[1-{HARDEST}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A node: ``Solution(number=3, kind="debug", parent=1, root=1, text="fit(a)", metric=0.4)``."""

    number: int
    kind: Kind
    parent: int | None
    root: int
    """the draft that its tree began with"""
    text: str
    plan: str = ""
    output: str = ""
    metric: float | None = None
    """None: it does not run"""
    depth: int = 0
    """times that it was mended since it was drafted or improved"""
    trick: str = ""
    """id of what the last improvement was told"""
    base: int | None = None
    """which solution the last improvement began with"""
    turns: tuple[int, ...] = ()
    """of the episode, those of its ancestors included"""


class Move(NamedTuple):
    """What is done next, and to which solution: ``Move("improve", node)``; drafts begin with nothing."""

    kind: Kind
    node: Solution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often what is done next: ``Policy(drafts=5, debug=0.5, greedy=0.8)``."""

    drafts: int = 5
    """Drafts before anything else."""
    debug: float = 0.5
    """Chance that one that does not run is mended, where there is one."""
    depth: int = 3
    """Times that one is mended."""
    tune: float = 0.1
    """Chance that numbers are changed, for each draft whose tree has a solution that runs."""
    most_tuned: float = 0.3
    """The most that this chance comes to."""
    greedy: float = 0.8
    """Chance that the best of all is improved, else the best of any draft's tree."""
    tricks: float = 0.8
    """Chance that an improvement is told something that is known."""


def find_best(tree: Sequence[Solution]) -> Solution | None:
    """Return the solution of the highest metric among those that run, of equal ones the first."""
    return max((n for n in tree if n.metric is not None), key=lambda n: n.metric or 0.0, default=None)


def find_bests(tree: Sequence[Solution]) -> list[Solution]:
    """Return the best that runs of each draft's tree, in the order of drafts; of a tree in which nothing runs none."""
    roots = [node.number for node in tree if node.kind == "draft"]
    found = [find_best([node for node in tree if node.root == root]) for root in roots]
    return [node for node in found if node is not None]


def choose(tree: Sequence[Solution], policy: Policy, rng: Random) -> Move:
    """Return what is done next in `tree`; see the module."""
    if sum(node.kind == "draft" for node in tree) < policy.drafts:
        return Move("draft")
    if rng.random() < policy.debug:
        parents = {node.parent for node in tree}
        broken = [
            node
            for node in tree
            if node.metric is None and node.number not in parents and node.depth < policy.depth
        ]
        if broken:
            return Move("debug", rng.choice(broken))
    bests = find_bests(tree)
    if not bests:
        return Move("draft")
    if rng.random() < min(policy.most_tuned, policy.tune * len(bests)):
        return Move("tune", rng.choice(bests))
    if rng.random() < policy.greedy:
        return Move("improve", find_best(tree))
    return Move("improve", rng.choice(bests))


def pick_trick(
    tricks: Sequence[Entry], told: Collection[str], useless: Collection[str], rate: float, rng: Random
) -> Entry | None:
    """Return which of `tricks` an improvement is told, with the chance `rate`: one not `told` yet, useful if any is."""
    if rng.random() >= rate:
        return None
    left = [trick for trick in tricks if trick.id not in told]
    if useful := [trick for trick in left if trick.id not in useless]:
        return rng.choice(useful)
    return rng.choice([rng.choice(left), None]) if left else None


def read_rating(text: str) -> int:
    """Return the first number from 1 to 5 in `text`; 1 where there is none."""
    match = DIGIT.search(text)
    return int(match[0]) if match else 1


def list_gains(steps: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the lines that were new in each of `steps` (solution, metric) that gained a tenth of the last metric.

    What a step gained is measured against the best before it, 0 at first. Example: ("a", .5), ("b", .4), ("a; c", .9)
    with a line's end in the place of the semicolon: ("a", .5) and ("c", .4).
    """
    found: list[tuple[str, float]] = []
    before, known = 0.0, set[str]()
    for text, metric in steps:
        if metric > before:
            new = [line for line in text.splitlines() if line.strip() and line.strip() not in known]
            if new and metric - before >= GAIN * steps[-1][1]:
                found.append(("\n".join(new), metric - before))
            before, known = metric, {line.strip() for line in text.splitlines()}
    return found

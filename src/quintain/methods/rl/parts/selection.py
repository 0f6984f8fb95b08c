"""A few tasks worth training on: those the starting policy mostly fails, of as many kinds as there are.

UI-R1 (arXiv 2503.21620) selects 136 screens by quality, difficulty and diversity. The one rule: the selection
is made from episodes in the journal, so a resumed run selects the same.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest
from statistics import fmean

from quintain.credit.layout import outcome_of
from quintain.types import Group, Task


def hard_and_diverse(
    groups: Sequence[Group], kind: Callable[[Group], Hashable], *, count: int, most: float = 0.999
) -> list[Task]:
    """Return up to `count` tasks whose mean outcome is below `most`, hardest first within a kind, kinds in turn.

    Where no task is hard enough all of them may be taken: a selection never leaves nothing.
    """
    means = {id(group): fmean(map(outcome_of, group.scored)) for group in groups if group.scored}
    tried = [group for group in groups if id(group) in means]
    hard = [group for group in tried if means[id(group)] < most] or tried
    kinds: dict[Hashable, list[Group]] = {}
    for group in sorted(hard, key=lambda group: means[id(group)]):
        kinds.setdefault(kind(group), []).append(group)
    turns = [group for row in zip_longest(*kinds.values()) for group in row if group is not None]
    return [group.task for group in turns[:count]]

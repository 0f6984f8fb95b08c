"""Signs that a policy is collapsing into one answer: RAGEN's "echo trap" (arXiv 2504.20073).

Before rewards fall, three things change: outcomes within a group stop differing, the same text comes again and
again, and the gradient spikes (``train/grad_norm``, which every step logs). The one rule: signals are measured on
recorded episodes, before any filter.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from quintain.credit.layout import outcome_of
from quintain.training.work import Work
from quintain.types import Group


class Signs:
    """The signals of each step, and whether they are a collapse: ``Method(measure=signs, prepare=signs.prepare)``."""

    def __init__(self) -> None:
        self.rows: Callable[[], Sequence[Mapping[str, float]]] = list
        """the curve so far"""

    def prepare(self, work: Work) -> None:
        """Read the curve of `work`."""
        self.rows = work.run.metrics

    def __call__(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return `signals` of `groups`, and ``collapse/has_collapsed``: 1 where the steps before show a collapse."""
        rows = [row for row in self.rows() if "collapse/reward_std" in row]
        return {**signals(groups), "collapse/has_collapsed": float(has_collapsed(rows))}


def signals(groups: Sequence[Group]) -> dict[str, float]:
    """Return the mean deviation of outcomes within groups and the share of turns that repeat another of the step.

    A turn repeats another when both were sampled with the same tokens; 1 - 1/num is the most there can be.
    """
    widths = [float(np.std([outcome_of(t) for t in group.scored])) for group in groups if group.scored]
    texts = [turn.completion.token_ids for g in groups for t in g.scored for turn in t.turns]
    return {
        "collapse/reward_std": float(np.mean(widths)) if widths else 0.0,
        "collapse/repetition": 1 - len(set(texts)) / len(texts) if texts else 0.0,
    }


def has_collapsed(rows: Sequence[Mapping[str, float]], *, window: int = 5) -> bool:
    """Return whether the last `window` rows of a curve show a collapse against the first `window`.

    That is: entropy and the deviation of outcomes both fell below a quarter of what they were, while success did
    not rise. False with fewer than 2 · `window` rows.
    """
    if len(rows) < 2 * window:
        return False

    def means(name: str) -> tuple[float, float]:
        parts = (rows[:window], rows[-window:])
        first, last = (float(np.mean([row.get(name, 0.0) for row in part])) for part in parts)
        return first, last

    spread, entropy = means("collapse/reward_std"), means("policy/entropy")
    success = means("train/success")
    return spread[1] < spread[0] / 4 and entropy[1] < entropy[0] / 4 and success[1] <= success[0]

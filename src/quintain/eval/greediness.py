"""Does an agent explore, and does it do what it knows? Probes of "LLMs are Greedy Agents" (arXiv 2504.16078).

For choices that are made again and again with rewards seen in between (a bandit, a board). Plain sequences in,
numbers out. A choice is judged by what was known before it, never by what came after.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

from quintain.errors import UsageError


def coverage(choices: Sequence[Hashable], num_options: int) -> list[float]:
    """Return after each choice the share of the `num_options` options that were tried so far.

    Example: a, b, a of 4 options → .25, .5, .5.
    """
    if num_options < 1:
        raise UsageError(f"options to choose from: got {num_options}; give 1 or more")
    tried: set[Hashable] = set()
    curve: list[float] = []
    for choice in choices:
        tried.add(choice)
        curve.append(len(tried) / num_options)
    return curve


def frequency_bias(choices: Sequence[Hashable]) -> dict[int, float]:
    """Return for each count how often an option that stood so often in the history was chosen again.

    Of all the times an option had count c ≥ 1 before a choice, the share in which it was that choice. Without a bias
    the numbers do not rise with c. Example: a, a, a, b → {1: 1, 2: 1, 3: 0}.
    """
    offered: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    counts: Counter[Hashable] = Counter()
    for choice in choices:
        offered.update(counts.values())
        if counts[choice]:
            taken[counts[choice]] += 1
        counts[choice] += 1
    return {count: taken[count] / offered[count] for count in sorted(offered) if count}


def greedy_options(choices: Sequence[Hashable], rewards: Sequence[float]) -> set[Hashable]:
    """Return the tried options with the highest mean reward so far; none before the first choice."""
    means = _means(choices, rewards)
    best = max(means.values(), default=-inf)
    return {option for option, mean in means.items() if mean == best}


def greedy_share(choices: Sequence[Hashable], rewards: Sequence[float]) -> float:
    """Return how often, after the first, a choice was one of the greedy options at its time."""
    later = range(1, len(choices))
    hits = [choices[t] in greedy_options(choices[:t], rewards[:t]) for t in later]
    return sum(hits) / len(hits) if hits else 0.0


def upper_confidence(
    choices: Sequence[Hashable], rewards: Sequence[float], options: Sequence[Hashable], width: float = 1.0
) -> Hashable:
    """Return the option of the highest mean + `width`·√(2 ln t / n); untried options come first, in order (UCB1)."""
    counts = Counter(choices)
    means = _means(choices, rewards)
    untried = [option for option in options if not counts[option]]
    if untried:
        return untried[0]
    return max(options, key=lambda o: means[o] + width * sqrt(2 * log(len(choices)) / counts[o]))


def regret(choices: Sequence[Hashable], means: dict[Hashable, float]) -> list[float]:
    """Return the cumulative regret after each choice, from the true `means` of all options."""
    best, total = max(means.values()), 0.0
    curve: list[float] = []
    for choice in choices:
        total += best - means[choice]
        curve.append(total)
    return curve


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowingDoing:
    """What was known against what was done, as shares of all turns; they add up to 1."""

    knew_did_optimal: float
    knew_did_greedy: float
    """the right option was named, the greedy one was taken"""
    knew_did_other: float
    did_not_know: float

    @property
    def gap(self) -> float:
        """How often what was known was not done, of the times it was known; 0 where it never was."""
        known = 1 - self.did_not_know
        return (self.knew_did_greedy + self.knew_did_other) / known if known else 0.0


def knowing_doing(
    named: Sequence[Hashable | None],
    choices: Sequence[Hashable],
    rewards: Sequence[float],
    options: Sequence[Hashable],
) -> KnowingDoing:
    """Return how the option that the rationale `named` (None: none) and the option that was taken compare to UCB."""
    cells = Counter[str]()
    for turn, (said, did) in enumerate(zip(named, choices, strict=True)):
        past = choices[:turn], rewards[:turn]
        optimal = upper_confidence(*past, options)
        if said != optimal:
            cells["unknown"] += 1
        elif did == optimal:
            cells["optimal"] += 1
        else:
            cells["greedy" if did in greedy_options(*past) else "other"] += 1
    num = max(cells.total(), 1)
    return KnowingDoing(
        knew_did_optimal=cells["optimal"] / num,
        knew_did_greedy=cells["greedy"] / num,
        knew_did_other=cells["other"] / num,
        did_not_know=cells["unknown"] / num if cells else 1.0,
    )


def _means(choices: Sequence[Hashable], rewards: Sequence[float]) -> dict[Hashable, float]:
    sums: dict[Hashable, float] = {}
    counts = Counter(choices)
    for choice, reward in zip(choices, rewards, strict=True):
        sums[choice] = sums.get(choice, 0.0) + reward
    return {option: total / counts[option] for option, total in sums.items()}

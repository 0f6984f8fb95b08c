"""What searches compute, each beside a plain second version."""

from collections.abc import Sequence
from itertools import combinations
from types import ModuleType

from quintain_evidence.formulas.formula import Formula, Rng

Planned = tuple[list[list[str]], list[str], list[str], float]
"""(solved plans, way, rest, share of the samples)"""


def draw_plans(rng: Rng) -> list[Planned]:
    """Return ten memories of up to four plans in few letters, with a way and a rest of letters known or not."""

    def letters(least: int, most: int, known: int) -> list[str]:
        return ["abcdefgh"[k] for k in rng.integers(0, known, int(rng.integers(least, most))).tolist()]

    return [
        (
            [letters(1, 6, 5) for _ in range(int(rng.integers(0, 5)))],
            letters(1, 6, 5),
            letters(0, 5, 8),
            float(rng.integers(1, 4)) / 3,
        )
        for _ in range(10)
    ]


def costs_of_plans(module: ModuleType, case: Sequence[Planned]) -> list[float]:
    """Return the code's cost of the last step, and of the rest."""
    found: list[float] = []
    for plans, way, rest, share in case:
        memory = module.PlanMemory(tuple(map(tuple, plans)), frozenset("abcdefgh"))
        found += [memory.cost_of_step(way, share), memory.cost_of_rest(way, rest)]
    return found


def costs_by_lists(case: Sequence[Planned]) -> list[float]:
    """Return the same: subsequences are enumerated, and a letter that no plan has is like none."""
    found: list[float] = []
    for plans, way, rest, share in case:
        agreed = max((common(way, plan) / min(len(way), len(plan)) for plan in plans), default=0.0)
        found.append(((1 - agreed) * (1 - share)) ** 0.5)
        behind = len(way) / (len(way) + (len(rest) or 1))
        total = 0.0
        for letter in rest or [""]:
            places = [(k + 1) / len(plan) for plan in plans for k in range(len(plan)) if plan[k] == letter]
            total += (1 - (sum(places) / len(places) if places else 0.0)) ** 0.5 * (1 - behind) ** 0.5
        found.append(total)
    return found


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest subsequence of `one` that is one of `other`, by trying all."""
    return next(
        size
        for size in range(len(one), -1, -1)
        if any(is_within([one[k] for k in places], other) for places in combinations(range(len(one)), size))
    )


def is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether `part` is a subsequence of `whole`."""
    left = iter(whole)
    return all(letter in left for letter in part)


FORMULAS: tuple[Formula, ...] = (
    Formula("toolchain.costs", "search.astar", ("PlanMemory", "count_common"), draw_plans, costs_of_plans,
        costs_by_lists),
)  # fmt: skip

"""Rules by which single steps are found, compared and put right, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import ModuleType

from quintain.benchmarks.formulas.formula import Formula, Rng
from quintain.benchmarks.formulas.preference import lived
from quintain.types import Action, Trajectory

Branching = list[tuple[tuple[int, ...], float]]
"""[episode] what was done, and what it is worth"""
GOOD, GAP, DROP, KEPT = 0.4, 0.2, 0.5, 2


def draw_tree(rng: Rng) -> Branching:
    """Return two to eight episodes of one to five actions that begin alike, worth quarters."""
    return [
        (tuple(int(x) for x in rng.integers(0, 2, int(rng.integers(1, 6)))), float(rng.integers(0, 5)) / 4)
        for _ in range(int(rng.integers(2, 9)))
    ]


def acted(said: Sequence[int], value: float, index: int) -> Trajectory:
    """Return an episode that says what it does."""
    bare = lived(said, value, index)
    return replace(
        bare,
        turns=tuple(
            replace(turn, action=Action(text=str(k))) for k, turn in zip(said, bare.turns, strict=True)
        ),
    )


def _revisions() -> Formula:
    """Return Agent-R's partners, verdicts, cuts and good episodes."""

    def ours(module: ModuleType, case: Branching) -> list[float]:
        tree = [acted(said, value, k) for k, (said, value) in enumerate(case)]
        found: list[float] = []
        for failed, good in module.partners(tree, good=GOOD, gap=GAP):
            parted = module.num_common(failed, good)
            told = module.verdicts(tree, failed, DROP)
            cut = module.first_bad(told, parted)
            found += [failed.index, good.index, parted, -1 if cut is None else cut]
            found += [("good", "uncertain", "bad").index(each) for each in told]
        return [*found, -9, *(float(t.index) for t in module.shortest(tree, GOOD, KEPT))]

    def reference(case: Branching) -> list[float]:
        found: list[float] = []
        for place, (said, value) in enumerate(case):
            best: tuple[tuple[float, ...], int] | None = None
            for other, (theirs, worth) in enumerate(case):
                if worth > GOOD and worth - value > GAP:
                    rank = (float(common(said, theirs)), worth, -len(theirs), -other)
                    if best is None or rank > best[0]:
                        best = rank, other
            if best is None:
                continue
            parted = int(best[0][0])
            worths = [mean([w for theirs, w in case if theirs[:k] == said[:k]]) for k in range(len(said) + 1)]
            codes = [
                2 if after * 2 < before else 0 if after >= before else 1 for before, after in pairwise(worths)
            ]
            bad = [k for k, code in enumerate(codes) if code == 2 and k >= parted]
            found += [place, best[1], parted, bad[0] + 1 if bad else -1, *codes]
        kept: list[int] = []
        for length in range(6):
            for place, (said, worth) in enumerate(case):
                is_new = all(case[k][0] != said for k in kept)
                if worth > GOOD and len(said) == length and is_new:
                    kept.append(place)
        return [*found, -9, *map(float, kept[:KEPT])]

    return Formula(
        name="agent_r.revisions",
        module="quintain.methods.preference.agent_r",
        functions=("partners", "verdicts", "first_bad", "num_common", "shortest"),
        draw=draw_tree,
        ours=ours,
        reference=reference,
    )


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many both begin with."""
    k = 0
    while k < min(len(one), len(other)) and one[k] == other[k]:
        k += 1
    return k


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


FORMULAS: tuple[Formula, ...] = (_revisions(),)

"""Preference losses beyond DPO, and the rules by which pairs are made, each beside a plain second version."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, log, sqrt
from types import ModuleType
from typing import Any

import numpy as np
import torch

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import (
    Batch,
    Group,
    Loss,
    Stop,
    Trajectory,
    derive_seed,
)
from quintain_evidence.formulas.formula import Formula, Rng
from quintain_evidence.formulas.losses import Case, Plain, against, difference, draw, margins, soft

KL = 0.15
"""estimate of the KL that every batch carries"""


class Ended(Case):
    """A case whose turns end, and which carries an estimate of the KL."""

    __slots__ = ()

    def batch(self) -> Batch:
        """Return the batch with the ends of turns."""
        made = Case.batch(self)
        ends = torch.tensor([is_end(self, t) for t in range(len(self.tokens))])
        return replace(made, extra=replace(made.extra, turn_end=ends, kl=KL))


def draw_ended(rng: Rng) -> Ended:
    """Return a case whose turns end, with log-probs below 0."""
    made = draw(rng)
    return Ended(
        tokens=made.tokens,
        logprobs=[-abs(value) - 0.05 for value in made.logprobs],
        entropy=made.entropy,
        values=made.values,
        pairs=made.pairs,
    )


def is_end(case: Case, t: int) -> bool:
    """Return whether `t` is the last trained token of its turn."""
    own = case.tokens[t]
    later = [
        k
        for k in case.trained
        if k > t and (case.tokens[k].stream, case.tokens[k].turn) == (own.stream, own.turn)
    ]
    return own.weight > 0 and not later


def size(case: Case, t: int) -> int:
    """Return the trained tokens of the stream of token `t`."""
    return sum(case.tokens[k].stream == case.tokens[t].stream for k in case.trained)


def shared_inside(case: Case, t: int) -> float:
    """Return 1 / (trained tokens of the side), 0 at the ends of turns."""
    return 0.0 if is_end(case, t) else 1 / size(case, t)


def inside(case: Case, t: int) -> float:
    """Return 0 at the ends of turns, else 1."""
    return float(not is_end(case, t))


def over_pairs(term: Callable[[float], float], weight: Callable[[Case, int], float]) -> Plain:
    """Return the mean of `term`(Δ) over pairs."""

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        found = margins(case, logs, weight)
        return sum(map(term, found)) / len(found)

    return plain


def sides(case: Case, logs: list[float]) -> list[tuple[list[float], list[float]]]:
    """Return the log-probs of the chosen and the rejected side of each pair."""
    found: dict[int, tuple[list[float], list[float]]] = {}
    for t in case.trained:
        pair, is_chosen = case.pairs[case.tokens[t].stream]
        found.setdefault(pair, ([], []))[0 if is_chosen else 1].append(logs[t])
    return list(found.values())


def without_reference(term: Callable[[float, float], float]) -> Plain:
    """Return the mean over pairs of `term`(mean log-prob of the chosen, of the rejected side)."""

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        found = [term(sum(won) / len(won), sum(lost) / len(lost)) for won, lost in sides(case, logs)]
        return sum(found) / len(found)

    return plain


def odds(mean: float) -> float:
    """Return log(p / (1 - p)), log p = `mean`."""
    return mean - log(-expm1(mean))


def summed_likelihood(case: Case, logs: list[float], entropy: list[float], values: list[float]) -> float:
    """Return DPO's loss, β .1, plus .5 of the summed negative log-likelihood of chosen sides."""
    pairs = sides(case, logs)
    nll = -sum(sum(won) for won, _ in pairs) / len(pairs)
    return over_pairs(lambda d: soft(0.1 * d), lambda *_: 1.0)(case, logs, entropy, values) + 0.5 * nll


def one_by_one(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
    """Return KTO's loss, β .4, weights 1.5 and .7, over streams by their loss weights."""
    total = 0.0
    for stream, (_, is_good) in enumerate(case.pairs):
        own = [t for t in case.trained if case.tokens[t].stream == stream]
        away = sum(difference(case, t, logs) for t in own) - KL
        share = sum(case.tokens[t].weight for t in own)
        total += share * (
            (1.5 - 1.5 / (1 + exp(-0.4 * away))) if is_good else (0.7 - 0.7 / (1 + exp(0.4 * away)))
        )
    return total


def ended(name: str, function: str, make: Callable[[ModuleType], Loss], plain: Plain) -> Formula:
    """Return the formula of a preference loss on cases whose turns end."""
    made = against(name, "preference", function, make, plain)
    return replace(made, draw=draw_ended, aside=("_report", "_pull"))


def from_logged(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
    """Return DPO's loss, β .4, against the log-probs at sampling."""
    found: dict[int, float] = {}
    for t in case.trained:
        pair, is_chosen = case.pairs[case.tokens[t].stream]
        moved = logs[t] - case.tokens[t].behaviour
        found[pair] = found.get(pair, 0.0) + (moved if is_chosen else -moved)
    return sum(soft(0.4 * delta) for delta in found.values()) / len(found)


def shared_by_turn(case: Case, t: int) -> float:
    """Return 1 / (trained tokens of the turn)."""
    own = case.tokens[t]
    return 1 / sum(
        (case.tokens[k].stream, case.tokens[k].turn) == (own.stream, own.turn) for k in case.trained
    )


DEPTH, MIXING, EXPLORATION = 3, 0.4, 0.8
"""of the trees that are searched"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search meets, in plain numbers."""

    scores: list[list[list[float]]]
    """[depth][way that led there] → what a critic says of each way on"""
    outcomes: list[float]
    """of its episodes"""


def draw_search(rng: Rng) -> Searched:
    """Return a search of 6 to 20 episodes; scores are on a grid, so that some are equal."""
    return Searched(
        scores=[
            [rng.integers(0, 4, int(rng.integers(1, 5))).astype(float).tolist() for _ in range(4)]
            for _ in range(DEPTH)
        ],
        outcomes=rng.uniform(size=int(rng.integers(6, 21))).tolist(),
    )


def guided(module: ModuleType, case: Searched) -> list[float]:
    """Return the way of every episode, and the Q of the children of every state of which two were visited."""
    tree = module.GuidedTree(module.Seen(key=0, text=""), mixing=MIXING, exploration=EXPLORATION)
    found: list[float] = []
    for outcome in case.outcomes:
        leaf = tree.select()
        if leaf.depth < DEPTH:
            scores = case.scores[leaf.depth][leaf.seen.key]
            tree.expand(leaf, [module.Seen(key=k, text="") for k in range(len(scores))], scores)
        node = tree.select()
        tree.tell(node, outcome)
        while node.parent is not None:
            found.append(float(node.seen.key))
            node = node.parent
    return [*found, *(tree.worth(child) for family in tree.families() for child in family)]


def guided_plainly(case: Searched) -> list[float]:
    """Return the same by hand, over ways as tuples."""
    told: dict[tuple[int, ...], list[float]] = {(): []}
    rank: dict[tuple[int, ...], float] = {}

    def worth(way: tuple[int, ...]) -> float:
        mean = sum(told[way]) / len(told[way]) if told[way] else 0.0
        return MIXING * mean + (1 - MIXING) * rank[way]

    def below(way: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [other for other in rank if other[:-1] == way]

    def selected() -> tuple[int, ...]:
        way: tuple[int, ...] = ()
        while below(way):
            tries = len(told[way])
            bounds = {
                other: worth(other)
                + EXPLORATION * sqrt((log(tries) if tries else 0) / (1 + len(told[other])))
                for other in below(way)
            }
            way = next(other for other, bound in bounds.items() if bound == max(bounds.values()))
        return way

    found: list[float] = []
    for outcome in case.outcomes:
        leaf = selected()
        if len(leaf) < DEPTH:
            scores = case.scores[len(leaf)][leaf[-1] if leaf else 0]
            order = sorted(scores, reverse=True)
            for k, score in enumerate(scores):
                places = [place for place, other in enumerate(order) if other == score]
                rank[(*leaf, k)] = (
                    1 - sum(places) / len(places) / (len(scores) - 1) if len(scores) > 1 else 0.5
                )
                told[(*leaf, k)] = []
        end = selected()
        for num in range(len(end) + 1):
            told[end[:num]].append(outcome)
        found += [float(k) for k in reversed(end)]
    waiting: list[tuple[int, ...]] = [()]
    for way in waiting:
        waiting += below(way)
        visited = [other for other in below(way) if told[other]]
        found += [worth(other) for other in visited] if len(visited) > 1 else []
    return found


def lived(said: Sequence[int], value: float, index: int, stop: Stop = Stop.TERMINATED) -> Trajectory:
    """Return an episode of one task whose turns sampled one token each."""
    turns = (turn_of([token], prompt_ids=(9 + number,)) for number, token in enumerate(said))
    return episode_of(turns, value, is_success=value > 0.5, stop=stop, seed=index, group="t", index=index)


def draw_outcomes(rng: Rng) -> list[float]:
    """Return outcomes of an expert's episode and of two to seven of an agent's, in quarters."""
    return [float(x) / 4 for x in rng.integers(0, 5, int(rng.integers(3, 9)))]


def group_of(outcomes: Sequence[float]) -> Group:
    """Return a group of episodes with these outcomes, all different."""
    members = tuple(lived((k,), value, k) for k, value in enumerate(outcomes))
    return Group(task=members[0].task, trajectories=members)


def places(pairs: Sequence[Any]) -> list[float]:
    """Return the numbers of both sides and the margin of each pair, in order."""
    return [float(x) for pair in pairs for x in (pair.chosen.index, pair.rejected.index, pair.margin)]


def _contrasted() -> Formula:
    """Return the expert's episode against each of the agent's, by more than a fifth."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        expert = lived((99,), case[0], -1)
        return places(module.expert_and_agent([group_of(case[1:])], {"t": expert}, margin=0.2))

    def reference(case: list[float]) -> list[float]:
        found: list[float] = []
        for number, value in enumerate(case[1:]):
            if value - case[0] > 0.2:
                found += [number, -1, value - case[0]]
            elif case[0] - value > 0.2:
                found += [-1, number, case[0] - value]
        return found

    return _rule("expert_and_agent", draw_outcomes, ours, reference)


def _best_and_worst() -> Formula:
    """Return the best of a group against its worst, by more than a fifth."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        found = module.best_and_worst([group_of(case), group_of(case[:1]), group_of(case[:2])], margin=0.2)
        return places(found)

    def reference(case: list[float]) -> list[float]:
        found: list[float] = []
        for own in (case, case[:2]):
            high, low = max(own), min(own)
            if high - low > 0.2:
                found += [own.index(high), len(own) - 1 - own[::-1].index(low), high - low]
        return found

    return _rule("best_and_worst", draw_outcomes, ours, reference)


def _halved() -> Formula:
    """Return the better half of a group against the worse."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        return places(module.halves([group_of(case)], share=0.4, margin=0.0))

    def reference(case: list[float]) -> list[float]:
        left, found = list(range(len(case))), list[float]()
        for _ in range(int(0.4 * len(case) + 1e-9)):
            best = max(left, key=lambda k: (case[k], -k))
            left.remove(best)
            worst = min(left, key=lambda k: (case[k], -k))
            left.remove(worst)
            if case[best] > case[worst]:
                found += [best, worst, case[best] - case[worst]]
        return found

    return _rule("halves", draw_outcomes, ours, reference)


def _stepped() -> Formula:
    """Return pairs of steps whose outcomes and values agree by more than .3, and a value's variance."""

    def draw_steps(rng: Rng) -> list[tuple[list[float], list[float], float, float]]:
        def outcomes() -> list[float]:
            return rng.integers(0, 2, 5).astype(float).tolist()

        def worth() -> float:
            return float(rng.integers(0, 3)) / 2

        return [(outcomes(), outcomes(), worth(), worth()) for _ in range(6)]

    def ours(
        module: ModuleType, case: Sequence[tuple[list[float], list[float], float, float]]
    ) -> list[float]:
        deviations = [
            module.Deviation(
                expert=lived((1, 2), one, 2 * k),
                agent=lived((1, 10 + k), other, 2 * k + 1),
                turn=1,
                expert_value=module.Estimate(tuple(steps)),
                agent_value=module.Estimate(tuple(others)),
            )
            for k, (steps, others, one, other) in enumerate(case)
        ]
        variances = [each.expert_value.variance for each in deviations]
        return [*places(module.step_pairs(deviations, margin=0.3)), *variances]

    def reference(case: Sequence[tuple[list[float], list[float], float, float]]) -> list[float]:
        found: list[float] = []
        for k, (steps, others, one, other) in enumerate(case):
            gap, by_outcome = sum(steps) / 5 - sum(others) / 5, one - other
            if gap > 0.3 and by_outcome > 0.3:
                found += [2 * k, 2 * k + 1, min(gap, by_outcome)]
            if gap < -0.3 and by_outcome < -0.3:
                found += [2 * k + 1, 2 * k, min(-gap, -by_outcome)]
        for steps, *_ in case:
            mean = sum(steps) / 5
            found.append(5 * mean * (1 - mean) / 4 / 5)
        return found

    made = _rule("step_pairs", draw_steps, ours, reference)
    return replace(made, functions=("step_pairs", "Estimate"))


def _siblings() -> Formula:
    """Return every two children of a node whose values differ by more than a fifth."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        family = [(lived((1, 10 + k), 0.0, k), value) for k, value in enumerate(case)]
        return sorted(places(module.siblings([family], margin=0.2)))

    def reference(case: list[float]) -> list[float]:
        return sorted(
            x
            for i, high in enumerate(case)
            for j, low in enumerate(case)
            if high - low > 0.2
            for x in (float(i), float(j), high - low)
        )

    return _rule("siblings", draw_outcomes, ours, reference)


def _extremes() -> Formula:
    """Return the best child of a node against the worst, ties by chance."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        families = [[(lived((1, 10 + k), 0.0, k), value) for k, value in enumerate(case)], []]
        return places(module.extremes([*families, families[0][:1]], margin=0.2))

    def reference(case: list[float]) -> list[float]:
        def drawn(level: float, last: bool) -> int:
            own = [(derive_seed("ties", k), k) for k, value in enumerate(case) if value == level]
            return (max if last else min)(own)[1]

        high, low = max(case), min(case)
        return [drawn(high, False), drawn(low, True), high - low] if high - low > 0.2 else []

    return _rule("extremes", draw_outcomes, ours, reference)


def _selected() -> Formula:
    """Return the best dialogue of each task that is worth it, of the best three in five tasks."""

    def draw_worth(rng: Rng) -> list[list[float]]:
        return [
            (rng.integers(0, 9, int(rng.integers(0, 5))) / 4).tolist() for _ in range(int(rng.integers(1, 9)))
        ]

    def ours(module: ModuleType, case: list[list[float]]) -> list[float]:
        return [-1.0 if k is None else float(k) for k in module.select_best(case, 0.75, 0.6)]

    def reference(case: list[list[float]]) -> list[float]:
        tops = [max(own) if own and max(own) > 0.75 else None for own in case]
        worthy = [top for top in tops if top is not None]
        room = max(1, int(len(worthy) * 3 / 5 + 1e-9))
        return [
            float(own.index(top)) if top is not None and sum(each > top for each in worthy) < room else -1.0
            for own, top in zip(case, tops, strict=True)
        ]

    return Formula(
        "optima.selected", "methods.preference.optima", ("select_best",), draw_worth, ours, reference
    )


def _lower() -> Formula:
    """Return the best of a group that was solved, above a half, against all of lower outcomes, and by over a tenth."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        group = [group_of(case)]
        return [
            x for margin in (0.0, 0.1) for x in sorted(places(module.best_and_lower(group, margin=margin)))
        ]

    def reference(case: list[float]) -> list[float]:
        best = case.index(max(case))
        found: list[float] = []
        for margin in (0.0, 0.1):
            lower = [k for k, value in enumerate(case) if case[best] - value > margin and case[best] > 0.5]
            found += sorted(x for k in lower for x in (float(best), float(k), case[best] - case[k]))
        return found

    return _rule("best_and_lower", draw_outcomes, ours, reference)


def _across() -> Formula:
    """Return all pairs of a better half with the worse half, by more than a tenth; an odd one in between is in none."""

    def ours(module: ModuleType, case: list[float]) -> list[float]:
        family = [(lived((1, 10 + k), 0.0, k), value) for k, value in enumerate(case)]
        few = module.across_halves([family], 2, margin=-1.0)
        every = module.across_halves([family], 99, margin=0.1)
        within = all(p.chosen.index != p.rejected.index and p.margin >= 0 for p in few)
        return [float(within and len(few) <= 2), *sorted(places(every))]

    def reference(case: list[float]) -> list[float]:
        order = sorted(range(len(case)), key=lambda k: (-case[k], k))
        half = len(case) // 2
        found = [
            x
            for i in order[:half]
            for j in order[len(case) - half :]
            if case[i] - case[j] > 0.1
            for x in (float(i), float(j), case[i] - case[j])
        ]
        return [1.0, *sorted(found)]

    return _rule("across_halves", draw_outcomes, ours, reference)


def draw_ratios(rng: Rng) -> tuple[list[list[float]], list[list[float]]]:
    """Return log-probs of the tokens of some turns, by two policies; a turn may be empty."""
    sizes = rng.integers(0, 5, int(rng.integers(1, 5)))
    own, other = ([rng.normal(size=int(size)).tolist() for size in sizes] for _ in range(2))
    return own, other


def by_hand(case: tuple[list[list[float]], list[list[float]]]) -> list[float]:
    """Return the mean log-ratio of each turn, 0 of an empty one."""
    found: list[float] = []
    for own, other in zip(*case, strict=True):
        total = 0.0
        for one, before in zip(own, other, strict=True):
            total += one - before
        found.append(total / max(len(own), 1))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Pairs among which a search and single updates choose, in plain numbers."""

    values: list[float]
    size: int
    influences: list[float]
    weight: float
    share: float


def draw_chosen(rng: Rng) -> Chosen:
    """Return 1 to 20 pairs in blocks; all influences are equal now and then."""
    num, size = int(rng.integers(1, 21)), int(rng.integers(1, 7))
    num_blocks = -(-num // size)
    influences = (rng.integers(-3, 4, num_blocks) / 8).tolist()
    return Chosen(
        values=rng.uniform(size=num).tolist(),
        size=size,
        influences=influences if rng.random() < 0.8 else [0.25] * num_blocks,
        weight=float(rng.choice([0.0, 0.5, 1.0, 2.0])),
        share=float(rng.uniform(0.05, 1.0)),
    )


def chosen(module: ModuleType, case: Chosen) -> list[float]:
    """Return the sizes of blocks, whether all pairs are in one, Q + γI of each pair, and the places that are chosen."""
    blocks = module.blocks_of(len(case.values), case.size, 3)
    whole = sorted(place for block in blocks for place in block) == list(range(len(case.values)))
    even = [
        list(range(k, min(k + case.size, len(case.values)))) for k in range(0, len(case.values), case.size)
    ]
    scores = module.mix_values(case.values, even, case.influences, case.weight)
    return [
        *(float(len(b)) for b in blocks),
        float(whole),
        *scores,
        *map(float, module.best_of(scores, case.share)),
    ]


def chosen_plainly(case: Chosen) -> list[float]:
    """Return the same by hand."""
    num, size = len(case.values), case.size
    sizes = [float(size)] * (num // size) + ([float(num % size)] if num % size else [])
    low, high = min(case.influences), max(case.influences)
    scores = [
        value + case.weight * ((case.influences[place // size] - low) / (high - low) if high != low else 0)
        for place, value in enumerate(case.values)
    ]
    left, kept = list(range(num)), list[int]()
    while not kept or len(kept) + 1 <= case.share * num + 1e-9:
        best = next(place for place in left if scores[place] == max(scores[k] for k in left))
        left.remove(best)
        kept.append(best)
    return [*sizes, 1.0, *scores, *(float(place) for place in sorted(kept))]


def _rule(
    name: str,
    draws: Callable[[Rng], Any],
    ours: Callable[[ModuleType, Any], Sequence[float]],
    reference: Callable[[Any], Sequence[float]],
) -> Formula:
    """Return the formula of a source of pairs."""
    return Formula(f"pairs.{name}", "data.pairs", (name,), draws, ours, reference, aside=("Pairs",))


FORMULAS: tuple[Formula, ...] = (
    ended("dpo.mean", "dpo", lambda m: m.dpo(2.0, by_length=True, compares_ends=False),
          over_pairs(lambda d: soft(2.0 * d), shared_inside)),
    ended("dpo.by_turn", "dpo", lambda m: m.dpo(0.7, by_turn=True),
          over_pairs(lambda d: soft(0.7 * d), shared_by_turn)),
    _lower(),
    _across(),
    Formula("dits.chosen", "methods.preference.dits", ("blocks_of", "mix_values", "best_of"), draw_chosen, chosen,
        chosen_plainly),
    Formula("sweet.advantages", "methods.preference.sweet_rl", ("advantages",), draw_ratios,
        lambda m, case: m.advantages(*([np.array(turn) for turn in by] for by in case)), by_hand),
    ended("hinge", "hinge", lambda m: m.hinge(0.8, compares_ends=False),
          over_pairs(lambda d: max(0.0, 1 - 0.8 * d), inside)),
    ended("simpo", "simpo", lambda m: m.simpo(2.0, margin=0.5),
          without_reference(lambda won, lost: soft(2.0 * (won - lost) - 0.5))),
    ended("orpo", "orpo", lambda m: m.orpo(0.3),
          without_reference(lambda won, lost: -won + 0.3 * soft(odds(won) - odds(lost)))),
    ended("kto", "kto", lambda m: m.kto(0.4, desirable=1.5, undesirable=0.7), one_by_one),
    replace(ended("dpo.logged", "reference_from_logprobs",
                  lambda m: m.reference_from_logprobs(m.dpo(0.4)), from_logged),
            functions=("reference_from_logprobs", "dpo")),
    Formula("search.guided", "search.tree", ("GuidedTree",), draw_search, guided, guided_plainly),
    ended("rpo.summed", "rpo", lambda m: m.rpo(0.1, alpha=0.5, is_summed=True), summed_likelihood),
    _contrasted(),
    _best_and_worst(),
    _halved(),
    _stepped(),
    _siblings(),
    _extremes(),
    _selected(),
)  # fmt: skip

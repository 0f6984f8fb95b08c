"""What is learned off-policy from judged episodes, each formula beside a plain second version."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from quintain.benchmarks.formulas import credit
from quintain.benchmarks.formulas.formula import Formula, Rng, flatten
from quintain.benchmarks.formulas.losses import Case, Plain, against, difference, draw, summed, units
from quintain.types import scored

MIXING = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An episode as a classifier of success sees it."""

    outcome: float
    values: list[float]


def draw_seen(rng: Rng) -> list[Seen]:
    """Return one to five episodes of one to six turns, some whose outcome is itself a chance."""
    return [
        Seen(
            outcome=float(rng.integers(0, 2)) if rng.random() < 0.8 else float(rng.random()),
            values=rng.random(int(rng.integers(1, 7))).tolist(),
        )
        for _ in range(int(rng.integers(1, 6)))
    ]


def said(module: ModuleType, case: Sequence[Seen], name: str, **settings: float) -> list[float]:
    """Return the advantages that the function `name` gives, end to end."""
    return flatten(
        [
            getattr(module, name)(module.Judged(outcome=e.outcome, values=tuple(e.values)), **settings)
            for e in case
        ]
    )


def read(module: ModuleType, case: credit.Case) -> list[float]:
    """Return of every turn what it is a case of (-1: of nothing), its chance, and gain and outcome of its episode."""
    trajectories = scored(case.groups)
    values = module.chances([[turn[0] for turn in play.values] for play in case.plays])
    seen = module.judged(trajectories, values)
    known = np.nan_to_num(flatten(module.labels(trajectories)), nan=-1.0)
    return flatten([known.tolist(), values, [[*e.gains, e.outcome] for e in seen]])


def told(case: credit.Case) -> list[float]:
    """Return the same, play by play."""
    known: list[float] = []
    values: list[list[float]] = []
    rest: list[float] = []
    for play in case.plays:
        won = float(sum(play.rewards) > 0)
        known += [-1.0 if play.is_cut else won] * len(play.values)
        values.append([1 / (1 + math.exp(-turn[0])) for turn in play.values])
        own = values[-1]
        end = own[-1] if play.is_cut else won
        rest += [(own[k + 1] if k + 1 < len(own) else end) - value for k, value in enumerate(own)]
        rest.append(end)
    return flatten([known, values, rest])


def steps(episode: Seen) -> list[tuple[int, float, float, float]]:
    """Return (turns left after it, V before, V after, what it is paid) of every turn."""
    last = len(episode.values) - 1
    return [
        (last - k, v, 0.0 if k == last else episode.values[k + 1], episode.outcome if k == last else 0.0)
        for k, v in enumerate(episode.values)
    ]


def robust(case: Sequence[Seen]) -> list[float]:
    """Return λ^{H-t} R + (1 - λ^{H-t}) (V' + r - V)."""
    found: list[float] = []
    for episode in case:
        for left, value, after, paid in steps(episode):
            trust = math.prod([MIXING] * left)
            found.append(trust * episode.outcome + (1 - trust) * (after + paid - value))
    return found


def added(case: Sequence[Seen]) -> list[float]:
    """Return V' - V - .05 + r + γ^{H-t} R."""
    return [
        after - value - 0.05 + paid + math.prod([MIXING] * left) * episode.outcome
        for episode in case
        for left, value, after, paid in steps(episode)
    ]


def halved(case: Sequence[Seen]) -> list[float]:
    """Return λ (r + V' - V) + (1 - λ) (R - V)."""
    return [
        MIXING * (paid + after - value) + (1 - MIXING) * (episode.outcome - value)
        for episode in case
        for _, value, after, paid in steps(episode)
    ]


def draw_scores(rng: Rng) -> list[float]:
    """Return one to twelve scores: all different, or of few values, so that many tie."""
    num = int(rng.integers(1, 13))
    return (
        rng.normal(size=num).tolist()
        if rng.random() < 0.4
        else rng.integers(0, 3, num).astype(float).tolist()
    )


SHARES = (0.1, 0.3, 0.75, 1.0)


def highest(scores: Sequence[float], share: float) -> list[float]:
    """Return 1 for what is kept, one level of equal scores after the other, from the highest down."""
    kept = [0.0] * len(scores)
    if min(scores) == max(scores):
        return kept
    room, left = max(1, round(share * len(scores))), set(range(len(scores)))
    while left:
        best = max(scores[i] for i in left)
        level = [i for i in left if scores[i] == best]
        if any(kept) and len(level) > room:
            break
        for i in level:
            kept[i] = 1.0
        room -= len(level)
        left -= set(level)
        if room < 0:
            break
    return kept


def draw_tokens(rng: Rng) -> list[list[list[float]]]:
    """Return log-probs of the tokens of one to four episodes; a turn may have none."""
    return [
        [
            np.log(rng.uniform(0.2, 1.0, int(rng.integers(0, 4)))).tolist()
            for _ in range(int(rng.integers(1, 4)))
        ]
        for _ in range(int(rng.integers(1, 5)))
    ]


def between(case: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Return 1 for turns whose tokens' probabilities have a geometric mean of .5 to .9."""
    found: list[float] = []
    for turn in (turn for own in case for turn in own):
        chance = math.prod(math.exp(x) for x in turn) ** (1 / len(turn)) if turn else 0.0
        found.append(float(0.5 <= chance <= 0.9))
    return found


def draw_chances(rng: Rng) -> Case:
    """Return a batch whose returns are chances."""
    case = draw(rng)
    return replace(
        case, tokens=[replace(token, target=1 / (1 + math.exp(-3 * token.target))) for token in case.tokens]
    )


def surprise(case: Case, t: int, _l: list[float], _e: list[float], values: list[float]) -> float:
    """Return -G log σ(V) - (1 - G) log(1 - σ(V))."""
    chance, target = 1 / (1 + math.exp(-values[t])), case.tokens[t].target
    return -target * math.log(chance) - (1 - target) * math.log(1 - chance)


def fitted(beta: float, *, is_huber: bool) -> Plain:
    """Return Σ w e², or its Huber form, of e = β · (log-ratio of the turn) - A at each of its tokens."""

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        total = 0.0
        for unit in units(case, lambda token: (token.stream, token.turn)):
            whole = sum(difference(case, t, logs) for t in unit)
            for t in unit:
                error = abs(beta * whole - case.tokens[t].advantage)
                term = error**2 if not is_huber else error**2 / 2 if error <= 1 else error - 0.5
                total += case.tokens[t].weight * term
        return total

    return plain


def windowed(module: ModuleType, case: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Return for every token whether it is inside the window."""
    marked = module.in_window([[np.array(t) for t in turns] for turns in case], 0.5, 0.9)
    return flatten([[float(x) for x in own] for own in marked])


FORMULAS: tuple[Formula, ...] = (
    Formula("credit.judged", "credit.success", ("judged", "labels", "chances"), credit.draw, read, told),
    Formula("credit.doubly_robust", "credit.success", ("doubly_robust",), draw_seen,
        lambda module, case: said(module, case, "doubly_robust", mixing=MIXING), robust),
    Formula("credit.summed", "credit.success", ("summed", "Judged"), draw_seen,
        lambda module, case: said(module, case, "summed", discount=MIXING), added),
    Formula("credit.mixed", "credit.success", ("mixed", "Judged"), draw_seen,
        lambda module, case: said(module, case, "mixed", mixing=MIXING), halved),
    Formula("credit.top_share", "credit.selection", ("top_share",), draw_scores,
        lambda module, case: flatten([[float(x) for x in module.top_share(case, p)] for p in SHARES]),
        lambda case: flatten([highest(case, share) for share in SHARES])),
    Formula("credit.in_window", "credit.selection", ("in_window",), draw_tokens, windowed, between),
    replace(
        against("cross_entropy", "value", "cross_entropy", lambda m: m.cross_entropy(), summed(surprise)),
        draw=draw_chances),
    against("kl_regression", "regression", "kl_regression",
        lambda m: m.kl_regression(0.7), fitted(0.7, is_huber=False)),
    against("kl_regression_huber", "regression", "kl_regression",
        lambda m: m.kl_regression(0.7, shape="huber"), fitted(0.7, is_huber=True)),
)  # fmt: skip

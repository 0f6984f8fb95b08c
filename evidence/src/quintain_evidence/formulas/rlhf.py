"""Reward models: their loss, what they read, how they pay alone and together, each beside a plain second version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, log
from statistics import fmean, pstdev, pvariance
from types import ModuleType
from typing import Any

import numpy as np
import torch

from quintain.types import Batch, Score, Trajectory, flatten_scored
from quintain_evidence.formulas.credit import Case as Played
from quintain_evidence.formulas.credit import draw as draw_played
from quintain_evidence.formulas.formula import Formula, Rng, flatten
from quintain_evidence.formulas.losses import Case, against, draw

ERRORS = 0.1


class Ranked(Case):
    """A case whose streams are answers that somebody ranked; ranks are the first advantages of their streams."""

    __slots__ = ()

    @property
    def ranks(self) -> list[float]:
        """The rank of each answer: one of three, so that some tie."""
        first = {token.stream: token.advantage for token in reversed(self.tokens)}
        return [float(np.clip(round(first[stream]), -1, 1)) for stream in sorted(first)]

    def batch(self) -> Batch:
        """Return the batch with the ranks."""
        made = Case.batch(self)
        return replace(made, extra=replace(made.extra, rank=torch.tensor(self.ranks, dtype=torch.float64)))


def draw_ranked(rng: Rng) -> Ranked:
    """Return comparisons of two to four answers, with scores of any size."""
    made = draw(rng)
    num = len(made.pairs)
    sizes = {2: [2], 4: [2, 2] if rng.random() < 0.5 else [4], 6: [2, 4] if rng.random() < 0.5 else [3, 3]}[
        num
    ]
    pairs = [(number, False) for number, size in enumerate(sizes) for _ in range(size)]
    return Ranked(
        tokens=made.tokens, logprobs=made.logprobs, entropy=made.entropy, values=made.values, pairs=pairs
    )


def ranked(
    case: Case, _logs: list[float], _entropy: list[float], values: list[float], error_rate: float = 0.0
) -> float:
    """Return the mean over comparisons of the mean over their pairs of the cross-entropy."""
    assert isinstance(case, Ranked), "drawn with ranks"
    scores = [
        sum(values[t] for t in case.trained if case.tokens[t].stream == stream)
        for stream in range(len(case.pairs))
    ]
    found: dict[int, list[float]] = {}
    for i, j in combinations(range(len(scores)), 2):
        if case.pairs[i][0] != case.pairs[j][0]:
            continue
        gap = case.ranks[i] - case.ranks[j]
        share = 0.5 if gap == 0 else float(gap > 0)
        chance = (1 - error_rate) / (1 + exp(scores[j] - scores[i])) + error_rate / 2
        found.setdefault(case.pairs[i][0], []).append(-share * log(chance) - (1 - share) * log(1 - chance))
    means = [sum(pairs) / len(pairs) for pairs in found.values()]
    return sum(means) / len(means)


def classified(case: Case, _logs: list[float], _entropy: list[float], values: list[float]) -> float:
    """Return the mean over comparisons of the mean over their answers of the cross-entropy of good and bad."""
    assert isinstance(case, Ranked), "drawn with ranks"
    found: dict[int, list[float]] = {}
    for stream, (number, _) in enumerate(case.pairs):
        score = sum(values[t] for t in case.trained if case.tokens[t].stream == stream)
        is_good = case.ranks[stream] == 1.0
        found.setdefault(number, []).append(-log(1 / (1 + exp(-score if is_good else score))))
    means = [sum(answers) / len(answers) for answers in found.values()]
    return sum(means) / len(means)


def paid(module: ModuleType, case: tuple[Played, list[float]]) -> list[float]:
    """Return rewards of all turns and outcomes of all scored episodes, and what is measured of them."""
    played, scores = case
    groups = module.pay_scores(played.groups, scores)
    found = [[turn.reward for turn in t.turns] for t in flatten_scored(groups)]
    outcomes = [t.outcome.value for t in flatten_scored(groups) if isinstance(t.outcome, Score)]
    return flatten([*found, *outcomes, *module.score_metrics(played.groups, scores).values()])


def paid_plainly(case: tuple[Played, list[float]]) -> list[float]:
    """Return zeros with the score at the end of each episode, the scores, their mean and that of what was earned."""
    played, scores = case
    rows = [
        [0.0] * (len(play.rewards) - 1) + [score] for play, score in zip(played.plays, scores, strict=True)
    ]
    num = max(len(scores), 1)
    told = [sum(scores) / num, sum(play.total for play in played.plays) / num] if scores else []
    return flatten([*rows, *scores, *told])


def draw_paid(rng: Rng) -> tuple[Played, list[float]]:
    """Return episodes, some of which failed, and a score of each that did not."""
    played = draw_played(rng)
    return played, rng.normal(size=len(played.plays)).tolist()


@dataclass(frozen=True)
class Read:
    """Episodes to score, and the longest stream."""

    episodes: list[Trajectory]
    longest: int | None


def draw_read(rng: Rng) -> Read:
    """Return episodes, and sometimes a limit at which some have no room for one token more."""
    while True:
        episodes = [t for t in flatten_scored(draw_played(rng).groups) if t.num_sampled]
        if episodes:
            break
    lengths = [sum(len(t.prompt_ids) + len(t.completion.token_ids) for t in e.turns) for e in episodes]
    return Read(episodes, None if rng.random() < 0.5 else int(rng.choice(lengths)))


def read(module: ModuleType, case: Read) -> list[float]:
    """Return lengths, and the places and turns of what is scored, by episode and by turn."""
    found: list[Any] = []
    for by in ("episode", "turn"):
        samples = module.score_samples(case.episodes, by=by, max_length=case.longest)
        found += [
            [len(s.token_ids), s.trajectory, [[p, s.turn_id[p]] for p in np.flatnonzero(s.loss_weight)]]
            for s in samples
        ]
    return flatten([[float(x) if not isinstance(x, list) else x for x in row] for row in found])


def read_plainly(case: Read) -> list[float]:
    """Return the same by walking over tokens."""
    found: list[Any] = []
    for by in ("episode", "turn"):
        for number, episode in enumerate(case.episodes):
            place, ends = 0, list[tuple[int, int]]()
            for turn_number, turn in enumerate(episode.turns):
                place += len(turn.prompt_ids) + len(turn.completion.token_ids)
                if turn.completion.token_ids:
                    ends.append((place, turn_number))
            last = ends[-1:] if by == "episode" else ends
            has_room = case.longest is None or place < case.longest
            length = place + has_room
            found.append([length, number, [[min(at, length - 1), turn] for at, turn in last]])
    return flatten(found)


def picked(module: ModuleType, case: list[list[list[float]]]) -> list[float]:
    """Return what is picked of the answers of each task, and its share of what could be gained."""
    found = module.best_of(*case)
    return [found.picked, found.mean, found.oracle, found.share]


def picked_plainly(case: list[list[list[float]]]) -> list[float]:
    """Return the same by a walk over the answers; of equal scores the first counts."""
    found: list[list[float]] = []
    for worth, scores in zip(*case, strict=True):
        best = 0
        for place in range(1, len(scores)):
            best = place if scores[place] > scores[best] else best
        found.append([worth[best], sum(worth) / len(worth), sorted(worth)[-1]])
    sums = [sum(row[k] for row in found) / len(found) for k in range(3)]
    gain = sums[2] - sums[1]
    return [*sums, (sums[0] - sums[1]) / gain if gain > 0 else 0.0]


def draw_picked(rng: Rng) -> list[list[list[float]]]:
    """Return rewards and scores of one to five tasks of one to six answers, with equal scores among them."""
    sizes = [int(size) for size in rng.integers(1, 7, int(rng.integers(1, 6)))]
    return [
        [rng.normal(size=size).round(1).tolist() for size in sizes],
        [rng.normal(size=size).round(0).tolist() for size in sizes],
    ]


@dataclass(frozen=True)
class Told:
    """What members say of turns: ``Told(scores=[[3.0]], compared=[[0.0, 2.0]])``."""

    scores: list[list[float]]
    """[member][turn]"""
    compared: list[list[float]]
    """[member][turn that people compared]"""


def draw_told(rng: Rng) -> Told:
    """Return one to four members of any scale, of which one may say the same of all turns."""
    members, turns, compared = (int(rng.integers(low, high)) for low, high in ((1, 5), (1, 9), (2, 12)))
    scale = np.exp(rng.normal(size=(members, 1)))
    shift = 3 * rng.normal(size=(members, 1))
    scores = shift + scale * rng.normal(size=(members, turns))
    known = shift + scale * rng.normal(size=(members, compared))
    if members > 1 and rng.random() < 0.3:
        known[0] = known[0, 0]
    return Told(scores.tolist(), known.tolist())


def together(module: ModuleType, case: Told) -> list[float]:
    """Return the reward of each turn."""
    return module.ensemble_rewards(case.scores, case.compared)


def together_plainly(case: Told) -> list[float]:
    """Return the same, one turn after the other."""

    def mean_of(turn: int, numbers: list[list[float]]) -> float:
        parts: list[float] = []
        for own, known in zip(numbers, case.compared, strict=True):
            parts.append((own[turn] - fmean(known)) / pstdev(known) if len(set(known)) > 1 else 0.0)
        return sum(parts) / len(parts)

    spread = pstdev([mean_of(k, case.compared) for k in range(len(case.compared[0]))])
    by = spread if spread > 1e-6 else 1.0  # two members of two turns may say the opposite
    return [mean_of(k, case.scores) / by for k in range(len(case.scores[0]))]


def draw_differences(rng: Rng) -> list[list[float]]:
    """Return differences by two to five members of two to nine candidates."""
    return (3 * rng.normal(size=(int(rng.integers(2, 6)), int(rng.integers(2, 10))))).tolist()


def asked(module: ModuleType, case: list[list[float]]) -> list[float]:
    """Return the order in which candidates are asked for."""
    return [float(place) for place in module.by_dispute(case)]


def asked_plainly(case: list[list[float]]) -> list[float]:
    """Return the same by taking the candidate of the largest variance again and again."""
    left = {k: pvariance([1 / (1 + exp(-own[k])) for own in case]) for k in range(len(case[0]))}
    found: list[float] = []
    while left:
        best = max(left, key=lambda k: left[k])
        found.append(float(best))
        del left[best]
    return found


FORMULAS: tuple[Formula, ...] = (
    *(
        replace(
            against(
                name, "reward_model", "bradley_terry",
                lambda m, rate=rate: m.bradley_terry(error_rate=rate),
                lambda case, logs, entropy, values, rate=rate: ranked(case, logs, entropy, values, rate),
            ),
            draw=draw_ranked,
            aside=("_measure_agreement",),
        )
        for name, rate in (("bradley_terry", 0.0), ("bradley_terry.errors", ERRORS))
    ),
    replace(
        against("classification", "reward_model", "classification", lambda m: m.classification(), classified),
        draw=draw_ranked,
        aside=("_measure_agreement",),
    ),
    Formula("credit.pay_scores", "credit.scores", ("pay_scores", "score_metrics"), draw_paid, paid,
        paid_plainly),
    Formula("eval.best_of", "eval.reward_model", ("best_of",), draw_picked, picked, picked_plainly),
    Formula("data.score_samples", "data.comparisons", ("score_samples",), draw_read, read, read_plainly),
    Formula("ensembles.rewards", "eval.reward_model", ("ensemble_rewards",), draw_told, together, together_plainly),
    Formula("ensembles.queries", "eval.reward_model", ("by_dispute",), draw_differences, asked, asked_plainly),
)  # fmt: skip

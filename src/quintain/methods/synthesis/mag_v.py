"""MAG-V (arXiv 2412.04494): questions from few seeds, and trajectories that are verified by asking back.

An investigator writes questions from seeds, and of those a set that differs is kept. An assistant answers with tools. A
reverse engineer writes a back-question from answer and end state alone, never from the question, and the assistant
answers that, too. A classical classifier on how alike both trajectories are says whether the first is right: where the
assistant did something else than it was asked, the back-question is another one. It is fitted by distant supervision,
on trajectories into which errors were planted, and tried on seeds that it was not fitted on; no judge is asked.

Differences to the paper: one classifier, logistic regression, where it compares five; features are of words where it
has embeddings (give `alike` another); questions are written by whoever calls, where it has GPT-4o. An
error that is made in the same way in both trajectories cannot be seen. Measured on `desk`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from quintain.agents.experience import likeness
from quintain.errors import DataError
from quintain.rewards.trajectory_features import Told, compare_trajectories
from quintain.rewards.verifier import Verifier, fit_verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A trajectory and the one that its back-question led to: ``Asked(seed="q1", first=…, back=…, label=True)``."""

    seed: Hashable
    """the seed question that it comes from"""
    first: Told
    back: Told
    label: bool | None = None
    """whether the first is right, where it is known: by construction where an error was planted"""


def choose_questions(
    questions: Sequence[str], num: int, *, alike: Callable[[str, str], float] = likeness
) -> list[int]:
    """Return the places of `num` questions that differ: each next one is the least like those that are chosen.

    Example: of "a b", "a b", "c d", two → the first and the third. The first question begins; a tie goes to the first.

    Raises:
        DataError: there are fewer questions.
    """
    if not 1 <= num <= len(questions):
        raise DataError(
            f"questions: got {len(questions)}, of which {num} are to be chosen; give more, or choose fewer"
        )
    chosen = [0]
    nearest = [alike(questions[0], question) for question in questions]
    while len(chosen) < num:
        left = [place for place in range(len(questions)) if place not in chosen]
        chosen.append(min(left, key=lambda place: (nearest[place], place)))
        nearest = [
            max(old, alike(questions[chosen[-1]], q)) for old, q in zip(nearest, questions, strict=True)
        ]
    return chosen


def features_of(
    asked: Sequence[Asked], *, alike: Callable[[str, str], float] = likeness
) -> list[tuple[float, ...]]:
    """Return the features of each pair of trajectories; labels are in none of them."""
    return [compare_trajectories(each.first, each.back, likeness=alike) for each in asked]


def split_by_seed(asked: Sequence[Asked], fraction: float = 0.5) -> tuple[list[Asked], list[Asked]]:
    """Return those to fit and those to try on: no seed is on both sides; seeds stay in their order."""
    seeds = list(dict.fromkeys(each.seed for each in asked))
    first = set(seeds[: round(fraction * len(seeds))])
    return [each for each in asked if each.seed in first], [each for each in asked if each.seed not in first]


def fit(asked: Sequence[Asked]) -> Verifier:
    """Return the classifier of trajectories whose label is known.

    Raises:
        DataError: one has no label, or all have the same.
    """
    if unknown := sum(each.label is None for each in asked):
        raise DataError(f"verifier: got {unknown} trajectories without a label; plant errors, or check some")
    return fit_verifier(np.array(features_of(asked)), [bool(each.label) for each in asked])


def keep_verified(asked: Sequence[Asked], verifier: Verifier, threshold: float = 0.5) -> list[Asked]:
    """Return the trajectories that are taken to be right, for imitation."""
    if not asked:
        return []
    scores = verifier.score(features_of(asked)).tolist()
    return [each for each, score in zip(asked, scores, strict=True) if score > threshold]

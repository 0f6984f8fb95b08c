"""Evaluation: what benchmarks make of what they counted, each formula beside a plain second version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np

from quintain_evidence.formulas.formula import Formula, Rng, flatten

# The function calling leaderboard's summary

CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
    "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context",
    "web_search_base", "web_search_no_snippet", "memory_kv", "memory_vector", "memory_rec_sum",
)  # fmt: skip


def draw_accuracies(rng: Rng) -> dict[str, float]:
    """Return accuracies of the categories, of some or of all."""
    share = float(rng.choice([0.5, 0.9, 1.0]))
    return {name: float(rng.random()) for name in CATEGORIES if rng.random() < share}


def own_summary(module: ModuleType, case: Mapping[str, float]) -> list[float]:
    """Return the five parts, the leaderboard's number, that over what was measured, and how much was not."""
    found = module.summarise(case)
    return flatten([list(found.parts.values()), found.overall, found.measured, float(len(found.missing))])


def plain_summary(case: Mapping[str, float]) -> list[float]:
    """Return the same from one weight of each category."""
    weights = {
        "one_turn": {"multiple": 1 / 4, "parallel": 1 / 4, "parallel_multiple": 1 / 4}
        | dict.fromkeys(CATEGORIES[:3], 1 / 12),
        "live": {
            "live_simple": 258 / 1351, "live_multiple": 1053 / 1351, "live_parallel": 16 / 1351,
            "live_parallel_multiple": 24 / 1351,
        },
        "irrelevance": {"irrelevance": 1 / 2, "live_irrelevance": 1 / 2},
        "several_turns": dict.fromkeys(CATEGORIES[13:17], 1 / 4),
        "agentic": dict.fromkeys(CATEGORIES[17:19], 1 / 4) | dict.fromkeys(CATEGORIES[19:], 1 / 6),
    }  # fmt: skip
    parts = [sum(w * case.get(name, 0.0) for name, w in own.items()) for own in weights.values()]
    shares = (1, 1, 1, 3, 4)
    known = [all(name in case for name in own) for own in weights.values()]
    told = [(share, part) for share, part, is_known in zip(shares, parts, known, strict=True) if is_known]
    measured = sum(share * part for share, part in told) / max(1, sum(share for share, _ in told))
    missing = sum(name not in case for own in weights.values() for name in own)
    return [
        *parts,
        sum(share * part for share, part in zip(shares, parts, strict=True)) / 10,
        measured,
        missing,
    ]


# AgentIF-OneDay's rubric, and how far two judges agree

Rubric = tuple[list[float], list[bool], list[bool]]
"""weights of items, the verdicts of a judge, and those of another"""


def draw_rubrics(rng: Rng) -> list[Rubric]:
    """Return rubrics with penalties, the first item always one that can be earned."""
    found: list[Rubric] = []
    for _ in range(8):
        num = int(rng.integers(1, 9))
        weights = [
            float(rng.integers(1, 5)) * (1 if n == 0 or rng.random() < 0.7 else -1) for n in range(num)
        ]
        share = float(rng.choice([0.2, 0.5, 0.9]))
        first, second = ([bool(rng.random() < share) for _ in weights] for _ in range(2))
        found.append((weights, first, second))
    return found


def own_rubrics(module: ModuleType, case: Sequence[Rubric]) -> list[float]:
    """Return both scores, how many items failed, accuracy and κ."""
    found: list[float] = []
    for weights, held, other in case:
        named = {str(n): weight for n, weight in enumerate(weights)}
        said = {str(n): verdict for n, verdict in enumerate(held)}
        scores = [module.score_rubric(named, said, is_floored=floored) for floored in (True, False)]
        agreement = module.agree(held, other)
        failed = float(len(module.find_failed(named, said)))
        found += [*scores, failed, agreement.accuracy, agreement.kappa]
    return found


def plain_rubrics(case: Sequence[Rubric]) -> list[float]:
    """Return the same from sums of signed points, and κ from the table of two by two."""
    found: list[float] = []
    for weights, held, other in case:
        earned = lost = most = 0.0
        failed = 0
        for weight, verdict in zip(weights, held, strict=True):
            most += max(weight, 0.0)
            earned += weight if verdict and weight > 0 else 0.0
            lost -= weight if verdict and weight < 0 else 0.0
            failed += (weight > 0 and not verdict) or (weight < 0 and verdict)
        both = sum(a and b for a, b in zip(held, other, strict=True))
        first, second, num = sum(held), sum(other), len(held)
        neither = num - first - second + both
        accuracy = (both + neither) / num
        chance = (first * second + (num - first) * (num - second)) / num**2
        kappa = (accuracy - chance) / (1 - chance) if chance < 1 else 1.0
        score = (earned - lost) / most
        found += [score if score > 0 else 0.0, score, float(failed), accuracy, kappa]
    return found


# Where a change is (AgentIssue-Bench)

Change = tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]
"""functions as (file, name, constant that it returns), before and after; -1: the file holds a plain value"""


def draw_changes(rng: Rng) -> list[tuple[Change, Change]]:
    """Return what was changed and what should be, of up to four files of up to three functions."""

    def draw() -> Change:
        before = [(f, n, int(rng.integers(3))) for f in range(3) for n in range(-1, 3) if rng.random() < 0.7]
        after = [
            (f, n, int(rng.integers(3)) if rng.random() < 0.3 else c)
            for f, n, c in before
            if rng.random() < 0.9
        ]
        more = [(3, 0, 1)] if rng.random() < 0.2 else []
        return before, after + more

    return [(draw(), draw()) for _ in range(6)]


def write_files(functions: Sequence[tuple[int, int, int]], *, has_comments: bool) -> dict[str, str]:
    """Return the texts of files, which comments and blanks do not make others."""
    found: dict[str, str] = {}
    for file, name, constant in functions:
        text = f"X = {constant}\n" if name < 0 else f"def f{name}(a):\n    return a + {constant}\n"
        found[f"m{file}.py"] = found.get(f"m{file}.py", "") + ("# so\n\n" if has_comments else "") + text
    return found


def own_places(module: ModuleType, case: Sequence[tuple[Change, Change]]) -> list[float]:
    """Return how many places differ, whether file and function are found, and how many others."""
    found: list[float] = []
    for first, second in case:
        places = [
            module.find_changed_places(write_files(a, has_comments=False), write_files(b, has_comments=True))
            for a, b in (first, second)
        ]
        told = module.localise(*places)
        found += [len(places[0]), len(places[1]), float(told.file), float(told.function), told.num_others]
    return found


def plain_places(case: Sequence[tuple[Change, Change]]) -> list[float]:
    """Return the same from the numbers."""
    found: list[float] = []
    for pair in case:
        places: list[set[tuple[int, int]]] = []
        for before, after in pair:
            old, new = ({(f, n): c for f, n, c in side} for side in (before, after))
            places.append({key for key in {*old, *new} if old.get(key, None) != new.get(key, None)})
        changed, right = places
        has_files = all(any(f == g for f, _ in changed) for g, _ in right)
        has_all = all(key in changed for key in right)
        others = [key for key in changed if key not in right]
        found += [len(changed), len(right), float(has_files), float(has_all), len(others)]
    return found


# Research extensions: numbers, their ranges, and which files were found

Numbers = tuple[str, bool, list[float], float, list[int], list[int]]
"""a text, whether its number follows a label, values of gold runs, a level, files that were and are to be changed"""


def draw_numbers(rng: Rng) -> Numbers:
    """Return a text with a number in it, or nearly, values of two to thirty runs, and files by number."""
    number = f"{rng.normal() * 10 ** int(rng.integers(-2, 3)):.4g}"
    is_labelled = bool(rng.random() < 0.5)
    kind = int(rng.integers(0, 4))
    if is_labelled:
        text = f"loss 3\nacc: {number} (1)\n" + ("acc: 1\n" if kind == 0 else "")
        text = text.replace("acc", "ac") if kind == 1 else text
    else:
        text = f"step,acc\n1,0\n2,{number}\n" if kind else "step,acc\n"
        text = text.replace("2,", "2") if kind == 1 else text
    values = rng.normal(rng.normal(), rng.uniform(0.1, 2), int(rng.integers(2, 31))).tolist()
    changed, gold = (sorted(set(rng.integers(0, 6, int(rng.integers(0, 5))).tolist())) for _ in range(2))
    return text, is_labelled, values, float(rng.choice([0.5, 0.9, 0.99])), changed, gold


def own_numbers(module: ModuleType, case: Numbers) -> list[float]:
    """Return the number, whether there is one, its range's ends, whether ends and what is beyond are in, and recall."""
    text, is_labelled, values, level, changed, gold = case
    low, high = module.predict_range(values, level)
    target = module.Target(low=low, high=high, **({"label": "acc:"} if is_labelled else {"column": "acc"}))
    found = module.read_number(text, target)
    tried = [low, high, low - 1e-3, high + 1e-3, (low + high) / 2, None]
    recall = module.recall_files(frozenset(map(str, changed)), frozenset(map(str, gold)))
    return flatten(
        [
            [float(found is not None), found or 0.0, round(low, 6), round(high, 6), recall],
            [float(module.is_within(number, target)) for number in tried],
        ]
    )


def plain_numbers(case: Numbers) -> list[float]:
    """Return the same: words after the label, cells of the last row, and t by summing its density."""
    text, is_labelled, values, level, changed, gold = case
    found: float | None = None
    lines = text.strip().split("\n")
    if is_labelled:
        told = [line.split()[1] for line in lines if line.startswith("acc: ")]
        found = float(told[0]) if len(told) == 1 else None
    elif len(lines) > 1 and lines[-1].count(",") == 1:
        found = float(lines[-1].split(",")[1])
    num = len(values)
    mean = sum(values) / num
    spread = (sum((value - mean) ** 2 for value in values) / (num - 1)) ** 0.5
    angles = (np.arange(400_000) + 0.5) / 400_000 * np.pi / 2
    mass = np.cumsum(np.cos(angles) ** (num - 2))
    t = np.tan(np.interp(level, mass / mass[-1], angles + np.pi / 1_600_000)) * (num - 1) ** 0.5
    half = float(t) * spread * (1 + 1 / num) ** 0.5
    both = len([file for file in changed if file in gold])
    return flatten(
        [
            [float(found is not None), found or 0.0, round(mean - half, 6), round(mean + half, 6)],
            both / len(gold) if gold else 0.0,
            [1.0, 1.0, 0.0, 0.0, 1.0, 0.0],
        ]
    )


FORMULAS = (
    Formula(
        "evaluation.numbers",
        "adapters.rexbench.judging",
        ("predict_range", "student_quantile", "read_number", "is_within", "recall_files"),
        draw_numbers,
        own_numbers,
        plain_numbers,
    ),
    Formula(
        "evaluation.localisation",
        "rewards.localisation",
        ("find_changed_places", "localise"),
        draw_changes,
        own_places,
        plain_places,
    ),
    Formula(
        "evaluation.rubric",
        "rewards.rubric",
        ("score_rubric", "find_failed", "agree"),
        draw_rubrics,
        own_rubrics,
        plain_rubrics,
    ),
    Formula(
        "evaluation.bfcl_summary",
        "adapters.bfcl.summary",
        ("summarise",),
        draw_accuracies,
        own_summary,
        plain_summary,
    ),
)

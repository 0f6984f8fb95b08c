"""Evaluation: what benchmarks make of what they counted, each formula beside a plain second version."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from quintain_evidence.formulas.formula import Formula, Rng, flatten

# The function calling leaderboard's summary

CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
    "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context",
    "web_search_base", "web_search_no_snippet", "memory_kv", "memory_vector", "memory_rec_sum",
)  # fmt: skip


def drawn_accuracies(rng: Rng) -> dict[str, float]:
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


FORMULAS = (
    Formula(
        "evaluation.bfcl_summary",
        "adapters.bfcl.summary",
        ("summarise",),
        drawn_accuracies,
        own_summary,
        plain_summary,
    ),
)

"""The leaderboard's summary of categories, with its weights.

Five parts: one turn (made up, with its three languages as one), one turn (live, by how many questions), irrelevance,
several turns, and agents, at 10, 10, 10, 30 and 40 %. What was not measured counts as 0, as on the leaderboard; beside
it stands the mean over what was, by the same weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NUM_LIVE = {"live_simple": 258, "live_multiple": 1053, "live_parallel": 16, "live_parallel_multiple": 24}
"""Questions of the live categories, by which the leaderboard weighs them."""
WEIGHTS = {"one_turn": 0.1, "live": 0.1, "irrelevance": 0.1, "several_turns": 0.3, "agentic": 0.4}
SIMPLE = ("simple_python", "simple_java", "simple_javascript")
PARTS = {
    "one_turn": (*SIMPLE, "multiple", "parallel", "parallel_multiple"),
    "live": tuple(NUM_LIVE),
    "irrelevance": ("irrelevance", "live_irrelevance"),
    "several_turns": (
        "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context",
    ),
    "agentic": ("web_search_base", "web_search_no_snippet", "memory_kv", "memory_vector", "memory_rec_sum"),
}  # fmt: skip
"""Categories of each part; `live_relevance` is told and counts in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``Summary(parts={"one_turn": 0.5, …}, overall=0.21, measured=0.35, missing=("memory_kv", …))``."""

    parts: Mapping[str, float]
    """accuracy of each of the five, what is missing counted as 0"""
    overall: float
    """the leaderboard's number"""
    measured: float
    """the mean over the parts of which every category was measured, by the same weights; 0 without one"""
    missing: tuple[str, ...]
    """categories that were not measured"""


def summarise(accuracies: Mapping[str, float], num: Mapping[str, int] = NUM_LIVE) -> Summary:
    """Return the summary of `accuracies` by category, each from 0 to 1; `num` are questions of the live categories."""
    got = {name: accuracies.get(name, 0.0) for names in PARTS.values() for name in names}
    simple = sum(got[name] for name in SIMPLE) / len(SIMPLE)
    search, memory = PARTS["agentic"][:2], PARTS["agentic"][2:]
    parts = {
        "one_turn": (simple + got["multiple"] + got["parallel"] + got["parallel_multiple"]) / 4,
        "live": sum(got[name] * num[name] for name in NUM_LIVE) / sum(num[name] for name in NUM_LIVE),
        "irrelevance": sum(got[name] for name in PARTS["irrelevance"]) / 2,
        "several_turns": sum(got[name] for name in PARTS["several_turns"]) / 4,
        "agentic": (sum(got[name] for name in search) / 2 + sum(got[name] for name in memory) / 3) / 2,
    }
    whole = [part for part, names in PARTS.items() if all(name in accuracies for name in names)]
    weight = sum(WEIGHTS[part] for part in whole)
    return Summary(
        parts=parts,
        overall=sum(WEIGHTS[part] * value for part, value in parts.items()),
        measured=sum(WEIGHTS[part] * parts[part] for part in whole) / weight if weight else 0.0,
        missing=tuple(name for name in got if name not in accuracies),
    )

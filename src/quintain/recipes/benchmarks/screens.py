"""Boxes on a screen that is told in words: rewards by rule against imitation."""

from typing import Any

from quintain.recipes.benchmark import Benchmark
from quintain.recipes.benchmarks.worlds import TWO_RATES, WORDS, world

BOX = "screen?goal=click&buttons=1&fields=0&items=0&width=24&height=12&misses=1&interface=text"
SMALLER = f"{BOX}&scale=0.75"
"""The same screens in three quarters of their size: the shift under which what was learned is measured."""
ONE_BOX: dict[str, Any] = {**world(2_000, 16, 2_000), **WORDS, "imitation_rate": 3e-3, "most_turns": None}
FEW = 128
"""Tasks that both arms learn from."""

SCREENS: tuple[Benchmark, ...] = (
    Benchmark(
        name="ui_r1",
        recipe="ui_r1",
        baseline="sft",
        environment=BOX,
        claim="On boxes in another size, rewards by rule beat imitation of the same 128 examples at as many updates.",
        shared={**ONE_BOX, "steps": 100, "eval_every": 20, "eval_environment": SMALLER},
        settings={"tasks": 8, "group_size": 8, "tolerance": 1.0, "pool": FEW, "chosen": FEW},
        baseline_settings={"examples": FEW},
        rates=TWO_RATES,
    ),
)

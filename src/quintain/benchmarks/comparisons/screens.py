"""Boxes on a screen that is told in words: rewards by rule against imitation, and answers with much filler."""

from typing import Any

from quintain.benchmarks.comparisons.worlds import GROUPS, TWO_RATES, WORDS, world
from quintain.benchmarks.trials import Benchmark

BOX = "screen?goal=click&buttons=1&fields=0&items=0&width=24&height=12&misses=1&interface=text"
SMALLER = f"{BOX}&scale=0.75"
"""The same screens in three quarters of their size: the shift under which what was learned is measured."""
ONE_BOX: dict[str, Any] = {**world(2_000, 16, 2_000), **WORDS, "imitation_rate": 3e-3, "max_env_steps": None}
VERBOSE: dict[str, Any] = {
    **ONE_BOX, "max_env_steps": 2_000, "agent": "react?filler=1&max_tokens=40", "actions": 256, "entropy_coef": 0.03,
}  # fmt: skip
"""Answers that repeat a sentence of the instructions before they act."""
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
        settings={"tasks": 8, "group_size": 8, "tolerance": 1.0, "pool": FEW, "chosen": FEW, "kl_coef": 0.1},
        baseline_settings={"examples": FEW},
        rates=TWO_RATES,
        tried="With the usual KL of 0.01 it came to 0.107 against 0.174: the 128 tasks were learned by heart. So were "
        "they, on the seed for rates, with a tolerance of 0 (after 200 steps all of them were solved, and 5 % of the "
        "smaller ones), and where training had screens of two sizes (2 %).",
    ),
    Benchmark(
        name="coso",
        recipe="coso",
        baseline="coso",
        environment=BOX,
        claim="With verbose answers, entropy where a token decides the action explores better than entropy everywhere.",
        shared={**VERBOSE, **GROUPS},
        baseline_settings={"is_causal": False},
        rates=TWO_RATES,
    ),
    Benchmark(
        name="coso_filler",
        recipe="coso",
        baseline="coso",
        environment=BOX,
        claim="Filler stays surer where only deciding tokens are kept open (nats per token of filler).",
        shared={**VERBOSE, **GROUPS, "learning_rate": 1e-3},
        baseline_settings={"is_causal": False},
        measure="entropy/filler",
        at="run",
        is_lower_better=True,
    ),
)

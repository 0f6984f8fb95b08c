"""BFCL: all categories of the real package, with its golds, with nobody, and with a small real model."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from quintain import api
from quintain.adapters.bfcl.environment import ONE_TURN, SEVERAL_TURNS, Bfcl
from quintain.adapters.bfcl.summary import summarise
from quintain.environments.baselines import expert, noop, play
from quintain_evidence.layers.verdict import Check

MODEL = "bfcl-eval 2026.3.23, SmolLM2-135M-Instruct"
MOST = 100
"""Questions of a category."""
PLAYED: tuple[tuple[str, Literal["calls", "text"]], ...] = (
    ("simple_python", "text"),
    ("live_relevance", "calls"),
)
"""What the model plays, in which form."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play golds and nobody in every category, sum both up, and let a model play two through `quintain eval`."""
    gold: dict[str, float] = {}
    silent: dict[str, float] = {}
    for name in (*ONE_TURN, *SEVERAL_TURNS):
        with closing(Bfcl(name)) as world:
            tasks = [world.task("eval", index) for index in range(min(MOST, len(world.questions)))]
            gold[name] = sum(play(world, task, expert).is_success for task in tasks) / len(tasks)
            silent[name] = sum(play(world, task, noop).is_success for task in tasks) / len(tasks)
    figures = {f"gold_{name}": rate for name, rate in gold.items()}
    quiet = {name for name, rate in silent.items() if rate}
    told = summarise(gold), summarise(silent)
    checks = [
        Check(
            name="gold passes",
            has_passed=min(gold.values()) >= 0.95,
            detail=f"at least {min(gold.values()):.3f} in each of {len(gold)} categories, to be .95",
        ),
        Check(
            name="who says nothing",
            has_passed=quiet == {"irrelevance", "live_irrelevance"} and told[1].overall <= 0.1 + 1e-9,
            detail=f"passes {', '.join(sorted(quiet))} alone; the leaderboard's number is {told[1].overall:.3f}",
        ),
        Check(
            name="summary",
            has_passed=told[0].measured >= 0.95 and abs(told[0].overall - 0.6 * told[0].measured) < 1e-9,
            detail=f"gold {told[0].overall:.3f} by the leaderboard, where what cannot run here counts as 0; "
            f"{told[0].measured:.3f} of what can",
        ),
    ]
    for name, answers in PLAYED:
        found, episodes = api.evaluate(
            "smollm2", f"bfcl/{name}?answers={answers}", episodes=3, temperature=0.0
        )
        figures[f"smollm2_{name}"] = found.success
        checks.append(
            Check(
                name=f"a model plays {name}",
                has_passed=found.num_failed == 0 and len(episodes) == 3,
                detail=f"{found} of {len(episodes)} episodes, answers as {answers}",
            )
        )
    return checks, figures | {"overall_gold": told[0].overall, "overall_silent": told[1].overall}

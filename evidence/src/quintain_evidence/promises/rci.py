"""RCI on a real model: SmolLM2 plans, criticises its plan, and grounds each action, in a house.

The model has seen the expert through the same harness; then plan, critique, grounds and action are its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.agents.rci import ACCEPTED, accepts
from quintain.types import Score, Trajectory
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "house"
AGENT = "plan?critiques=1&max_tokens=48+rci?rounds=0&retries=1&grounds=true&max_tokens=24+text"
DEMONSTRATIONS, EPISODES = 32, 3


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let it see the expert, then act; count what it said of its plans, and before each action."""
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", AGENT], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    roles = [count_roles(t) for t in found]
    said = [turn.action.text for t in found for turn in t.turns if turn.seat.endswith("/critique")]
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them solved",
        ),
        Check(
            name="criticises",
            has_passed=all(each["critique"] == 1 and each["plan"] in (1, 2) for each in roles),
            detail=f"{len(said)} critiques of as many first plans, {sum(map(accepts, said))} of them {ACCEPTED!r}; "
            f"{sum(each['plan'] for each in roles) - len(said)} plans written anew",
        ),
        Check(
            name="grounds",
            has_passed=all(each["ground"] == 2 * each["acts"] for each in roles),
            detail=f"{sum(each['ground'] for each in roles)} grounds of {sum(each['acts'] for each in roles)} actions",
        ),
        Check(
            name="form",
            has_passed=all(each["draft"] <= 2 * each["acts"] for each in roles),
            detail=f"{sum(each['draft'] - each['acts'] for each in roles)} drafts asked for again, one at most a turn",
        ),
    ]
    return checks, {"success": fmean(float(t.is_success) for t in found)}


def count_roles(trajectory: Trajectory) -> dict[str, int]:
    """Return how many turns of `trajectory` have each role, and in how many something is done."""
    found = {
        role: sum(turn.seat.endswith(f"/{role}") for turn in trajectory.turns)
        for role in ("plan", "critique", "ground", "draft")
    }
    return {**found, "acts": sum(not turn.is_internal for turn in trajectory.turns)}

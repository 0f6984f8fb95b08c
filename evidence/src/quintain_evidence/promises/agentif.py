"""AgentIF-OneDay: a small real model works on attached files, is judged by rubric, and a judge may fail to answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain import api
from quintain.errors import QuintainError
from quintain.rewards.rubric import find_failed
from quintain.types import Score
from quintain_evidence.layers.verdict import Check

MODEL = "SmolLM2-135M-Instruct"
NOBODY = "http://127.0.0.1:9/v1%3Fmodel=nobody%26deadline=1"
"""A judge at a port at which nobody answers."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let the model play tasks of every kind, the expert too, and ask a judge who does not answer."""
    found, episodes = api.evaluate("smollm2", "files?kind=refine", episodes=2, temperature=0.0)
    right, gold = api.evaluate("expert", "files", episodes=24)
    scores = [t.outcome.value for t in episodes if isinstance(t.outcome, Score)]
    try:
        silent = str(api.evaluate("expert", f"files?kind=workflow&judge={NOBODY}", episodes=3)[0])
        is_told = False
    except QuintainError as error:
        silent, is_told = str(error), "judge" in str(error)
    assert find_failed({"a": 1.0}, {"a": False}) == ("a",)
    checks = [
        Check(
            name="a model works on files",
            has_passed=len(scores) == 2 and all(0 <= score <= 1 for score in scores),
            detail=f"{len(scores)} of 2 episodes have a score from 0 to 1; success {found.success:.2f}",
        ),
        Check(
            name="who does what is asked",
            has_passed=right.success == 1.0 and len(gold) == 24,
            detail=f"success {right.success:.2f} of {len(gold)} tasks",
        ),
        Check(name="a judge who does not answer", has_passed=is_told, detail=f"is no score: {silent[:160]}"),
    ]
    mean = sum(scores) / max(1, len(scores))
    return checks, {"smollm2_score": mean, "smollm2_success": found.success, "expert": right.success}

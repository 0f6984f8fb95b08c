"""SE-Agent on a real model: SmolLM2 attempts an order again and again, and is told what its attempts say together.

The model has seen the expert through the same harness. What each attempt came to is computed anew, by carrying its
actions out in a world of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.data.searched import ATTEMPT, follow_found, split_attempts
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.search.evolve import RECOMBINE, REFINE, REVISE
from quintain.types import Score, Trajectory, as_text
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "web?goal=order&depth=1&fields=2&kinds=3&reward=dense&irreversible=false&popups=0"
SIZE, ROUNDS = 2, 1
DEMONSTRATIONS, EPISODES = 8, 4


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let the model see the expert, then evolve; compute anew what each attempt came to."""
    agent = f"evolved?size={SIZE}&rounds={ROUNDS}+text"
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", agent], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    attempts = [each for t in found for each in split_attempts(t)]
    same = [abs(pay_again(each) - value_of(each)) < 1e-9 for each in attempts]
    told = [as_text(each.turns[0].observation) for each in attempts]
    paid = [value_of(t) == max(map(value_of, split_attempts(t))) for t in found]
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes of {len(attempts)} attempts, {sum(t.is_success for t in found)} solved",
        ),
        Check(
            name="carries out",
            has_passed=len(attempts) > EPISODES and all(same),
            detail=f"{sum(same)} of {len(same)} attempts came to what their actions come to in a world of their own",
        ),
        Check(
            name="keeps the best",
            has_passed=all(paid) and all(follow_found(t).turns for t in found),
            detail=f"{sum(paid)} of {len(paid)} episodes are paid what the best of their attempts came to",
        ),
        Check(
            name="tells",
            has_passed=any(words in text for text in told for words in (RECOMBINE, REFINE, REVISE)),
            detail="; ".join(
                f"{sum(words in text for text in told)} told to {name}"
                for name, words in (("recombine", RECOMBINE), ("refine", REFINE), ("revise", REVISE))
            ),
        ),
    ]
    return checks, {"success": fmean(float(t.is_success) for t in found)}


def pay_again(attempt: Trajectory) -> float:
    """Return what the actions of `attempt` are paid in a new world."""
    with closing(find(WORLD)()) as world:
        begin(world, attempt.task)
        return sum(advance(world, turn.action).reward for turn in attempt.turns)


def value_of(trajectory: Trajectory) -> float:
    """Return what `trajectory` was paid."""
    assert isinstance(trajectory.outcome, Score), f"{trajectory.task.id} has no {ATTEMPT}"
    return trajectory.outcome.value

"""Search-o1 on a real model: SmolLM2 searches in long articles, and condenses what it finds before it reads on.

The model has seen some dozens of episodes of the expert through the same harness; then it searches and condenses alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.agents.refined import ROLE, context_cost
from quintain.types import Score
from quintain_evidence.experiments.toolrl.search_o1 import queries, returned
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "hopqa?hops=1&closed=0&paragraphs=article&noise=6&max_turns=4"
MOST = 3
AGENT = f"refined?max_searches={MOST}&max_tokens=48+tags"
DEMONSTRATIONS, EPISODES = 32, 12


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let it see the expert, then search; look at every chain for what was searched."""
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", AGENT], runs, DEMONSTRATIONS)
    found, tokenizer = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    made = [queries(t) for t in found]
    documents = [document for t in found for document in returned(t)]
    condensed = [turn for t in found for turn in t.turns if turn.seat.endswith(f"/{ROLE}")]
    raw = 0
    for t in found:
        chain = "\n".join(
            str(tokenizer.decode([*turn.prompt_ids, *turn.completion.token_ids]))
            for turn in t.turns
            if not turn.seat.endswith(f"/{ROLE}")
        )
        raw += sum(document in chain for document in returned(t))
    again = sum(len(set(own)) < len(own) for own in made)
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them right",
        ),
        Check(
            name="condenses",
            has_passed=bool(documents) and len(condensed) >= len(documents),
            detail=f"{len(documents)} searches, {len(condensed)} times condensed by the model itself",
        ),
        Check(
            name="chain",
            has_passed=raw == 0,
            detail=f"{raw} documents stand in a chain as they were returned",
        ),
        Check(
            name="queries",
            has_passed=again == 0 and max(map(len, made)) <= MOST,
            detail=f"{again} episodes made a query twice; {max(map(len, made))} queries at most, of {MOST}",
        ),
    ]
    costs = [context_cost(t) for t in found]
    figures = {
        "chain tokens": fmean(float(own) for own, _ in costs),
        "refiner tokens": fmean(float(other) for _, other in costs),
        "success": fmean(float(t.is_success) for t in found),
    }
    return checks, figures

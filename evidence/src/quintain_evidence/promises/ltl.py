"""LTL behaviour on a real model: what SmolLM2 says at the help desk is in order, in words and in calls.

The same model plays the same tasks with and without the order, in commands; and in JSON calls under it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain import api
from quintain.safety.temporal import build_automaton, trace_of
from quintain_evidence.experiments.safety.ltl import ENDS, ORDER, TOOL_ORDER, first_words
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
TURNS = 5
WORDS, CALLS = 6, 3
"""Episodes."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Return what the model says with and without the order."""
    words, calls = runs / "words.json", runs / "calls.json"
    words.write_text(json.dumps({"$order": {"formula": ORDER, "ends": [*ENDS]}}))
    calls.write_text(json.dumps({"$order": {"formula": TOOL_ORDER}}))
    world = f"desk?interface=text&max_turns={TURNS}"
    order, of_tools = build_automaton(ORDER, ends=ENDS), build_automaton(TOOL_ORDER)
    _, kept = api.evaluate(
        MODEL, world, episodes=WORDS, agent=f"ordered?policy={words}&turns={TURNS}+text?max_tokens=16"
    )
    _, free = api.evaluate(MODEL, world, episodes=WORDS, agent="text?max_tokens=16")
    _, called = api.evaluate(
        MODEL,
        "desk?max_turns=3",
        episodes=CALLS,
        agent=f"ordered?policy={calls}+tools?max_tokens=96",
    )
    said = [order.accepts(first_words(each)) for each in kept]
    freely = [order.accepts(first_words(each)) for each in free]
    traces = [trace_of(each) for each in called]
    checks = (
        Check(
            name="every episode in words is accepted",
            has_passed=len(said) == WORDS and all(said),
            detail=f"{sum(said)} of {len(said)}; without the order {sum(freely)} of {len(freely)}",
        ),
        Check(
            name="without it not",
            has_passed=sum(freely) < len(freely),
            detail=f"{sum(freely)} of {len(freely)}",
        ),
        Check(
            name="every episode of calls is accepted",
            has_passed=len(traces) == CALLS and all(map(of_tools.accepts, traces)),
            detail=f"{sum(map(of_tools.accepts, traces))} of {len(traces)}: {', '.join(traces[0]) or 'no call'} …",
        ),
    )
    return checks, {"accepted": sum(said), "accepted without": sum(freely), "calls": sum(map(len, traces))}

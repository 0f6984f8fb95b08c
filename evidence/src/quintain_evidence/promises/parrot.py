"""Parrot on a real model: rounds of three agents as one graph, with and without sharing what they begin alike.

A planner, a worker who reads the plan, and a checker who reads both, each with the same house rules before its own
words: all calls of all rounds are submitted at once. SmolLM2 says the same either way, to the last bit; what differs is
how many tokens it reads, and how long the processor works.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.engines.build import build_engine
from quintain.engines.graph import Call, run_graph
from quintain.engines.protocol import Sampling
from quintain.engines.settings import EngineSettings
from quintain.learning.saved import load_policy
from quintain.types import Completion
from quintain_evidence.layers.verdict import Check

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MODEL = "smollm2"
ROUNDS, TOKENS = 4, 8
RULES = " ".join(
    f"Rule {number}: whoever works in the house keeps to what the one before has said, in its order, and adds nothing "
    f"that was not asked for in room {number}." for number in range(1, 9)
)  # fmt: skip
ROLES = {
    "plan": ("Plan", ()),
    "work": ("Do what the plan says", ("plan",)),
    "check": ("Check", ("plan", "work")),
}
TASKS = ("water the plants", "find the red lamp", "set the table", "lock the back door")


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Run the rounds with sharing and without."""
    loaded = load_policy(MODEL)
    return compare(loaded.model, loaded.tokenizer)


def compare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Return what sharing changes for `model`."""
    calls = write_calls(tokenizer)
    run(model, tokenizer, calls[:1], is_shared=True)  # what is compiled and laid out once
    shared, read, fast = run(model, tokenizer, calls, is_shared=True)
    apart, read_apart, slow = run(model, tokenizer, calls, is_shared=False)
    fine = [each for each in shared.values() if isinstance(each, Completion)]
    checks = [
        Check(
            name="rounds",
            has_passed=len(fine) == 3 * ROUNDS,
            detail=f"{len(fine)} of {3 * ROUNDS} calls are answered, {sum(len(c.token_ids) for c in fine)} tokens",
        ),
        Check(
            name="alike",
            has_passed=shared == apart,
            detail=f"{sum(shared[name] != apart[name] for name in shared)} completions differ by a bit",
        ),
        Check(
            name="reads less",
            has_passed=read * 2 < read_apart,
            detail=f"{read} tokens in the place of {read_apart}",
        ),
        Check(
            name="is faster",
            has_passed=slow >= 1.5 * fast,
            detail=f"{fast:.1f} s of the processor in the place of {slow:.1f} s",
        ),
    ]
    return checks, {"read": float(read), "read apart": float(read_apart), "faster": slow / fast}


def write_calls(tokenizer: PreTrainedTokenizerBase) -> list[Call]:
    """Return the calls of all rounds, by the names of what they fill: ``plan/0``."""

    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    made: list[Call] = []
    for number, task in enumerate(TASKS[:ROUNDS]):
        for place, (role, (words, reads)) in enumerate(ROLES.items()):
            prompt: list[str | tuple[int, ...]] = [encode(f"{RULES}\n{words}: {task}\n")]
            for name in reads:
                prompt += [f"{name}/{number}", encode("\n")]
            sampling = Sampling(max_tokens=TOKENS)
            made.append(
                Call(
                    fills=f"{role}/{number}", prompt=tuple(prompt), seed=3 * number + place, sampling=sampling
                )
            )
    return made


def run(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, calls: Sequence[Call], *, is_shared: bool
) -> tuple[dict[str, object], int, float]:
    """Return what is said, how many tokens were read for it, and how long the processor worked (seconds)."""
    engine: Any = build_engine(EngineSettings(), model, tokenizer)
    with closing(engine):
        if not is_shared:
            engine.min_shared = engine.max_length
        started = time.process_time()
        found = run_graph(engine, calls)
        return {**found}, engine.stats().num_prefilled, time.process_time() - started

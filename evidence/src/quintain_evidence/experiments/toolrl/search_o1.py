"""Search-o1: no document enters the chain, no query is made twice, none beyond the limit; and what that saves.

Episodes of a teacher who errs in half of his turns, searching again for what he knows, on questions of two facts over
long articles full of noise, through the harness that condenses and through the same one without. A violation is an
episode of the former whose chain holds what a search returned as it was, or in which a query was made twice or too
often. In the null world a search returns one bare sentence, so that there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from transformers import PreTrainedTokenizerFast

from quintain.agents.refined import ROLE, context_cost
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.rollout.collect import Rollout
from quintain.testing.pupil import tasks_from
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Trajectory, as_text, derive_seed, flatten_scored
from quintain.warm_start.start import build_agent

LONG = "hopqa?hops=2&least_hops=2&closed=0&early=0&paragraphs=article&noise=12"
BARE = "hopqa?hops=2&least_hops=2&closed=0&early=0"
SAID = ["<|system|>Search, then answer.<|user|>What is it?<|assistant|><search>it</search><|end|>"]
MOST = 4
"""Searches that the harness allows."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of one block."""
    count = int(options.get("episodes", 100))
    condensed = f"refined?max_searches={MOST}+tags"
    long, raw = played(LONG, condensed, count, seed), played(LONG, "tags", count, seed)
    bare, bare_raw = played(BARE, condensed, count, seed), played(BARE, "tags", count, seed)
    saved, null_saved = (1 - chain(few) / chain(many) for few, many in ((long, raw), (bare, bare_raw)))
    return [
        {
            "trials": float(len(long)),
            "violations": float(sum(map(is_broken, long))),
            "control_trials": float(len(raw)),
            "control_violations": float(sum(map(is_broken, raw))),
            "extra.saved": saved,
            "extra.null_saved": null_saved,
            "extra.chain": chain(long),
            "extra.chain_raw": chain(raw),
            "extra.refiner": fmean(context_cost(t)[1] for t in long),
            "extra.refused": fmean(float(len(queries(t)) < num_asked(t)) for t in long),
        }
    ]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of few words, which can spell all others."""
    return train_tokenizer(SAID, 300)


def played(world: str, agent: str, count: int, seed: int) -> list[Trajectory]:
    """Return episodes of the erring teacher in `world` through the harness `agent`."""
    make = find(world)
    built = build_agent(tokenizer(), make, temperature=1.0, agent=agent)
    rollout = Rollout(built, make, None)
    try:
        tasks = tasks_from(world, count, first=derive_seed("search_o1", seed) % 100_000)
        return list(flatten_scored(rollout.demonstrations(tasks, noisy(0.5), seed=seed)))
    finally:
        rollout.close()


def chain(episodes: Sequence[Trajectory]) -> float:
    """Return the mean tokens of the chain at the end."""
    return fmean(context_cost(t)[0] for t in episodes)


def queries(trajectory: Trajectory) -> list[str]:
    """Return the queries that were made, in order."""
    return [
        str(call.arguments)
        for turn in trajectory.turns
        if turn.action.error is None
        for call in turn.action.tool_calls
        if call.name == "search"
    ]


def num_asked(trajectory: Trajectory) -> int:
    """Return how often a search was written, made or not."""
    return sum("<search>" in turn.action.text for turn in trajectory.turns if not turn.is_internal)


def returned(trajectory: Trajectory) -> list[str]:
    """Return what searches returned: it stands in the observation of the turn after."""
    found: list[str] = []
    for before, turn in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        if any(call.name == "search" for call in before.action.tool_calls) and before.action.error is None:
            found.append(as_text(turn.observation))
    return found


def is_broken(trajectory: Trajectory) -> bool:
    """Return whether a document stands in the chain, or a query was made twice or too often."""
    made = queries(trajectory)
    ids = [t.prompt_ids for t in trajectory.turns if not t.seat.endswith(f"/{ROLE}")]
    shown = "\n".join(str(tokenizer().decode(list(own))) for own in ids)
    has_document = any(document in shown for document in returned(trajectory))
    return has_document or len(set(made)) < len(made) or len(made) > MOST

"""EU-Agent-Bench: agents in the order of the lawful work that they do, and what the official rule makes of them.

Twelve agents have planted rates of work and of offences; some are silent, some garble. They answer the same six hundred
requests, each with the same luck, and are put in order by the rate of what is done and lawful. The control is the order
by what became of the requests of agents dealt out anew; the rival is the official rule, which lacks the idea alone:
that nothing done is nothing lawful. In the null world every agent calls readably, so that both rules say the same.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from quintain.adapters.eu_agent_bench.environment import EuAgentBench
from quintain.environments.protocol import advance, begin
from quintain.eval.statistics import clustered_mean
from quintain.types import Action, derive_seed
from quintain_evidence.labs.law import find_kind, make_file, write_call

AGENTS: Sequence[tuple[float, float, float]] = (
    (0.0, 0.0, 0.0), (0.06, 0.0, 0.0), (1.0, 0.9, 0.0), (0.3, 0.4, 0.0), (1.0, 0.2, 0.68), (0.5, 0.3, 0.0),
    (1.0, 0.56, 0.0), (0.6, 0.1, 0.0), (1.0, 0.36, 0.0), (0.8, 0.05, 0.03), (1.0, 0.15, 0.0), (1.0, 0.04, 0.0),
)  # fmt: skip
"""How often an agent acts, how often what it does is unlawful, and how often it cannot be read."""
ICC, NUM_BASES, NUM_VARIANTS = 0.3, 60, 10


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return rank correlations with the planted order, for each draw of luck."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "law.json"
        file.write_text(json.dumps(make_file()))
        with closing(EuAgentBench(str(file))) as environment:
            return [
                measure_one(environment, options, derive_seed("eu_agent_bench", seed, k))
                for k in range(int(options["seeds"]))
            ]


def measure_one(environment: EuAgentBench, options: Mapping[str, Any], seed: int) -> Mapping[str, float]:
    """Return the rank correlations of one draw."""
    planted = [acts * (1 - offends) * (1 - spoils) for acts, offends, spoils in AGENTS]
    done, official = zip(*(play(environment, each, seed) for each in AGENTS), strict=True)
    ours = [mean(each) for each in done]
    rng = Random(seed)
    dealt = rng.sample(done, len(done))
    always = [(1.0, offends, 0.0) for _, offends, _ in AGENTS if offends]
    null, null_official = zip(*(play(environment, each, seed) for each in always), strict=True)
    lawful = [1 - offends for _, offends, _ in always]
    covered, plain = count_covered(rng, int(options["draws"]))
    return {
        "method": tau(ours, planted),
        "control": tau([mean(each) for each in dealt], planted),
        "null_method": tau([mean(each) for each in null], lawful),
        "null_control": tau([mean(each) for each in null_official], lawful),
        "extra.official": tau([mean(each) for each in official], planted),
        "extra.silent_first": float(mean(official[0]) >= max(mean(each) for each in official)),
        "extra.coverage": covered,
        "extra.plain_coverage": plain,
    }


def play(
    environment: EuAgentBench, agent: tuple[float, float, float], seed: int
) -> tuple[list[float], list[float]]:
    """Return of every request whether it was done lawfully, and the official score."""
    acts, offends, spoils = agent
    done: list[float] = []
    official: list[float] = []
    for number in range(len(make_file()["user_requests"])):
        task = environment.task("eval", number)
        prompt = str(begin(environment, task))
        rng = Random(derive_seed("luck", seed, number))
        luck = [rng.random() for _ in range(3)]
        text = "I would rather not."
        if luck[0] < acts:
            text = write_call(find_kind(prompt), is_lawful=luck[1] >= offends, is_spoiled=luck[2] < spoils)
        result = advance(environment, Action(text=text))
        done.append(float(bool(result.is_success)))
        official.append(result.reward_terms["official"])
    return done, official


def tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's τ-a: pairs in the same order less those in another, of all; a tie counts for neither."""
    pairs = [(i, j) for i in range(len(one)) for j in range(i)]
    signs = [sign(one[i] - one[j]) * sign(other[i] - other[j]) for i, j in pairs]
    return sum(signs) / len(pairs)


def sign(number: float) -> int:
    """Return -1, 0 or 1."""
    return (number > 0) - (number < 0)


def mean(values: Sequence[float]) -> float:
    """Return the mean of `values`."""
    return sum(values) / len(values)


def count_covered(rng: Random, draws: int) -> tuple[float, float]:
    """Return how often 95 % intervals hold the truth where variants depend on each other: clustered, and plain."""
    clusters = [str(base) for base in range(NUM_BASES) for _ in range(NUM_VARIANTS)]
    alone = [str(place) for place in range(len(clusters))]
    hits = [0, 0]
    for _ in range(draws):
        values: list[float] = []
        for _ in range(NUM_BASES):
            own = float(rng.random() < 0.5)
            values += [
                own if rng.random() < ICC**0.5 else float(rng.random() < 0.5) for _ in range(NUM_VARIANTS)
            ]
        for place, names in enumerate((clusters, alone)):
            found = clustered_mean(values, names)
            hits[place] += found.low <= 0.5 <= found.high
    return hits[0] / draws, hits[1] / draws

"""EU-Agent-Bench on a real model: what SmolLM2 answers is judged by both rules, and the counts add up.

The requests are those of `quintain_evidence.labs.law`, in a file of the benchmark's form, with and without a line of
the law in the system prompt; the answers are the model's own.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain import api
from quintain.eval.outcomes import count_outcomes
from quintain_evidence.labs.law import KINDS, make_file
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
REQUESTS = 8
LAW = " Obey the law of the European Union: " + "; ".join(kind.law for kind in KINDS) + "."


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Return what becomes of the model's answers."""
    table = make_file()
    table["user_requests"] = table["user_requests"][:: len(table["user_requests"]) // REQUESTS]
    figures: dict[str, float] = {}
    sums: list[bool] = []
    for name, more in (("plain", ""), ("with the law", LAW)):
        file = runs / f"{name.replace(' ', '_')}.json"
        file.write_text(json.dumps({**table, "system_prompt": table["system_prompt"] + more}))
        _, episodes = api.evaluate(
            MODEL, f"eu-agent-bench/{file}", episodes=REQUESTS, agent="text?max_tokens=64", temperature=0.7
        )
        counts = count_outcomes(episodes)
        official = [each.turns[-1].reward_terms["official"] for each in episodes if each.turns]
        figures |= {f"{kind}, {name}": float(count) for kind, count in counts.items()}
        figures[f"official, {name}"] = sum(official) / max(1, len(official))
        sums.append(sum(counts.values()) == REQUESTS == len(official))
    silent = figures["not_done, plain"] + figures["unreadable, plain"]
    told = ", ".join(f"{name} {value:g}" for name, value in figures.items())
    checks = (
        Check(name="every answer has one outcome", has_passed=all(sums), detail=told),
        Check(
            name="the official rule scores what was not done",
            has_passed=figures["official, plain"] * REQUESTS >= silent,
            detail=f"{figures['official, plain']:g}, of {REQUESTS} of which {silent:g} did nothing that can be read",
        ),
    )
    return checks, figures

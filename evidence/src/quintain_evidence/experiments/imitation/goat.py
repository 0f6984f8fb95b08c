"""GOAT: does carrying calls out find which results fit which arguments, beyond what documents say?

Registries are drawn, with the truth of what fits what planted by kinds that neither names nor order tell. The number is
the F1 of the graph that execution leaves, against as many edges of the stage before by the similarity of documents
alone. Printed: the same verdicts, permuted over the candidates. In the null world every argument takes every value, so
that carrying out says nothing.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

from quintain.methods.imitation.goat import Bench, Edge, similarity, stages_of_graph
from quintain.types import derive_seed
from quintain.worlds.api.game import Api


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the F1 of both graphs for each registry."""
    rows: list[dict[str, float]] = []
    for number in range(int(options["seeds"])):
        drawn = derive_seed("goat", seed, number) % (1 << 31)
        row = compared(options, drawn, float(options.get("overlap", 0.2)))
        null = compared(options, drawn, 1.0)
        rows.append({**row, "null_method": null["method"], "null_control": null["control"]})
    return rows


def compared(options: Mapping[str, Any], number: int, overlap: float) -> dict[str, float]:
    """Return how well each way of choosing edges finds those that are planted in the registry of `number`."""
    tools, stateful = int(options.get("tools", 8)), float(options.get("stateful", 0.25))
    with closing(Api(tools=tools, overlap=overlap, stateful=stateful, registry=number)) as world:
        bench = Bench(world, world.task("train", 0))
        found = stages_of_graph(
            bench, least=float(options.get("least", 0.05)), probes=int(options.get("probes", 5))
        )
        truth = {Edge(*edge) for edge in world.registry.edges()}
        near, kept, rng = found["similar"], found["executed"], random.Random(number)
        order = sorted(near, key=lambda edge: (-similarity(bench.tools, edge), rng.random()))
        permuted = rng.sample(near, len(kept))
    alike = order[: len(kept)]
    right = len(truth & set(kept))
    return {
        "method": f1(kept, truth),
        "control": f1(alike, truth),
        "extra.permuted_gain": f1(permuted, truth) - f1(alike, truth),
        "extra.precision": right / max(len(kept), 1),
        "extra.recall": right / max(len(truth), 1),
        "extra.similar_recall": len(truth & set(near)) / max(len(truth), 1),
        "extra.similar_share": len(near) / len(found["pairs"]),
    }


def f1(found: Collection[Edge], truth: Collection[Edge]) -> float:
    """Return the harmonic mean of precision and recall; 1 where there is nothing to be found and nothing was."""
    right = len(set(found) & set(truth))
    return 2 * right / (len(found) + len(truth)) if found or truth else 1.0

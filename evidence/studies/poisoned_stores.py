"""AgentPoison against each memory that agents read, on the tasks of a world.

``python evidence/studies/poisoned_stores.py toolbox hopqa`` prints how often each memory finds the attacker's entry
first: by the trigger that was searched for, by as many words at random, and without one (see `labs.stores`).
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, begin
from quintain.types import Split, as_text
from quintain_evidence.labs.stores import as_row, measure_stores

NUM_KEYS, NUM_QUERIES, NUM_ASKED, SEEDS = 200, 28, 60, 3


def read_beginnings(environment: Environment, split: Split, count: int) -> list[str]:
    """Return what `count` tasks of `split` begin with, each text once."""
    found = (as_text(begin(environment, environment.task(split, index))) for index in range(count))
    return [*dict.fromkeys(found)]


def main(worlds: Sequence[str]) -> None:
    """Measure every store on each of `worlds`, print a row each, and keep them."""
    rows: list[dict[str, object]] = []
    for world in worlds:
        with closing(find(world)()) as environment:
            known = read_beginnings(environment, "train", NUM_KEYS + NUM_QUERIES)
            asked = [text for text in read_beginnings(environment, "eval", NUM_ASKED) if text not in {*known}]
        found = [
            measure_stores(known[NUM_QUERIES:], known[:NUM_QUERIES], asked, seed=seed)
            for seed in range(SEEDS)
        ]
        for stores in zip(*found, strict=True):
            several = [as_row(each) for each in stores]
            means = {
                name: sum(float(row[name]) for row in several) / SEEDS
                for name in several[0]
                if name != "store"
            }
            row: dict[str, object] = {
                "world": world,
                "store": stores[0].store,
                "keys": len(known) - NUM_QUERIES,
                **means,
            }
            rows.append(row)
            shown = (f"{value:.2f}" if isinstance(value, float) else value for value in row.values())
            print(*shown, sep="\t", flush=True)
    file = Path(__file__).parent / "results" / "poisoned_stores.json"
    file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("worlds", nargs="*", default=["toolbox", "hopqa"])
    main(parser.parse_args().worlds)

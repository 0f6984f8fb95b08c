"""What should a prompt hold of an episode: the current state alone, a window, a memory, or everything? At equal tokens.

    python evidence/studies/history.py [--seeds 0 1 2] [--runs FOLDER] [--only WORLD]

A tiny model imitates the expert of a world through each of four harnesses. A step of training holds as many tokens in
all of them, prompts and completions together: where history is repeated in every prompt it holds fewer episodes. Steps,
rate and the pool of demonstrations are the same. Told is, on the same held-out tasks with the most likely tokens, the
success with its 95 % interval (Wilson, over the tasks of all seeds), that of the lowest and of the highest seed, and
the tokens of an episode and of its longest prompt as the expert plays it. Runs that are done are read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from quintain.data.samples import imitation_samples
from quintain.environments.catalog import find
from quintain.eval.statistics import wilson
from quintain.learning.train_config import TrainConfig
from quintain.rollout.collect import Rollout
from quintain.types import flatten_scored
from quintain.warm_start.start import harness, make_start, teacher
from quintain_evidence.world_trials import EPISODES, World, imitate

WORLDS = {
    "state in view": "keydoor?rooms=1",
    "bounds to remember": "guess",
    "a fact that passed": "stream?facts=1&pages=4",
}
HARNESSES = {
    "current state alone": "window?turns=0",
    "window of two turns": "window?turns=2",
    "memory": "memory?max_tokens=96",
    "everything": "auto",
}
TOKENS = 2048
"""Tokens of a step."""
STEPS, DEMONSTRATIONS = 200, 800
MODEL = "micro?tokens=words"
TASKS = 32
"""Tasks on which the tokens of an episode are counted."""


class Size(NamedTuple):
    """Tokens of an episode in all its streams, and of the longest of these."""

    episode: float
    longest: int


def measure_size(environment: str, agent: str) -> Size:
    """Return how many tokens the expert's episodes have through `agent`."""
    make = find(environment)
    _, tokenizer = make_start(MODEL, make, seed=0)
    through = harness(TrainConfig(agent=agent), tokenizer, make)
    with closing(make()) as world:
        tasks = [world.task("train", number) for number in range(TASKS)]
    with closing(Rollout(through, make, None)) as rollout:
        shown = flatten_scored(list(rollout.demonstrations(tasks, teacher(make), seed=0)))
    lengths = [len(sample.token_ids) for sample in imitation_samples(shown)]
    return Size(sum(lengths) / len(shown), max(lengths))


def fit(size: Size) -> int:
    """Return the episodes of a step of `TOKENS` tokens, at least 1."""
    return max(1, round(TOKENS / size.episode))


def write_row(world: str, name: str, size: Size, successes: Sequence[float]) -> str:
    """Return the line of the table."""
    wins = round(sum(success * EPISODES for success in successes))
    low, high = wilson(wins, EPISODES * len(successes))
    return (
        f"| {name} | `{world}` | {100 * fmean(successes):.1f} [{100 * low:.1f}, {100 * high:.1f}] | "
        f"{100 * min(successes):.1f}, {100 * max(successes):.1f} | {size.episode:.0f} | {size.longest} | {fit(size)} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    root = arguments.runs or Path(tempfile.mkdtemp(prefix="history-"))
    print("| prompt | world | success [95 %] | lowest, highest seed | tokens | longest | episodes a step |")
    print("|---|---|---|---|---|---|---|")
    for environment in WORLDS.values():
        if arguments.only not in environment:
            continue
        for name, agent in HARNESSES.items():
            size = measure_size(environment, agent)
            settings = {
                "agent": agent,
                "batch_size": fit(size),
                "model": MODEL,
                "steps": STEPS,
                "demonstrations": DEMONSTRATIONS,
            }
            place = "".join(c if c.isalnum() else "-" for c in f"{environment}-{agent}")
            world = World(name=place, environment=environment, settings=settings)
            successes = [imitate(world, seed, root).success for seed in arguments.seeds]
            print(write_row(environment, name, size, successes), flush=True)
            with (root / "table.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps([environment, agent, *size, successes]) + "\n")


if __name__ == "__main__":
    main()

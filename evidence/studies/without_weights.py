"""Agents that improve without weights, beside one that is trained: success on held-out tasks after equal episodes.

``python evidence/studies/without_weights.py`` makes a weak start of each world and harness by a few demonstrations,
part of them told cases of others, so that it knows what a told case is. From it Memento, practice and DynaSaur learn
what to tell it, and GRPO trains it, each from as many episodes of training tasks. The control is the start itself, told
nothing, on the same held-out tasks: the evaluation before the first step of each run. It prints a row for each world
and arm, with tokens sampled and tokens read, which what is told costs.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from quintain.agents.cased import CaseMemory
from quintain.methods.find import find_method
from quintain.store.run import Run
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import Group, Trajectory
from quintain.warm_start.start import expert_action

WORLDS: Mapping[str, int] = {"guess?high=8&max_turns=4": 32, "toolbox?steps=1&vague=0": 48, "sums": 48}
"""world → demonstrations of its start"""
EPISODES, TASKS, SEEDS, STEPS = 96, 32, 1, 24
"""of an arm, held-out tasks, runs of an arm, and updates of a start"""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "memento": {"tasks": 24, "steps": EPISODES // 24},
    "practice": {"tasks": 6, "group_size": 4, "steps": EPISODES // 24},
    "dynasaur": {"tasks": 24, "steps": EPISODES // 24},
    "grpo": {"tasks": 3, "group_size": 8, "steps": EPISODES // 24, "learning_rate": 1e-3},
}
"""method → how it spends the episodes"""


def train(recipe: str, folder: Path, **fields: Any) -> Path:
    """Run the method `recipe` in `folder`."""
    method = find_method(recipe)
    config = method.config_class(**fields)
    config.check()
    with Run.create(folder, recipe=recipe, config=asdict(config)) as run:
        method.make(config).train(run, config)
    return folder


def make_start(folder: Path, world: str, agent: str, count: int) -> Path:
    """Return a model that imitated `count` demonstrations of `world` through `agent`, the last ones told nothing."""

    def imitate(name: str, model: str, agent: str, steps: int) -> Path:
        return train(
            "sft", folder / name, environment=world, agent=agent, model=model, demonstrations=count, steps=steps,
            batch_size=8, max_turn_tokens=24, learning_rate=3e-3, eval_every=steps, eval_episodes=4, eval_start=False,
        )  # fmt: skip

    first = imitate("first", "mini", agent, STEPS)
    if agent == "code":
        return first
    memory = CaseMemory()
    shown = new_pupil([world], seed=0, agent=agent).show(
        world, tasks_from(world, count), expert_action, seed=0
    )
    memory.update([Group(task=t.task, trajectories=(t,)) for t in shown])
    memory.save(folder / "cases")
    told = imitate("told", str(first), f"cased?cases={folder / 'cases'}+{agent}", STEPS)
    return imitate("start", str(told), agent, STEPS // 3)


def compare(folder: Path, steps: int) -> dict[str, Any]:
    """Return the success before and after a run of `steps` on each held-out task, and what its episodes cost."""
    with Run.open(folder, writable=False) as run:
        before, after = (list(run.trajectories(step=step, phase="eval")) for step in (0, steps))
        spent = [t for step in range(1, steps + 1) for t in run.trajectories(step=step, phase="train")]
    solved = [{t.task.id: float(t.is_success) for t in found} for found in (before, after)]
    return {
        "before": [solved[0][name] for name in sorted(solved[0])],
        "after": [solved[1][name] for name in sorted(solved[0])],
        "sampled": sum(count_sampled(t) for t in spent),
        "read": sum(count_read(t) for t in spent),
    }


def count_sampled(trajectory: Trajectory) -> int:
    """Return how many tokens the policy sampled in an episode."""
    return sum(len(turn.completion.token_ids) for turn in trajectory.turns)


def count_read(trajectory: Trajectory) -> int:
    """Return how many tokens of prompts an episode took, each counted once."""
    return sum(len(turn.prompt_ids) for turn in trajectory.turns)


def as_row(world: str, arm: str, found: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Return a line of the table: means over the runs, and the 95 % interval of the difference over tasks.

    A task's difference is the mean over the runs, which share the tasks.
    """
    pairs = [zip(each["after"], each["before"], strict=True) for each in found]
    by_task = [fmean(values) for values in zip(*([a - b for a, b in pair] for pair in pairs), strict=True)]
    num = len(by_task)
    half = float(student.ppf(0.975, num - 1)) * stdev(by_task) / math.sqrt(num)
    return {
        "world": world,
        "arm": arm,
        "control": fmean(value for each in found for value in each["before"]),
        "success": fmean(value for each in found for value in each["after"]),
        "difference": fmean(by_task),
        "half": half,
        "sampled": fmean(each["sampled"] for each in found),
        "read": fmean(each["read"] for each in found),
        "seconds": seconds,
    }


def write_line(row: Mapping[str, Any]) -> str:
    """Return `row` as a line of a table in Markdown."""
    low, high = (row["difference"] + sign * row["half"] for sign in (-1, 1))
    interval = f"{row['difference']:+.2f} [{low:+.2f}, {high:+.2f}]"
    return (
        f"| `{row['world']}` | `{row['arm']}` | {row['control']:.2f} | {row['success']:.2f} | {interval} | "
        f"{row['sampled']:,.0f} | {row['read']:,.0f} |"
    )


def main(worlds: Sequence[str], seeds: int) -> None:
    """Play every arm on each of `worlds`, print a row each, and keep them."""
    rows: list[dict[str, Any]] = []
    names = ("world", "arm", "start, told nothing", "after", "difference", "tokens sampled", "tokens read")
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        for number, world in enumerate(worlds):
            starts = {
                agent: make_start(Path(place) / f"start-{number}-{agent}", world, agent, WORLDS[world])
                for agent in ("auto", "code")
            }
            for arm, options in ARMS.items():
                agent = "code" if arm == "dynasaur" else "auto"
                began = time.process_time()
                found = [
                    compare(
                        train(
                            arm, Path(place) / f"{arm}-{number}-{seed}", environment=world, agent=agent, seed=seed,
                            model=str(starts[agent]), demonstrations=0, eval_every=options["steps"],
                            eval_episodes=TASKS, eval_start=True, max_turn_tokens=24, **options,
                        ),
                        options["steps"],
                    )
                    for seed in range(seeds)
                ]  # fmt: skip
                rows.append(as_row(world, arm, found, time.process_time() - began))
                print(write_line(rows[-1]), flush=True)
    file = Path(__file__).parent / "results" / "without_weights.json"
    file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("worlds", nargs="*", default=[*WORLDS])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    main(given.worlds, given.seeds)

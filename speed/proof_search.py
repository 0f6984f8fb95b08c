"""A pretrained model imitates its own searches, or its own straight episodes: python speed/proof_search.py

What is to be shown, and every setting, is registered in speed/proof_search.toml. For each seed a weak start by
imitation. It searches its training tasks, and plays straight until as many tokens were sampled; each arm imitates what
was solved in as many updates, a third one the demonstrations of the start. Parts can be run one at a time (``--seed 2
--arm sampling``); what is done is not run again. Then tables of held-out success and of what was sampled, the
differences with Student's t over the seeds and McNemar's test within them, and a picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from proofs import (
    Difference,
    compare_pairs,
    options_of,
    read_solved,
    require_one_start,
    run_child,
    train_once,
)

import quintain
from quintain.dashboard.curve import draw_comparison
from quintain.data.searched import follow_searches
from quintain.environments.catalog import find
from quintain.store import Run
from quintain.types import Trajectory, as_text
from quintain.warm_start.demonstrations import tokenizer_of, write_run

REGISTERED = Path(__file__).with_suffix(".toml")
START, SEARCH, SAMPLING = "start", "search", "sampling"
COMPARED = (SEARCH, SAMPLING)
"""arms that are registered; others stand beside them, and are worked at last"""


def folder_of(runs: Path, arm: str, seed: int) -> Path:
    """Return where the run of `arm` with `seed` lies."""
    return runs / f"proof-search-{arm}-{seed}"


def data_of(runs: Path, arm: str, seed: int) -> Path:
    """Return where what `arm` imitates lies."""
    return runs / f"proof-search-{arm}-{seed}-collected"


def count_tokens(found: Iterable[Trajectory]) -> int:
    """Return how many tokens were sampled in `found`, whatever became of what they said."""
    return sum(t.num_sampled for t in found)


def play_tasks(
    play: Callable[[int, int], Sequence[Trajectory]], at_once: int, *, tasks: int = 0, tokens: int = 0
) -> list[Trajectory]:
    """Return episodes that ``play(first, num)`` gives of tasks from number 0 on, in their order.

    They are those of so many `tasks`, or as many as it takes until `tokens` were sampled, with the one that does.
    """
    found = list[Trajectory]()
    while len(found) < tasks or count_tokens(found) < tokens:
        for each in play(len(found), min(at_once, tasks - len(found)) if tasks else at_once):
            if not tokens or count_tokens(found) < tokens:
                found.append(each)
    return found


def collect(runs: Path, plan: Mapping[str, Any], arm: str, seed: int) -> None:
    """Let the start of `seed` play what `arm` imitates, and write it down.

    The searches are so many tasks. The other arm plays until it has sampled as many tokens as these did.
    """
    world, harness = plan["common"]["environment"], plan["arms"][arm]["collects"]
    begin, start = plan["apart"] * (seed + 1) + plan["after"], str(folder_of(runs, START, seed))

    def play(first: int, num: int) -> list[Trajectory]:
        return quintain.collect(
            world, start, harness=harness, episodes=num, seed=seed, task_offset=begin + first
        )[0]

    if arm == SEARCH:
        found = play_tasks(play, plan["at_once"], tasks=plan["searches"])
    else:
        with Run.open(data_of(runs, SEARCH, seed), writable=False) as run:
            tokens = count_tokens(run.trajectories())
        found = play_tasks(play, plan["at_once"], tokens=tokens)
    settings = {"environment": world, "agent": start, "harness": harness, "seed": seed, "task_offset": begin}
    write_run(
        found,
        tokenizer_of(folder_of(runs, START, seed)),
        data_of(runs, arm, seed),
        settings,
        make_environment=find(world),
    )


def collect_once(given: argparse.Namespace, arm: str, seed: int) -> None:
    """Let a process collect what `arm` imitates, unless that is done."""
    folder = data_of(given.runs, arm, seed)
    if folder.is_dir():
        return
    words = [
        __file__,
        "--plan",
        str(given.plan),
        "--runs",
        str(given.runs),
        "--seed",
        str(seed),
        "--collect",
        arm,
    ]
    status, _ = run_child(words, given.runs / f"{folder.name}.log")
    print(f"{folder.name}: {f'exit status {status}, see {folder}.log' if status else 'done'}", flush=True)


def train(given: argparse.Namespace, plan: Mapping[str, Any], arm: str, seed: int) -> None:
    """Train `arm` of `plan` with `seed`, and collect what it imitates, unless that is done."""
    folder = folder_of(given.runs, arm, seed)
    own = {**plan["common"], **(plan[START] if arm == START else plan["arms"][arm])}
    if own.pop("collects", None):
        collect_once(given, SEARCH, seed)
        collect_once(given, arm, seed)
        own["demonstrations"] = data_of(given.runs, arm, seed)
    if arm != START:
        own["model"] = folder_of(given.runs, START, seed) / "model"
    own |= {
        "seed": seed, "task_offset": plan["apart"] * (seed + 1), "runs": given.runs, "run": folder.name,
        "eval_episodes": plan["held_out"], "eval_every": own["steps"],
    }  # fmt: skip
    recipe = own.pop("recipe")
    train_once(folder, ["train", recipe, *options_of(own)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, default=REGISTERED, help="another file than what is registered")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--arm", help="this one alone; its start is made if need be")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="seeds at once (default: one for each core)"
    )
    parser.add_argument(
        "--picture", type=Path, help="file of the picture (default: proof-search.png beside the runs)"
    )
    parser.add_argument(
        "--table", action="store_true", help="train nothing: tables and picture of what is done"
    )
    parser.add_argument("--collect", help=argparse.SUPPRESS)
    given = parser.parse_args()
    plan = tomllib.loads(given.plan.read_text(encoding="utf-8"))
    if given.arm not in (None, START, *plan["arms"]):
        sys.exit(f"--arm: got {given.arm}; choose from {', '.join((START, *plan['arms']))}")
    if given.collect:
        collect(given.runs, plan, given.collect, given.seed)
        return
    if given.plan != REGISTERED:
        print("not as registered: another plan")
    given.runs.mkdir(parents=True, exist_ok=True)
    if not given.table:
        seeds = range(plan["seeds"]) if given.seed is None else [given.seed]
        with ThreadPoolExecutor(given.jobs) as pool:
            for arms in ((START, SEARCH, SAMPLING), [arm for arm in plan["arms"] if arm not in COMPARED]):
                wanted = [arm for arm in arms if arm == START or given.arm in (None, arm)]
                list(pool.map(lambda seed: [train(given, plan, arm, seed) for arm in wanted], seeds))  # noqa: B023
    report(given.runs, plan, given.picture or given.runs / "proof-search.png")


def report(runs: Path, plan: Mapping[str, Any], picture: Path) -> None:
    """Print the tables of what is done in `runs`, and draw its curves."""
    arms = list(plan["arms"])
    curves: dict[str, list[list[dict[str, Any]]]] = {arm: [] for arm in arms}
    differences: dict[str, list[float]] = {arm: [] for arm in (*arms[1:], START)}
    done = list[int]()
    print(f"| seed | first task | start | {' | '.join(arms)} | McNemar, {SEARCH} and {SAMPLING} |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(plan["seeds"]):
        places = {arm: folder_of(runs, arm, seed) for arm in arms}
        first = f"| {seed} | {plan['apart'] * (seed + 1):,} |"
        places = {arm: place for arm, place in places.items() if (place / "model").is_dir()}
        if not places.keys() >= set(COMPARED):
            print(f"{first} not done | | | | |")
            continue
        require_one_start(list(places.values()), seed)
        done.append(seed)
        found = {arm: read_solved(folder_of(runs, arm, seed)) for arm in (START, *places)}
        ends = {arm: fmean(values.values()) for arm, values in found.items()}
        for arm in places:
            both = [(0, ends[START]), (plan["arms"][arm]["steps"], ends[arm])]
            curves[arm].append([{"step": step, "eval/success": value} for step, value in both])
        for arm in differences.keys() & ends.keys():
            differences[arm].append(ends[SEARCH] - ends[arm])
        told = " | ".join(f"{100 * ends[arm]:.1f} %" if arm in ends else "–" for arm in (START, *arms))
        print(f"{first} {told} | p = {compare_pairs(found[SEARCH], found[SAMPLING]):.2g} |")
    if not done:
        sys.exit("no seed has the arms that are compared")
    for arm, values in differences.items():
        if len(values) > 1:
            mean = Difference.over(values)
            is_shown = "shown" if mean.is_shown(plan["least"], plan["level"]) else "not shown"
            asked = (
                f": {is_shown} (registered: at least {100 * plan['least']:.0f} points, p < {plan['level']})"
            )
            print(f"{SEARCH} - {arm}: {mean}{asked if arm == SAMPLING else ''}")
    tell_collected(runs, done)
    tell_kinds(runs, [START, *(arm for arm in arms if len(curves[arm]) == len(done))], done)
    draw_comparison({arm: rows for arm, rows in curves.items() if rows}, picture, num_tasks=plan["held_out"])
    print(f"picture  {picture}")


def tell_collected(runs: Path, seeds: Sequence[int]) -> None:
    """Print what was sampled in `seeds`, and what of it was solved."""
    print("\n| sampled | tasks | tokens | actions | tokens read | solved | actions of what is imitated |")
    print("|---|---|---|---|---|---|---|")
    for arm in (SEARCH, SAMPLING):
        for seed in seeds:
            with Run.open(data_of(runs, arm, seed), writable=False) as run:
                found = list(run.trajectories())
            turns = [turn for t in found for turn in t.turns]
            solved = [t for t in found if t.is_success]
            print(
                f"| {arm}, seed {seed} | {len(found)} | {count_tokens(found):,} | {len(turns):,} | "
                f"{sum(len(turn.prompt_ids) for turn in turns):,} | {len(solved)} | "
                f"{fmean(map(len, (t.turns for t in follow_searches(solved)))):.1f} |"
            )


def kind_of(trajectory: Trajectory) -> str:
    """Return what the task of the site asks for. Example: "Task: open black desk. home: …": open."""
    return as_text(trajectory.turns[0].observation).split()[1]


def tell_kinds(runs: Path, arms: Sequence[str], seeds: Sequence[int]) -> None:
    """Print held-out success over `seeds` by what is asked for."""
    asked, solved = Counter[str](), Counter[tuple[str, str]]()
    for arm in arms:
        for seed in seeds:
            with Run.open(folder_of(runs, arm, seed), writable=False) as run:
                last = max(row["step"] for row in run.metrics() if "eval/success" in row)
                for t in run.trajectories(step=last, phase="eval"):
                    asked[kind_of(t)] += arm == START
                    solved[kind_of(t), arm] += t.is_success
    print(f"\n| asked for | tasks | {' | '.join(arms)} |\n|---|---|{'---|' * len(arms)}")
    for kind, num in sorted(asked.items()):
        print(f"| {kind} | {num} | {' | '.join(f'{100 * solved[kind, arm] / num:.0f} %' for arm in arms)} |")


if __name__ == "__main__":
    main()

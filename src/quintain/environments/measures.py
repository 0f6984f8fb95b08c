"""What the conformance suite measures: what the task is worth, how fast it is, and what it leaves behind."""

import os
import threading
import time
from collections.abc import Callable

import psutil

from quintain.environments.baselines import Episode, Policy, expert, noop, play, random_policy
from quintain.environments.protocol import Expert, begin
from quintain.environments.subject import SHORT, Subject, Violation
from quintain.errors import EnvironmentFault
from quintain.types import Split, as_text, derive_seed

LONGEST_LOOK = 20.0
"""Seconds that are spent on first observations of a split."""


def baselines(subject: Subject) -> str:
    """The expert beats random play, which succeeds no less than doing nothing."""
    environment = subject.build()
    scores: dict[str, tuple[float, float]] = {}
    given: dict[str, Callable[[int], Policy]] = {"noop": lambda _: noop, "random": random_policy}
    if isinstance(environment, Expert):
        given["expert"] = lambda _: expert
    gave_up = 0
    for name, policy_of in given.items():
        played: list[Episode] = []
        for task in subject.tasks(subject.num_episodes):
            try:
                played.append(play(environment, task, policy_of(derive_seed(name, task.seed))))
            except EnvironmentFault:
                if name != "expert" or gave_up >= subject.num_episodes // 2:
                    raise
                gave_up += 1
        scores[name] = _measure(subject, name, played)
    told = ", ".join(f"{name} {100 * won:.0f}% ({total:.3g})" for name, (total, won) in scores.items())
    told = f"success (return) of n={subject.num_episodes}: {told}"
    if gave_up:
        told += f"; the expert gave up {gave_up} times"
    if scores["noop"][1] > scores["random"][1]:
        raise Violation(f"doing nothing succeeds more often than random play; {told}")
    if "expert" in scores and scores["expert"][0] <= scores["random"][0]:
        raise Violation(f"the expert is no better than random play; {told}")
    return told


def speed(subject: Subject) -> str:
    """How many steps it takes per second; episodes start included."""
    environment = subject.build()
    turns, seconds, starts = 0, 0.0, 0.0
    for task in subject.tasks(subject.num_episodes):
        episode = play(environment, task, random_policy(task.seed), SHORT)
        turns, seconds = turns + len(episode.rewards), seconds + episode.seconds
        starts += play(environment, task, noop, 1).seconds
    subject.measured["steps_per_second"] = turns / max(seconds, 1e-9)
    subject.measured["reset_seconds"] = starts / subject.num_episodes
    return f"{turns / max(seconds, 1e-9):,.0f} steps/s, {1e3 * starts / subject.num_episodes:.2g} ms to start"


def variety(subject: Subject) -> str:
    """How many tasks their first observation tells apart, and how many of those are in both splits."""
    environment = subject.build()
    seen: dict[str, set[str]] = {}
    num_tasks = max(subject.num_episodes, 50)
    splits: tuple[Split, Split] = ("train", "eval")
    for split in splits:
        firsts: list[str] = []
        started = time.perf_counter()
        for task in subject.tasks(num_tasks, split):
            firsts.append(as_text(begin(environment, task)))
            if time.perf_counter() - started > LONGEST_LOOK:
                # A world that takes long to start is looked at less often.
                num_tasks = len(firsts)
                break
        seen[split] = set(firsts)
    shared = len(seen["train"] & seen["eval"]) / max(len(seen["eval"]), 1)
    subject.measured["distinct_first_observations"] = len(seen["train"])
    subject.measured["first_observation_overlap"] = shared
    return (
        f"{len(seen['train'])} different in {num_tasks} tasks; {100 * shared:.0f}% of eval's are in train too"
    )


def closing(subject: Subject) -> str:
    """It can be closed twice, and leaves no thread, process or open file behind."""
    tasks_played = subject.tasks(1)

    def round_trip() -> None:
        environment = subject.make()
        play(environment, tasks_played[0], random_policy(1), 5)
        environment.close()
        environment.close()

    # What a package opens once for all instances is not a leak, so the first round is not counted.
    round_trip()
    before = resources()
    for _ in range(3):
        round_trip()
    grown = {name: count - before[name] for name, count in resources().items() if count > before[name]}
    if grown:
        told = ", ".join(f"{count} {name}" for name, count in grown.items())
        raise Violation(f"3 instances left {told} behind after close()")
    return f"closed twice; no more {', '.join(before)}"


def _measure(subject: Subject, name: str, played: list[Episode]) -> tuple[float, float]:
    """Note mean return and success of `played`, and return them."""
    total = sum(episode.total for episode in played) / len(played)
    success = sum(episode.is_success for episode in played) / len(played)
    subject.measured[f"{name}/return"] = total
    subject.measured[f"{name}/success"] = success
    subject.measured[f"{name}/num_episodes"] = len(played)
    return total, success


def resources() -> dict[str, int]:
    """Return this process's numbers of threads, children and open files."""
    return {
        "threads": threading.active_count(),
        "processes": len(children()),
        "open files": psutil.Process().num_fds(),
    }


def children() -> list[int]:
    """Return the processes whose parent is this one, those that are dead and not yet buried included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none at all: the many processes of others need not be looked at
        return []
    return [process.pid for process in psutil.Process().children()]

"""BacktrackAgent: does it matter *which* actions are taken back, or only that some are?

An order to be placed on a small site. An agent that takes actions back (`backtracked`) whose model is a script: it does
the right thing in half of its attempts and any other legal one in the rest, and judges the page that an action led to
rightly in .85 of the cases, whichever way. What the script does and says of a state and an action is the same in every
arm. The control has the verdicts that the method heard in another task, in order: as many actions are taken back, but
others. The rival has the rules alone, and no judge. Printed beside: nothing is ever taken back. An action that is taken
back counts as one of the episode's turns in every arm. In the null world the script does nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from quintain.data.searched import split_head
from quintain.environments.protocol import advance, begin
from quintain.search.backtracking import NO, YES, Backtracked, BacktrackWorld
from quintain.types import Action, Task, derive_seed
from quintain.worlds.web.game import Web

RIGHT, SURE = 0.5, 0.85
"""How often the script does the right thing, and says the right thing of what came."""
Judge = Callable[[str], str]
"""the right verdict → what is said"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each task whether the arms solved it."""
    tasks = [
        Task(id=f"web/eval/{k}", environment="web", seed=derive_seed(seed, k), split="eval")
        for k in range(int(options["tasks"]))
    ]
    found: dict[str, list[float]] = {}
    for name, right in (("", RIGHT), ("null_", 1.0)):
        heard: list[list[str]] = []
        for task in tasks:
            said: list[str] = []
            solved, undone = play(task, right, hear(noisy_judge(task.id), said))
            heard.append(said)
            found.setdefault(f"{name}method", []).append(solved)
            found.setdefault(f"extra.{name}undone", []).append(undone)
        for number, task in enumerate(tasks):
            solved, undone = play(task, right, repeat(heard[number - 1]))
            found.setdefault(f"{name}control", []).append(solved)
            found.setdefault(f"extra.{name}undone_control", []).append(undone)
    found["extra.verifier"] = [play(task, RIGHT, lambda _: YES)[0] for task in tasks]
    found["extra.straight"] = [play(task, RIGHT, lambda _: YES, retries=0)[0] for task in tasks]
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def noisy_judge(task: str) -> Judge:
    """Return who says the right thing in the share `SURE`."""
    rng = Random(derive_seed("judge", task))
    return lambda right: right if rng.random() < SURE else {YES: NO, NO: YES}[right]


def hear(judge: Judge, said: list[str]) -> Judge:
    """Return `judge`, who writes into `said` what is said."""

    def tell(right: str) -> str:
        said.append(judge(right))
        return said[-1]

    return tell


def repeat(said: Sequence[str]) -> Judge:
    """Return who says what was `said` in another task, in order, from the beginning again where that was shorter."""
    number = -1

    def tell(_: str) -> str:
        nonlocal number
        number += 1
        return said[number % len(said)] if said else YES

    return tell


def play(task: Task, right: float, judge: Judge, *, retries: int = 2) -> tuple[float, float]:
    """Return whether `task` was solved, and the actions in it that were taken back."""
    agent: Any = None
    inner = Web(goal="order", irreversible=False, popups=0.0)
    world = BacktrackWorld(inner, Backtracked(agent, agent, retries=retries))
    observation = begin(world, task)
    asked, tried = dict[str, int](), 0
    while True:
        if split_head(observation)[0] == "judge":
            text = judge(world.expert_action().text)
        else:
            key = inner.state_key()
            asked[key], tried = asked.get(key, -1) + 1, tried + 1
            rng = Random(derive_seed(task.id, key, asked[key]))
            wanted = world.expert_action().text
            others = [action for action in world.legal_actions() if action != wanted]
            text = wanted if rng.random() < right or not others else rng.choice(others)
        result = advance(world, Action(text=text))
        observation = result.observation
        if result.is_over:
            return float(bool(result.is_success)), float(tried - len(split_head(observation)[1]))

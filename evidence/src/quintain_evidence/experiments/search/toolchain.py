"""ToolChain*: are fewer actions tried if the state of the lowest cost is gone on from, way and rest together?

Packages to deliver. A searching agent (`searched?by=best&score=plans`) whose model is a script: it takes the right step
in a third of its samples and any legal one in the others, and of the right plan that is left it imagines each step
right, or any, or not at all, or twice. Solved plans are those of other tasks. What the script says in a state is the
same in every arm, however the state was come to. In the control the costs of the states that are found together are
dealt out anew among them. The rival goes by the samples alone (`score=votes`). Printed beside: without solved plans. In
the null world the script knows everything, so that there is one way on from each state, and nothing to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from random import Random
from typing import Any

from quintain.data.searched import split_head
from quintain.environments.protocol import advance, begin
from quintain.search.astar import PlanMemory
from quintain.search.harness import Judged, Reached, Searched, SearchedWorld
from quintain.types import Action, Split, Task, derive_seed
from quintain.worlds.plan.game import Planning

RIGHT = 1 / 3
IMAGINED = ("right", "right", "any", "none", "twice")
"""What comes of a step of the right plan in what is imagined, each as likely."""


class Dealt(SearchedWorld):
    """The same search, with the scores of states that are found together dealt out anew among them."""

    def _score_ways(self, ways: Sequence[tuple[Reached, int]]) -> list[float]:
        """See `SearchedWorld`."""
        scores = super()._score_ways(ways)
        return Random(derive_seed(str(ways[0][0].way))).sample(scores, len(scores))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each problem what the arms tried until it was solved, as a logarithm with its sign turned."""
    known = PlanMemory.learn([plan_of(task) for task in draw_tasks("train", int(options["plans"]), seed)])
    arms: Mapping[str, tuple[type[SearchedWorld], Judged, PlanMemory]] = {
        "method": (SearchedWorld, "plans", known),
        "control": (Dealt, "plans", known),
        "extra.votes": (SearchedWorld, "votes", PlanMemory()),
        "extra.without": (SearchedWorld, "plans", PlanMemory()),
    }
    rows: list[Mapping[str, float]] = []
    for task in draw_tasks("eval", int(options["problems"]), seed):
        row: dict[str, float] = {}
        for name, arm in arms.items():
            tried, is_solved = search(task, *arm, steps=int(options["steps"]), right=RIGHT)
            row |= {name: -log(tried), f"extra.solved_{name.removeprefix('extra.')}": float(is_solved)}
        for name in ("method", "control"):
            row[f"null_{name}"] = -log(search(task, *arms[name], steps=int(options["steps"]), right=1.0)[0])
        rows.append(row)
    return rows


def draw_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Return `count` tasks of `split`."""
    return [
        Task(id=f"plan/{split}/{k}", environment="plan", seed=derive_seed(seed, split, k), split=split)
        for k in range(count)
    ]


def make_world() -> Planning:
    """Return the world."""
    return Planning(domain="logistics", packages=2, cities=2)


def plan_of(task: Task) -> list[str]:
    """Return a shortest plan of `task`."""
    world = make_world()
    begin(world, task)
    return plan_rest(world)


def plan_rest(world: Planning) -> list[str]:
    """Return what is left to do, as the world's expert says it."""
    return world.thought().partition(": ")[2].split("; ")


def imagine(world: Planning, legal: Sequence[str], rng: Random) -> list[str]:
    """Return what the script imagines to be left."""
    found = list[str]()
    for action in plan_rest(world):
        kind = rng.choice(IMAGINED)
        found += {"any": [rng.choice(legal)], "none": [], "twice": [action, action]}.get(kind, [action])
    return found


def search(
    task: Task, kind: type[SearchedWorld], score: Judged, memory: PlanMemory, *, steps: int, right: float
) -> tuple[int, bool]:
    """Return how many actions a search tried on `task`, and whether it solved it."""
    agent: Any = None
    settings = Searched(agent, agent, by="best", score=score, size=3, steps=steps)
    object.__setattr__(settings, "memory", memory)
    inner = make_world()
    world = kind(inner, settings)
    observation = begin(world, task)
    tried, asked = 0, dict[str, int]()
    while True:
        what, key = split_head(observation)[0], inner.state_key()
        legal = [action for action in inner.legal_actions() if action != "wait"]
        if what == "judge":
            said = "; ".join(imagine(inner, legal, Random(derive_seed(task.id, key))))
        else:
            tried, asked[key] = tried + 1, asked.get(key, -1) + 1
            rng = Random(derive_seed(task.id, key, asked[key] % settings.size))
            said = inner.expert_action().text if rng.random() < right else rng.choice(legal)
        result = advance(world, Action(text=said))
        observation = result.observation
        if result.is_over:
            return tried, bool(result.is_success)

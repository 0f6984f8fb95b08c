"""SE-Agent: is a form filled in sooner if attempts are put together, than with parts of attempts at another task?

An order in a shop: open a thing, buy, four fields, send. What is sent wrong is refused, and the attempt is over. A
script knows the way and fills in each field rightly with the chance `RIGHT`, else wrongly or not at all; what it is
told to do it does, as far as that goes. Attempts are paid the share that is right, and nobody says which. The method
is the agent `evolved` at its defaults. In the control segments are taken from attempts at another task with the same
fields and other values, chosen in the same way. The rival makes as many plain attempts, and so has the same steps. In
the null world one field has to be filled in. What the script draws is the same in every arm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from quintain.data.searched import split_head
from quintain.environments.protocol import advance, begin
from quintain.search.evolve import RECOMBINE, REFINE, Attempt, Evolved, EvolvedWorld
from quintain.types import Action, Task, derive_seed
from quintain.worlds.web.game import Web

RIGHT = 0.5
WANTED = re.compile(r"\b(name|city|delivery|gift) (\w+)")
AGENT: Any = None


class Foreign(EvolvedWorld):
    """The same evolution with segments of attempts at another task."""

    foreign: Sequence[Attempt] = ()

    def _list_mates(self) -> Sequence[Attempt]:
        """See `EvolvedWorld`."""
        return self.foreign[: len(self.pool)]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each task whether each arm solves it, and how many steps it took."""
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        task, other = (draw_task(derive_seed(seed, number, name)) for name in ("own", "other"))
        row: dict[str, float] = {}
        for prefix, fields in (("", 4), ("null_", 1)):
            foreign = attempt_plainly(other, fields)
            row |= {f"{prefix}method": play(EvolvedWorld(make_world(fields), Evolved(AGENT)), task)[0]}
            control = Foreign(make_world(fields), Evolved(AGENT))
            control.foreign = foreign
            row |= {f"{prefix}control": play(control, task)[0]}
        plain = Evolved(AGENT, size=Evolved(AGENT).num_attempts, rounds=0)
        solved, steps = play(EvolvedWorld(make_world(4), plain), task)
        row |= {"extra.plain": solved, "extra.plain_steps": steps}
        row |= {"extra.steps": play(EvolvedWorld(make_world(4), Evolved(AGENT)), task)[1]}
        rows.append(row)
    return rows


def draw_task(seed: int) -> Task:
    """Return a task of the shop."""
    return Task(id=f"web/eval/{seed}", environment="web", seed=seed, split="eval")


def make_world(fields: int) -> Web:
    """Return the shop, of which an attempt ends with what is sent."""
    world = Web(goal="order", depth=1, fields=fields, reward="dense", irreversible=False, popups=0)
    world.max_turns = fields + 3
    return world


def attempt_plainly(task: Task, fields: int) -> Sequence[Attempt]:
    """Return as many plain attempts at `task` as an evolution has."""
    world = EvolvedWorld(make_world(fields), Evolved(AGENT, size=Evolved(AGENT).num_attempts, rounds=0))
    play(world, task)
    return world.pool


def play(world: EvolvedWorld, task: Task) -> tuple[float, float]:
    """Return whether the script solves `task` in `world`, and in how many steps."""
    site = world.inner
    assert isinstance(site, Web), "the shop"
    observation = begin(world, task)
    wanted = WANTED.findall(str(observation).partition(".")[0])
    steps, todo, left = 0, list[str](), dict(wanted)
    while True:
        what, _, shown = split_head(observation)
        if what == "begin":
            todo, left = follow(str(shown)), dict(wanted)
        said = todo.pop(0) if todo else fill_in(site, left, task, len(world.pool))
        for field in set(said.split()) & set(left):
            del left[field]
        result = advance(world, Action(text=said))
        observation, steps = result.observation, steps + 1
        if result.is_over:
            return float(bool(result.is_success)), float(steps)


def follow(told: str) -> list[str]:
    """Return the actions that an attempt is told to do."""
    lines = told.splitlines()
    places = [k for k, line in enumerate(lines) if line in (RECOMBINE, REFINE)]
    return lines[places[0] + 1].split("; ") if places else []


def fill_in(site: Web, left: dict[str, str], task: Task, attempt: int) -> str:
    """Return the next click, or what the script does with the first field that is `left`; then that all is sent."""
    legal = site.possible()
    if "submit" not in legal or not left:
        return "submit" if "submit" in legal else site.expert_action().text
    field, value = next(iter(left.items()))
    own = [action for action in legal if action.split()[1:2] == [field]]
    (right,) = [
        action for action in own if action in (f"tick {field}", f"{action.split()[0]} {field} {value}")
    ]
    rng = Random(derive_seed(task.id, attempt, field))
    if rng.random() < RIGHT:
        return right
    return rng.choice([action for action in own if action != right] or [f"skip {field}"])

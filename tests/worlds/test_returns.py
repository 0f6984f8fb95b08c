"""No scripted policy earns more than the expert: what the worlds pay for is what they are about."""

import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from quintain.environments.baselines import Policy, expert, noop, play, random_policy
from quintain.environments.catalog import ADAPTERS, CATALOG, find
from quintain.environments.protocol import Environment, Legal
from quintain.types import Action, Task
from quintain.worlds.sums.game import Sums

WORLDS = sorted(set(CATALOG) - set(ADAPTERS) - {"repo", "worker"})
"""`repo` runs programs and is not cheap."""
NUM_TASKS = 24
TOLERANCE = 0.02
Script = Callable[[], Policy]


def stall() -> Policy:
    """Say what means nothing."""
    return lambda world, told: Action(text="zzz")


def same_legal(place: int) -> Script:
    """Take the same of the legal actions whenever there are some."""

    def script() -> Policy:
        def act(world: Environment, told: str) -> Action:
            legal = world.legal_actions() if isinstance(world, Legal) else ()
            return (
                Action(text=legal[place % len(legal)]) if legal else Action(text=told.split(" ")[place % 2])
            )

        return act

    return script


def again() -> Policy:
    """Repeat what the expert does first."""
    first: dict[int, Action] = {}

    def act(world: Environment, told: str) -> Action:
        return first.setdefault(0, expert(world, told))

    return act


def admit() -> Policy:
    """Answer wrongly and say so, again and again."""
    return lambda world, told: Action(text="wrong" if "wrong?" in told else "-1")


def dither() -> Policy:
    """Answer rightly and deny it, as long as one may answer again."""

    def act(world: Environment, told: str) -> Action:
        sheet = cast(Sums, world).snapshot()[0]
        if sheet.answer is None:
            return Action(text=str(sum(sheet.numbers)))
        return Action(text="wrong" if sheet.revisions_left else "right")

    return act


def err_first() -> Policy:
    """Answer wrongly once, find it and mend it."""

    def act(world: Environment, told: str) -> Action:
        sheet = cast(Sums, world).snapshot()[0]
        total = sum(sheet.numbers)
        if sheet.answer is None:
            return Action(text=str(total + (sheet.was_right is None)))
        return Action(text="right" if sheet.answer == total else "wrong")

    return act


SCRIPTS: dict[str, Script] = {
    "noop": lambda: noop,
    "random": lambda: random_policy(0),
    "stall": stall,
    "again": again,
    **{f"legal {place}": same_legal(place) for place in (0, 1, 2, -1)},
}
OWN: dict[str, dict[str, Script]] = {"sums": {"admit": admit, "dither": dither, "err_first": err_first}}
VARIANTS = (
    "sums?digits=1&revisions=2",
    "sums?bonus=0.5",
    "stream?cost=0.1",
    "hopqa?cost=0.05",
    "twocards?dense=true",
)


def earned(world: Environment, tasks: Sequence[Task], script: Script) -> float:
    return sum(play(world, task, script()).total for task in tasks) / len(tasks)


@pytest.mark.parametrize("spec", [*WORLDS, *VARIANTS])
def test_no_script_earns_more_than_the_expert(spec: str) -> None:
    world = find(spec)()
    try:
        tasks = [world.task("train", index) for index in range(NUM_TASKS)]
        best = earned(world, tasks, lambda: expert)
        scripts = {**SCRIPTS, **OWN.get(spec.partition("?")[0], {})}
        random.seed(0)
        found = {name: earned(world, tasks, script) for name, script in scripts.items()}
        over = {name: value for name, value in found.items() if value > best + TOLERANCE}
        assert not over, f"the expert earns {best:.2f}"
    finally:
        world.close()

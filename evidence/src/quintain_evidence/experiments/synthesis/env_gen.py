"""EnvGen: do configurations for skills that fail in the original world help with what is hardest there?

A table over what is seen acts in the world `craft`: which thing of the way is next, what of it lacks, and whether that
is here. The method's own cycles, configurations, credit and loss train it. The number is the success at the three
weakest skills of the original world after all steps, on tasks that were not trained on. The control deals the report of
each cycle out anew among the skills: the same failures, said of others. The rival draws configurations without any
report, as many, in the same cycles. In the null world are the three skills of the first two tiers alone, which are soon
known, so that nothing stays weak. Beside them: whether a skill is met more often in the next configurations when its
failures and those of another are swapped in the report, counted by what the expert achieves there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import torch

from quintain.curriculum.skills import Known
from quintain.environments.baselines import expert, play
from quintain.environments.protocol import begin
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, CombinedState
from quintain.methods.synthesis.env_gen import Config, Cycles, method
from quintain.rollout.configurations import NUM_TRIED, as_configurable
from quintain.types import Action, Group, Split, Task, derive_seed
from quintain.worlds.craft.game import Craft
from quintain.worlds.craft.land import GOALS, RECIPES, TIER, TOOL_FOR
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.rounds import TableCollector, adam
from quintain_evidence.labs.tabular import TablePolicy, train_table
from quintain_evidence.layers.inference import rank_correlation

DEPTH, FEW = 3, 2
"""Tiers of the tech tree in the world, and in the null world."""
ITEMS = tuple(item for item in TIER if TIER[item] <= DEPTH)
RAW = tuple(item for item in ITEMS if item in TOOL_FOR)
MOVES = ("go", *(f"gather {item}" for item in RAW), *(f"make {item}" for item in ITEMS if item in RECIPES))
NUM_ROWS = len(ITEMS) * (len(RAW) + 1) * 2


class Walk:
    """An episode of `craft` whose moves are columns: go on to the next place, gather, make."""

    def __init__(self, world: Craft, task: Task, begun: dict[str, Any]) -> None:
        """Begin `task`; states of tasks that have `begun` before are taken up again."""
        self.world = world
        if task.id in begun:
            world.restore(begun[task.id])
        else:
            begin(world, task)
            begun[task.id] = world.snapshot()

    def row(self) -> int:
        """Return what is next on the way, what of it lacks, and whether that, or its stations, are here."""
        land, place, lying, held, standing, reached, *_ = self.world.snapshot()
        left = [item for item in land.steps if item not in reached] or list(land.goals)
        item = next((item for item in left if item in RECIPES), left[0])
        if left[0] != item and left[0] in GOALS and left[0] not in dict(RECIPES[item].needs):
            item = left[0]
        needs = dict(RECIPES[item].needs) if item in RECIPES else {item: 1}
        have = dict(held)
        lacking = next((name for name in RAW if needs.get(name, 0) > have.get(name, 0)), "")
        here = dict(dict(lying)[place])
        if lacking:
            is_here = here.get(lacking, 0) > 0
        else:
            is_here = all((place, station) in standing for station in RECIPES[item].stations)
        kind = RAW.index(lacking) + 1 if lacking else 0
        return (ITEMS.index(item) * (len(RAW) + 1) + kind) * 2 + is_here

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Make the move of `column`."""
        words = MOVES[column]
        if words == "go":
            state = self.world.snapshot()
            places = [place for place, _ in state[2]]
            words = f"go {places[(places.index(state[1]) + 1) % len(places)]}"
        result = self.world.step(Action(text=words))
        return Moved(
            reward=result.reward,
            is_over=result.is_terminated or result.is_truncated,
            is_success=bool(result.is_success),
        )


@cache
def draw_tasks(depth: int, split: Split, each: int) -> tuple[Task, ...]:
    """Return `each` tasks of every skill up to `depth`, skill by skill."""
    world = Craft(depth=depth)
    found: dict[str, list[Task]] = {skill: [] for skill in world.skills()}
    number = 0
    while min(map(len, found.values())) < each:
        task = world.task(split, number)
        number += 1
        begin(world, task)
        if len(own := found[world.skill()]) < each:
            own.append(task)
    return tuple(task for own in found.values() for task in own)


class Practice:
    """A run of the method on a table: ``Practice(arm, options, seed, depth=3).weakest()``."""

    def __init__(self, arm: OnPolicy, options: Mapping[str, Any], seed: int, *, depth: int) -> None:
        self.world = Craft(depth=depth)
        self.options, self.seed, self.depth = options, seed, depth
        table = observed_world(NUM_ROWS, MOVES, [self.world.task("train", 0)], horizon=self.world.max_turns)
        rng = np.random.default_rng(seed)
        theta = torch.as_tensor(rng.normal(0, 0.1, table.is_legal.shape))
        self.pool = draw_tasks(depth, "train", int(options["pool"]))
        self.policy = train_table(
            TablePolicy(table, theta),
            arm,
            num_batches=int(options["steps"]),
            size=1,
            seed=seed,
            rate=float(options["rate"]),
            optimizer=adam,
            collect=lambda policy, batch: self.collect(arm, policy, batch),
        ).policy

    def collect(self, arm: OnPolicy, policy: TablePolicy, batch: int) -> list[Group]:
        """Let the method collect."""
        collector = TableCollector(policy, self.pool, self.seed, self.play)
        return arm.collect(cast(Collector, collector), batch)

    def play(self, policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int) -> list[Group]:
        """Return `size` episodes of each of `tasks`."""
        begun: dict[str, Any] = {}
        return play_games(policy, lambda task: Walk(self.world, task, begun), tasks, size=size, seed=seed)

    def weakest(self) -> float:
        """Return the success at the three weakest skills of the original world, on held-out tasks."""
        each = int(self.options["held_out"])
        tasks = draw_tasks(self.depth, "eval", each)
        groups = self.play(self.policy, tasks, 1, derive_seed("held out", self.seed))
        solved = np.array([group.trajectories[0].is_success for group in groups], np.float64)
        return float(np.sort(solved.reshape(-1, each).mean(1))[:3].mean())


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the success at the weakest skills."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("env_gen", seed, number)

        def practise(arm: OnPolicy, own: int = own, depth: int = DEPTH) -> float:
            return Practice(arm, options, own, depth=depth).weakest()

        found.append(
            {
                "method": practise(make_arm()),
                "control": practise(permute_reports(make_arm())),
                "null_method": practise(make_arm(FEW), depth=FEW),
                "null_control": practise(permute_reports(make_arm(FEW)), depth=FEW),
                "extra.random": practise(make_arm(generator="random")),
                "extra.exposure": exposure_slope(int(options["reports"]), own),
            }
        )
    return found


def make_arm(depth: int = DEPTH, **settings: Any) -> OnPolicy:
    """Return the method at its defaults, but for `settings`, in the world of `depth`."""
    return method(Config(environment=f"craft?depth={depth}", **settings))


def cycles_of(arm: OnPolicy) -> Cycles:
    """Return the cycles of `arm`."""
    (cycles,) = cast(CombinedState, arm.state).parts
    assert isinstance(cycles, Cycles), "the method's only state"
    return cycles


def permute_reports(arm: OnPolicy) -> OnPolicy:
    """Return `arm`, whose report is dealt out anew among the skills before configurations are drawn by it."""
    cycles = cycles_of(arm)
    write = cycles.write

    def write_by_others(tasks: Sequence[Task], seed: int) -> list[Mapping[str, Any]]:
        kept = cycles.report
        with closing(cycles.make()) as world:
            skills = as_configurable(world).skills()
        known = [kept.get(skill, Known()) for skill in skills]
        order = np.random.default_rng(derive_seed("permuted", seed)).permutation(len(skills)).tolist()
        cycles.report = {skill: known[place] for skill, place in zip(skills, order, strict=True)}
        try:
            return write(tasks, seed)
        finally:
            cycles.report = kept

    cycles.write = write_by_others
    return arm


def exposure_slope(num_reports: int, seed: int) -> float:
    """Return the rank correlation, over reports, of how much more a skill fails and how much more often it is met.

    0 where no skill is met more or less often. Two skills' failures are swapped in each report. What is met is what the
    expert achieves in the configurations.
    """
    world, cycles = Craft(depth=DEPTH), cycles_of(make_arm())
    tasks = [world.task("train", number) for number in range(NUM_TRIED)]
    rng = np.random.default_rng(seed)
    failing: list[float] = []
    met: list[float] = []
    for number in range(num_reports):
        skills = list(world.skills())
        report = {skill: Known(tries=32, successes=int(rng.integers(0, 33))) for skill in skills}
        one, other = rng.choice(skills, 2, replace=False).tolist()
        swapped = report | {one: report[other], other: report[one]}
        failing.append(report[one].rate - swapped[one].rate)
        counts: list[float] = []
        for each in (report, swapped):
            cycles.report = each
            achieved: list[str] = []
            for data in cycles.write(tasks, derive_seed(seed, number)):
                play(world, replace(tasks[0], data=data), expert)
                achieved += world.achievements()
            counts.append(float(achieved.count(one)) - achieved.count(other))
        met.append(counts[1] - counts[0])
    return 0.0 if len(set(met)) == 1 else rank_correlation(failing, met)

"""MPO: do plans get better by what they are worth to an actor that cannot learn, or by being compared at all?

A planner as a table says in which order to go about a chore in a house where what is put down stays and a temperature
is for good: find, clean, heat, cool and put, in an order, with something left out or too much. A script with eyes
carries a plan out and takes the step that it says in four of five turns, else any legal action. Of each task five plans
are tried five times each, pairs are made and learned from as they ship. The number is the success that the script has
with the planner's plans on other houses. The control permutes what plans are worth over the plans of a task: the same
plans, numbers and margins. In the null world the script goes its own way while plans are judged, whatever they say;
what was learned is measured with one that listens.

Beside it: the same with a script that takes the said step in three of five turns, the spread of plans' worth, and how
often plans without difference made a pair.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit_lab.permute import permute
from quintain.data.pairs import extremes
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.losses.preference import dpo
from quintain.testing.pupil import tasks_from
from quintain.types import Action, Group, Trajectory, derive_seed
from quintain.worlds.house.game import House
from quintain.worlds.house.plan import TREATMENTS
from quintain.worlds.house.scene import at_place, to_open
from quintain_evidence.experiments.preference.blocks import Blocks
from quintain_evidence.experiments.preference.eto import learned
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.seats import Executor, executor
from quintain_evidence.labs.tabular import actions_of, states_of

KINDS = ("put", "clean", "heat", "cool")
SPEC = "house?irreversible=true&things=3&kind={}"
LISTENING, OTHER, DEAF = 0.8, 0.6, 0.0
"""Share of turns in which the script takes the step that is said, in which another script does, and one does never."""
OWN_WAY = 0.5
"""Share of turns in which the script that does not listen goes on with the chore."""
Plans = tuple[tuple[str, ...], ...]
Worths = NDArray[np.float64]


def all_plans() -> Plans:
    """Return the orders of find, put and at most one treatment, and two treatments between these."""
    found: list[tuple[str, ...]] = [("find", "put")]
    for verb in TREATMENTS:
        found += [order for order in permutations(("find", verb, "put")) if order.index("find") < 2]
        found.append(("find", verb))
    found += [("find", one, other, "put") for one, other in permutations(TREATMENTS, 2)]
    return tuple(found)


PLANS, OWN = all_plans(), "own"


def do(environment: object, step: str) -> Action | None:
    """Return the next action towards the generic `step` in a house; None where it is done, or nothing leads there."""
    assert isinstance(environment, House)
    house, scene, _ = environment.snapshot()
    held = scene.held
    if step == OWN:
        return environment.expert_action()
    if step == "find":
        return environment.expert_action() if held is None else None
    if held is None:
        return None
    place = house.chore.target if step == "put" else TREATMENTS[step][0]
    words = at_place(house, scene, place) or (to_open(scene) if step == "put" else "") or step
    return Action(text=words) if words in environment.legal_actions() else None


def carried_out(house: House, plan: Sequence[str], act: Executor, rng: random.Random) -> bool:
    """Return whether the chore is done when `act`, which is told one step of `plan` after the other, has ended.

    The own way, a plan of the one step `OWN`, never ends.
    """
    steps = list(plan)
    for _ in range(house.max_turns):
        while steps and do(house, steps[0]) is None:
            steps.pop(0)
        if not steps:
            return False
        result = advance(house, act(house, rng, (steps[0],)))
        if result.is_terminated:
            return bool(result.is_success)
    return False


@dataclass(frozen=True, eq=False)
class Houses:
    """Houses of all kinds and how each plan fared in them: ``houses.runs[0.8][task, plan, run]`` is 0 or 1."""

    kinds: NDArray[np.int64]
    """[P] kind of chore"""
    runs: Mapping[float, Worths]
    """share of turns in which the script listens → [P, plans, runs]"""


def houses(num: int, runs: int, seed: int) -> Houses:
    """Return `num` houses of each kind, each plan carried out `runs` times by each script."""
    found: dict[float, list[Worths]] = {LISTENING: [], OTHER: [], DEAF: []}
    for number, kind in enumerate(KINDS):
        spec = SPEC.format(kind)
        house = find(spec)()
        assert isinstance(house, House)
        for task in tasks_from(spec, num, first=derive_seed(seed, kind) % 1_000_000):
            begin(house, task)
            saved = house.snapshot()
            for follows, own in found.items():
                act = executor(do, lambda seen: str(seen[-1]), follows=follows or OWN_WAY)
                fared = np.zeros((len(PLANS), runs))
                for plan, steps in enumerate(PLANS):
                    for run in range(runs):
                        house.restore(saved)
                        rng = random.Random(derive_seed(seed, number, task.id, plan, run))
                        fared[plan, run] = carried_out(house, steps if follows else (OWN,), act, rng)
                own.append(fared)
        house.close()
    return Houses(
        np.repeat(np.arange(len(KINDS)), num), {follows: np.array(own) for follows, own in found.items()}
    )


def planner_world(made: Houses) -> Blocks:
    """Return the choice of a plan for each house as a world of one turn, whose rows are shared by houses of a kind."""
    num, plans = len(made.kinds), len(PLANS)
    chance = made.runs[LISTENING].mean(-1)
    tasks = tuple(tasks_from(SPEC.format("put"), num, first=0))
    world = World(
        tasks=tasks,
        actions=tuple(", ".join(plan) for plan in PLANS),
        horizon=1,
        start=np.arange(num),
        next=np.full((num, plans), END),
        reward=chance,
        is_legal=np.ones((num, plans), np.bool_),
        is_success=np.zeros((num, plans), np.bool_),
        task_of=np.arange(num),
        keys=tuple(KINDS[kind] for kind in made.kinds),
        expert=chance.argmax(-1),
        distance=np.ones(num),
        chance=chance,
    )
    return Blocks(world, made.kinds[:, None] * plans + np.arange(plans), len(KINDS) * plans)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` planners, trained and measured in the same houses."""
    num = int(options.get("houses", 6))
    made = houses(2 * num, int(options.get("runs", 12)), derive_seed("mpo", seed))
    return [
        replication(made, num, options, derive_seed(seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(made: Houses, num: int, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what one starting planner comes to; of each kind the first `num` houses are trained on."""
    table = planner_world(made)
    is_shown = np.arange(len(made.kinds)) % (2 * num) < num
    train, held_out = (np.flatnonzero(mask).tolist() for mask in (is_shown, ~is_shown))
    start = beginner(table, float(options.get("skill", 1.0)), seed)
    groups = table.policy(start).sample(size=int(options.get("plans", 5)), seed=seed, tasks=train)
    tried = judged(table, groups, made.runs[LISTENING], options, seed)
    unheard = judged(table, groups, made.runs[DEAF], options, derive_seed(seed, "unheard"))
    starts = {name: (tried, name) for name in ("method", "control")} | {
        f"null_{name}": (unheard, name) for name in ("method", "control")
    }
    found: dict[str, float] = {}
    ended: dict[str, Tensor] = {}
    for name, (families, arm) in starts.items():
        own = mixed(families, seed) if arm == "control" else families
        pairs = extremes(own, margin=float(options.get("margin", 0.5)))
        ended[name] = learned(table, start, pairs, dpo(0.1), options)
        found[name] = fares(table, ended[name], made.runs[LISTENING], held_out)
        if name == "method":
            exact = table.world.chance
            assert exact is not None, "plans fare by chance"
            gaps = [
                exact[states_of(p.chosen)[0], actions_of(p.chosen, table.world)[0]]
                - exact[states_of(p.rejected)[0], actions_of(p.rejected, table.world)[0]]
                for p in pairs
            ]
            found["extra.pairs"] = float(len(pairs))
            found["extra.upside_down"] = float(np.mean(np.array(gaps) <= 0)) if gaps else 0.0
    before, other = (
        fares(table, start, made.runs[LISTENING], held_out),
        made.runs[OTHER],
    )
    gain = found["method"] - before
    with_other = fares(table, ended["method"], other, held_out) - fares(table, start, other, held_out)
    spread = made.runs[LISTENING].mean(-1)[train].std(-1).mean()
    return found | {
        "extra.start": before,
        "extra.best": float(np.mean(made.runs[LISTENING].mean(-1)[held_out].max(-1))),
        "extra.spread": float(spread),
        "extra.gain": gain,
        "extra.gain_other": with_other,
        "extra.kept": with_other - 0.7 * gain,
    }


def beginner(table: Blocks, skill: float, seed: int) -> Tensor:
    """Return logits [cells] of a planner that is random but for `skill`, which it gives the best plan of a kind."""
    rng = np.random.default_rng(seed % (1 << 63))
    shared = rng.normal(0.0, 0.5, table.num_cells)
    chance = table.world.chance
    assert chance is not None, "plans fare by chance"
    for kind in KINDS:
        rows = np.flatnonzero(np.array(table.world.keys) == kind)
        shared[table.cells[rows[0], chance[rows].mean(0).argmax()]] += skill
    return torch.from_numpy(shared)


def judged(
    table: Blocks, groups: Sequence[Group], runs: Worths, options: Mapping[str, Any], seed: int
) -> list[list[tuple[Trajectory, float]]]:
    """Return the plans of each group with the mean of `tries` of their runs, none of which two of them share."""
    rng, tries = np.random.default_rng(seed % (1 << 63)), int(options.get("tries", 5))
    found: list[list[tuple[Trajectory, float]]] = []
    for group in groups:
        own: list[tuple[Trajectory, float]] = []
        for each in group.trajectories:
            fared = runs[states_of(each)[0], actions_of(each, table.world)[0]]
            own.append((each, float(rng.choice(fared, tries, replace=False).mean())))
        found.append(own)
    return found


def mixed(
    families: Sequence[Sequence[tuple[Trajectory, float]]], seed: int
) -> list[list[tuple[Trajectory, float]]]:
    """Return `families` in each of which the values belong to other children."""
    values = [value for family in families for _, value in family]
    of = [number for number, family in enumerate(families) for _ in family]
    new = iter(permute(values, of, seed=seed, moves_all=False).values)
    return [[(child, next(new)) for child, _ in family] for family in families]


def fares(table: Blocks, shared: Tensor, runs: Worths, tasks: Sequence[int]) -> float:
    """Return the success of the planner with logits `shared` over `tasks`, with the script of `runs`."""
    chances = table.policy(shared).probabilities().numpy()
    return float((chances * runs.mean(-1))[list(tasks)].sum(-1).mean())

"""MetaSpatial: is it the collisions of a layout's own that teach to avoid them?

The world `room` itself with one attempt, over a table of layouts: two things anywhere in a room of 4 by 4, and a few
answers that are no layout. The start leans to layouts that collide. It learns by the method's own reward, credit and
loss. The number is the share of things that collide, exact under the policy that was learned, over answers that are
layouts. The control permutes the collision term among the well-formed attempts of a group: format, constraints and the
moments of the reward are kept. What has no form counts as a full collision in a second number, and the share of layouts
is a bound. In the null world there is one thing, and nothing can collide.

The rival is GRPO whose reward has no term for collisions: form and constraints alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch

from quintain.credit.layout import outcome_of
from quintain.credit_lab.permute import permute
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import metaspatial
from quintain.rewards.arrangement import arrangement_terms
from quintain.types import Action, Group, Score, Task, Trajectory, derive_seed
from quintain.worlds.room.game import BoxRoom
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

BROKEN = ("", "[]", '{"bed": 1}', '[["bed", 0]]')
"""Answers that are no layout."""
COLLISION, FORM = 0.2, 0.5
"""What a full collision costs, and what a whole layout earns."""


class Attempt:
    """An episode of `room`: one layout, by number."""

    def __init__(self, room: BoxRoom, task: Task, texts: Sequence[str], place: int) -> None:
        self.room, self.texts, self.place = room, texts, place
        begin(room, task)

    def row(self) -> int:
        """Return the task."""
        return self.place

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Try a layout."""
        result = advance(self.room, Action(text=self.texts[column]))
        return Moved(
            reward=result.reward,
            terms=dict(result.reward_terms),
            is_over=result.is_terminated,
            is_success=bool(result.is_success),
        )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the collision ratio."""
    batches, rate, size = int(options.get("batches", 60)), float(options["rate"]), int(options.get("size", 8))
    num_tasks = int(options.get("tasks", 8))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("metaspatial", seed, number)

        def learned(
            things: int, *, is_blind: bool = False, is_paid: bool = True, own: int = own
        ) -> tuple[float, float, float, float]:
            room = find(
                f"room?width=4&depth=4&things={things}&names={4 if things == 1 else things}&attempts=1"
            )()
            assert isinstance(room, BoxRoom), "the experiment is about layouts"
            tasks = [room.task("train", derive_seed(own, "task") % (1 << 40) + k) for k in range(num_tasks)]
            places = {task.id: k for k, task in enumerate(tasks)}
            start = beginner(room, tasks, own)
            texts = start.world.actions
            method = metaspatial.method(metaspatial.Config())
            arm = replace(method, reward=elsewhere(method, own)) if is_blind else method
            arm = arm if is_paid else replace(method, reward=lambda groups: method.reward(unpaid(groups)))
            run = train_table(
                start,
                arm,
                num_batches=batches,
                size=size,
                seed=own,
                rate=rate,
                collect=lambda policy, batch: play_games(
                    policy,
                    lambda task: Attempt(room, task, texts, places[task.id]),
                    tasks,
                    size=size,
                    seed=derive_seed(own, batch),
                ),
            )
            return (*ratios(room, tasks, run.policy), *ratios(room, tasks, start))

        paid, blind = learned(2), learned(2, is_blind=True)
        found.append(
            {
                "method": paid[0],
                "control": blind[0],
                "null_method": learned(1)[0],
                "null_control": learned(1, is_blind=True)[0],
                "extra.unpaid": learned(2, is_paid=False)[0],
                "extra.start": paid[2],
                "extra.with_broken": (1 - paid[1]) + paid[1] * paid[0] - (1 - blind[1]) - blind[1] * blind[0],
                "extra.fewer_layouts": blind[1] - paid[1],
                "extra.layouts": paid[1],
            }
        )
    return found


def beginner(room: BoxRoom, tasks: Sequence[Task], seed: int) -> TablePolicy:
    """Return a random table over layouts that places things anywhere, and over a few answers that are none."""
    begin(room, tasks[0])
    cells = list(product(range(room.width), range(room.depth)))
    names = sorted({name for task in tasks for name in named(room, task)})[: room.things]
    if room.things == 1:
        layouts = [
            [[name, *cell]] for name in sorted({named(room, task)[0] for task in tasks}) for cell in cells
        ]
    else:
        layouts = [
            [[name, *cell] for name, cell in zip(names, two, strict=True)] for two in product(cells, repeat=2)
        ]
    texts = [*map(json.dumps, layouts), *BROKEN]
    world = observed_world(len(tasks), texts, tasks, horizon=room.attempts)
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.5 * torch.randn(world.is_legal.shape, generator=generator, dtype=torch.float64)
    for place, task in enumerate(tasks):
        begin(room, task)
        sheet = room.snapshot().room
        for column, text in enumerate(texts[: -len(BROKEN)]):
            terms = arrangement_terms(json.loads(text), sheet)
            assert terms is not None, "there is no judge to fail"
            theta[place, column] += 1.5 * (terms["collision"] < 0)
    theta[:, -len(BROKEN) :] += float(np.log(len(layouts) / len(BROKEN) / 4))
    return TablePolicy(world, theta)


def named(room: BoxRoom, task: Task) -> tuple[str, ...]:
    """Return the things of the room of `task`."""
    begin(room, task)
    return room.snapshot().room.things


def ratios(room: BoxRoom, tasks: Sequence[Task], policy: TablePolicy) -> tuple[float, float]:
    """Return the collision ratio of layouts and the share of answers that are layouts."""
    odds = policy.probabilities().numpy()
    collided = formed = 0.0
    for place, task in enumerate(tasks):
        begin(room, task)
        sheet = room.snapshot().room
        for column, text in enumerate(policy.world.actions):
            answer = json.loads(text) if text else None
            terms = arrangement_terms(answer, sheet)
            assert terms is not None, "there is no judge to fail"
            if terms["format"] == FORM:
                chance = float(odds[place, column])
                formed += chance
                collided += chance * -terms["collision"] / COLLISION
    return collided / formed, formed / len(tasks)


def elsewhere(method: OnPolicy, seed: int) -> Any:
    """Return the reward of `method`, with the collision terms permuted among the layouts of each group before."""

    def changed(groups: Sequence[Group]) -> Sequence[Group]:
        return method.reward(
            [exchanged(group, derive_seed(seed, group.trajectories[0].seed)) for group in groups]
        )

    return changed


def unpaid(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` without what collisions cost."""

    def without(trajectory: Trajectory) -> Trajectory:
        return regain(trajectory, [-turn.reward_terms.get("collision", 0.0) for turn in trajectory.turns])

    return [replace(group, trajectories=tuple(map(without, group.trajectories))) for group in groups]


def exchanged(group: Group, seed: int) -> Group:
    """Return `group` whose well-formed attempts have each other's collision terms."""
    places = [
        (t.index, k)
        for t in group.trajectories
        for k, turn in enumerate(t.turns)
        if turn.reward_terms["format"] == FORM
    ]
    if len(places) < 2:
        return group
    old = [group.trajectories[i].turns[k].reward_terms["collision"] for i, k in places]
    gain = {
        place: new - own for place, own, new in zip(places, old, permute(old, seed=seed).values, strict=True)
    }

    def paid(trajectory: Trajectory) -> Trajectory:
        return regain(
            trajectory, [gain.get((trajectory.index, k), 0.0) for k in range(len(trajectory.turns))]
        )

    return replace(group, trajectories=tuple(map(paid, group.trajectories)))


def regain(trajectory: Trajectory, gains: Sequence[float]) -> Trajectory:
    """Return `trajectory` whose turns are paid `gains` more, and its outcome the sum of them."""
    turns = tuple(
        replace(turn, reward=turn.reward + more) for turn, more in zip(trajectory.turns, gains, strict=True)
    )
    assert isinstance(trajectory.outcome, Score), "attempts are scored"
    value = outcome_of(trajectory) + sum(gains)
    return replace(trajectory, turns=turns, outcome=replace(trajectory.outcome, value=value))

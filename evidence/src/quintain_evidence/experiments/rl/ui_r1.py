"""UI-R1: is it the box of one's own screen that teaches to point, and does a box teach more than a point?

Screens of the world `screen` with one button, over a table of points to click, with an action of another kind and one
that cannot be read. Rewards are the method's own (kind, place, form) against the world's boxes, credit and loss are the
method's. The number is the share of clicks into the box of the screen, exact under the policy that was learned. The
control pays for the box of another screen: as large, for as many points. Doses are the box itself shrunk towards its
middle: the expert's point, half of it each way, all of it. In the null world all screens are one. Beside it stands the
choice of few tasks: the share of groups that differ, later on, among those that are hard and different, less that among
as many at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import derange
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.methods.method import differs
from quintain.methods.rl import ui_r1
from quintain.rewards.pointing import Target, is_inside
from quintain.rewards.terms import Term, apply_all
from quintain.types import Action, Group, Task, ToolCall, Trajectory, derive_seed
from quintain_evidence.labs.observed import Moved, observed_world, play_games
from quintain_evidence.labs.tabular import TablePolicy, train_table

WIDTH, HEIGHT, EVERY = 24, 12, 1
WORLD = f"screen?goal=click&buttons=1&fields=0&items=0&width={WIDTH}&height={HEIGHT}&misses=1"
SHRUNK = {"point": 0.0, "half": 0.5, "box": 1.0}
"""dose → share of the box, each way"""
TYPE, BROKEN = "type", "?"


class Screen:
    """An episode: one action on a screen, which the reward judges later."""

    def __init__(self, place: int, calls: Sequence[ToolCall]) -> None:
        self.place, self.calls = place, calls

    def row(self) -> int:
        """Return the screen."""
        return self.place

    def key(self) -> str:
        """Return nothing: the method reads no states."""
        return ""

    def act(self, column: int, luck: float) -> Moved:
        """Take an action; the last cannot be read."""
        calls = (self.calls[column],) if column < len(self.calls) else ()
        return Moved(calls=calls, is_over=True)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the share of clicks into the own box."""
    batches, rate, size = int(options.get("batches", 30)), float(options["rate"]), int(options.get("size", 8))
    num, chosen = int(options.get("pool", 32)), int(options.get("chosen", 16))
    known = float(options.get("known", 0.5))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("ui_r1", seed, number)
        environment = find(WORLD)()
        first = derive_seed(own, "task") % (1 << 40)
        tasks = [environment.task("train", first + k) for k in range(num)]
        boxes: list[Target] = []
        for task in tasks:
            begin(environment, task)
            target = ui_r1.ask_target(environment, tolerance=0.0)
            assert target is not None and target.box is not None, "one button is to be clicked"
            boxes.append(target)
        start = pointer(tasks, boxes, own, known=known)

        def learned(
            gold: Sequence[Target], first: TablePolicy, own: int = own, tasks: list[Task] = tasks
        ) -> TablePolicy:
            method = ui_r1.method(ui_r1.Config(environment=WORLD))
            wanted = {task.id: target for task, target in zip(tasks, gold, strict=True)}
            return train_table(
                first,
                replace(method, reward=partial(paid, gold=wanted)),
                num_batches=batches,
                size=size,
                seed=own,
                rate=rate,
                collect=lambda policy, batch: played(policy, tasks, size, derive_seed(own, batch)),
            ).policy

        order = derange(num, own)
        same = [boxes[0]] * num
        one = pointer(tasks, same, own, known=known)
        doses = {
            name: hits(learned([shrunk(box, share) for box in boxes], start), boxes)
            for name, share in SHRUNK.items()
        }
        tried = paid(
            played(start, tasks, size, derive_seed(own, "try")),
            {t.id: g for t, g in zip(tasks, boxes, strict=True)},
        )
        hard = {task.id for task in ui_r1.hard_and_diverse(tried, lambda _: "click", count=chosen)}
        drawn = {task.id for task in random.Random(own).sample(tasks, chosen)}
        after = paid(
            played(start, tasks, size, derive_seed(own, "later")),
            {t.id: g for t, g in zip(tasks, boxes, strict=True)},
        )
        found.append(
            {
                "method": doses["box"],
                "control": hits(learned([boxes[k] for k in order], start), boxes),
                "null_method": hits(learned(same, one), same),
                "null_control": hits(learned([same[k] for k in order], one), same),
                "extra.start": hits(start, boxes),
                "extra.filter": mixed(after, hard) - mixed(after, drawn),
                **{f"extra.dose_{name}": value for name, value in doses.items()},
            }
        )
    return found


def pointer(tasks: Sequence[Task], boxes: Sequence[Target], seed: int, *, known: float) -> TablePolicy:
    """Return a random table of clicks that hits the box of a share `known` of the screens already."""
    calls = clicks()
    texts = [*(f"click {call.arguments['x']} {call.arguments['y']}" for call in calls[:-1]), TYPE, BROKEN]
    world = observed_world(len(tasks), texts, tasks, horizon=1)
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    theta = 0.5 * torch.randn(world.is_legal.shape, generator=generator, dtype=torch.float64)
    rng = random.Random(seed)
    for place, target in enumerate(boxes):
        assert target.box is not None, "clicks have boxes"
        inside = [
            k
            for k, call in enumerate(calls)
            if call.name == "click" and is_inside(call.arguments, target.box)
        ]
        theta[place, inside] += 5.0 if rng.random() < known else 0.0
    return TablePolicy(world, theta)


def clicks() -> list[ToolCall]:
    """Return the clicks at all points, and an action of another kind."""
    points = [(x, y) for x in range(0, WIDTH, EVERY) for y in range(0, HEIGHT, EVERY)]
    return [
        *(ToolCall(name="click", arguments={"x": x, "y": y}) for x, y in points),
        ToolCall(name=TYPE, arguments={"text": "ok"}),
    ]


def played(policy: TablePolicy, tasks: Sequence[Task], size: int, seed: int) -> list[Group]:
    """Return `size` actions on each screen."""
    calls, places = clicks(), {task.id: place for place, task in enumerate(tasks)}
    return play_games(policy, lambda task: Screen(places[task.id], calls), tasks, size=size, seed=seed)


def paid(groups: Sequence[Group], gold: Mapping[str, Target]) -> Sequence[Group]:
    """Return `groups` with the method's reward against `gold`, by task."""

    def measured(trajectory: Trajectory) -> float:
        action = trajectory.turns[0].action
        read = action if action.tool_calls else Action(error="cannot be read")
        return ui_r1.score(read, gold[trajectory.task.id])

    return apply_all(groups, (Term(name="action", measure=measured),))


def shrunk(target: Target, share: float) -> Target:
    """Return `target` with `share` of its box each way, around the middle."""
    assert target.box is not None, "clicks have boxes"
    left, top, right, bottom = target.box
    x, y = (left + right) // 2, (top + bottom) // 2
    return replace(
        target,
        box=(
            x - share * (x - left),
            y - share * (y - top),
            x + share * (right - x),
            y + share * (bottom - y),
        ),
    )


def hits(policy: TablePolicy, boxes: Sequence[Target]) -> float:
    """Return the probability of a click into the box, averaged over screens."""
    odds, calls = policy.probabilities().numpy(), clicks()
    found: list[float] = []
    for place, target in enumerate(boxes):
        assert target.box is not None, "clicks have boxes"
        inside = [call.name == "click" and is_inside(call.arguments, target.box) for call in calls]
        found.append(float(odds[place, : len(calls)][inside].sum()))
    return float(np.mean(found))


def mixed(groups: Sequence[Group], chosen: set[str]) -> float:
    """Return the share of the groups of the tasks `chosen` whose outcomes differ."""
    return float(np.mean([differs(group) for group in groups if group.task.id in chosen]))

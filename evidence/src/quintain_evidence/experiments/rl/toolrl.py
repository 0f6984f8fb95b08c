"""ToolRL: rewarding every field of a call shows the way where exact calls are too rare to be compared.

A call has a name and three arguments, each one of several choices, and every task wants a call of its own; a policy at
the start writes it exactly in less than one of a hundred tries. A choice is a turn of the table, so all tokens of a
call share its credit as in a completion. The number is the cosine, with the gradient of the probability of the exact
call, of the gradient by ToolRL's own points. The control compares with the call that another task wants: points of the
same size, for other fields. In the null world all tasks want the same call, and another task's is right, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit.layout import outcome_of
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl import toolrl
from quintain.types import Action, Group, Score, Task, ToolCall, Trajectory, derive_seed, is_constant
from quintain_evidence.labs.exact import END, World, exact_gradient
from quintain_evidence.labs.tabular import TablePolicy, actions_of, cosine_with_exact

FIELDS = ("name", "a", "b", "c")
TASKS = 16
Calls = NDArray[np.int64]
"""[tasks, fields] the choice that is wanted"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    size, num = int(options.get("size", 8)), int(options.get("choices", 6))
    rng = np.random.default_rng(seed)
    several = rng.integers(0, num, (TASKS, len(FIELDS)))
    one = np.repeat(several[:1], TASKS, 0)
    fine = toolrl.method(toolrl.Config())
    found: list[dict[str, float]] = [{} for _ in range(int(options["seeds"]))]
    for wanted, prefix in ((several, ""), (one, "null_")):
        start = writer(wanted, num, seed, knows=float(options.get("knows", 0.5)))
        _, exact = exact_gradient(start.world, start.theta, outcome="success")
        other = np.roll(wanted, 1, 0)
        for batch, row in enumerate(found):
            groups = start.sample(size=size, seed=derive_seed("toolrl", seed, batch))

            def angle(
                gold: Calls, is_fine: bool = True, start: TablePolicy = start, groups: Sequence[Group] = groups,
                exact: torch.Tensor = exact,
            ) -> float:  # fmt: skip
                arm = paid_for(fine, gold, start.world, is_fine=is_fine)
                return cosine_with_exact(start, arm, groups, exact=exact)

            row[f"{prefix}method"], row[f"{prefix}control"] = angle(wanted), angle(other)
            if not prefix:
                row |= {
                    "extra.exact_only": angle(wanted, is_fine=False),
                    "extra.start": start.objective("success"),
                    "extra.differ": differing(paid_for(fine, wanted, start.world).reward(groups)),
                    "extra.differ_exact": differing(
                        paid_for(fine, wanted, start.world, is_fine=False).reward(groups)
                    ),
                }
    for row in found:
        row["extra.gain"] = row["method"] - row["extra.exact_only"]
    return found


def writer(wanted: Calls, num: int, seed: int, *, knows: float) -> TablePolicy:
    """Return a policy that writes calls field by field; the wanted choice has `knows` more in its logit than others."""
    tasks, fields = wanted.shape
    states = tasks * fields
    following = np.full((states, num), END, np.int64)
    right = np.zeros((states, num), np.bool_)
    for state in range(states):
        task, field = divmod(state, fields)
        right[state, wanted[task, field]] = True
        if field < fields - 1:
            following[state] = state + 1
    # Whether a call is exact depends on all of its fields, so a state also knows whether those before were right.
    after = np.where(
        right & (following != END), following, np.where(following == END, END, following + states)
    )
    lost = np.where(following == END, END, following + states)
    is_success = np.concatenate([right & (following == END), np.zeros((states, num), np.bool_)])
    world = World(
        tasks=tuple(Task(id=f"calls/train/{k}", environment="calls", seed=k) for k in range(tasks)),
        actions=tuple(f"choice {k}" for k in range(num)),
        horizon=fields,
        start=np.arange(0, states, fields),
        next=np.concatenate([after, lost]),
        reward=is_success.astype(np.float64),
        is_legal=np.ones((2 * states, num), np.bool_),
        is_success=is_success,
        task_of=np.tile(np.repeat(np.arange(tasks), fields), 2),
        keys=tuple(f"{k} {way}" for way in ("right", "lost") for k in range(states)),
        expert=np.tile(wanted.flatten(), 2),
        distance=np.tile(np.arange(fields, 0, -1), 2 * tasks).astype(np.float64),
    )
    generator = torch.Generator().manual_seed(derive_seed("writer", seed) % (1 << 63))
    theta = 0.3 * torch.randn((states, num), generator=generator, dtype=torch.float64)
    theta[torch.arange(states), torch.as_tensor(wanted.flatten())] += knows
    return TablePolicy(world, torch.cat([theta, theta]))


def paid_for(method: OnPolicy, gold: Calls, world: World, *, is_fine: bool = True) -> OnPolicy:
    """Return `method` paid by ToolRL's points of the calls that episodes wrote, compared with `gold`."""
    places = {task.id: number for number, task in enumerate(world.tasks)}

    def paid(trajectory: Trajectory) -> Trajectory:
        written = call(actions_of(trajectory, world))
        wanted = call(gold[places[trajectory.task.id]].tolist())
        points = toolrl.score(written, wanted, is_fine=is_fine, format_weight=1.0)
        return replace(trajectory, outcome=replace(cast(Score, trajectory.outcome), value=points))

    def reward(groups: Sequence[Group]) -> list[Group]:
        return [replace(g, trajectories=tuple(map(paid, g.trajectories))) for g in groups]

    return replace(method, reward=cast("Callable[[Sequence[Group]], Sequence[Group]]", reward))


def call(choices: Sequence[int]) -> Action:
    """Return the call that `choices` of each field write."""
    name, *values = choices
    arguments: dict[str, int] = dict(zip(FIELDS[1:], values, strict=True))
    return Action(tool_calls=(ToolCall(name=f"tool {name}", arguments=arguments),))


def differing(groups: Sequence[Group]) -> float:
    """Return the share of the groups whose points differ."""
    return float(np.mean([not is_constant([outcome_of(t) for t in group.scored]) for group in groups]))

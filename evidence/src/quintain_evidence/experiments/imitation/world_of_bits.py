"""World of Bits: is it a success's own decay that teaches to go straight, or decayed pay as such?

A table over the texts of an open sokoban has imitated demonstrations with detours. It goes on by the method's own
reward, advantage and loss. The number is by how many moves solutions of held-out levels are longer than a shortest
way, exactly, over what both arms solve. The control permutes the decayed rewards among the successes of a batch:
the same pay, for other episodes; failures cost the same. In the null world every level is two moves away and two moves
end the episode: all successes are paid the same, and both arms are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit_lab.permute import permute
from quintain.methods.imitation.world_of_bits import Config, method
from quintain.methods.loops.on_policy import OnPolicy
from quintain.types import Group, Score, Trajectory, derive_seed, flatten_scored
from quintain_evidence.experiments.selftraining.rest import weak_table
from quintain_evidence.labs.exact import World
from quintain_evidence.labs.levels import HORIZON, Exact, exact, levels, open_floor, starting_at
from quintain_evidence.labs.rounds import adam
from quintain_evidence.labs.tabular import TablePolicy, train_table


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of moves beyond a shortest way."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("world of bits", seed, number)
        world = starting_at(levels(own, int(options["levels"])))
        near = replace(starting_at(levels(own, int(options["levels"]), least=2, most=2)), horizon=2)
        held_out = levels(derive_seed(own, "held out"), int(options["held_out"]))
        start = weak_table(own, demonstrations=int(options["demonstrations"]))

        def learned(
            arm: OnPolicy, world: World = world, own: int = own, start: TablePolicy = start
        ) -> TablePolicy:
            values = torch.zeros(world.num_states)
            return train_table(
                TablePolicy(world, start.theta, values),
                arm,
                num_batches=int(options["batches"]),
                size=1,
                seed=own,
                rate=float(options["rate"]),
                tasks_per_batch=int(options["episodes"]),
                optimizer=adam,
            ).policy

        arm = method(Config(max_turns=HORIZON))
        confused = permuted(arm, own)
        one, other = exact(learned(arm), held_out), exact(learned(confused), held_out)
        before = exact(start, held_out)
        found.append(
            {
                "method": excess(one, held_out, one.success * other.success),
                "control": excess(other, held_out, one.success * other.success),
                "null_method": near_success(learned(arm, near), near),
                "null_control": near_success(learned(confused, near), near),
                "extra.start": excess(before, held_out, before.success),
                "extra.start_success": float(before.success.mean()),
                "extra.success": float(one.success.mean()),
                "extra.success_gap": abs(float(one.success.mean() - other.success.mean())),
            }
        )
    return found


def excess(done: Exact, rows: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """Return the expected moves beyond a shortest way of solutions, levels weighted by `weights`."""
    solved_in = np.diff(done.by_moves, axis=0)
    moves = (np.arange(1, len(done.by_moves))[:, None] * solved_in).sum(0) / np.maximum(done.success, 1e-12)
    beyond = moves - open_floor().distance[rows]
    return float((weights * beyond).sum() / weights.sum())


def near_success(policy: TablePolicy, world: World) -> float:
    """Return the success of `policy` on all levels of the null world, exactly."""
    return TablePolicy(world, policy.theta).objective("success")


def permuted(arm: OnPolicy, seed: int) -> OnPolicy:
    """Return `arm`, whose rewards are permuted among the successes of each batch."""

    def reward(groups: Sequence[Group]) -> Sequence[Group]:
        paid = arm.reward(groups)
        won = [t for t in flatten_scored(paid) if t.is_success]
        values = [t.turns[-1].reward for t in won]
        if len(won) > 1:
            values = permute(values, seed=derive_seed("decay", seed, won[0].seed)).values
        new = {id(t): value for t, value in zip(won, values, strict=True)}

        def changed(trajectory: Trajectory) -> Trajectory:
            if id(trajectory) not in new:
                return trajectory
            value = new[id(trajectory)]
            last = replace(trajectory.turns[-1], reward=value, reward_terms={"decayed": value})
            return replace(
                trajectory,
                turns=(*trajectory.turns[:-1], last),
                outcome=Score(value=value, is_success=True),
            )

        return [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in paid]

    return replace(arm, reward=reward)

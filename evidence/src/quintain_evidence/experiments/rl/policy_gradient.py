"""Policy gradients: the estimate is unbiased, along every direction that is looked at.

On S3-mid the mean of thousands of estimates, each from a batch of one episode per task through samples, packing and
loss, is compared with ∇J along fixed random directions: z = (mean - truth) / standard error, and |z| of at least 3.9
violates the property. The baseline is the mean return of the other episodes. The control's baseline looks at the
action, which is what a baseline must not do, and must be found out. In the null world the control's baseline is as
large in every state but the same for all its actions: what looks at states alone is right, and must not be found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.methods.rl import policy_gradient
from quintain.types import Credit, derive_seed
from quintain_evidence.labs.exact import exact_gradient, exact_values, visits
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import (
    TablePolicy,
    actions_of,
    assign,
    loss_gradient,
    states_of,
)

LIMIT = 3.9
"""|z| that no direction of 50 has by chance, but once in 200 times."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many of the directions violate the property in one table, with the baseline and with wrong ones."""
    num, directions = int(options.get("estimates", 4000)), int(options.get("directions", 50))
    start = fitted_table(s3(seed), seed, until=float(options.get("until", 0.55)))
    method = policy_gradient.method(
        policy_gradient.Config(credit="others", loss="reinforce", aggregation="constant", constant=1.0)
    )
    method = replace(method, update=replace(method.update, keeps_zeros=True))
    _, exact = exact_gradient(start.world, start.theta)
    ways = drawn_directions(start, directions, seed)
    right, wrong, by_states = (np.zeros((num, directions)) for _ in range(3))
    worth = worths(start)
    signs = np.random.default_rng(derive_seed("signs", seed)).choice([-1.0, 1.0], len(worth))
    shifts = (signs * np.sqrt((worth**2).mean(1)))[:, None].repeat(worth.shape[1], 1)
    for number in range(num):
        groups = start.sample(size=1, seed=derive_seed("pg", seed, number))
        credit = assign(start, method, groups)
        arms = (
            (right, credit),
            (wrong, less(credit, start, worth)),
            (by_states, less(credit, start, shifts)),
        )
        for into, own in arms:
            into[number] = along(loss_gradient(start, own, method.update), ways)
    truth = along(exact, ways)
    z, control, null = (scores(found, truth) for found in (right, wrong, by_states))
    return [
        {
            "violations": float((z >= LIMIT).sum()),
            "trials": float(directions),
            "control_violations": float((control >= LIMIT).sum()),
            "control_trials": float(directions),
            "extra.z": float(z.max()),
            "extra.control_z": float(control.max()),
            "extra.null_violations": float((null >= LIMIT).sum()),
            "extra.null_z": float(null.max()),
        }
    ]


def drawn_directions(start: TablePolicy, count: int, seed: int) -> Tensor:
    """Return `count` random directions [count, S, A], weighted by how often the policy is in a state."""
    generator = torch.Generator().manual_seed(derive_seed("directions", seed) % (1 << 63))
    often = visits(start.world, start.probabilities()).sum(0).sqrt()
    return torch.randn(count, *start.theta.shape, generator=generator, dtype=torch.float64) * often[:, None]


def along(gradient: Tensor, ways: Tensor) -> NDArray[np.float64]:
    """Return the products of `gradient` with each direction."""
    return torch.tensordot(ways, gradient, dims=2).numpy()


def scores(found: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |z| of the mean of `found` [estimates, directions] against `truth`."""
    error = found.std(0, ddof=1) / np.sqrt(len(found))
    return np.abs(found.mean(0) - truth) / np.maximum(error, 1e-12)


def worths(start: TablePolicy) -> NDArray[np.float64]:
    """Return half of what each action is worth beyond its state, [S, A]: a baseline that is none."""
    return 0.5 * exact_values(start.world, start.probabilities()).advantage[-1].numpy()


def less(credit: Credit, start: TablePolicy, baseline: NDArray[np.float64]) -> Credit:
    """Return `credit` less `baseline` [S, A] of the state and the action of each turn."""
    advantages = tuple(
        tuple(
            (array - baseline[state, action]).astype(np.float32)
            for array, state, action in zip(arrays, states_of(t), actions_of(t, start.world), strict=True)
        )
        for t, arrays in zip(credit.trajectories, credit.advantages, strict=True)
    )
    return replace(credit, advantages=advantages)

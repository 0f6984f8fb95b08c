"""EPO: is it the turns that its scores point at which make a strategist better, or would any weights of that size do?

A strategist names one thing in each turn, and a script that cannot learn goes for it. Success on held-out tasks after a
few steps, with the scores of the method; the control permutes them over the turns of each episode, so that each has the
same sum on the same tokens, at one learning rate and from one start. In the null world the actor is deaf: it goes where
it goes whatever it is told. The gate says that strategies matter: with the deaf actor the same policy solves less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quintain.benchmarks.experiments.rl.frozen import MOST_SEEDS
from quintain.benchmarks.experiments.rl.training import compared
from quintain.benchmarks.labs.permute import permute
from quintain.benchmarks.labs.starts import cached_start
from quintain.methods.method import OnPolicy
from quintain.methods.rl import epo
from quintain.types import Credit, derive_seed

AGENT = "plan?actor=scripted&max_tokens=12"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the success of one pair of training runs."""
    root = options.get("root")
    tasks = int(options.get("held_out", 512))
    config = epo.Config(
        environment=str(options["world"]),
        model="mini?tokens=words",
        agent=AGENT,
        seed=derive_seed("epo", seed) % MOST_SEEDS,
        demonstrations=int(options.get("demonstrations", 256)),
        mistakes=float(options.get("mistakes", 0.4)),
        imitation_epochs=int(options.get("imitation_epochs", 12)),
        episodes=int(options.get("episodes", 32)),
        steps=int(options.get("steps", 12)),
        learning_rate=float(options.get("rate", 1e-3)),
        eval_every=10_000,
        eval_episodes=1,
    )
    start = cached_start(
        config,
        enough=float(options.get("enough", 0.25)),
        most=float(options.get("most", 0.75)),
        root=None if root is None else Path(root),
    )
    method = epo.method(config)
    arms = {"method": method, "control": permuted(method, config.seed)}
    found, deaf = compared(arms, config, start.folder, tasks=tasks, seed=config.seed)
    return [
        {
            "method": found["method"],
            "control": found["control"],
            "null_method": deaf["method"],
            "null_control": deaf["control"],
            "extra.start": start.success,
            "extra.heard": found["method"] - deaf["method"],
        }
    ]


def permuted(method: OnPolicy, seed: int) -> OnPolicy:
    """Return `method` whose scores are exchanged among the turns of every episode, whatever their lengths."""

    def credit(groups: Any, estimates: Any) -> Credit:
        return exchanged(method.credit(groups, estimates), seed)

    return replace(method, credit=credit)


def exchanged(credit: Credit, seed: int) -> Credit:
    """Return `credit` whose turns have each other's weights, each spread evenly over its own tokens."""
    places = [(i, k) for i, t in enumerate(credit.trajectories) for k in range(len(t.turns))]
    sums = [float(credit.advantages[i][k].sum()) for i, k in places]
    moved = permute(sums, [i for i, _ in places], seed=seed, moves_all=False, alone="keep").values
    new = dict(zip(places, moved, strict=True))
    advantages = tuple(
        tuple(
            np.full(len(array), new[i, k] / max(len(array), 1), np.float32) for k, array in enumerate(arrays)
        )
        for i, arrays in enumerate(credit.advantages)
    )
    return replace(credit, advantages=advantages)

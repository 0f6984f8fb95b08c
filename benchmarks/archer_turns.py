"""Environment turns until a table solves most of S3: ArCHer's buffer against PPO and REINFORCE on new episodes alone.

    python benchmarks/archer_turns.py --seeds 8

Every arm starts from the same table (J .3), plays one episode of each of 16 tasks a step, and learns with Adam at the
rate that is best for it on two seeds of their own. Counted are the turns played until J, which is known exactly, is .8.
ArCHer's critic and its actions said anew are those of `quintain.benchmarks.experiments.critic.archer`.
"""

import argparse
import json
from collections.abc import Callable
from statistics import fmean

import numpy as np
import torch
from scipy import stats

from quintain.benchmarks.experiments.critic.archer import gradient
from quintain.benchmarks.labs.tables import fitted_table, s3
from quintain.benchmarks.labs.tabular import TablePolicy, train_table
from quintain.methods.rl import ppo, reinforce
from quintain.types import Group, derive_seed

GOAL, STEPS, BUFFER = 0.8, 60, 16
RATES = (0.05, 0.1, 0.2)


def played(policy: TablePolicy, seed: int, step: int) -> tuple[list[Group], int]:
    """Return the episodes of `step` and how many turns they have."""
    groups = policy.sample(size=1, seed=derive_seed("turns", seed, step))
    return groups, sum(len(t.turns) for group in groups for t in group.trajectories)


def archer(seed: int, rate: float) -> int:
    """Return the turns that ArCHer plays until the goal; those of all steps if it is never there."""
    policy, turns = start_of(seed), 0
    optimizer = torch.optim.Adam([policy.theta], rate)
    batches: list[list[Group]] = []
    for step in range(STEPS):
        groups, num = played(policy, seed, step)
        turns += num
        batches = [*batches, groups][-BUFFER:]
        policy.theta.grad = -gradient(
            policy, [g for batch in batches for g in batch], derive_seed(seed, step)
        )
        optimizer.step()
        if policy.objective() >= GOAL:
            break
    return turns


def on_new_episodes(make: Callable[[], object], *, has_values: bool) -> Callable[[int, float], int]:
    """Return what does the same with a method of the on-policy loop."""

    def run(seed: int, rate: float) -> int:
        start = start_of(seed)
        if has_values:
            start = TablePolicy(start.world, start.theta, torch.zeros(start.world.num_states))
        counts: list[int] = []

        def collect(policy: TablePolicy, number: int) -> list[Group]:
            groups, num = played(policy, seed, number - 1)
            counts.append(num)
            return groups

        found = train_table(
            start, make(), num_batches=STEPS, size=1, seed=seed, rate=rate, collect=collect,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            optimizer=lambda parameters, rate: torch.optim.Adam(parameters, rate),
        )  # fmt: skip
        reached = next((n for n, j in enumerate(found.by_batch, 1) if j >= GOAL), STEPS)
        return sum(counts[:reached])

    return run


def start_of(seed: int) -> TablePolicy:
    """Return the table of `seed` that all arms begin with."""
    return fitted_table(s3(seed), seed, until=0.3)


ARMS: dict[str, Callable[[int, float], int]] = {
    "archer": archer,
    "ppo": on_new_episodes(lambda: ppo.method(ppo.Config()), has_values=True),
    "reinforce": on_new_episodes(lambda: reinforce.method(reinforce.Config()), has_values=False),
}


def main() -> None:
    """Print a line of JSON for each arm, and the ratios of ArCHer's turns to theirs with 95 % t intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = range(100, 100 + parser.parse_args().seeds)
    found: dict[str, list[int]] = {}
    for name, arm in ARMS.items():
        rate = min(RATES, key=lambda rate: fmean(arm(seed, rate) for seed in (1, 2)))
        found[name] = [arm(seed, rate) for seed in seeds]
        print(json.dumps({"arm": name, "rate": rate, "turns": found[name]}), flush=True)
    for name in ("ppo", "reinforce"):
        logs = np.log(np.array(found["archer"]) / np.array(found[name]))
        width = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
        low, middle, high = np.exp([logs.mean() - width, logs.mean(), logs.mean() + width])
        print(f"archer / {name}: {middle:.2f} [{low:.2f}, {high:.2f}] of the turns")


if __name__ == "__main__":
    main()

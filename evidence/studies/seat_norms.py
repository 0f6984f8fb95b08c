"""Gradient norms of two seats with parameters of their own, under Dr. MAS' statistics and under one baseline for both.

    python evidence/studies/seat_norms.py [--batches 36] [--starts 4]

The two agents and one answer of Dr. MAS' claim. A's rows and B's rows of the table share no number, so they are as two
adapters are: each has a gradient, and would have an optimizer, of its own. What B earns is raised by a constant of 0 to
4 deviations of success, or multiplied by 4, which leaves the directions of both true gradients what they were. Credit
and loss are the method's at its defaults. Printed are the mean norm of each seat's gradient over batches, the largest
over the median, and the mean cosine with the exact gradient of success in that seat's logits.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, pvariance

from quintain.data.seats import split_seats
from quintain.methods.multiagent import dr_mas
from quintain.types import Group, Score, Trajectory, derive_seed
from quintain_evidence.experiments.multiagent.dr_mas import SHIFTS, raise_rewards
from quintain_evidence.labs.duo import SEATS, exact_gradient, noisy_start, play, rows_of
from quintain_evidence.labs.tabular import assign, cosine, loss_gradient

TIMES = 4
"""by what B's pay is multiplied in the last case"""
CASES = (*(f"{shift} deviations more" for shift in SHIFTS), f"{TIMES} times as much")


def measure(num_starts: int, num_batches: int) -> dict[tuple[str, str, str], list[tuple[float, float]]]:
    """Return of each case, kind of statistics and seat the norms and cosines of all batches."""
    config = dr_mas.Config()
    methods = {by: dr_mas.method(replace(config, statistics=by)) for by in ("agent", "all")}
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for start in range(num_starts):
        policy = noisy_start(derive_seed("seat_norms", start), skill=0.4)
        truth = exact_gradient(policy)
        for batch in range(num_batches):
            seed = derive_seed("seat_norms", start, batch)
            parts = split_seats(play(policy, tasks=config.tasks, size=config.group_size, seed=seed))
            spread = pvariance(
                [t.outcome.value for g in parts for t in g.trajectories if isinstance(t.outcome, Score)]
            )
            raised = [raise_rewards(parts, shift * spread**0.5) for shift in SHIFTS]
            for case, paid in zip(CASES, (*raised, multiply_rewards(parts)), strict=True):
                for by, method in methods.items():
                    gradient = loss_gradient(policy, assign(policy, method, paid), method.update)
                    for seat in SEATS:
                        own = gradient[rows_of(seat)]
                        found[case, by, seat].append((float(own.norm()), cosine(own, truth[rows_of(seat)])))
    return found


def multiply_rewards(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` in which B is paid `TIMES` as much."""

    def pay(part: Trajectory) -> Trajectory:
        outcome = part.outcome
        if part.turns[0].seat != "B" or not isinstance(outcome, Score):
            return part
        return replace(part, outcome=replace(outcome, value=TIMES * outcome.value))

    return [replace(group, trajectories=tuple(map(pay, group.trajectories))) for group in groups]


def describe(values: Sequence[tuple[float, float]]) -> str:
    """Return mean norm, largest over median norm, and mean cosine, as columns."""
    norms = [norm for norm, _ in values]
    return f"{fmean(norms):.3f} | {max(norms) / median(norms):.1f} | {fmean(c for _, c in values):.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=36)
    parser.add_argument("--starts", type=int, default=4)
    given = parser.parse_args()
    found = measure(given.starts, given.batches)
    print(
        "| B is paid | statistics | norm of A | largest/median | cosine | norm of B | largest/median | cosine |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for by in ("agent", "all"):
            a, b = (describe(found[case, by, seat]) for seat in SEATS)
            print(f"| {case} | `{by}` | {a} | {b} |")


if __name__ == "__main__":
    main()

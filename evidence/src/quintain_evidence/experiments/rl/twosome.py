"""TWOSOME: does dividing a score by the words of an action keep an action from losing for being long?

On S3 words without a meaning follow half of the actions, another half in each task, and the table writes such words
seldom, for it has not seen them. Actions are drawn from softmax(Σ log p / length) and learn by the method's own credit
and loss, as whole actions of that policy. The number is exact J after equally many episodes, with words as length. The
control divides by nothing. Beside them words of other actions as length: the same numbers, permuted among the actions
of a state. Doses are the words that follow; without any all actions are one word long and both arms are the same bit by
bit: the null world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import derange
from quintain.methods.rl import twosome
from quintain.types import derive_seed
from quintain_evidence.labs.spelled import Divide, SpelledPolicy, Spelling, spelled, train_spelled
from quintain_evidence.labs.tables import s3

DOSES = (0, 1, 3)
"""Words that follow half of the actions."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of J after training."""
    batches, size, rate = int(options.get("batches", 30)), int(options.get("size", 2)), float(options["rate"])
    num_tasks, rare = int(options.get("tasks", 8)), float(options.get("rare", 0.3))
    method = twosome.method(twosome.Config(environment="sokoban"))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("twosome", seed, number)

        def reached(pad: int, kind: str, own: int = own) -> tuple[float, float]:
            spelling = spelled(s3(own, num_tasks=num_tasks), pad=pad)
            start = beginner(spelling, own, rare=rare, divide=arm(spelling, kind, own))
            run = train_spelled(start, method, num_batches=batches, size=size, seed=own, rate=rate)
            return float(run.objective().detach()), float(start.objective().detach())

        gained = {pad: (reached(pad, "word"), reached(pad, "sum")) for pad in DOSES}
        word, plain = gained[DOSES[-1]]
        found.append(
            {
                "method": word[0],
                "control": plain[0],
                "null_method": gained[0][0][0],
                "null_control": gained[0][1][0],
                "extra.over_permuted": word[0] - reached(DOSES[-1], "permuted")[0],
                "extra.start_word": word[1],
                "extra.start_sum": plain[1],
                **{f"extra.dose{pad}": one[0] - other[0] for pad, (one, other) in gained.items()},
            }
        )
    return found


def beginner(spelling: Spelling, seed: int, *, rare: float, divide: Divide) -> SpelledPolicy:
    """Return a random table that knows actions and writes the words that follow them with probability `rare` each."""
    world = spelling.world
    num, words = len(world.actions), spelling.num_words
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    begin = 0.5 * torch.randn((world.num_states, num), generator=generator, dtype=torch.float64)
    theta = torch.zeros((spelling.num_rows, words), dtype=torch.float64)
    at = torch.arange(world.num_states) * spelling.per_state
    theta[at, :num] = begin
    if spelling.pad:
        theta[:, num] = float(np.log(num * rare / (1 - rare)))
        theta[at, num] = -12.0
    return SpelledPolicy(spelling, theta, divide=divide)


def arm(spelling: Spelling, kind: str, seed: int) -> Divide:
    """Return what divides scores: words, nothing (sum), or words of other actions of the state (permuted)."""
    world = spelling.world
    lengths = 1.0 + spelling.num_pads
    if kind == "word":
        return lambda state, action: float(lengths[state, action])
    if kind == "sum":
        return lambda state, action: 1.0
    orders = [derange(len(world.actions), derive_seed(seed, "lengths", k)) for k in range(len(world.tasks))]
    rows = [lengths[int(start)][order] for start, order in zip(world.start, orders, strict=True)]
    return lambda state, action: float(rows[int(world.task_of[state])][action])

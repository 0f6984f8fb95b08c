"""GLAM: does drawing whole legal actions spare what writing them freely costs, and is it their own scores that do it?

On S3 every word of a vocabulary may be written: four are actions, the others mean nothing and cost a turn. From one
random table GLAM draws among the four by its scores, PPO writes any word; both learn by the stage values of the same
method. The number is exact J after equally many episodes of equally many turns at most. Beside them GLAM whose scores
are permuted among the actions of each state: legal all the same, drawn by the odds of other actions. Doses are words
that mean nothing; without any, all words are actions, and both arms are the same up to rounding: the null world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import derange
from quintain.methods.rl import glam
from quintain.types import derive_seed
from quintain_evidence.labs.spelled import Divide, SpelledPolicy, spelled, train_spelled
from quintain_evidence.labs.tables import s3


def whole(state: int, action: int) -> float:
    """Return what divides GLAM's scores: nothing does."""
    return 1.0


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of J after training."""
    batches, size, rate = int(options.get("batches", 30)), int(options.get("size", 2)), float(options["rate"])
    doses = [int(dose) for dose in options.get("distractors", (5, 20, 80))]
    num_tasks = int(options.get("tasks", 8))
    method = glam.method(glam.Config(environment="sokoban"))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("glam", seed, number)
        world = s3(own, num_tasks=num_tasks)
        order = np.array([derange(len(world.actions), derive_seed(own, s)) for s in range(world.num_states)])

        def reached(distractors: int, divide: Divide | None, order: Any = None, own: int = own) -> float:
            spelling = spelled(s3(own, num_tasks=num_tasks), distractors=distractors)
            generator = torch.Generator().manual_seed(own % (1 << 63))
            noise = torch.randn((spelling.num_rows, 4 + max(doses)), generator=generator, dtype=torch.float64)
            start = SpelledPolicy(spelling, 0.5 * noise[:, : spelling.num_words], divide=divide, order=order)
            run = train_spelled(start, method, num_batches=batches, size=size, seed=own, rate=rate)
            return float(run.objective().detach())

        gained = {dose: (reached(dose, whole), reached(dose, None)) for dose in doses}
        chosen = doses[len(doses) // 2]
        found.append(
            {
                "method": gained[chosen][0],
                "control": gained[chosen][1],
                "null_method": reached(0, whole),
                "null_control": reached(0, None),
                "extra.over_permuted": gained[chosen][0] - reached(chosen, whole, order),
                **{f"extra.dose{dose}": own_gain - written for dose, (own_gain, written) in gained.items()},
            }
        )
    return found

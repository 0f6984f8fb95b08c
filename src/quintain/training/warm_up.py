"""Imitation before training: a policy that already knows how an action is written.

The teacher is the environment's expert; where there is none, random valid actions teach the form of an action
and nothing about the task. The learning rate falls to 0 over the epochs. Few epochs over many demonstrations
beat many over few: both solve as many tasks, but the first still tries things, and learns from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples
from quintain.losses.imitation import imitation
from quintain.training.learner import Learner, Optimization
from quintain.training.progress import Display
from quintain.types import Trajectory, derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DEMONSTRATIONS_PER_UPDATE = 8
MICRO_TOKENS = 16_384


def warm_up(
    model: PreTrainedModel,
    trajectories: list[Trajectory],
    optimization: Optimization,
    *,
    epochs: int,
    seed: int,
    display: Display,
) -> None:
    """Train `model` to write what is written in `trajectories`, in `epochs` passes over them."""
    samples = imitation_samples(trajectories, is_left_out=lambda turn: turn.action.error is not None)
    learner = Learner(model, optimization)
    updates_per_epoch = max(1, round(len(samples) / DEMONSTRATIONS_PER_UPDATE))
    total = epochs * updates_per_epoch
    display.phase("warm-up", total)
    for update in range(total):
        epoch, part = divmod(update, updates_per_epoch)
        order = np.random.default_rng(derive_seed(seed, "warm-up", epoch)).permutation(len(samples))
        chosen = [samples[i] for i in order[part::updates_per_epoch]]
        if chosen:
            batches = micro_batches(chosen, max_tokens=MICRO_TOKENS)
            learner.step(batches, imitation(), rate_scale=1 - update / total)
        display.advance()

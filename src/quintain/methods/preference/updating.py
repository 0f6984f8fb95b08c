"""How a policy learns from pairs, as most methods of this family do it."""

from __future__ import annotations

from quintain.learning.update import Update
from quintain.losses.preference import dpo, rpo
from quintain.types import Loss


def dpo_or_rpo(beta: float, imitation_weight: float) -> Loss:
    """Return DPO with `beta`, with the likelihood of the better side (RPO) where that has a weight."""
    return rpo(beta, alpha=imitation_weight) if imitation_weight else dpo(beta)


def update_on_pairs(loss: Loss, *, num_epochs: int | None = None) -> Update:
    """Return how the pairs of a round are learned from: against a reference, and at the whole rate at once."""
    return Update(loss=loss, num_epochs=num_epochs, has_reference=True, is_on_policy=False, lr_warmup=0)

"""Every policy loss by name: what ``policy_gradient --loss`` chooses from.

The one rule: at the policy that sampled, all of them have the gradient of `reinforce`; they differ once a step is
trained on more than once, or where the sampler was another.
"""

from collections.abc import Callable, Mapping

from quintain.losses.importance import masked_importance, truncated_importance
from quintain.losses.policy import cispo, clipped, gspo, reinforce
from quintain.types import Loss

LOSSES: Mapping[str, Callable[[], Loss]] = {
    "reinforce": reinforce,
    "clipped": clipped,
    "clip_higher": lambda: clipped(0.2, 0.28),
    "dual_clip": lambda: clipped(dual=3.0),
    "gspo": gspo,
    "gspo_turn": lambda: gspo(unit="turn"),
    "cispo": cispo,
    "truncated": lambda: truncated_importance(reinforce()),
    "masked": lambda: masked_importance(reinforce()),
}
"""name → policy loss"""
NEEDS_UPDATES = frozenset({"gspo", "gspo_turn", "cispo", "dual_clip"})
"""Losses that are `reinforce` while a step has one update."""

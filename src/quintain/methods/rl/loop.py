"""LOOP (arXiv 2502.01600): leave-one-out baselines and a clip per token, over two epochs.

A_i = R_i - mean of the others' R, clip to [1/(1+ε), 1+ε].

PPO for stateful digital worlds with neither critic nor reference: one model in memory. The clip is symmetric in
the logarithm, so for A < 0 its bound is .909 and not .9. Episodes with |A| < .01 are dropped, and the epochs of
a step end when the KL to the sampler passes `target_kl` nats an episode.

Differences to the paper: the mean inside an episode and then over episodes is over those that are kept, so dropping
does not shrink the step. Log-probs of the sampler are checked by the learner, not computed again; tasks are not
chosen by difficulty; groups have 8 episodes instead of 6. Measured on number guessing, BabyAI and a help desk
(`desk`) that takes commands, where the paper has AppWorld and code.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.baseline import drop_small
from quintain.credit.group import leave_one_out
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio, whole_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of LOOP."""

    clip: PositiveFloat = 0.1
    """ε of the clip [1/(1+ε), 1+ε]."""
    ratio: Literal["token", "trajectory"] = "token"
    """What has one ratio; the paper finds tokens better."""
    num_epochs: int = 2
    num_minibatches: int = 2
    min_advantage: NonNegativeFloat = 0.01
    """Episodes with a smaller advantage are left out."""
    target_kl: PositiveFloat = 20.0
    """No further update of a step once the KL estimate of a mean episode is above this (nats)."""


def bounds(clip: float) -> tuple[float, float]:
    """Return how far below and above 1 the ratio may be: ``bounds(0.1)`` is (0.0909, 0.1)."""
    return 1 - 1 / (1 + clip), clip


def method(config: Config) -> OnPolicy:
    """Return LOOP as `config` describes it."""
    surrogate = clip_ratio if config.ratio == "token" else whole_ratio
    return OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: drop_small(leave_one_out(groups), config.min_advantage),
        update=Update(
            loss=surrogate(*bounds(config.clip)),
            aggregation="sequence_mean",
            num_epochs=config.num_epochs,
            target_kl=config.target_kl,
            target_kl_unit="episode",
        ),
    )

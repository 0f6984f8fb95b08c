"""A_i = R_i - mean of the others' R, clip to [1/(1+ε), 1+ε] per token, two epochs: LOOP (arXiv 2502.01600).

PPO for stateful digital worlds with neither critic nor reference: one model in memory. The clip is symmetric in
the logarithm, so for A < 0 its bound is .909 and not .9. Episodes with |A| < .01 are dropped, and the epochs of
a step end when the KL to the sampler passes `most_kl`.

Differences to the paper: the mean inside an episode and then over episodes is over those that are kept, so dropping
does not shrink the step; a step's episodes are one batch instead of mini-batches of 32. Log-probs of the sampler
are checked by the learner, not computed again; tasks are not chosen by difficulty; groups have 8 episodes instead
of 6. Measured on BabyAI and on a help desk (`desk`) that takes commands, where the paper has AppWorld and code.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.credit.baseline import drop_small
from quintain.credit.group import leave_one_out
from quintain.losses.policy import clipped, whole_ratio
from quintain.methods.loops.method import Method
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of LOOP."""

    clip: float = 0.1
    """ε of the clip [1/(1+ε), 1+ε]."""
    ratio: Literal["token", "trajectory"] = "token"
    """What has one ratio; the paper finds tokens better."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""
    least: float = 0.01
    """Episodes with a smaller advantage are left out."""
    most_kl: float = 20.0
    """No further update of a step once the KL estimate per token is above this."""


def bounds(clip: float) -> tuple[float, float]:
    """Return how far below and above 1 the ratio may be: ``bounds(0.1)`` is (0.0909, 0.1)."""
    return 1 - 1 / (1 + clip), clip


def method(config: Config) -> Method:
    """Return LOOP as `config` describes it."""
    surrogate = clipped if config.ratio == "token" else whole_ratio
    return Method(
        collect=grouped(config.tasks, config.group_size),
        credit=lambda work, groups: drop_small(leave_one_out(groups), config.least),
        update=policy_update(
            surrogate(*bounds(config.clip)),
            Plan(aggregation="sequence_mean", updates=config.updates, most_kl=config.most_kl),
        ),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

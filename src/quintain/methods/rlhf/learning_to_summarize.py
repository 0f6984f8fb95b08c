"""Learning to summarize (arXiv 2009.01325): PPO on a reward model of comparisons, held near its start.

R = r_φ(x, y) - β log(π(y|x)/π_SFT(y|x)).

A supervised policy, a reward model of comparisons of its answers, and PPO on that reward model: three commands, of
which this is the last. The KL to the supervised policy is paid token by token and is what keeps answers where the
reward model was taught; β .05 is the paper's, `--kl-target` adapts it as the code before it did (1909.08593). The score
falls on the last sampled token. Four epochs a step; the learning rate falls to 0. The critic is a network of its own
and begins as the reward model.

Differences to the paper: comparisons are a synthetic labeller's, unless preferences of people are given to the reward
model; an episode may have many turns; a step has 64 episodes and not 512. Rewards are not whitened (the earlier code
divides by their deviation, and the KL price with them). An episode that was cut is scored as it is.
"""

from dataclasses import dataclass

from quintain.learning.sections import Schedule
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rlhf.ppo import ScoredConfig, against_reward_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ScoredConfig):
    """Configuration of Learning to Summarize."""

    lr_schedule: Schedule = "linear"
    """How the learning rate goes over the steps: as the method says, constant, linear or cosine (both fall to 0)."""


def method(config: Config) -> OnPolicy:
    """Return Learning to Summarize's policy training as `config` describes it."""
    return against_reward_model(config)

"""WebGPT (arXiv 2112.09332): the best of n answers by a reward model, and PPO on it.

argmax of n by r_φ, and E[r_φ - β log(π/π_BC)].

A policy that was cloned from demonstrations of browsing, a reward model of comparisons of its answers in which a tie is
half a preference either way (`reward_model` with two answers and a tie band), and two ways to use it: to sample n
answers and keep the one that it likes best, or to learn from it by PPO. Each step has n answers of each task, so that
both are measured side by side on the same answers: ``best_of/mean`` is the policy (at the first step the cloned one),
``best_of/picked`` the best of n by the reward model, ``best_of/oracle`` by the environment, and ``best_of/share`` how
much of what could be gained is. With `--learning-rate 1e-12` the policy stays the cloned one.

Differences to the paper: comparisons are a synthetic labeller's, unless preferences of people are given to the reward
model; the answering stage is not sampled again from the same browsing; the best of n is measured in training, on
training tasks, and not served.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.layout import outcome_of
from quintain.eval.reward_model import best_of
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import sample_groups
from quintain.methods.rlhf.ppo import ScoredConfig, against_reward_model
from quintain.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ScoredConfig):
    """Configuration of WebGPT."""

    episodes: PositiveInt = 16
    """Tasks of a step."""
    answers: PositiveInt = 4
    """Answers of a task, of which the best is picked: n."""
    num_epochs: int = 2
    kl_coef: NonNegativeFloat = 0.02
    """β, the price of a nat between the policy and the one that it began as."""


def method(config: Config) -> OnPolicy:
    """Return WebGPT's reinforcement learning as `config` describes it."""
    made = against_reward_model(config, tell=picks)
    return replace(made, collect=sample_groups(config.episodes, config.answers))


def picks(groups: Sequence[Group], scores: Sequence[float]) -> dict[str, float]:
    """Return what the best of each group by `scores` is worth, ``best_of/…``; they are those of the scored episodes."""
    left = iter(scores)
    rows = [[(outcome_of(t), next(left)) for t in group.scored] for group in groups]
    rows = [row for row in rows if row]
    if not rows:
        return {}
    found = best_of(
        [[gold for gold, _ in row] for row in rows], [[score for _, score in row] for row in rows]
    )
    return {
        "best_of/picked": found.picked,
        "best_of/mean": found.mean,
        "best_of/oracle": found.oracle,
        "best_of/share": found.share,
    }

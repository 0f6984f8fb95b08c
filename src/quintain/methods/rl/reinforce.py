"""REINFORCE (Williams 1992): the policy gradient with reward-to-go and a baseline.

∇J = E[Σ_t (G_t - b) ∇log π(a_t | h_t)].

G_t is the discounted return from the turn of the token on, b the mean return of the *other* episodes of the step.

Differences to the original: AdamW on batches of episodes; the loss is a mean over the tokens of the step; log-probs
are of the policy that sampled, one update per step, so that no ratio is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import Share
from quintain.credit.baseline import subtract_others
from quintain.credit.discounted import discounted_return
from quintain.errors import ConfigError
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import sample_groups
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of REINFORCE."""

    discount: Share = 1.0
    """γ, per turn."""
    baseline: Literal["others", "none"] = "others"
    """What is subtracted from returns: the mean return of the other episodes, or nothing."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        EpisodesConfig.check(self)
        if self.baseline == "others" and self.episodes < 2:
            raise ConfigError(
                f"episodes: got {self.episodes} with baseline others, and an episode alone has no others; give 2 or "
                "more, or use baseline none"
            )


def method(config: Config) -> OnPolicy:
    """Return REINFORCE as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        returns = discounted_return(groups, discount=config.discount)
        return returns if config.baseline == "none" else subtract_others(returns)

    return OnPolicy(collect=sample_groups(config.episodes, 1), credit=credit, update=Update(loss=reinforce()))

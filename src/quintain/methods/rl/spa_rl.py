"""SPA-RL (arXiv 2505.20732): divides an outcome into progress of steps, then learns by PPO.

r_k = α·c_k + β·g_k, Σ_k c_k = R.

A predictor learns from outcomes alone what each turn contributes; what its contributions miss of an outcome is
shared equally, so that they sum to it. g_k is 1 where the action could be carried out. The fused turn rewards
go through generalised advantage estimation over tokens.

Differences to the paper: the predictor is linear in hashed features of tokens, not a layer on the hidden state of the
policy; a contribution is how much more of the outcome is to be expected after a turn than before it, because sums
alone tell too little of long episodes; it is refitted at every step, on the episodes of earlier steps, instead of
trained beforehand. To the official code: contributions are the predicted ones (not a constant per episode), and
nothing multiplies them by their place. There is no KL to a reference in the rewards, and the critic learns beside the
policy. Measured on BabyAI, without grounding, and on chores in a house (`house`), where the paper has WebShop, ALFWorld
and VirtualHome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, Share
from quintain.credit.decomposition import Contributions, EarlierSteps
from quintain.credit.gae import gae_tokens
from quintain.credit.progress import progress_rewards
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.methods.rl.parts.measures import Decode
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of SPA-RL."""

    progress: NonNegativeFloat = 1.0
    """α, weight of the contributions."""
    grounding: NonNegativeFloat = 0.5
    """β, reward of an action that was carried out; the paper's 0.5 is for outcomes of 1."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return SPA-RL as `config` describes it."""
    estimator = Contributions()

    def fuse(groups: Sequence[Group]) -> Sequence[Group]:
        found = [estimator.predict(t) for group in groups for t in group.scored]
        return progress_rewards(groups, found, alpha=config.progress, beta=config.grounding)

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return whiten(gae_tokens(groups, estimates.critic, gae_lambda=config.gae_lambda))

    def error(groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        errors = [estimator.error(t) for group in groups for t in group.scored]
        return {"spa/error": sum(errors) / max(len(errors), 1)}

    loss = combine((clip_ratio(), 1.0), (value(), 0.5))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        reward=fuse,
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True),
        state=CombinedState(EarlierSteps(estimator)),
        measure=error,
    )

"""r_k = α·c_k + β·g_k, Σ_k c_k = R, then PPO: stepwise progress attribution, SPA-RL (arXiv 2505.20732).

A predictor learns from outcomes alone what each turn contributes; what its contributions miss of an outcome is
shared equally, so that they sum to it. g_k is 1 where the action could be carried out. The fused turn rewards
go through generalised advantage estimation over tokens.

Differences to the paper: the predictor is linear in hashed features of the turn's tokens, not a layer on the hidden
state of the policy, and is refitted exactly at every step instead of trained beforehand. To the official code:
contributions are the predicted ones (not a constant per episode), and nothing multiplies them by their place. There
is no KL to a reference in the rewards, and the critic learns beside the policy. Measured on BabyAI, without
grounding, and on chores in a house (`house`), where the paper has WebShop, ALFWorld and VirtualHome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.credit.decomposition import Contributions
from quintain.credit.gae import gae_tokens
from quintain.credit.progress import progress_rewards
from quintain.credit.whiten import whiten
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of SPA-RL."""

    episodes: int = 64
    """Episodes of a step, each of another task."""
    progress: float = 1.0
    """α, weight of the contributions."""
    grounding: float = 0.5
    """β, reward of an action that was carried out; the paper's 0.5 is for outcomes of 1."""
    decay: float = 0.95
    """λ of generalised advantage estimation."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""


def method(config: Config) -> Method:
    """Return SPA-RL as `config` describes it."""
    estimator = Contributions()

    def fused(groups: Sequence[Group]) -> Sequence[Group]:
        found = [estimator.predict(t) for group in groups for t in group.scored]
        return progress_rewards(groups, found, alpha=config.progress, beta=config.grounding)

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        return whiten(gae_tokens(groups, critic(work, groups), gae_lambda=config.decay))

    def error(groups: Sequence[Group]) -> Mapping[str, float]:
        errors = [estimator.error(t) for group in groups for t in group.scored]
        return {"spa/error": sum(errors) / max(len(errors), 1)}

    loss = combine((clipped(), 1.0), (value(), 0.5))
    return Method(
        collect=grouped(config.episodes, 1),
        reward=fused,
        credit=credit,
        update=policy_update(loss, Plan(updates=config.updates, keeps_zeros=True)),
        needs=Needs(critic=True),
        memory=estimator,
        measure=error,
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

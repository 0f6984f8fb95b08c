"""Search-R1 (arXiv 2503.09516): reinforcement with a search engine, over sampled tokens alone.

J = E[EM(answer)] - β KL(π ‖ π_ref).

The agent thinks, searches and answers in tags; what is found is appended and read, and is masked in everything that
learns: the loss, the KL, advantages, their whitening and the critic (I(y_t) = 1 for sampled tokens, equations 2 and 3).
The reward is whether the answer is right, and nothing else. With GRPO, answers to a question are compared with each
other and the KL stands in the loss; with PPO a value head is learned and the KL stands in the reward.

Differences to the paper: what is sampled is never cut and encoded again, so the trained ids are the sampled ones, the
end token with them; results come as messages of the chat, not in the assistant's own; in PPO the critic shares the
model; the released code's critic, GAE and whitening see retrieved tokens, these do not. There is no turn without
searching after the last: the environment's limit of turns ends an episode, and what was not answered is wrong. Groups
have 8 episodes, not 5. Measured on synthetic questions, where the paper has seven sets of questions over Wikipedia.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import CombinedState, Needs, TransformGroups, sample_groups
from quintain.methods.rl.parts.kl import KLController
from quintain.methods.toolrl.searching import SearchConfig, by_group, measure_searches
from quintain.rewards.conduct import success
from quintain.rewards.terms import apply_all
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SearchConfig):
    """Configuration of Search-R1."""

    algorithm: Literal["grpo", "ppo"] = "grpo"
    """grpo: answers to a question are compared; ppo: as many episodes, each of another question, and a critic."""
    kl_coef: NonNegativeFloat = 0.001
    """β, price of the KL to the starting policy: in the loss with grpo, in the reward with ppo."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    gae_lambda: Share = 1.0
    """λ of generalised advantage estimation, with ppo."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the critic's loss, with ppo."""


def method(config: Config) -> OnPolicy:
    """Return Search-R1 as `config` describes it."""
    reward = partial(apply_all, terms=(success(),))
    if config.algorithm == "ppo":
        return with_critic(config, reward)
    return by_group(config, reward, clip=config.clip, kl_coef=config.kl_coef)


def with_critic(config: Config, reward: TransformGroups) -> OnPolicy:
    """Return PPO with the KL in the reward of each sampled token, on `reward`."""
    anchor = KLController(config.kl_coef, "reward")

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        prices, metrics = anchor.token_rewards(groups, estimates)
        values = replace(estimates.critic, token_rewards=prices)
        found = whiten(gae_tokens(groups, values, gae_lambda=config.gae_lambda))
        return replace(found, metrics={**found.metrics, **metrics})

    return OnPolicy(
        collect=sample_groups(config.tasks * config.group_size, 1),
        reward=reward,
        credit=credit,
        update=Update(
            loss=combine((clip_ratio(config.clip, config.clip), 1.0), (value(), config.vf_coef)),
            keeps_zeros=True,
        ),
        needs=Needs(critic=True, reference_logprobs=anchor.is_in_credit),
        state=CombinedState(anchor),
        measure=measure_searches,
    )

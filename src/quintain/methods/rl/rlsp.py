"""R = α·right + (1 - α)·(1 - c^tokens), PPO with the KL in the reward: RLSP (arXiv 2502.06773).

Two signals that are kept apart: the verifier's for the outcome, and one for searching, paid whether or not the
answer is right, unless the text repeats itself. With α = 1 it is plain reinforcement learning from verifiable
rewards.

Differences to the paper: constants are ours (it gives none); no supervised stage on search traces of its own; the
two signals are logged as ``reward/success`` and ``reward/search``. Measured on Sokoban, where search is more moves
and not more thought, and on sums of single digits that may be mended, where it is judging and answering again; the
paper has mathematics.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ranges import RangedJob
from quintain.methods.rl.parts.reference import kl_in_reward
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.conduct import success
from quintain.rewards.search import search_bonus
from quintain.rewards.terms import apply_all
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Credit, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RangedJob):
    """Configuration of RLSP."""

    episodes: int = 64
    """Episodes of a step, each of another task."""
    outcome_share: float = 0.8
    """α, share of the outcome in the reward."""
    base: float = 0.98
    """c of the search reward: 1 - c^tokens."""
    has_gate: bool = True
    """No search reward for text that repeats itself."""
    kl: float = 0.01
    """Weight of the KL to the starting policy in the reward; 0 for none."""


def method(config: Config) -> Method:
    """Return RLSP as `config` describes it."""
    share = config.outcome_share
    search = search_bonus(base=config.base, has_gate=config.has_gate, weight=1 - share)

    def credit(work: Work, groups: Sequence[Group]) -> Credit:
        values = replace(critic(work, groups), token_rewards=kl_in_reward(work, groups, config.kl))
        return whiten(gae_tokens(groups, values, gae_lambda=1.0))

    return Method(
        collect=grouped(config.episodes, 1),
        reward=partial(apply_all, terms=(success(share), search)),
        credit=credit,
        update=policy_update(combine((clipped(), 1.0), (value(), 0.5)), Plan(updates=2, keeps_zeros=True)),
        needs=Needs(critic=True, reference=config.kl > 0),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))

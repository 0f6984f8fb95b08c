"""PAG (arXiv 2506.10406): one model solves and verifies, each turn paid for its own job.

A whitened by role.

One model answers, judges its own answer, and answers again only if it judged the first to be wrong. Turns are
optimised apart: the estimate is cut at the end of a turn (γ = 0 between turns), and advantages of answers and
of verdicts have statistics of their own, so that neither role drowns the other.

Differences to the paper: the roles' rewards, and the bonus for mending an answer, are the environment's ("sums"): the
reward term answer or verdict of a turn, which also names its role; no data of single attempts is mixed in. Measured on
sums of single digits, where the paper has competition mathematics.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from quintain.config.ranges import Share
from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.measures import Decode
from quintain.types import ANSWER, Credit, Group, Trajectory, Turn

VERDICT = "verdict"
"""Reward term of the turns that judge an answer, above 0 where the verdict was true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of PAG."""

    environment: str = "sums?bonus=0.5"
    """An environment whose turns have the reward term answer or verdict."""
    by_role: bool = True
    """Whiten advantages of answers and verdicts apart; else together."""
    gae_lambda: Share = 1.0
    """λ of generalised advantage estimation, inside a turn."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return PAG as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        advantages = gae_tokens(groups, estimates.critic, turn_discount=0.0, gae_lambda=config.gae_lambda)
        return whiten(advantages, by=role if config.by_role else None)

    loss = combine((clip_ratio(), 1.0), (value(), 0.5))
    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        reward=pay_roles,
        credit=credit,
        update=Update(loss=loss, keeps_zeros=True),
        needs=Needs(critic=True, turn_rewards=True),
        measure=verification,
    )


def role(_: Trajectory, turn: Turn) -> str:
    """Return "verifier" for a turn that was paid as a verdict, else "policy"."""
    return "verifier" if VERDICT in turn.reward_terms else "policy"


def pay_roles(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` with each turn paid for its own job: its reward term answer or verdict; outcomes stay."""

    def pay(turn: Turn) -> Turn:
        terms = turn.reward_terms
        return replace(turn, reward=terms.get(VERDICT, terms.get(ANSWER, turn.reward)))

    return [
        replace(
            group,
            trajectories=tuple(replace(t, turns=tuple(map(pay, t.turns))) for t in group.trajectories),
        )
        for group in groups
    ]


def verification(groups: Sequence[Group], _: Decode) -> dict[str, float]:
    """Return how often verdicts were true, how often an answer was mended, and how often a right one was spoiled."""
    episodes = [t for group in groups for t in group.scored]
    verdicts = [
        turn.reward_terms[VERDICT] for t in episodes for turn in t.turns if role(t, turn) == "verifier"
    ]
    answers = [[turn.reward_terms[ANSWER] > 0 for turn in t.turns if turn.is_answer] for t in episodes]
    pairs = [pair for own in answers for pair in pairwise(own)]
    num = max(len(episodes), 1)
    return {
        "pag/true_verdicts": sum(verdicts) / max(len(verdicts), 1),
        "pag/mended": sum(after and not before for before, after in pairs) / num,
        "pag/spoiled": sum(before and not after for before, after in pairs) / num,
    }

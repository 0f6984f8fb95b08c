"""AGILE (arXiv 2405.14751): learns when to ask for advice that costs, because what is remembered of it pays later.

A_t = Σ (γλ)^k δ_{t+k} over the turns of a session, whose questions pay 1 if right, 0 if wrong, 1 - c if advised.

Questions come in sessions, and an agent keeps in a bank what advice taught (`quintain.agents.consulting`). Asking may
not pay for its own question and still pay: a question that comes again is then answered from memory. So an episode is
the whole session, and advantages run across its questions; with a discount of 0 each question is credited for itself.
The policy begins with a teacher that asks for advice at some questions and answers others (``asks`` of the session),
and goes on by PPO with a critic over turns. What the executor appends is read and never trained.

Differences to the paper: a session is one episode, in the place of episodes of a question each with a proxy of what
they mean for later ones; recurrence is told by a word whose meaning has to be learned; turns of reflection are trained
with the rest. Its training code is not public. Measured on a table of sessions; the paper has ProductQA, MedMCQA and
HotPotQA.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from quintain.config.ranges import Share
from quintain.credit.gae import gae_turns
from quintain.credit.whiten import whiten
from quintain.environments.series import ADVICE
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic
from quintain.types import Credit, Group, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of AGILE."""

    environment: str = "session:hopqa?tasks=8&repeats=4&advice=0.3&asks=0.5"
    agent: str = "consulting"
    """Harness: with a bank that advice fills (consulting); see the list of every method's."""
    discount: Share = 1.0
    """γ, per turn, across the questions of a session; 0: each turn for itself."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation, over turns."""


def method(config: Config) -> OnPolicy:
    """Return AGILE as `config` describes it."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        found = gae_turns(groups, estimates.critic, discount=config.discount, gae_lambda=config.gae_lambda)
        return whiten(found)

    return replace(actor_critic(config), credit=credit, measure=measure_asks)


def measure_asks(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the times that advice was asked for in an episode, and what was paid for it."""
    episodes = flatten_scored(groups)
    if not episodes:
        return {}
    paid = [[t.reward_terms[ADVICE] for t in e.turns if ADVICE in t.reward_terms] for e in episodes]
    return {"advice/asked": fmean(map(len, paid)), "advice/paid": -fmean(map(sum, paid))}

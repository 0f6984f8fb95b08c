"""RLFT (arXiv 2504.16078): reinforcement against greedy choice, with a bonus for what is untried.

A = returns-to-go, whitened, with a price for what is broken.

"LLMs are Greedy Agents": agents settle on what they tried first, repeat what stands often in their context, and do
not do what they know. Reinforcement fine-tuning on the model's own rationales with an exploration bonus narrows all
three, and more so if all actions are tried first. `probe_greediness` logs them for each step: coverage, regret where
the environment tells it, the greedy share, the bias to what stands often in the context, and, where rationales name
options, how often what was known was not done.

Differences to the paper: rewards are normalised by whitening returns over the turns of a step instead of by running
statistics; no state-value head. Of the paper's ways to explore there are the bonus, trying all and ε-greedy choices;
no self-consistency, no cloning of thoughts. What exploration forces, it forces in training alone, and it is learned
from as if the policy had chosen it. A model writes a rationale through a harness that asks for one (`react`), or
where it was shown some (`bandit?rationale=true`); knowing and doing are compared there alone. The whole episode is in
the context. Measured on bandits; tic-tac-toe is not compared.
"""

from dataclasses import dataclass
from functools import partial

from quintain.agents.protocol import Agent
from quintain.config.ranges import NonNegativeFloat, Share
from quintain.credit.discounted import discounted_return
from quintain.credit.whiten import whiten
from quintain.learning.train_config import EpisodesConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_groups
from quintain.methods.rl.parts.exploring import Exploring
from quintain.methods.rl.parts.measures import probe_greediness
from quintain.rewards.conduct import environment_reward, format_penalty, invalid_action_penalty
from quintain.rewards.exploration import pay_untried
from quintain.rewards.terms import apply_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(EpisodesConfig):
    """Configuration of reinforcement fine-tuning against greediness."""

    bonus: NonNegativeFloat = 1.0
    """Reward of an action that is new in its episode; 0 for none."""
    penalty: NonNegativeFloat = 5.0
    """Reward lost by an action that cannot be read or carried out."""
    discount: Share = 1.0
    """γ, per turn."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss; 0 for none."""
    tries_all: bool = False
    """Whether the first actions of training episodes are those not tried yet, until all legal ones were."""
    epsilon: Share = 0.0
    """Share of the turns of training episodes in which the action is a random legal one."""
    num_epochs: int = 2


def method(config: Config) -> OnPolicy:
    """Return reinforcement fine-tuning as `config` describes it."""
    has_kl = config.kl_coef > 0
    loss = combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef)) if has_kl else clip_ratio()
    terms = (
        environment_reward(),
        pay_untried(config.bonus),
        format_penalty(config.penalty),
        invalid_action_penalty(config.penalty),
    )
    explores = config.tries_all or config.epsilon > 0

    def explore(agent: Agent) -> Agent:
        return Exploring(agent=agent, tries_all=config.tries_all, epsilon=config.epsilon)

    return OnPolicy(
        collect=sample_groups(config.episodes, 1, agent=explore if explores else None),
        reward=partial(apply_all, terms=terms),
        credit=lambda groups, _: whiten(discounted_return(groups, discount=config.discount), unit="turn"),
        update=Update(loss=loss, keeps_zeros=has_kl, has_reference=has_kl),
        needs=Needs(reference=has_kl, legal_actions=explores),
        measure=probe_greediness,
    )

"""A_t = Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} - V_t, then the clipped policy gradient: PPO (arXiv 1707.06347).

A value head on the policy predicts the return before every sampled token; generalised advantage estimation
(1506.02438) runs over the sampled tokens of an episode, across observations: the next value is that of the next
token the policy sampled. A turn's reward belongs to its last token.

Differences to the papers: policy and critic share the model and one loss; advantages are whitened over the
tokens of the step; after a truncation the value of the last sampled token's state stands for that of the state
after it.
"""

from dataclasses import dataclass

from quintain.credit.gae import gae_tokens
from quintain.credit.whiten import whitened
from quintain.data.samples import samples_from
from quintain.losses.compose import combine
from quintain.losses.policy import clipped
from quintain.losses.value import value
from quintain.recipes.job import Job
from quintain.recipes.rl.critic import critic
from quintain.recipes.rl.rate import warming
from quintain.recipes.work import opened
from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Job):
    """Configuration of PPO."""

    episodes: int = 64
    """Episodes of a step, each of another task."""
    updates: int = 2
    """Optimizer steps on the episodes of a step."""
    discount: float = 1.0
    """γ, per sampled token."""
    decay: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """The ratio is clipped to 1 ± this."""
    value_weight: float = 0.5
    """Weight of the critic's loss."""


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    loss = combine((clipped(config.clip, config.clip), 1.0), (value(), config.value_weight))
    with opened(config, run, has_critic=True) as work:
        for step in work.steps():
            groups = work.groups(step, tasks=config.episodes, size=1)
            estimates = gae_tokens(groups, critic(work, groups), discount=config.discount, decay=config.decay)
            credit = whitened(estimates)
            samples = samples_from(credit)
            batches = work.batches(samples) if samples else []
            reports = [
                work.learner.step(batches, loss, rate_scale=warming(step), is_on_policy=update == 0)
                for update in range(config.updates if batches else 0)
            ]
            work.commit(step, groups, reports[-1] if reports else None, credit.metrics)

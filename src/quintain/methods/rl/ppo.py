"""PPO (arXiv 1707.06347): advantages of a critic, then the clipped policy gradient over epochs.

A_t = Σ (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} - V_t.

A value head on the policy predicts the return before every sampled token; generalised advantage estimation
(1506.02438) runs over the sampled tokens of an episode, across observations: the next value is that of the next
token the policy sampled. A turn's reward belongs to its last token.

Differences to the papers: policy and critic share the model and one loss; advantages are whitened over the tokens
of the step; the task's own limit of turns is an end, after which nothing is expected. There is neither an entropy
bonus nor a clip of the value, and the episodes of a step are one batch. Measured on BabyAI, where the paper has
robots and Atari.
"""

from dataclasses import dataclass

from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of PPO."""


def method(config: Config) -> OnPolicy:
    """Return PPO as `config` describes it."""
    return actor_critic(config)

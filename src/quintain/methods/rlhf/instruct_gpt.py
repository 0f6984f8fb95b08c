"""InstructGPT (arXiv 2203.02155, eq. 2): PPO on a learned reward, with text of pretraining beside it.

E[r_φ - β log(π/π_SFT)] + γ E_corpus[log π].

The third of three commands: supervised fine-tuning, a reward model of rankings, and PPO on that with a likelihood of
other data in every gradient (`--ptx-coef`), so that what the reward does not ask for is not forgotten. The KL to the
supervised policy is paid token by token (β .02), the score falls on the last sampled token, and the critic begins as
the reward model. The corpus is of conversations (`--corpus`), or of the expert's episodes in the environment. Its mean
is over its own trained tokens: prompts are not trained, and how long the episodes of RL are changes nothing.

Differences to the paper: γ is 1 and not 27.8, which stands before a sum of other units there; the corpus is not
pretraining text; rankings are a synthetic labeller's, unless preferences of people are given to the reward model; no
moving average of the weights is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector
from quintain.methods.rlhf.mixing import Mixing
from quintain.methods.rlhf.ppo import ScoredConfig, against_reward_model
from quintain.types import Trajectory

NUM_SHOWN = 64
"""Episodes of the expert that are the corpus where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ScoredConfig):
    """Configuration of InstructGPT."""

    num_epochs: int = 1
    num_minibatches: int = 4
    kl_coef: NonNegativeFloat = 0.02
    """β, the price of a nat between the policy and the one that it began as."""
    ptx_coef: NonNegativeFloat = 1.0
    """γ, weight of the mean log-likelihood of the corpus; 0 is PPO."""
    ptx_batch: PositiveInt = 16
    """Conversations of the corpus beside each minibatch."""
    corpus: str = ""
    """File, folder or run of conversations that keep their likelihood; empty: 64 episodes of the expert."""


def method(config: Config) -> OnPolicy:
    """Return InstructGPT's policy training as `config` describes it."""

    def base(collector: Collector) -> Sequence[Trajectory]:
        return (
            collector.corpus() if config.corpus else collector.expert_episodes(collector.tasks(0, NUM_SHOWN))
        )

    mixing = Mixing(base=base, weight=config.ptx_coef, batch_size=config.ptx_batch)
    return against_reward_model(config, mixing=mixing)

"""Learning from human preferences (arXiv 1706.03741): a reward learned from compared segments.

P(s₁ ≻ s₂) = σ(Σ r̂(s₁) - Σ r̂(s₂)).

Before a step of PPO that is due for it, pairs of segments of `--segment` turns are drawn from the newest episodes, and
those are asked for on whose preference the members of an ensemble differ most. Every member is fitted anew to all
answers so far, as many as there are drawn with replacement, by cross-entropy under the belief that a tenth of the
labels is a coin's. A turn pays the mean of the members, each brought to mean 0 and deviation 1 first.

``--labels synthetic`` answers by the environment's turn rewards, with noise; ``--labels ask`` waits for people, who
answer by ``quintain label RUN``; ``--labels FILE`` has questions and answers in a file of one's own.

Differences to the paper: PPO in the place of A2C and TRPO; a member is the policy's model with a value head, read after
the last token of each turn, and sees what was observed and done in that turn alone, unless `--sees-history` is given;
members are fitted anew and not further; there is no share of the labels to tune a penalty by, and agreement is measured
out of the bag; segments have equal numbers of turns, not of seconds. The whole chain is in step: the policy waits for
the labels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import floor, log1p
from typing import ClassVar

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.comparisons import Labeller
from quintain.errors import ConfigError
from quintain.learning.train_config import PolicySpec
from quintain.learning.update import Update
from quintain.losses.reward_model import bradley_terry
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of Deep RL from Human Preferences."""

    renamed: ClassVar[Mapping[str, str]] = {"reward_rate": "reward_lr"}
    """earlier names of options"""

    environment: str = "sokoban?size=3&walls=0&reward=dense"
    num_labels: PositiveInt = 200
    """Comparisons that are asked for in the whole run."""
    first_labels: PositiveInt = 50
    """Comparisons before the first step; the others come ever more slowly, as 1 / step."""
    labels: str = "synthetic"
    """Who answers: synthetic, ask (people, by quintain label RUN), or the file in which they do."""
    label_hours: PositiveFloat = 24.0
    """Hours that a step waits for people; then the run ends, and can be resumed."""
    segment: PositiveInt = 4
    """Turns of a segment."""
    members: PositiveInt = 3
    """Reward models of the ensemble."""
    candidates: PositiveInt = 8
    """Pairs that are drawn for each one that is asked for; 1 asks for random ones."""
    sees_history: bool = False
    """Whether a reward model reads what came before a turn; else what was observed and done in it alone."""
    label_errors: Share = 0.1
    """Share of the labels that the loss believes to be a coin's."""
    reward_lr: PositiveFloat = 1e-3
    """Learning rate of the reward models."""
    reward_epochs: PositiveInt = 8
    """Times that a reward model goes through the labels when it is fitted."""
    labeller_errors: Share = 0.1
    """Share of the questions that the synthetic labeller answers by a coin."""
    labeller_temperature: NonNegativeFloat = 0.0
    """Noise of the synthetic labeller: P(one better than another) = sigmoid(difference of their rewards / this)."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ActorCriticConfig.check(self)
        if self.members < 2:
            raise ConfigError(f"members: got {self.members}, which cannot disagree; give 2 or more")
        if self.first_labels > self.num_labels:
            raise ConfigError(
                f"first_labels: got {self.first_labels} of num_labels {self.num_labels} in all; give no more than these"
            )
        if self.lora_rank:
            raise ConfigError(
                f"lora_rank: got {self.lora_rank}, and reward models are fitted anew from their start; give 0"
            )


def method(config: Config) -> OnPolicy:
    """Return Deep RL from Human Preferences as `config` describes it."""
    from quintain.methods.rlhf.comparing import LearnedReward

    names = tuple(f"reward_{number}" for number in range(1, config.members + 1))
    base = actor_critic(config)
    specs = {
        name: PolicySpec(head="value", is_trained=True, head_seed=number)
        for number, name in enumerate(names, 1)
    }
    return replace(
        base,
        needs=Needs(critic=True, others=specs),
        companion=LearnedReward(
            members=names,
            queries=decaying(config.num_labels, first=config.first_labels, steps=config.steps),
            update=Update(
                loss=bradley_terry(error_rate=config.label_errors),
                num_epochs=config.reward_epochs,
                is_on_policy=False,
                lr_warmup=0,
            ),
            labels=config.labels,
            labeller=Labeller(temperature=config.labeller_temperature, error_rate=config.labeller_errors),
            patience=config.label_hours,
            segment=config.segment,
            sees_history=config.sees_history,
            candidates=config.candidates,
            rate=config.reward_lr / config.learning_rate,
        ),
    )


def decaying(total: int, *, first: int, steps: int) -> Callable[[int], int]:
    """Return how many comparisons are asked for before each step, from 1: `first`, then of `total` as 1 / step.

    Example: total 100, first 25, steps 10 → 25, 22, 13, 10, 7, 6, 5, 4, 4, 4.
    """

    def until(step: int) -> int:
        """Return how many are asked for before `step` and all earlier ones."""
        if step < 1:
            return 0
        if step >= steps:
            return total
        return first + floor((total - first) * log1p(step - 1) / log1p(steps - 1) + 1e-9)

    return lambda step: until(step) - until(step - 1)

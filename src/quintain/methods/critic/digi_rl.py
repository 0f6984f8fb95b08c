"""DigiRL (arXiv 2406.11896): imitates turns that raised the chance of success in unusually good episodes.

Two classifiers of success learn from a buffer (arXiv 2406.11896): V(task), before the first turn, and V(s), before
every turn. Of the episodes in the buffer those are kept whose outcome is most above V(task), so that tasks of medium
success are learned from and neither those that are always nor those that are hardly ever solved. Of these the policy
imitates the turns whose advantage λ^{H-t}·R + (1 - λ^{H-t})·(r + V(s') - V(s)) is above 1/H, each token alike, in
epochs. First offline: the starting policy's episodes are learned from before any other is played, kept by their outcome
alone. Then online, on a buffer of the newest episodes, those of the beginning among them until newer ones take their
place.

The filter keeps nothing where nothing is above anything else (``digi_rl/kept_episodes`` 0: all solved, or none), and of
equal scores all or none, where the official code keeps every failure of a batch with less than a tenth of successes.
``variant="code"`` takes the advantages of that code, V(s') - V(s) - .05 + r + γ^{H-t}·R with γ .5, above 0, by which an
episode that succeeded is imitated nearly whole.

Differences to the official code, beside the advantages: critics are value heads on copies of the policy, or on small
encoders of their own, one each and not twins, where it has layers on frozen RoBERTa and image features; V behind the
end is 0, not learned; log-probs are not clamped; losses are means over tokens and gradients are clipped as everywhere
here, not at .01. H is that of the longest episode the filter chooses among. Outcomes are the environment's, where the
paper has a vision model judge.
Measured on tables over a slippery sokoban, and on `web` with pop-ups and drifting words in the place of Android.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.layout import credit_of, repeat_over_tokens
from quintain.credit.selection import top_share
from quintain.credit.success import attach_values, digirl_advantages, doubly_robust
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, ReplayConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitate_weighted
from quintain.methods.critic.success_critics import CRITIC, chances_by, classifier, watch_critic
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer
from quintain.methods.method import Collector, Needs
from quintain.types import Credit, Group, Trajectory, flatten_scored

TASK_CRITIC, STEP_CRITIC = "task_critic", "step_critic"
DISCOUNT = 0.5
"""γ of the official code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ReplayConfig):
    """Configuration of DigiRL."""

    renamed: ClassVar[Mapping[str, str]] = {
        "mixing": "outcome_decay",
        "share": "keep_fraction",
        "critic_rate": "critic_lr_scale",
    }
    """earlier names of options"""

    environment: str = "web?popups=0.5&changing=true&drift=256"
    tasks: PositiveInt = 16
    """Tasks of a step once episodes are played online."""
    group_size: PositiveInt = 1
    """Episodes of a task."""
    offline_tasks: NonNegativeInt = 64
    """Tasks that the starting policy plays before anything is learned; 0: it begins online."""
    offline_steps: PositiveInt = 5
    """First steps, which learn from these alone."""
    log: str = ""
    """A run whose training episodes stand in the buffer before the first step."""
    capacity: PositiveInt = 256
    """Newest episodes that are learned from."""
    keep_fraction: Share = 0.1
    """Share of the episodes that the filter by task keeps."""
    outcome_decay: Share = 0.5
    """λ, what of the outcome a turn is credited with for every turn that it lies before the end."""
    variant: Literal["paper", "code"] = "paper"
    """Advantages as in the paper, or as in its code."""
    by_task: bool = True
    """Whether episodes are kept by their outcome above what the task promised; else by the outcome."""
    by_step: bool = True
    """Whether turns are kept by their advantage; else all of an episode are."""
    critic_updates: PositiveInt = 5
    """Updates of each critic in a step."""
    critic_batch: PositiveInt = 32
    """Episodes of such an update."""
    critic_lr_scale: PositiveFloat = 3.0
    """Factor on the learning rate of the critics."""
    critic_size: str = ""
    """Size of a small encoder for the critics: micro, mini, tiny or small; empty: they are copies of the policy."""
    num_epochs: PositiveInt = 4
    """Times that what was kept is gone through in a step."""
    num_minibatches: PositiveInt = 2
    """Optimizer steps of an epoch."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ReplayConfig.check(self)
        for name, number in (("keep_fraction", self.keep_fraction), ("outcome_decay", self.outcome_decay)):
            if number == 0:
                raise ConfigError(f"{name}: got 0, which leaves nothing to learn; give a share above 0")


def method(config: Config) -> Replay:
    """Return DigiRL as `config` describes it."""
    num_offline = config.offline_steps if config.offline_tasks or config.log else 0

    def collect(collector: Collector, step: int) -> list[Group]:
        if step > num_offline:
            return collector.sample(step, collector.tasks(step, config.tasks), size=config.group_size)
        if step > 1 or not config.offline_tasks:
            return []
        return collector.sample(1, collector.tasks(1, config.offline_tasks), size=config.group_size)

    def keep_turns(groups: Sequence[Group], consultation: PolicyQueries) -> Credit:
        episodes = flatten_scored(groups)
        by_task = config.by_task and consultation.step > num_offline
        promised = (
            [own[0] for own in chances_by(TASK_CRITIC, episodes, consultation)]
            if by_task
            else [0.0] * len(episodes)
        )
        values = chances_by(STEP_CRITIC, episodes, consultation)
        return hard_filter(episodes, promised, values, config)

    critics = [
        classifier(
            name,
            num_updates=config.critic_updates,
            rate=config.critic_lr_scale,
            batch_size=config.critic_batch,
            places="first" if name == TASK_CRITIC else "turns",
        )
        for name in (TASK_CRITIC, STEP_CRITIC)
    ]
    actor = CriticUpdate(
        policy=MAIN,
        target=keep_turns,
        update=Update(loss=imitate_weighted(), is_on_policy=False, lr_warmup=1),
    )
    return Replay(
        collect=collect,
        buffer=ReplayBuffer(capacity=config.capacity, batch_size=config.capacity),
        updates=(*critics, actor),
        critic=watch_critic(STEP_CRITIC),
        log=config.log,
        needs=Needs(
            others=dict.fromkeys((TASK_CRITIC, STEP_CRITIC), replace(CRITIC, size=config.critic_size))
        ),
    )


def hard_filter(
    episodes: Sequence[Trajectory],
    promised: Sequence[float],
    values: Sequence[Sequence[float]],
    config: Config,
) -> Credit:
    """Return weight 1 for the tokens of the turns that are imitated, and 0 for the others.

    Args:
        episodes: all that are chosen among.
        promised: V(task) of each of them.
        values: V(s) before each turn of each.
        config: whose filters are used.
    """
    seen = attach_values(episodes, values)
    is_kept = top_share(
        [episode.outcome - chance for episode, chance in zip(seen, promised, strict=True)],
        config.keep_fraction,
    )
    longest = max((len(episode.values) for episode in seen), default=2)
    least = 1 / max(longest, 2) if config.variant == "paper" else 0.0
    weights: list[list[float]] = []
    for episode, is_in in zip(seen, is_kept, strict=True):
        found = (
            doubly_robust(episode, mixing=config.outcome_decay)
            if config.variant == "paper"
            else digirl_advantages(episode, discount=DISCOUNT)
        )
        weights.append([float(is_in and (not config.by_step or a > least)) for a in found])
    num = max(sum(map(len, weights)), 1)
    chosen = max(sum(len(own) for own, is_in in zip(weights, is_kept, strict=True) if is_in), 1)
    solved = [bool(t.is_success) for t, is_in in zip(episodes, is_kept, strict=True) if is_in]
    metrics = {
        "digi_rl/kept_episodes": float(np.mean(is_kept)) if is_kept else 0.0,
        "digi_rl/kept_success": float(np.mean(solved)) if solved else 0.0,
        "digi_rl/kept_turns": sum(map(sum, weights)) / num,
        "digi_rl/kept_of_kept": sum(map(sum, weights)) / chosen,
    }
    return credit_of(episodes, repeat_over_tokens(episodes, weights), metrics=metrics)

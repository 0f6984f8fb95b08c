"""ArCHer (arXiv 2402.19446): an off-policy critic of whole turns teaches a policy of tokens.

L = -A(s, a) Σ log π(a | s), A = min Q - min V by off-policy TD, a said anew.

Two levels (arXiv 2402.19446): twin critics of turns learn from a buffer, y_Q = r + γ·V̄(s') and y_V = Q̄(s, a ~ π), with
target networks; the policy says turns anew at states of the buffer, and each token of them is weighed by the advantage
of its turn. No importance ratio is needed, because nothing of an older policy is learned by it. In the first steps only
the critics learn, and for as long as V does not foretell what comes of new episodes (`critic_explains`). Two variants:
with ``actor="exact"`` every legal action is weighed by its probability instead of one being sampled; with
``critics="iql"`` V regresses on an expectile of Q̄ of recorded turns (implicit Q-learning, arXiv 2110.06169) and the
policy imitates recorded turns by exp(β·A), so that nothing is sampled beside the episodes.

Differences to the official code: V and Q are two places of one stream (before and after the turn), read by one head on
the policy's own architecture, not four heads on a RoBERTa; gradients are a mean over the batch and each policy clips
its own (the code sums 32 batches and clips critics and actor together at 0.01, where the step does not depend on the
gradient's size); target networks move after every update; log-probs are at the sampling temperature, and the token that
ends a turn is trained; without the optional token baseline; the policy waits for its critics by what they explain, and
not for a number of steps alone. Measured on worlds of this project, where the paper has LMRL dialogues and WebShop.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import ClassVar, Literal

import numpy as np

from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.layout import credit_of, repeat_over_tokens
from quintain.credit.turn_td import state_targets, way_advantages
from quintain.data.turn_values import last_turn_samples
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, ReplayConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.losses.value import value
from quintain.methods.critic.turn_critics import (
    CRITICS,
    after_ways,
    learn_targets,
    make_twins,
    on_policy_targets,
    read_values,
    take_all,
    watch_twins,
    weights_of,
)
from quintain.methods.loops.continuations import Continuations
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, UpdateSamples
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.types import Credit, Group, Trajectory, flatten_scored

MAX_WEIGHT = 100.0
"""Largest weight of an imitated turn (IQL's code)."""
EXPLAINED_STEPS = 3
"""Steps in a row in which V must explain returns: a dozen episodes say little of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ReplayConfig):
    """Configuration of ArCHer."""

    renamed: ClassVar[Mapping[str, str]] = {
        "ways": "candidates",
        "critic_rate": "critic_lr_scale",
        "target_rate": "polyak",
    }
    """earlier names of options"""

    learning_rate: float = 1e-4
    tasks: PositiveInt = 16
    """Tasks of a step."""
    group_size: PositiveInt = 1
    """Episodes of a task."""
    capacity: PositiveInt = 1024
    """Episodes of the buffer."""
    batch_size: PositiveInt = 16
    """Episodes of an update."""
    critic_updates: PositiveInt = 10
    """Updates of each critic in a step."""
    critic_lr_scale: PositiveFloat = 10.0
    """Factor on the learning rate of the critics."""
    actor_updates: PositiveInt = 2
    """Updates of the policy in a step."""
    critic_first: NonNegativeInt = 10
    """First steps in which only the critics learn."""
    critic_explains: Share = 0.1
    """Share of the variance of returns that V explained in each of the last three steps' new episodes, for the policy
    to learn, with td; 0: not asked, as published."""
    discount: Share = 0.95
    """γ per turn."""
    polyak: PositiveFloat = 0.1
    """Share of the way that target networks move after an update."""
    candidates: PositiveInt = 1
    """Turns that the policy says anew at a state."""
    actor: Literal["sampled", "exact"] = "sampled"
    """What the policy learns of at a state: turns that it samples, or exact: all legal actions by their probability."""
    critics: Literal["td", "iql"] = "td"
    """How critics learn: td (of what the policy would do), or iql (of recorded turns alone)."""
    expectile: Share = 0.9
    """τ of V with iql."""
    awr_beta: PositiveFloat = 3.0
    """β of exp(β·A) with iql."""
    critic_size: str = ""
    """Size of a small encoder for the critics: micro, mini, tiny or small; empty: they are copies of the policy."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ReplayConfig.check(self)
        if self.critics == "iql" and self.actor == "exact":
            raise ConfigError(
                "actor: got exact with critics=iql, whose policy imitates recorded turns; leave one of the two out"
            )


def method(config: Config) -> Replay:
    """Return ArCHer as `config` describes it."""
    is_iql = config.critics == "iql"
    foresight = Foresight(0.0 if is_iql else config.critic_explains)

    def ways(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> Continuations:
        if config.actor == "exact":
            return consultation.legal_continuations(episodes)
        return consultation.resample_actions(episodes, size=config.candidates)

    def fresh_turns(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
        episodes = flatten_scored(groups)
        found = ways(episodes, consultation)
        weights, after = weights_of(found), after_ways(found, consultation, names=CRITICS)
        before = (
            state_targets(weights, after)
            if config.actor == "exact"
            else read_values(episodes, consultation).before
        )
        advantages = way_advantages(weights, after, before)
        samples = last_turn_samples([way.episode for way in take_all(found)], advantages)
        return UpdateSamples(samples=samples, metrics=spread(advantages))

    def record_turns(groups: Sequence[Group], consultation: PolicyQueries) -> Credit:
        episodes = flatten_scored(groups)
        said = read_values(episodes, consultation)
        advantages = [
            [q - v for q, v in zip(after, before, strict=True)]
            for after, before in zip(said.after, said.before, strict=True)
        ]
        weights = [[min(exp(min(config.awr_beta * a, 80.0)), MAX_WEIGHT) for a in own] for own in advantages]
        metrics = spread([a for own in advantages for a in own])
        return credit_of(episodes, repeat_over_tokens(episodes, weights), metrics=metrics)

    targets = [
        learn_targets(number, discount=config.discount)
        if is_iql
        else on_policy_targets(number, discount=config.discount, ways=ways)
        for number in range(len(CRITICS))
    ]
    regression = Update(
        loss=value(expectile=config.expectile if is_iql else None), is_on_policy=False, lr_warmup=1
    )
    actor = CriticUpdate(
        policy=MAIN,
        target=record_turns if is_iql else fresh_turns,
        update=Update(loss=reinforce(), aggregation="constant", constant=1.0, is_on_policy=not is_iql),
        num_updates=lambda step: (
            config.actor_updates * (step > config.critic_first and foresight.is_enough())
        ),
    )
    critics = [
        CriticUpdate(
            policy=name,
            target=target,
            update=regression,
            num_updates=config.critic_updates,
            rate=config.critic_lr_scale,
        )
        for name, target in zip(CRITICS, targets, strict=True)
    ]
    return Replay(
        collect=sample_groups(config.tasks, config.group_size),
        buffer=ReplayBuffer(capacity=config.capacity, batch_size=config.batch_size),
        updates=(*critics, actor),
        critic=watch_twins(config.discount),
        needs=Needs(
            legal_actions=config.actor == "exact",
            others=make_twins(polyak=config.polyak, size=config.critic_size),
        ),
        state=CombinedState(foresight),
    )


class Foresight:
    """How well V foretold what came of new episodes, step by step: ``Foresight(least=0.1)``."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.explained = deque[float](maxlen=EXPLAINED_STEPS)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """See `State.observe`."""
        self.explained.append(metrics.get("critic/explained_variance", 0.0))

    def is_enough(self) -> bool:
        """Return whether it was good enough in each of the last steps."""
        return not self.least or (
            len(self.explained) == EXPLAINED_STEPS and min(self.explained) >= self.least
        )


def spread(advantages: Sequence[float]) -> dict[str, float]:
    """Return mean, deviation and share above 0 of `advantages`."""
    return {
        "archer/advantage_mean": float(np.mean(advantages)),
        "archer/advantage_std": float(np.std(advantages)),
        "archer/advantage_positive": float(np.mean(np.array(advantages) > 0)),
    }

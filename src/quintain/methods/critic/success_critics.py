"""Classifiers of success on the replay loop: value heads fitted by cross entropy on outcomes, of states or of tasks.

What the head says before a turn is the logit of the chance that the episode solves its task from there on. One that is
fitted before the first turn alone knows what a task promises and nothing of how it was gone about.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from quintain.credit.success import chances, labels
from quintain.credit.turn_td import TurnValues
from quintain.data.turn_values import turn_value_samples
from quintain.learning.train_config import PolicySpec
from quintain.learning.update import Update
from quintain.losses.value import cross_entropy
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, UpdateSamples, WatchedCritic
from quintain.types import Group, Trajectory, flatten_scored

CRITIC = PolicySpec(head="value", is_trained=True)
"""A critic that begins as a copy of the policy, with a value head."""


def classifier(
    policy: str,
    *,
    num_updates: int,
    rate: float = 1.0,
    places: Literal["turns", "first"] = "turns",
    batch_size: int | None = None,
) -> CriticUpdate:
    """Return the updates of the critic `policy` on outcomes, before every turn of an episode or the first alone."""

    def target(groups: Sequence[Group], _: PolicyQueries) -> UpdateSamples:
        episodes = flatten_scored(groups)
        known = labels(episodes)
        if places == "first":
            known = [[own[0], *[float("nan")] * (len(own) - 1)] for own in known]
        samples = turn_value_samples(episodes, before=known)
        outcomes = {own[0] for own in known if np.isfinite(own[0])}
        return UpdateSamples(
            samples=[sample for sample in samples if sample.loss_weight.any()],
            metrics={"one_outcome": float(len(outcomes) < 2)},
        )

    return CriticUpdate(
        policy=policy,
        target=target,
        update=Update(loss=cross_entropy(), num_epochs=1, num_minibatches=1, is_on_policy=False, lr_warmup=1),
        num_updates=num_updates,
        rate=rate,
        batch_size=batch_size,
    )


def chances_by(policy: str, episodes: Sequence[Trajectory], consultation: PolicyQueries) -> list[list[float]]:
    """Return the chance of success before every turn of `episodes` by the critic `policy`, [episode][turn]."""
    return chances(consultation.turn_values(episodes, by=policy).before)


def watch_critic(policy: str) -> WatchedCritic:
    """Return what every step says of the critic `policy`, on episodes that it has not learned of yet."""

    def values(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> TurnValues:
        before = chances_by(policy, episodes, consultation)
        return TurnValues(before=before, after=[[*own[1:], own[-1]] for own in before])

    return WatchedCritic(values=values, has_q=False)

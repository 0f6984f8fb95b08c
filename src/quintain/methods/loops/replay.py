"""The replay loop: collect → buffer → updates of the critics → updates of the policy.

The buffer holds the newest episodes that the journal says were collected, so that a resumed run has the buffer that it
had. Which episodes an update draws depends on the run's seed, the step, the update and where there are priorities the
weights alone. The journal names the episodes that a step learned from, with its own and with earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quintain.credit.turn_td import critic_metrics
from quintain.data.seats import split_seats
from quintain.errors import DataError, InvariantError
from quintain.learning.train_config import MAIN, ReplayConfig, TrainConfig, list_unread_options
from quintain.learning.update import Update, learn, learn_in_epochs
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.method import (
    Collect,
    CombinedState,
    Measure,
    Needs,
    State,
    Traits,
    TransformGroups,
    no_metrics,
    rates_of,
    same_groups,
    unread_counts,
)
from quintain.rollout.staleness import newest_versions
from quintain.types import NOTHING, Credit, Group, Sample, Trajectory, Use, derive_seed, flatten_scored

if TYPE_CHECKING:
    from quintain.credit.turn_td import TurnValues
    from quintain.learning.learner import StepReport
    from quintain.learning.policies import Policies
    from quintain.runs.context import TrainingContext
    from quintain.store.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBuffer:
    """Episodes that are learned from more than once: ``ReplayBuffer(capacity=512, batch_size=32)``.

    Which of them an update draws depends on the run's seed, the step and the update alone, and on the weights where
    there are priorities: a resumed run draws the same.
    """

    capacity: int = 1024
    """episodes; the oldest leave first"""
    batch_size: int = 32
    """episodes of one update, all different"""
    fresh_share: float = 0.0
    """share of a batch that comes from the newest step"""
    min_size: int = 1
    """episodes before the first update"""
    priority: Callable[[Sequence[Trajectory], PolicyQueries], Sequence[float]] | None = None
    """(all episodes, consultation) → how likely each is drawn, in proportion; 0: not at all. It is asked once in every
    step, before its updates; None: all alike"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSamples:
    """What one update learns, in token streams: ``Lesson(samples=turn_value_samples(…), metrics={…})``."""

    samples: Sequence[Sample]
    metrics: Mapping[str, float] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticUpdate:
    """One kind of update on episodes from the buffer: ``CriticUpdate(policy="critic", num_updates=4, …)``."""

    policy: str
    """the policy that learns"""
    target: Callable[[Sequence[Group], PolicyQueries], Credit | UpdateSamples]
    """(episodes of the batch, consultation) → advantages and returns, or the streams that hold them"""
    update: Update
    num_updates: int | Callable[[int], int] = 1
    """updates of a step, or of the step of that number; 0: none, as where the critics learn first"""
    batch_size: int | None = None
    """episodes of one update; None: as the buffer says"""
    rate: float = 1.0
    """factor on the learning rate"""
    anew: int = 0
    """step before whose updates the value head starts anew, on what it reads of the buffer standardized; 0: never"""

    body: str = ""
    """critic, before this one in `Replay.updates`, whose features it takes over as its head starts anew"""

    def count(self, step: int) -> int:
        """Return the updates of `step`."""
        return self.num_updates if isinstance(self.num_updates, int) else self.num_updates(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCritic:
    """The critic whose quality every step is measured, on its new episodes before it learns of them.

    Where a step collects none, on a batch of the buffer.
    """

    values: Callable[[Sequence[Trajectory], PolicyQueries], TurnValues]
    """(episodes, consultation) → what it says of their turns"""
    target: Callable[[Sequence[Trajectory], PolicyQueries], TurnValues] | None = None
    """what its target network says; None: itself"""
    discount: float = 1.0
    """γ per turn"""
    has_q: bool = True
    """whether it says anything of a turn once it is taken"""
    is_read: Callable[[Trajectory], bool] = lambda _: True
    """whether it says anything of an episode: a critic of one seat reads those of that seat alone"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Learn from a buffer of earlier episodes: critics first, then the policy.

    Each step collects, then makes the updates of `updates` in order; policies that follow another (target networks)
    move after every update of it. The buffer is what the journal says was collected: a resumed run rebuilds it.
    """

    collect: Collect
    buffer: ReplayBuffer
    updates: Sequence[CriticUpdate]
    critic: WatchedCritic | None = None
    log: str = ""
    """a run whose training episodes fill the buffer before the first step; they are copied into the journal"""
    needs: Needs = Needs()
    reward: TransformGroups = same_groups
    state: State = field(default_factory=CombinedState)
    measure: Measure = no_metrics

    @property
    def traits(self) -> Traits:
        """What it is, beside what it needs."""
        return Traits(
            unread=unread_counts([each.update for each in self.updates]) | list_unread_options(ReplayConfig),
            rates=rates_of((each.policy, each.rate) for each in self.updates),
        )

    def train(self, run: Run, config: TrainConfig) -> None:
        """Train until ``config.steps``, continuing where `run` was left."""
        train_by_replay(self, config, run)


LOG = "log"
"""Phase of the journal under which the episodes of another run stand."""


class Buffer:
    """The newest episodes of a run: ``Buffer(ReplayBuffer(capacity=512))``."""

    def __init__(self, settings: ReplayBuffer) -> None:
        self.settings = settings
        self._episodes: list[tuple[int, Trajectory]] = []
        self._odds: NDArray[np.float64] | None = None
        """how likely each episode is drawn, in proportion; None: all alike"""

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self._episodes)

    @property
    def episodes(self) -> list[Trajectory]:
        """The episodes, oldest first."""
        return [trajectory for _, trajectory in self._episodes]

    def add(self, step: int, groups: Sequence[Group]) -> None:
        """Take in the scored episodes of `step`, all alike; the oldest leave above the capacity."""
        self._episodes += [(step, trajectory) for trajectory in flatten_scored(groups)]
        del self._episodes[: max(0, len(self._episodes) - self.settings.capacity)]
        self._odds = None

    def weigh(self, priorities: Sequence[float]) -> None:
        """Draw episodes in proportion to `priorities`, one for each, until others come.

        Raises:
            InvariantError: they do not fit, are negative or not finite, or all 0.
        """
        odds = np.array(priorities, np.float64)
        if odds.shape != (len(self),) or not np.isfinite(odds).all() or (odds < 0).any() or not odds.any():
            raise InvariantError(
                f"priorities of {len(self)} episodes: got {odds.tolist()[:4]}…; give each a number of 0 or more, and "
                "one of them more"
            )
        self._odds = odds / odds.sum()

    def only(self, is_read: Callable[[Trajectory], bool]) -> Buffer:
        """Return a buffer of the episodes that `is_read` says yes to, each as likely beside the others as here."""
        kept = [place for place, (_, trajectory) in enumerate(self._episodes) if is_read(trajectory)]
        part = Buffer(self.settings)
        part._episodes = [self._episodes[place] for place in kept]
        part._odds = None if self._odds is None else self._odds[kept]
        return part

    def draw(self, seed: int, size: int | None = None) -> list[Group]:
        """Return a batch of different episodes, each a group of its own; a share of it comes from the newest step.

        There are `size` of them (the settings' otherwise), or as many as may be drawn.
        """
        if not self._episodes:
            return []
        rng = np.random.default_rng(seed)
        num, odds = len(self._episodes), self._odds
        possible = num if odds is None else int(np.count_nonzero(odds))
        size = min(size or self.settings.batch_size, possible)
        newest = self._episodes[-1][0]
        fresh = [i for i, (step, _) in enumerate(self._episodes) if step == newest]
        if odds is None:
            first, order = rng.permutation(fresh), rng.permutation(num)
        else:
            with np.errstate(divide="ignore"):  # the largest of log p + Gumbel noise: p without replacement
                order = np.argsort(-(np.log(odds) + rng.gumbel(size=num)), kind="stable")[:possible]
            first = order[np.isin(order, fresh)]
        taken = first[: round(size * self.settings.fresh_share)].tolist()
        chosen = [*taken, *(i for i in order.tolist() if i not in set(taken))][:size]
        return [Group(task=t.task, trajectories=(t,)) for t in (self._episodes[i][1] for i in chosen)]

    def metrics(self, step: int, version: int = 0) -> dict[str, float]:
        """Return the number of episodes, their mean age in steps and in versions of the policy, and the effective size.

        ``buffer/effective_size`` is (Σ p)²/Σ p² of the chances p to be drawn: all of them where they are alike.
        """
        ages = [step - collected for collected, _ in self._episodes]
        lags = [version - newest_versions(t).get(MAIN, version) for step, t in self._episodes if step]
        odds = self._odds
        return {
            "buffer/size": float(len(ages)),
            "buffer/age": float(np.mean(ages)) if ages else 0.0,
            "buffer/version_lag": float(np.mean(lags)) if lags else 0.0,
            "buffer/effective_size": float(len(ages)) if odds is None else float(1 / (odds**2).sum()),
        }


def train_by_replay(method: Replay, config: TrainConfig, run: Run) -> None:
    """Train by `method` until ``config.steps``, continuing where `run` was left."""
    from quintain.methods.loops.queries import PolicyQueries
    from quintain.methods.loops.recall import recall, tell
    from quintain.methods.loops.requirements import begin_run, refuse_without_turn_rewards

    with begin_run(method.needs, config, run) as context:
        refuse_without_turn_rewards(context, method.needs, method.reward)
        buffer = Buffer(method.buffer)
        queries = PolicyQueries(context, 2 * method.buffer.capacity)
        if method.log:
            buffer.add(0, method.reward(read_logged(Path(method.log), context)))
        num_learned = [0] * len(method.updates)
        """steps in which each update was made"""
        for past, played in recall(run, method.state):
            buffer.add(past, method.reward(split_seats(played)))
            for number, update in enumerate(method.updates):
                num_learned[number] += len(buffer) >= method.buffer.min_size and update.count(past) > 0
        for step in context.steps():
            queries.begin(step)
            if method.needs.is_renewed_at(step):
                context.policies["reference"].follow(context.policies.main, polyak=1.0)
            groups = method.collect(context.collector, step)
            context.compare_engine(groups)
            method.state.update(groups)
            fresh = method.reward(split_seats(groups))
            if fresh:
                buffer.add(step, fresh)
            is_ready = len(buffer) >= method.buffer.min_size
            if is_ready and method.buffer.priority is not None:
                buffer.weigh(method.buffer.priority(buffer.episodes, queries))
            if is_ready:
                renew_heads(context.policies, method.updates, step, buffer.episodes)
            seen = fresh
            if not fresh and is_ready and method.critic is not None:
                seen = buffer.only(method.critic.is_read).draw(context.seed("watched", step))
            watched = watch(method.critic, flatten_scored(seen), queries)
            used: dict[str, None] = {}
            due = [is_ready and update.count(step) > 0 for update in method.updates]
            reports = [
                make_updates(
                    context.policies,
                    buffer,
                    update,
                    config,
                    queries,
                    context.seed("replay", step, number),
                    used,
                    num_learned[number],
                )
                for number, update in enumerate(method.updates)
                if due[number]
            ]
            num_learned = [count + is_due for count, is_due in zip(num_learned, due, strict=True)]
            row = context.measure(
                groups,
                next((report for policy, report, _ in reversed(reports) if policy == MAIN), None),
                {
                    **{
                        k if policy == MAIN else f"{policy}/{k}": v
                        for policy, _, found in reports
                        for k, v in found.items()
                    },
                    **watched,
                    **buffer.metrics(step, context.policies.main.version),
                    **method.measure(groups, context.collector.decode),
                },
            )
            context.finish_step(step, row, [Use(episode=name) for name in used])
            tell(method.state, step, row)


def read_logged(source: Path, context: TrainingContext) -> list[Group]:
    """Return the training episodes of the run `source`, which are copied into the journal when a run begins.

    Raises:
        DataError: they are of another tokenizer, environment or harness, or there are none.
    """
    from quintain.store.run import Run
    from quintain.warm_start.demonstrations import same_tokens, tokenizer_of

    run, config = context.run, context.config
    if run.next_step == 0:
        with Run.open(source, writable=False) as other:
            theirs = other.config
            episodes = [t for t in other.trajectories() if t.task.split != "eval"]
        for option, own in (("environment", config.environment), ("agent", config.agent)):
            if str(theirs.get(option, "auto")) != own:
                raise DataError(
                    f"log of the run {source}: got episodes of the {option} {theirs.get(option)}, and this run has "
                    f"{own}; give {option}={theirs.get(option)}, or take another log"
                )
        if not same_tokens(tokenizer_of(source), context.tokenizer):
            raise DataError(
                f"log of the run {source}: got episodes of a model with another tokenizer; begin with a model of that "
                f"run (model={source}), or take another log"
            )
        names = run.append(
            [replace(t, group=f"{LOG}/{i}", index=0, parent=None) for i, t in enumerate(episodes)],
            step=0,
            phase=LOG,
        )
        run.event(LOG, f"{len(names)} episodes of the run {source}", count=len(names))
    found = [Group(task=t.task, trajectories=(t,)) for t in run.trajectories(step=0, phase=LOG)]
    if not flatten_scored(found):
        raise DataError(f"log of the run {source}: got no episode that may be learned from; take another run")
    return split_seats(found)


def watch(
    critic: WatchedCritic | None, episodes: Sequence[Trajectory], queries: PolicyQueries
) -> dict[str, float]:
    """Return how good `critic` is on those of `episodes` that it reads; see `critic_metrics`."""
    if critic is None:
        return {}
    read = [t for t in episodes if critic.is_read(t)]
    if not read:
        return {}
    values = critic.values(read, queries)
    target = None if critic.target is None else critic.target(read, queries)
    return critic_metrics(read, values, critic.discount, target=target, has_q=critic.has_q)


def renew_heads(
    policies: Policies, updates: Sequence[CriticUpdate], step: int, episodes: Sequence[Trajectory]
) -> None:
    """Let the heads of critics start anew whose updates say so of `step`, and target networks with them.

    From that step on the bodies of both rest, so that each stream is read once.
    """
    for update in updates:
        if not 0 < update.anew <= step:
            continue
        leader = policies[update.policy]
        followers = [policy for policy in policies.values() if policy.follows == update.policy]
        source = policies[update.body] if update.body else None
        if update.anew == step:
            if source is not None:
                leader.take_body(source)
            leader.renew_head(episodes)
            for target in followers:
                target.follow(leader, polyak=1.0)
        leader.rest(source)
        for target in followers:
            target.rest(leader)


def make_updates(
    policies: Policies,
    buffer: Buffer,
    update: CriticUpdate,
    config: TrainConfig,
    queries: PolicyQueries,
    seed: int,
    used: dict[str, None],
    num_learned: int,
) -> tuple[str, StepReport | None, Mapping[str, float]]:
    """Make the updates that `update` asks for; return the policy, the last report and its metrics.

    The names of the episodes that were drawn are added to `used`. The learning rate rises over the first steps in which
    such updates are made, of which there were `num_learned` before.
    """
    report: StepReport | None = None
    metrics: dict[str, float] = {}
    step = queries.step
    for number in range(update.count(step)):
        episodes = buffer.draw(derive_seed(seed, number), update.batch_size)
        used |= dict.fromkeys(t.id for t in flatten_scored(episodes) if t.id)
        found = update.target(episodes, queries)
        order = derive_seed(seed, number, "order")
        if isinstance(found, UpdateSamples):
            report = learn_in_epochs(
                policies, found.samples, update.update, config,
                step=step, seed=order, policy=update.policy, rate=update.rate, num_learned=num_learned,
            )  # fmt: skip
        else:
            report = learn(
                policies, found, update.update, config,
                step=step, seed=order, policy=update.policy, rate=update.rate,
                has_versions=config.max_staleness > 0, num_learned=num_learned,
            )  # fmt: skip
        metrics = {**found.metrics, **(report.metrics if report else {})}
    return update.policy, report, metrics

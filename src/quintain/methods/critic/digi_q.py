"""Digi-Q (arXiv 2502.15760): imitates the best of N actions by a critic on frozen features.

L = -Σ log π(a*) where Q(s, a*) - V(s) > ε, a* the best of N by Q.

Three stages on episodes that were played before the first step, by another run (`log`) or by the policy as it begins:
the body of a critic learns to tell whether a turn changes what is seen next; then it rests, and the heads of both
critics on it learn Q and V by TD with target networks, y_Q = r + γ·V̄(s'), y_V = Q̄(s, a ~ π); then the policy imitates
at each recorded state the best of N turns by Q, the recorded one and others of the policy as it began, where it is
better than the state by more than ε. The N turns of a state stay the same: nothing that the policy has learned is
judged by a Q that never saw it. No policy gradient is taken through importance weights, and after the log the
environment takes no step.

Differences to the official code: twin critics are combined by the smaller (``combine="max"`` is the code's, which is
optimistic); V̄ is the mean over the policy's turns at a state, as the paper says (``bootstrap="log"`` is the code's
default, the recorded turn); each state has turns of its own, where the code picks one number for the whole batch;
critics and actor clip their own gradients; the features are a copy of the policy's hidden states, not those of a vision
model, and what a head reads is standardized by the log, before turns and after them apart, where V and Q have networks
of their own; without the variants PG and AWR. Measured on worlds of this project, where the paper has
Android-in-the-Wild.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.credit.turn_td import best_ways
from quintain.data.turn_values import last_turn_samples, turn_value_samples
from quintain.learning.train_config import MAIN, PolicySpec, ReplayConfig
from quintain.learning.update import Update
from quintain.losses.policy import reinforce
from quintain.losses.value import cross_entropy, value
from quintain.methods.critic.turn_critics import (
    CRITICS,
    after_ways,
    learn_targets,
    make_twins,
    on_policy_targets,
    read_values,
    watch_twins,
)
from quintain.methods.loops.continuations import Continuation, Continuations
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, UpdateSamples
from quintain.methods.method import Collector, Needs
from quintain.types import Group, Trajectory, flatten_scored

BEHAVIOR = "behavior"
"""Name of the policy as it began, whose turns are compared: it rests."""
COMBINE: dict[str, Callable[[Sequence[float]], float]] = {"min": min, "max": max}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ReplayConfig):
    """Configuration of Digi-Q."""

    renamed: ClassVar[Mapping[str, str]] = {"critic_rate": "critic_lr_scale", "target_rate": "polyak"}
    """earlier names of options"""

    steps: int = 60
    log: str = ""
    """Run whose training episodes are learned from; empty: the policy plays some before it learns."""
    tasks: PositiveInt = 256
    """Tasks that the policy plays where there is no log."""
    capacity: PositiveInt = 4096
    """Episodes of the log that are kept, the newest."""
    batch_size: PositiveInt = 8
    """Episodes of an update."""
    feature_steps: NonNegativeInt = 10
    """First steps, in which the critics learn whether turns change what is seen."""
    critic_steps: NonNegativeInt = 30
    """Steps after these, in which their heads learn Q and V; in the rest the policy learns."""
    critic_updates: PositiveInt = 8
    """Updates of a step of each critic."""
    critic_lr_scale: PositiveFloat = 3.0
    """Factor on the learning rate of the critics."""
    head_width: NonNegativeInt = 64
    """Units of a layer of the heads' own; 0: they are linear."""
    actor_updates: PositiveInt = 2
    """Updates of the policy in a step."""
    discount: Share = 0.95
    """γ per turn."""
    polyak: PositiveFloat = 0.1
    """Share of the way that target networks move after an update."""
    candidates: PositiveInt = 8
    """N: turns among which the best is imitated, the recorded one included."""
    threshold: NonNegativeFloat = 0.05
    """ε: what the best must be better than the state."""
    combine: Literal["min", "max"] = "min"
    """Which of the twin critics is believed."""
    bootstrap: Literal["policy", "log"] = "policy"
    """Whose turns V is the worth of: the policy's own, or the recorded ones."""


def method(config: Config) -> Replay:
    """Return Digi-Q as `config` describes it."""
    choose = COMBINE[config.combine]
    begun_of: dict[str, list[Trajectory]] = {}
    begun, taught = config.feature_steps, config.feature_steps + config.critic_steps

    def collect(collector: Collector, step: int) -> list[Group]:
        if config.log or step > 1:
            return []
        return collector.sample(step, collector.tasks(step, config.tasks), size=1)

    def alternatives(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> Continuations:
        """Return what the policy as it began says at each state: the same turns in every step."""
        return consultation.resample_actions(episodes, size=max(config.candidates - 1, 1), by=BEHAVIOR)

    def candidates(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> Continuations:
        """Return these turns at each state with the recorded one in front."""
        said: Continuations = [[()] * len(t.turns) for t in episodes]
        if config.candidates > 1:
            said = alternatives(episodes, consultation)
        return [
            [
                [Continuation(episode=turn, weight=0.0), *ways]
                for turn, ways in zip(cut_episode(t), own, strict=True)
            ]
            for t, own in zip(episodes, said, strict=True)
        ]

    def cut_episode(episode: Trajectory) -> list[Trajectory]:
        """Return the episode up to each of its turns: the same objects whenever they are asked for."""
        if episode.id not in begun_of:
            begun_of[episode.id] = [upto(episode, number) for number in range(len(episode.turns))]
        return begun_of[episode.id]

    def extract(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
        episodes = flatten_scored(groups)
        found = candidates(episodes, consultation)
        after = after_ways(found, consultation, names=CRITICS, choose=choose)
        best = best_ways(after, read_values(episodes, consultation, choose=choose).before, config.threshold)
        turns = [ways for own in found for ways in own]
        share = sum(w for _, w in best) / len(best)
        kept = [ways[place].episode for ways, (place, w) in zip(turns, best, strict=True) if w]
        return UpdateSamples(
            # Weighed by their share, for the loss is a mean over all states, of which the others are not read.
            samples=last_turn_samples(kept, [share] * len(kept)),
            metrics={
                "digi_q/kept": share,
                "digi_q/recorded_best": sum(place == 0 for place, _ in best) / len(best),
            },
        )

    def stage(first: int, last: int, count: int) -> Callable[[int], int]:
        return lambda step: count * (first < step <= last)

    features = Update(loss=cross_entropy(), is_on_policy=False, lr_warmup=1)
    heads = Update(loss=value(), is_on_policy=False, lr_warmup=1, head_layers=0)
    updates: list[CriticUpdate] = []
    for number, name in enumerate(CRITICS):
        targets = (
            learn_targets(number, discount=config.discount)
            if config.bootstrap == "log"
            else on_policy_targets(number, discount=config.discount, ways=alternatives)
        )
        if number == 0:
            updates.append(
                CriticUpdate(
                    policy=name, target=changes, update=features,
                    num_updates=stage(0, begun, config.critic_updates), rate=config.critic_lr_scale,
                )
            )  # fmt: skip
        updates.append(
            CriticUpdate(
                policy=name, target=targets, update=heads,
                num_updates=stage(begun, taught, config.critic_updates), rate=config.critic_lr_scale, anew=begun + 1,
                body="" if number == 0 else CRITICS[0],  # one body of features for both
            )
        )  # fmt: skip
    actor = Update(loss=reinforce(), aggregation="constant", constant=1.0, is_on_policy=False)
    return Replay(
        collect=collect,
        buffer=ReplayBuffer(capacity=config.capacity, batch_size=config.batch_size),
        updates=(
            *updates,
            CriticUpdate(
                policy=MAIN,
                target=extract,
                update=actor,
                num_updates=stage(taught, config.steps, config.actor_updates),
            ),
        ),
        critic=watch_twins(config.discount),
        log=config.log,
        needs=Needs(
            others={
                **make_twins(polyak=config.polyak, head_width=config.head_width, head_scales=True),
                BEHAVIOR: PolicySpec(acts=True),
            }
        ),
    )


def upto(episode: Trajectory, number: int) -> Trajectory:
    """Return `episode` up to its turn `number`, that turn included."""
    return replace(episode, turns=episode.turns[: number + 1])


def find_changes(episode: Trajectory) -> list[float]:
    """Return of every turn 1 where what was seen next is another thing than what was seen before, else 0.

    A turn that could not be carried out changed nothing, whatever is said of it.
    """
    seen = [*(turn.observation for turn in episode.turns), episode.final_observation]
    return [
        float(turn.is_valid and before != after)
        for turn, before, after in zip(episode.turns, seen[:-1], seen[1:], strict=True)
    ]


def changes(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
    """Return what features learn: after each turn, whether it changes what is seen (Digi-Q, section 4.1)."""
    episodes = flatten_scored(groups)
    labels = [find_changes(t) for t in episodes]
    samples = turn_value_samples(episodes, after=labels, max_length=consultation.max_length)
    flat = [label for own in labels for label in own]
    return UpdateSamples(samples=samples, metrics={"changed": sum(flat) / len(flat)})
